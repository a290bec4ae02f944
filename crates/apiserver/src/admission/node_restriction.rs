//! NodeRestriction: what a kubelet writes must be its own. The Node authorizer has let it through by kind; here its content
//! is looked at.

use machinery::status::ApiError;
use machinery::{Value, value};

use super::certificates::request_in;
use super::{Operation, Request};
use crate::gates::authorization::node::identity;
use crate::rest::{Api, keep};

const MIRROR: &str = "kubernetes.io/config.mirror";
const LEASES: &str = "kube-node-lease";
/// Labels of the project's own domains that a kubelet may set on its node.
const KUBELET_LABELS: [&str; 10] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];
const KUBELET_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Refuses what is not the node's: before anybody looks whether it is valid, as upstream's plug-in does.
pub fn admit(api: &Api, request: &Request<'_>, new: Option<&Value>, old: Option<&Value>) -> Result<(), ApiError> {
    let node = match identity(request.user) {
        None => return Ok(()),
        Some("") => {
            let why = format!("could not determine node from user {:?}", request.user.name);
            return Err(request.forbid_unnamed(&why));
        }
        Some(node) => node,
    };
    let write = Write { api, request, new, old, node };
    let name = &request.resource.name;
    let refused = match (name.group.as_str(), name.resource.as_str(), request.info.subresource.as_str()) {
        ("", "pods", "") => write.pod(),
        ("", "pods", "status") => write.pod_status(),
        ("", "pods", "eviction") => write.eviction(),
        ("", "pods", other) => {
            Err(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
        }
        ("", "nodes", _) => write.node(),
        ("", "persistentvolumeclaims", "status") => write.claim_status(),
        ("", "persistentvolumeclaims", _) => Err("may only update PVC status".to_owned()),
        ("", "serviceaccounts", "token") => write.token(),
        ("coordination.k8s.io", "leases", _) => write.lease(),
        ("storage.k8s.io", "csinodes", _) => {
            write.named("can only access CSINode with the same name as the requesting node")
        }
        ("resource.k8s.io", "resourceslices", _) => write.slice(),
        ("certificates.k8s.io", "certificatesigningrequests", "") => write.certificate_request(),
        _ => Ok(()),
    };
    refused.map_err(|why| match new.or(old) {
        Some(object) => request.forbid(object, &why),
        None => request.forbid_unnamed(&why),
    })
}

/// One write of one node. Each rule says why it refuses.
struct Write<'a> {
    api: &'a Api,
    request: &'a Request<'a>,
    new: Option<&'a Value>,
    old: Option<&'a Value>,
    node: &'a str,
}

type Ruling = Result<(), String>;

