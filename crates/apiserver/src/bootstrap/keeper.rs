//! Keeps in order while the server runs what must not be otherwise: what the cluster stands on ([`mainstays`]), and priority
//! and fairness, whose mandatory objects come back when they were deleted or changed, whose suggested ones follow their
//! annotation, and whose every FlowSchema says whether its priority level exists.
//!
//! Woken by changes of just these objects, never by a timer. Each round looks at everything, decides, and writes what
//! differs, through the gates. Only a round that failed is tried again after a while: the store may have been away.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use machinery::status::ApiError;
use machinery::{Value, value};
use rest::Api;
use rest::registry::Resource;
use serde_json::json;
use storage::cache::{Filter, Start, Subscription};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::flow_control::{self, GROUP};
use super::mainstays::{self, Place};
use crate::loopback::Loopback;
use crate::servers::Servers;

/// When a round that failed is tried again: soon, and then less and less soon.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// What is kept in order together.
#[derive(Debug, Clone, Copy)]
enum Kept<'a> {
    FlowControl,
    Mainstays(Place, &'a Servers),
}

impl Kept<'_> {
    /// What wakes its task.
    fn watched(self, api: &Api) -> Vec<(&'static str, &'static str, Filter)> {
        match self {
            Self::FlowControl => ["flowschemas", "prioritylevelconfigurations"]
                .map(|plural| (GROUP, plural, Filter::everything()))
                .to_vec(),
            Self::Mainstays(place, _) => mainstays::watched(api, place),
        }
    }

    async fn mend(self, api: &Api, loopback: &Loopback) -> Result<(), ApiError> {
        // What woke this round may be older than what the caches have come to.
        api.caches.settle().await?;
        match self {
            Self::FlowControl => mend_flow_control(api, loopback).await,
            Self::Mainstays(place, servers) => mainstays::mend(api, loopback, place, &servers.live()).await,
        }
    }
}

/// Starts the task; it ends with the server's caches.
pub fn start(api: &Arc<Api>, loopback: Loopback, place: Place, servers: Arc<Servers>) -> JoinHandle<()> {
    let api = Arc::downgrade(api);
    tokio::spawn(async move {
        let mainstays = Kept::Mainstays(place, &servers);
        tokio::join!(keep(&api, &loopback, Kept::FlowControl), keep(&api, &loopback, mainstays));
    })
}

/// Mends now and after every change of what is watched, until the server is gone or stops.
async fn keep(api: &Weak<Api>, loopback: &Loopback, kept: Kept<'_>) {
    let mut servers = match kept {
        Kept::FlowControl => None,
        Kept::Mainstays(_, servers) => Some(servers.changes()),
    };
    while let Some(mut changes) = follow(api, kept).await {
        let mut retry = FIRST_RETRY;
        loop {
            // Seen together is mended together: whatever is queued already belongs to this round.
            for one in &mut changes {
                while one.live.try_recv().is_ok() {}
            }
            let Some(api) = api.upgrade() else { return };
            let mended = kept.mend(&api, loopback).await;
            drop(api);
            let next = async {
                tokio::select! {
                    goes_on = next_change(&mut changes) => goes_on,
                    () = somebody_came_or_went(servers.as_mut()) => true,
                }
            };
            let goes_on = match mended {
                Ok(()) => {
                    retry = FIRST_RETRY;
                    next.await
                }
                Err(error) => {
                    tracing::warn!(%error, ?kept, "the server's own objects cannot be put in order");
                    let changed = tokio::time::timeout(retry, next).await;
                    retry = LAST_RETRY.min(retry * 2);
                    changed.unwrap_or(true)
                }
            };
            if !goes_on {
                break;
            }
        }
    }
}

