//! The pods that a node may make: mirrors of its static pods, which refer to nothing that the API has.
//!
//! A pod of a node opens to it what the pod refers to (see the Node authorizer), so a node that could make any pod could
//! read any secret.

use gates::authorization::node::{Kind, kinds_in};
use machinery::{Value, value};

use super::{MIRROR, Ruling, Write, refuse};

impl Write<'_> {
    pub(super) async fn new_pod(&self, pod: &Value) -> Ruling {
        let node = self.node;
        if value::at(pod, "metadata.annotations").is_none_or(|all| all.get(MIRROR).is_none()) {
            return refuse(format!(
                "pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"
            ));
        }
        if value::text(pod, "spec.nodeName") != node {
            return refuse(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        let owner = match value::list(pod, "metadata.ownerReferences") {
            [owner] => owner,
            [] => return refuse(format!("node {node:?} can only create pods with an owner reference set to itself")),
            _ => {
                return refuse(format!(
                    "node {node:?} can only create pods with a single owner reference set to itself"
                ));
            }
        };
        let own = value::text(owner, "apiVersion") == "v1"
            && value::text(owner, "kind") == "Node"
            && value::text(owner, "name") == node;
        if !own {
            return refuse(format!("node {node:?} can only create pods with an owner reference set to itself"));
        }
        if !value::flag(owner, "controller") {
            return refuse(format!(
                "node {node:?} can only create pods with a controller owner reference set to itself"
            ));
        }
        if value::flag(owner, "blockOwnerDeletion") {
            return refuse(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let live = self.stored("", "node", node).await?;
        let uid = value::text(owner, "uid");
        if *uid != *live.meta().uid {
            return refuse(format!("node {node} UID mismatch: expected {uid} got {}", live.meta().uid));
        }
        match reference_in(pod) {
            Err(error) => refuse(format!("error checking mirror pod for API references: {error}")),
            Ok(Some(what)) => refuse(format!("node {node:?} can not create pods that reference {what}")),
            Ok(None) => Ok(()),
        }
    }
}

/// Volumes that need nothing of the API but, some of them, a secret.
const LOCAL: [&str; 22] = [
    "awsElasticBlockStore",
    "azureDisk",
    "cephfs",
    "cinder",
    "downwardAPI",
    "emptyDir",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "portworxVolume",
    "quobyte",
    "rbd",
    "scaleIO",
    "storageos",
    "vsphereVolume",
];
const VOLUMES: [(&str, &str); 7] = [
    ("configMap", "configmaps (via configmap volumes)"),
    ("secret", "secrets (via secret volumes)"),
    ("csi", "csidrivers (via CSI volumes)"),
    ("glusterfs", "endpoints (via glusterFS volumes)"),
    ("persistentVolumeClaim", "persistentvolumeclaims"),
    ("ephemeral", "persistentvolumeclaims (via ephemeral volumes)"),
    ("azureFile", "secrets (via azureFile volumes)"),
];
const PROJECTED: [(&str, &str); 5] = [
    ("configMap", "configmaps (via projected volumes)"),
    ("secret", "secrets (via projected volumes)"),
    ("serviceAccountToken", "serviceaccounts (via projected volumes)"),
    ("clusterTrustBundle", "clustertrustbundles"),
    ("podCertificate", "podcertificates"),
];

/// The first kind of object that a pod refers to, or why that cannot be said.
fn reference_in(pod: &Value) -> Result<Option<&'static str>, String> {
    let kinds = kinds_in(pod).map_err(|error| error.to_string())?;
    let by_name =
        [(Kind::ServiceAccount, "serviceaccounts"), (Kind::Secret, "secrets"), (Kind::ConfigMap, "configmaps")];
    if let Some((_, what)) = by_name.iter().find(|(kind, _)| kinds.contains(kind)) {
        return Ok(Some(what));
    }
    if !value::list(pod, "spec.resourceClaims").is_empty() {
        return Ok(Some("resourceclaims"));
    }
    for volume in value::list(pod, "spec.volumes") {
        let name = value::text(volume, "name");
        let given = |source: &str| volume.get(source).is_some_and(|source| !source.is_null());
        if LOCAL.iter().any(|source| given(source)) {
            continue;
        }
        if let Some((_, what)) = VOLUMES.iter().find(|(source, _)| given(source)) {
            return Ok(Some(what));
        }
        if !given("projected") {
            return Err(format!("unknown volume type for volume  {name:?}"));
        }
        for source in value::list(volume, "projected.sources") {
            let given = |kind: &str| source.get(kind).is_some_and(|source| !source.is_null());
            match PROJECTED.iter().find(|(kind, _)| given(kind)) {
                Some((_, what)) => return Ok(Some(what)),
                None if given("downwardAPI") => {}
                None => return Err(format!("unknown source for projected volume {name:?}")),
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mirror_pods_refer_to_nothing() {
        for (spec, expect) in [
            (json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}), Ok(None)),
            (json!({"serviceAccountName": "x"}), Ok(Some("serviceaccounts"))),
            (json!({"imagePullSecrets": [{"name": "x"}]}), Ok(Some("secrets"))),
            (
                json!({"containers": [{"env": [{"name": "a", "valueFrom": {"configMapKeyRef": {"name": "x"}}}]}]}),
                Ok(Some("configmaps")),
            ),
            (json!({"resourceClaims": [{"name": "gpu"}]}), Ok(Some("resourceclaims"))),
            (json!({"volumes": [{"projected": {"sources": [{"downwardAPI": {}}]}}]}), Ok(None)),
            (
                json!({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {}}]}}]}),
                Ok(Some("serviceaccounts (via projected volumes)")),
            ),
            (json!({"volumes": [{"persistentVolumeClaim": {}}]}), Ok(Some("persistentvolumeclaims"))),
            (
                json!({"volumes": [{"name": "v", "projected": {"sources": [{}]}}]}),
                Err("unknown source for projected volume \"v\""),
            ),
            (json!({"volumes": [{"name": "v", "novel": {}}]}), Err("unknown volume type for volume  \"v\"")),
        ] {
            assert_eq!(reference_in(&json!({"spec": spec})), expect.map_err(str::to_owned), "{spec}");
        }
    }

    #[test]
    fn a_volume_that_needs_a_secret_refers_to_it() {
        for source in ["cephfs", "cinder", "flexVolume", "rbd", "scaleIO", "iscsi", "storageos"] {
            let pod = |volume: Value| json!({"spec": {"volumes": [{"name": "v", source: volume}]}});
            let with = pod(json!({"secretRef": {"name": "s"}}));
            assert_eq!(reference_in(&with), Ok(Some("secrets")), "{source}");
            assert_eq!(reference_in(&pod(json!({}))), Ok(None), "{source}");
        }
        let azure = |source: Value| json!({"spec": {"volumes": [{"name": "v", "azureFile": source}]}});
        assert_eq!(reference_in(&azure(json!({"secretName": "s"}))), Ok(Some("secrets")));
        assert_eq!(reference_in(&azure(json!({}))), Ok(Some("secrets (via azureFile volumes)")));
    }
}