impl Write<'_> {
    fn pod(&self) -> Ruling {
        let node = self.node;
        match (self.request.operation, self.new, self.old) {
            (Operation::Create, Some(pod), _) => self.new_pod(pod),
            (Operation::Delete, _, Some(pod)) if value::text(pod, "spec.nodeName") == node => Ok(()),
            (Operation::Delete, _, _) => {
                Err(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
            }
            (operation, _, _) => {
                let operation = operation.name();
                Err(format!("unexpected operation {operation:?}, node {node:?} can only create and delete mirror pods"))
            }
        }
    }

    fn new_pod(&self, pod: &Value) -> Ruling {
        let node = self.node;
        if value::at(pod, "metadata.annotations").is_none_or(|all| all.get(MIRROR).is_none()) {
            return Err(format!("pod does not have {MIRROR:?} annotation, node {node:?} can only create mirror pods"));
        }
        if value::text(pod, "spec.nodeName") != node {
            return Err(format!("node {node:?} can only create pods with spec.nodeName set to itself"));
        }
        let owner = match value::list(pod, "metadata.ownerReferences") {
            [owner] => owner,
            [] => return Err(format!("node {node:?} can only create pods with an owner reference set to itself")),
            _ => return Err(format!("node {node:?} can only create pods with a single owner reference set to itself")),
        };
        let own = value::text(owner, "apiVersion") == "v1"
            && value::text(owner, "kind") == "Node"
            && value::text(owner, "name") == node;
        if !own {
            return Err(format!("node {node:?} can only create pods with an owner reference set to itself"));
        }
        if !value::flag(owner, "controller") {
            return Err(format!("node {node:?} can only create pods with a controller owner reference set to itself"));
        }
        if value::flag(owner, "blockOwnerDeletion") {
            return Err(format!("node {node:?} must not set blockOwnerDeletion on an owner reference"));
        }
        let live = self.api.registry.stored("", "nodes").and_then(|nodes| nodes.cache.get(node));
        let live = live.ok_or_else(|| format!("nodes {node:?} not found"))?;
        let uid = value::text(owner, "uid");
        if *uid != *live.meta().uid {
            return Err(format!("node {node} UID mismatch: expected {uid} got {}", live.meta().uid));
        }
        match reference_in(pod) {
            Some(what) => Err(format!("node {node:?} can not create pods that reference {what}")),
            None => Ok(()),
        }
    }

    fn pod_status(&self) -> Ruling {
        let node = self.node;
        let (Some(new), Some(old)) = (self.new, self.old) else {
            return Err("unexpected operation \"DELETE\"".to_owned());
        };
        if value::text(old, "spec.nodeName") != node {
            return Err(format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself"));
        }
        let same = |path: &str| value::at(new, path) == value::at(old, path);
        if !same("metadata.labels") {
            return Err(format!("node {node:?} cannot update labels through pod status"));
        }
        if !same("status.resourceClaimStatuses") {
            return Err(format!("node {node:?} cannot update resource claim statues"));
        }
        if !same("status.extendedResourceClaimStatus") {
            return Err(format!("node {node:?} cannot update extended resource claim status"));
        }
        Ok(())
    }

    fn eviction(&self) -> Ruling {
        if self.node_of_pod(&self.request.info.name).as_deref() == Some(self.node) {
            return Ok(());
        }
        Err(format!("node {} can only evict pods with spec.nodeName set to itself", self.node))
    }

    fn node_of_pod(&self, name: &str) -> Option<String> {
        let pods = self.api.registry.stored("", "pods")?;
        let pod = pods.cache.get(&pods.key(&self.request.info.namespace, name))?;
        Some(pod.meta().field("spec.nodeName").unwrap_or_default().to_owned())
    }

    fn node(&self) -> Ruling {
        let node = self.node;
        let requested = match self.request.operation {
            Operation::Create => self.new.map_or("", |new| value::text(new, "metadata.name")),
            _ => &self.request.info.name,
        };
        if requested != node {
            return Err(format!("node {node:?} is not allowed to modify node {requested:?}"));
        }
        let Some(new) = self.new else { return Ok(()) };
        let source =
            |object: &Value| value::at(object, "spec.configSource").filter(|source| !source.is_null()).cloned();
        match self.old {
            None => {
                if source(new).is_some() {
                    return Err(format!("node {node:?} is not allowed to create pods with a non-nil configSource"));
                }
                let forbidden = forbidden_labels(new, &Value::Null);
                if !forbidden.is_empty() {
                    return Err(format!(
                        "node {node:?} is not allowed to set the following labels: {}",
                        forbidden.join(", ")
                    ));
                }
            }
            Some(old) => {
                if source(new).is_some() && source(new) != source(old) {
                    return Err(format!(
                        "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                    ));
                }
                if value::list(new, "spec.taints") != value::list(old, "spec.taints") {
                    return Err(format!("node {node:?} is not allowed to modify taints"));
                }
                if value::list(new, "metadata.ownerReferences") != value::list(old, "metadata.ownerReferences") {
                    return Err(format!("node {node:?} is not allowed to modify ownerReferences"));
                }
                let forbidden = forbidden_labels(new, old);
                if !forbidden.is_empty() {
                    return Err(format!("is not allowed to modify labels: {}", forbidden.join(", ")));
                }
            }
        }
        Ok(())
    }

    fn claim_status(&self) -> Ruling {
        let (Some(new), Some(old)) = (self.new, self.old) else {
            return Err("unexpected operation \"DELETE\"".to_owned());
        };
        let mut rest = new.clone();
        for path in [
            "metadata.resourceVersion",
            "metadata.managedFields",
            "status.capacity",
            "status.conditions",
            "status.allocatedResourceStatuses",
            "status.allocatedResources",
        ] {
            keep(&mut rest, old, path);
        }
        if rest != *old {
            return Err(format!(
                "node {:?} is not allowed to update fields other than status.quantity and status.conditions",
                self.node
            ));
        }
        Ok(())
    }

    /// A token for a pod that runs on the node, and for nothing else.
    fn token(&self) -> Ruling {
        let Some(request) = self.new else { return Ok(()) };
        let reference = value::at(request, "spec.boundObjectRef").cloned().unwrap_or_default();
        let text = |field: &str| value::text(&reference, field).to_owned();
        if text("apiVersion") != "v1" || text("kind") != "Pod" || text("name").is_empty() {
            return Err("node requested token not bound to a pod".to_owned());
        }
        if text("uid").is_empty() {
            return Err("node requested token with a pod binding without a uid".to_owned());
        }
        let pods = self.api.registry.stored("", "pods").ok_or("pods are not served")?;
        let pod = pods.cache.get(&pods.key(&self.request.info.namespace, &text("name")));
        let pod = pod.ok_or_else(|| format!("pods {:?} not found", text("name")))?;
        if *text("uid") != *pod.meta().uid {
            return Err(format!(
                "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
                text("uid")
            ));
        }
        if pod.meta().field("spec.nodeName") != Some(self.node) {
            return Err("node requested token bound to a pod scheduled on a different node".to_owned());
        }
        Ok(())
    }

    fn lease(&self) -> Ruling {
        if self.request.info.namespace != LEASES {
            return Err(format!("can only access leases in the {LEASES:?} system namespace"));
        }
        self.named("can only access node lease with the same name as the requesting node")
    }

    /// The object has the node's name.
    fn named(&self, refusal: &str) -> Ruling {
        let name = match self.request.operation {
            Operation::Create => self.new.map_or("", |new| value::text(new, "metadata.name")),
            _ => &self.request.info.name,
        };
        if name == self.node { Ok(()) } else { Err(refusal.to_owned()) }
    }

    fn slice(&self) -> Ruling {
        let own = |slice: Option<&Value>| slice.is_some_and(|slice| value::text(slice, "spec.nodeName") == self.node);
        match self.request.operation {
            Operation::Create if !own(self.new) => {
                Err("can only create ResourceSlice with the same NodeName as the requesting node".to_owned())
            }
            Operation::Delete if !own(self.old) => {
                Err("can only delete ResourceSlice with the same NodeName as the requesting node".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn certificate_request(&self) -> Ruling {
        let Some(csr) = self.new.filter(|_| self.request.operation == Operation::Create) else { return Ok(()) };
        let signer = value::text(csr, "spec.signerName");
        if !matches!(signer, "kubernetes.io/kubelet-serving" | "kubernetes.io/kube-apiserver-client-kubelet") {
            return Ok(());
        }
        let parsed = request_in(csr).map_err(|error| format!("unable to parse csr: {error}"))?;
        let wanted = format!("system:node:{}", self.node);
        if parsed.subject.common_name != wanted {
            return Err(format!("can only create a node CSR with CN={wanted}"));
        }
        Ok(())
    }
}

/// The labels that differ and are not a kubelet's to set.
fn forbidden_labels(new: &Value, old: &Value) -> Vec<String> {
    let labels =
        |object: &Value| value::at(object, "metadata.labels").and_then(Value::as_object).cloned().unwrap_or_default();
    let (new, old) = (labels(new), labels(old));
    let mut keys: Vec<String> =
        new.keys().chain(old.keys()).filter(|key| new.get(*key) != old.get(*key)).cloned().collect();
    keys.sort();
    keys.dedup();
    keys.retain(|key| !may_label(key));
    keys
}

fn may_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let in_domain = |of: &str| domain == of || domain.ends_with(&format!(".{of}"));
    if in_domain("node-restriction.kubernetes.io") {
        return false;
    }
    let reserved = in_domain("kubernetes.io") || in_domain("k8s.io");
    !reserved || KUBELET_LABELS.contains(&key) || KUBELET_DOMAINS.iter().any(|domain| in_domain(domain))
}

/// The first kind of object that a pod refers to: a mirror pod may refer to none.
fn reference_in(pod: &Value) -> Option<&'static str> {
    if !value::text(pod, "spec.serviceAccountName").is_empty() {
        return Some("serviceaccounts");
    }
    let containers = || {
        ["spec.initContainers", "spec.containers", "spec.ephemeralContainers"]
            .into_iter()
            .flat_map(|list| value::list(pod, list))
    };
    let names = |source: &str, from: &str| {
        containers().any(|container| {
            value::list(container, "envFrom").iter().any(|one| one.get(from).is_some())
                || value::list(container, "env")
                    .iter()
                    .any(|one| value::at(one, &format!("valueFrom.{source}")).is_some())
        })
    };
    if !value::list(pod, "spec.imagePullSecrets").is_empty() || names("secretKeyRef", "secretRef") {
        return Some("secrets");
    }
    if names("configMapKeyRef", "configMapRef") {
        return Some("configmaps");
    }
    if !value::list(pod, "spec.resourceClaims").is_empty() {
        return Some("resourceclaims");
    }
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
    for volume in value::list(pod, "spec.volumes") {
        let found = VOLUMES.iter().find(|(source, _)| volume.get(source).is_some());
        let sources = value::list(volume, "projected.sources").iter();
        let projected =
            || sources.clone().find_map(|one| PROJECTED.iter().find(|(source, _)| one.get(source).is_some()));
        if let Some((_, what)) = found.or_else(projected) {
            return Some(what);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kubelets_label_with_their_own_labels_only() {
        for (key, expect) in [
            ("kubernetes.io/hostname", true),
            ("node.kubernetes.io/instance-type", true),
            ("example.com/x", true),
            ("plain", true),
            ("node-restriction.kubernetes.io/secret", false),
            ("x.node-restriction.kubernetes.io/secret", false),
            ("node-role.kubernetes.io/control-plane", false),
            ("k8s.io/x", false),
        ] {
            assert_eq!(may_label(key), expect, "{key}");
        }
        let with = |labels: Value| json!({"metadata": {"labels": labels}});
        let changed = forbidden_labels(&with(json!({"a": "1", "k8s.io/x": "1"})), &with(json!({"k8s.io/y": "1"})));
        assert_eq!(changed, ["k8s.io/x", "k8s.io/y"]);
    }

    #[test]
    fn mirror_pods_refer_to_nothing() {
        for (spec, expect) in [
            (json!({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}), None),
            (json!({"serviceAccountName": "x"}), Some("serviceaccounts")),
            (json!({"imagePullSecrets": [{"name": "x"}]}), Some("secrets")),
            (
                json!({"containers": [{"env": [{"name": "a", "valueFrom": {"configMapKeyRef": {}}}]}]}),
                Some("configmaps"),
            ),
            (json!({"volumes": [{"projected": {"sources": [{"downwardAPI": {}}]}}]}), None),
            (
                json!({"volumes": [{"projected": {"sources": [{"serviceAccountToken": {}}]}}]}),
                Some("serviceaccounts (via projected volumes)"),
            ),
            (json!({"volumes": [{"persistentVolumeClaim": {}}]}), Some("persistentvolumeclaims")),
        ] {
            assert_eq!(reference_in(&json!({"spec": spec})), expect, "{spec}");
        }
    }
}
