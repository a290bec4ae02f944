//! Keeps priority and fairness in order while the server runs: mandatory objects that were deleted or changed come back,
//! suggested ones follow their annotation, and every FlowSchema says whether its priority level exists.
//!
//! Woken by changes of the two kinds, never by a timer. Each round looks at everything, decides, and writes what differs.

use std::sync::{Arc, Weak};

use machinery::status::ApiError;
use machinery::{Value, value};
use serde_json::json;
use tokio::task::JoinHandle;

use super::flow_control::{self, GROUP};
use crate::cache::{Filter, Start, Subscription};
use crate::registry::Resource;
use crate::rest::Api;
use crate::rest::storage::Change;

/// Starts the task; it ends with the server's caches.
pub fn start(api: &Arc<Api>) -> JoinHandle<()> {
    let api = Arc::downgrade(api);
    tokio::spawn(async move {
        while let Some((mut schemas, mut levels)) = follow(&api).await {
            loop {
                // Seen together is mended together: whatever is queued already belongs to this round.
                while schemas.live.try_recv().is_ok() || levels.live.try_recv().is_ok() {}
                let Some(api) = api.upgrade() else { return };
                if let Err(error) = mend(&api).await {
                    tracing::warn!(%error, "flow schemas and priority levels cannot be put in order");
                }
                drop(api);
                let changed = tokio::select! {
                    change = schemas.live.recv() => change,
                    change = levels.live.recv() => change,
                };
                if changed.is_none() {
                    break;
                }
            }
        }
    })
}

/// Changes of both kinds from now on; nothing when the server is gone or stops.
async fn follow(api: &Weak<Api>) -> Option<(Subscription, Subscription)> {
    let api = api.upgrade()?;
    let subscribe = async |plural| {
        let cache = &api.registry.stored(GROUP, plural)?.cache;
        cache.subscribe(&*api.store, &Filter::everything(), Start::Now, api.caches.revision()).await.ok()
    };
    let both = (subscribe("flowschemas").await?, subscribe("prioritylevelconfigurations").await?);
    // The caches of a server that stops are closed, and so is everything that they gave out.
    (!both.0.live.is_closed() && !both.1.live.is_closed()).then_some(both)
}

async fn mend(api: &Api) -> Result<(), ApiError> {
    // What woke this round may be older than what the caches have come to.
    api.caches.settle().await?;
    let (Some(schemas), Some(levels)) =
        (api.registry.stored(GROUP, "flowschemas"), api.registry.stored(GROUP, "prioritylevelconfigurations"))
    else {
        return Ok(());
    };
    for resource in [schemas, levels] {
        for object in everything(resource) {
            if is_abandoned(&object) {
                api.change(resource, value::text(&object, "metadata.name"), false, |old, _| {
                    Ok(if is_abandoned(old) { Change::Delete } else { Change::Keep })
                })
                .await?;
            }
        }
    }
    super::all(api, flow_control::objects(&api.now())).await?;
    api.caches.settle().await?;
    let levels: Vec<Value> = everything(levels);
    let exists = |name: &str| levels.iter().any(|level| value::text(level, "metadata.name") == name);
    for schema in everything(schemas) {
        let now = api.now();
        if said(&schema, &exists, &now).is_some() {
            api.change(schemas, value::text(&schema, "metadata.name"), false, |old, _| {
                Ok(said(old, &exists, &now).map_or(Change::Keep, Change::Put))
            })
            .await?;
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
fn said(schema: &Value, exists: &impl Fn(&str) -> bool, now: &str) -> Option<Value> {
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
        let dangling = said(&schema, &|_| false, "t1").expect("there is something to say");
        let condition = &dangling["status"]["conditions"][1];
        assert_eq!((condition["type"].as_str(), condition["status"].as_str()), (Some("Dangling"), Some("True")));
        assert_eq!(condition["reason"], "NotFound");
        assert_eq!(
            condition["message"],
            "This FlowSchema references the PriorityLevelConfiguration object named \"gone\" but there is no such object"
        );
        assert_eq!(said(&dangling, &|_| false, "t2"), None);
        let found = said(&dangling, &|_| true, "t3").expect("it is there again");
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
