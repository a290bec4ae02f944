//! Pods that go because of where they are or what they use: the pod says why, then it is deleted.

use client::{Client, DeleteOptions, Patch};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::meta::MetaExt;

/// Notes the disruption in the pod's status and deletes this very pod; one that is gone already is evicted.
pub async fn evict(
    client: &Client,
    pod: &Pod,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Result<(), client::Error> {
    let (namespace, name) = (pod.metadata.namespace(), pod.metadata.name());
    let condition = json!({
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": machinery::time::format(now),
    });
    let patch = Patch::Strategic(json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}));
    match client.patch_status::<Pod>(namespace, name, &patch).await {
        Err(error) if error.is_not_found() => return Ok(()),
        answer => answer.map(drop)?,
    }
    let options = DeleteOptions { uid: pod.metadata.uid.clone(), ..DeleteOptions::default() };
    match client.delete::<Pod>(namespace, name, &options).await {
        Err(error) if !error.is_not_found() && !error.is_conflict() => Err(error),
        _ => Ok(()),
    }
}
