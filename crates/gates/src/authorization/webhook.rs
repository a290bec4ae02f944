//! An authorizer elsewhere: asked by `SubjectAccessReview`, its answers remembered for a while.

use std::time::Duration;

use common::Clock;
use common::expiring::Expiring;
use machinery::Value;
use machinery::selector::label::Operator;
use serde_json::json;

use super::conditions::Conditions;
use super::{Attributes, Decision, Verdict};
use crate::outbound::{Remote, Retry};

/// Answers that are remembered.
const MAX_REMEMBERED: usize = 8192;
/// A question larger than this is not remembered.
const MAX_QUESTION: usize = 10_000;
/// How often a call that failed on the way is made again.
const RETRY: Retry = Retry { attempts: 5, pause: Duration::from_millis(500) };

/// How the webhook is asked.
pub struct Settings {
    pub remote: Remote,
    /// `v1` or `v1beta1`.
    pub version: String,
    /// How long a yes is remembered.
    pub authorized_ttl: Duration,
    /// How long a no is remembered.
    pub unauthorized_ttl: Duration,
    /// How long one call may take.
    pub timeout: Duration,
    /// What a failure means.
    pub on_error: Decision,
    /// Which requests it is asked about.
    pub conditions: Conditions,
}

pub struct Webhook {
    settings: Settings,
    remembered: Expiring<String, Verdict>,
    clock: Clock,
}

impl Webhook {
    pub fn new(settings: Settings, clock: Clock) -> Self {
        Self { settings, remembered: Expiring::new(MAX_REMEMBERED), clock }
    }

    /// Asks, unless the answer is still known.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Verdict {
        let spec = question(attributes);
        match self.settings.conditions.hold(&spec) {
            Ok(true) => {}
            Ok(false) => return Verdict::NO_OPINION,
            Err(error) => {
                tracing::error!(%error, "the match conditions of an authorizer cannot be told");
                return Verdict { decision: self.settings.on_error, reason: None };
            }
        }
        let key = spec.to_string();
        let now = (self.clock)().as_millisecond();
        if let Some(verdict) = self.remembered.get(&key, now) {
            return verdict;
        }
        let review = json!({
            "kind": "SubjectAccessReview",
            "apiVersion": format!("authorization.k8s.io/{}", self.settings.version),
            "metadata": {}, "spec": spec, "status": {"allowed": false},
        });
        let answer = RETRY.run(|| self.settings.remote.post(&review, self.settings.timeout, attributes.trace)).await;
        let verdict = match answer {
            Ok(answer) => read(&answer),
            Err(error) => {
                tracing::error!(%error, "Failed to make webhook authorizer request");
                return Verdict { decision: self.settings.on_error, reason: None };
            }
        };
        let Settings { authorized_ttl, unauthorized_ttl, .. } = &self.settings;
        let ttl = if verdict.allows() { authorized_ttl } else { unauthorized_ttl };
        if key.len() <= MAX_QUESTION && !ttl.is_zero() {
            let until = now + i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX / 2);
            self.remembered.put(key, verdict.clone(), until);
        }
        verdict
    }
}

/// A request as the spec of a review.
pub fn question(attributes: &Attributes<'_>) -> Value {
    let user = attributes.user;
    let mut spec = json!({"user": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        spec["uid"] = json!(user.uid);
    }
    if !user.extra.is_empty() {
        spec["extra"] = json!(user.extra);
    }
    if !attributes.is_resource {
        spec["nonResourceAttributes"] = json!({"path": attributes.path, "verb": attributes.verb});
        return spec;
    }
    let mut resource = json!({"verb": attributes.verb});
    for (key, text) in [
        ("namespace", attributes.namespace),
        ("group", attributes.group),
        ("version", attributes.version),
        ("resource", attributes.resource),
        ("subresource", attributes.subresource),
        ("name", attributes.name),
    ] {
        if !text.is_empty() {
            resource[key] = json!(text);
        }
    }
    if let Some(fields) = attributes.selectors.and_then(|selectors| selectors.fields.as_ref()) {
        let requirements: Vec<Value> = fields
            .requirements()
            .iter()
            .map(|one| json!({"key": one.field, "operator": if one.negated { "NotIn" } else { "In" }, "values": [one.value]}))
            .collect();
        if !requirements.is_empty() {
            resource["fieldSelector"] = json!({"requirements": requirements});
        }
    }
    if let Some(labels) = attributes.selectors.and_then(|selectors| selectors.labels.as_ref()) {
        let requirements: Vec<Value> = labels.requirements().iter().filter_map(requirement).collect();
        if !requirements.is_empty() {
            resource["labelSelector"] = json!({"requirements": requirements});
        }
    }
    spec["resourceAttributes"] = resource;
    spec
}

/// A label requirement; those that the API has no word for are left out, which asks for more and never for less.
fn requirement(one: &machinery::selector::label::Requirement) -> Option<Value> {
    let operator = match one.operator() {
        Operator::Equals | Operator::DoubleEquals | Operator::In => "In",
        Operator::NotEquals | Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        _ => return None,
    };
    let mut tree = json!({"key": one.key(), "operator": operator});
    if !one.values().is_empty() {
        tree["values"] = json!(one.values());
    }
    Some(tree)
}

fn read(answer: &Value) -> Verdict {
    let status = &answer["status"];
    let flag = |field: &str| status[field].as_bool().unwrap_or_default();
    let decision = match (flag("denied"), flag("allowed")) {
        (true, _) => Decision::Deny,
        (false, true) => Decision::Allow,
        (false, false) => Decision::NoOpinion,
    };
    let reason = status["reason"].as_str().filter(|reason| !reason.is_empty()).map(Into::into);
    Verdict { decision, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authorization::Selectors;
    use machinery::rest::User;
    use machinery::selector::{field::FieldSelector, label::LabelSelector};

    #[test]
    fn a_request_becomes_a_review() {
        let user = User::new("jane", ["devs"]);
        let selectors = Selectors {
            fields: FieldSelector::parse("spec.nodeName=n1").ok(),
            labels: LabelSelector::parse("app in (a,b),!x").ok(),
        };
        let asked = Attributes {
            selectors: Some(&selectors),
            ..Attributes::question(&user, "list", "", "pods", "").in_namespace("a")
        };
        let expect = json!({
            "user": "jane", "groups": ["devs", "system:authenticated"],
            "resourceAttributes": {
                "verb": "list", "namespace": "a", "version": "*", "resource": "pods",
                "fieldSelector": {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]},
                "labelSelector": {"requirements": [
                    {"key": "app", "operator": "In", "values": ["a", "b"]}, {"key": "x", "operator": "DoesNotExist"}]},
            },
        });
        assert_eq!(question(&asked), expect);
    }

    #[test]
    fn denial_wins_over_permission() {
        let decision = |status: Value| read(&json!({"status": status})).decision;
        assert_eq!(decision(json!({"allowed": true})), Decision::Allow);
        assert_eq!(decision(json!({"allowed": true, "denied": true})), Decision::Deny);
        assert_eq!(decision(json!({})), Decision::NoOpinion);
    }
}
