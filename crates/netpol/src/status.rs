//! Whether policies of the cluster are in force as they are written, said in their status.
//!
//! Which conditions there are is left to whoever enforces policies: their API asks for none. Ours is one, [`ACCEPTED`], as policies of the Gateway API have
//! it: true where the nodes enforce every rule as it is written, false where something was not understood, with what is done instead. It follows from the
//! object alone, so one in the cluster says it, and not every node. What others say in conditions of their own stays.

use std::sync::Arc;

use client::{Client, Patch};
use informer::{Action, Clock, Informer, Informers, Key, Reconciler, WorkQueue, feed};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::cluster_policy::{ClusterNetworkPolicy, ClusterPolicy};
use crate::definition::cluster_policies;

/// The condition's type, and its reason where it is true.
pub const ACCEPTED: &str = "Accepted";
/// Its reason where it is false.
pub const INVALID: &str = "Invalid";

const NAME: &str = "cluster-network-policy-status";
/// What it says where there is nothing to say.
const AS_WRITTEN: &str = "every rule is enforced as it is written";
/// The most bytes of a condition's message.
const MOST: usize = 32_768;

/// Keeps the status of the cluster's policies until it is stopped. One in the whole cluster does so at a time.
pub async fn run(informers: &Informers, shutdown: CancellationToken) {
    let queue = WorkQueue::new(NAME, informers.clock().clone());
    let statuses = Statuses {
        policies: cluster_policies(informers),
        client: informers.client().clone(),
        clock: informers.clock().clone(),
    };
    feed(&statuses.policies, &queue, |change| [Key::of(&change.object().metadata)]);
    tokio::select! {
        () = statuses.policies.synced() => {}
        () = shutdown.cancelled() => return,
    }
    informer::run(NAME, Arc::new(statuses), queue, 1, shutdown).await;
}

struct Statuses {
    policies: Informer<ClusterNetworkPolicy>,
    client: Client,
    clock: Arc<dyn Clock>,
}

impl Reconciler for Statuses {
    type Error = client::Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, client::Error> {
        let Some(policy) = self.policies.get(key) else { return Ok(Action::Done) };
        let Some(conditions) = plan(&policy, self.clock.now()) else { return Ok(Action::Done) };
        // A list is replaced as a whole: what others said since would be lost.
        let at = &policy.metadata.resource_version;
        let patch = Patch::Merge(json!({"metadata": {"resourceVersion": at}, "status": {"conditions": conditions}}));
        match self.client.patch_status::<ClusterNetworkPolicy>("", &key.name, &patch).await {
            // It is gone, or its definition has no status.
            Err(error) if error.is_not_found() => Ok(Action::Done),
            outcome => outcome.map(|_| Action::Done),
        }
    }
}

/// The conditions that the policy should have; nothing if it has them.
pub fn plan(policy: &ClusterNetworkPolicy, now: jiff::Timestamp) -> Option<Vec<Value>> {
    let doubts = ClusterPolicy::of(policy)?.doubts;
    let (status, reason, message) = match doubts.is_empty() {
        true => ("True", ACCEPTED, AS_WRITTEN.to_owned()),
        false => ("False", INVALID, short(doubts.join("; "))),
    };
    let conditions = policy.status["conditions"].as_array().cloned().unwrap_or_default();
    let (own, mut others): (Vec<Value>, Vec<Value>) =
        conditions.into_iter().partition(|condition| condition["type"] == ACCEPTED);
    let before = own.first().and_then(|own| serde_json::from_value::<Condition>(own.clone()).ok());
    let since = before.as_ref().filter(|before| before.status == status);
    let wanted = Condition {
        type_: ACCEPTED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        observed_generation: policy.metadata.generation,
        last_transition_time: since.map_or(Time(now), |before| before.last_transition_time.clone()),
    };
    if before.as_ref() == Some(&wanted) {
        return None;
    }
    others.push(json!(wanted));
    Some(others)
}

fn short(mut text: String) -> String {
    let end = (0..=text.len().min(MOST)).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or_default());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(spec: Value, status: Value) -> ClusterNetworkPolicy {
        let metadata = json!({"name": "p", "generation": 3});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn at(seconds: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(seconds).unwrap()
    }

    fn good() -> Value {
        json!({"tier": "Admin", "priority": 1, "subject": {"namespaces": {}}, "egress": [{"action": "Deny", "to": [{"nodes": {}}]}]})
    }

    #[test]
    fn it_says_once_what_is_so_and_keeps_what_others_say() {
        let other = json!({"type": "Ready-In-Zone-a", "status": "True"});
        let said = plan(&policy(good(), json!({"conditions": [other]})), at(5)).unwrap();
        assert_eq!(said[0], other);
        let own = json!({
            "type": "Accepted", "status": "True", "reason": "Accepted", "message": "every rule is enforced as it is written",
            "observedGeneration": 3, "lastTransitionTime": "1970-01-01T00:00:05Z",
        });
        assert_eq!(said[1], own);
        assert_eq!(plan(&policy(good(), json!({"conditions": said})), at(9)), None, "it is said");
        // Another generation of which the same is true has been so all the time.
        let mut older = own;
        older["observedGeneration"] = json!(2);
        let said = plan(&policy(good(), json!({"conditions": [older]})), at(9)).unwrap();
        assert_eq!(
            (&said[0]["observedGeneration"], &said[0]["lastTransitionTime"]),
            (&json!(3), &json!("1970-01-01T00:00:05Z"))
        );
    }

    #[test]
    fn what_was_not_understood_is_said_with_what_is_done_instead() {
        let mut spec = good();
        spec["egress"][0]["to"] = json!([{"domainNames": ["example.com"]}]);
        let accepted = plan(&policy(good(), Value::Null), at(5)).unwrap();
        let said = plan(&policy(spec, json!({"conditions": accepted})), at(9)).unwrap();
        assert_eq!(said.len(), 1);
        assert_eq!((&said[0]["status"], &said[0]["reason"]), (&json!("False"), &json!("Invalid")));
        assert_eq!(said[0]["message"], "egress rule 1 denies everything: domain names are not supported");
        assert_eq!(said[0]["lastTransitionTime"], "1970-01-01T00:00:09Z");
        // Whatever somebody wrote into the status.
        for odd in [json!(7), json!({"conditions": "x"}), json!({"conditions": [{"type": "Accepted"}, null]})] {
            assert!(plan(&policy(good(), odd), at(1)).is_some());
        }
        let long = json!({"egress": [{"action": "Deny", "to": [{"networks": ["ä".repeat(40_000)]}]}]});
        let said = plan(&policy(long, Value::Null), at(1)).unwrap();
        assert!(said[0]["message"].as_str().unwrap().len() <= 32_768);
    }
}
