//! ServiceAccount: every pod runs as one, and gets its token, the cluster's CA and its namespace mounted.

use machinery::status::ApiError;
use machinery::{Value, value};
use serde_json::json;

use super::{Operation, Request};
use crate::rest::Api;

const DEFAULT: &str = "default";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// How long a mounted token lives before the kubelet must have replaced it: an hour and a little, as upstream's.
const TOKEN_SECONDS: i64 = 3607;
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Names the account and mounts its token.
pub fn admit(api: &Api, request: &Request<'_>, pod: &mut Value) -> Result<(), ApiError> {
    if request.operation != Operation::Create || !request.is_for("", "pods") {
        return Ok(());
    }
    let annotations = value::at(pod, "metadata.annotations");
    if annotations.is_some_and(|annotations| annotations.get(MIRROR).is_some()) {
        return Ok(());
    }
    if value::text(pod, "spec.serviceAccountName").is_empty() {
        value::set(pod, "spec.serviceAccountName", DEFAULT);
    }
    let account_name = value::text(pod, "spec.serviceAccountName").to_owned();
    value::set(pod, "spec.serviceAccount", account_name.as_str());
    let Some(accounts) = api.registry.stored("", "serviceaccounts") else { return Ok(()) };
    let Some(account) = accounts.cache.get(&accounts.key(&request.info.namespace, &account_name)) else {
        let why = format!(
            "error looking up service account {}/{account_name}: serviceaccount \"{account_name}\" not found",
            request.info.namespace
        );
        return Err(ApiError::forbidden(&request.resource.name, value::text(pod, "metadata.name"), &why));
    };
    let account = account.to_value();
    let pull_secrets = value::list(&account, "imagePullSecrets");
    if value::list(pod, "spec.imagePullSecrets").is_empty() && !pull_secrets.is_empty() {
        value::set(pod, "spec.imagePullSecrets", pull_secrets.to_vec());
    }
    let wants = |object: &Value, path: &str| value::at(object, path).and_then(Value::as_bool);
    let mounts = wants(pod, "spec.automountServiceAccountToken")
        .or_else(|| wants(&account, "automountServiceAccountToken"))
        .unwrap_or(true);
    if mounts {
        mount_token(pod);
    }
    Ok(())
}

/// Mounts the token into every container that has nothing at its place.
fn mount_token(pod: &mut Value) {
    let suffix: String = (0..5).map(|_| b"bcdfghjklmnpqrstvwxz2456789"[rand::random_range(0..27)] as char).collect();
    let volume = format!("kube-api-access-{suffix}");
    let mut mounted = false;
    for list in ["spec.initContainers", "spec.containers"] {
        for container in value::list_mut(pod, list) {
            let taken = value::list(container, "volumeMounts")
                .iter()
                .any(|mount| value::text(mount, "mountPath") == MOUNT_PATH);
            if taken {
                continue;
            }
            mounted = true;
            let mut all = value::list(container, "volumeMounts").to_vec();
            all.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}));
            value::set(container, "volumeMounts", all);
        }
    }
    if !mounted {
        return;
    }
    let mut volumes = value::list(pod, "spec.volumes").to_vec();
    volumes.push(json!({"name": volume, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}}));
    value::set(pod, "spec.volumes", volumes);
}