/// Waits for a change; false when there will be none, because somebody was too slow or the server stops.
async fn next_change(changes: &mut [Subscription]) -> bool {
    std::future::poll_fn(|context| {
        for one in &mut *changes {
            if let Poll::Ready(change) = one.live.poll_recv(context) {
                return Poll::Ready(change.is_some());
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits until the servers are others.
async fn somebody_came_or_went(servers: Option<&mut watch::Receiver<BTreeSet<IpAddr>>>) {
    let changed = match servers {
        Some(servers) => servers.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending::<()>().await;
    }
}

/// Changes from now on; nothing when the server is gone or stops.
async fn follow(api: &Weak<Api>, kept: Kept<'_>) -> Option<Vec<Subscription>> {
    let api = api.upgrade()?;
    let mut all = Vec::new();
    for (group, plural, filter) in kept.watched(&api) {
        let Some(resource) = api.registry.stored(group, plural) else { continue };
        let subscribed =
            resource.cache.subscribe(&*api.store, &filter, Start::Now, api.caches.revision()).await.ok()?;
        // The caches of a server that stops are closed, and so is everything that they gave out.
        if subscribed.live.is_closed() {
            return None;
        }
        all.push(subscribed);
    }
    (!all.is_empty()).then_some(all)
}

async fn mend_flow_control(api: &Api, loopback: &Loopback) -> Result<(), ApiError> {
    let (Some(schemas), Some(levels)) =
        (api.registry.stored(GROUP, "flowschemas"), api.registry.stored(GROUP, "prioritylevelconfigurations"))
    else {
        return Ok(());
    };
    for resource in [schemas, levels] {
        for object in everything(resource) {
            if is_abandoned(&object) {
                loopback.delete(resource, &object).await?;
            }
        }
    }
    super::mend(api, loopback, flow_control::objects(&api.now())).await?;
    api.caches.settle().await?;
    let levels: Vec<Value> = everything(levels);
    let exists = |name: &str| levels.iter().any(|level| value::text(level, "metadata.name") == name);
    for schema in everything(schemas) {
        if let Some(schema) = with_dangling(&schema, &exists, &api.now()) {
            loopback.update(schemas, schema, "status").await?;
        }
    }
    Ok(())
}

fn everything(resource: &Resource) -> Vec<Value> {
    let (all, _) = resource.cache.list(&Filter::everything(), None, 0);
    all.iter().map(|object| object.to_value()).collect()
}

/// Whether an object was once suggested by a server and is not any more.
fn is_abandoned(object: &Value) -> bool {
    let annotations = value::at(object, "metadata.annotations");
    let kept = annotations.and_then(|all| all.get(flow_control::AUTOUPDATE)).is_some_and(|auto| auto == "true");
    kept && !flow_control::is_bootstrap(object)
}

/// A FlowSchema with what is to be said of its level; nothing when it is said already.
fn with_dangling(schema: &Value, exists: &impl Fn(&str) -> bool, now: &str) -> Option<Value> {
    let level = value::text(schema, "spec.priorityLevelConfiguration.name");
    let wanted = flow_control::dangling(level, !exists(level), now);
    let mut conditions = value::list(schema, "status.conditions").to_vec();
    match conditions.iter_mut().find(|condition| condition["type"] == "Dangling") {
        Some(known) => {
            if ["status", "reason", "message"].iter().all(|field| known[field] == wanted[field]) {
                return None;
            }
            *known = wanted;
        }
        None => conditions.push(wanted),
    }
    let mut schema = schema.clone();
    value::set(&mut schema, "status.conditions", json!(conditions));
    Some(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_says_whether_its_level_exists_and_says_it_once() {
        let schema = json!({"metadata": {"name": "x"}, "spec": {"priorityLevelConfiguration": {"name": "gone"}},
            "status": {"conditions": [{"type": "Other", "status": "True"}]}});
        let dangling = with_dangling(&schema, &|_| false, "t1").expect("there is something to say");
        let condition = &dangling["status"]["conditions"][1];
        assert_eq!((condition["type"].as_str(), condition["status"].as_str()), (Some("Dangling"), Some("True")));
        assert_eq!(condition["reason"], "NotFound");
        assert_eq!(
            condition["message"],
            "This FlowSchema references the PriorityLevelConfiguration object named \"gone\" but there is no such object"
        );
        assert_eq!(with_dangling(&dangling, &|_| false, "t2"), None);
        let found = with_dangling(&dangling, &|_| true, "t3").expect("it is there again");
        assert_eq!(found["status"]["conditions"][1]["reason"], "Found");
        assert_eq!(found["status"]["conditions"][1]["lastTransitionTime"], "t3");
    }

    #[test]
    fn what_no_server_suggests_any_more_is_not_kept() {
        let object = |kind: &str, name: &str, auto: &str| json!({"kind": kind, "metadata": {"name": name, "annotations": {flow_control::AUTOUPDATE: auto}}});
        assert!(is_abandoned(&object("FlowSchema", "old", "true")));
        assert!(!is_abandoned(&object("FlowSchema", "old", "false")));
        assert!(!is_abandoned(&object("FlowSchema", "probes", "true")));
        assert!(is_abandoned(&object("PriorityLevelConfiguration", "probes", "true")));
    }
}
