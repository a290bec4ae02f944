//! NodeRestriction: what a kubelet writes must be its own. The Node authorizer has let it through by kind; here its content
//! is looked at: small rules in this file, new pods in `mirror`, what lets pods prove who they are in `identities`.

mod identities;
mod mirror;

use gates::authorization::Authorizers;
use gates::authorization::node::identity;
use kinds::keep::keep;
use machinery::Object;
use machinery::gvk::GroupResource;
use machinery::status::ApiError;
use machinery::{Value, value};
use rules::names::NODE_LEASES;

use super::certificates::request_in;
use super::{Operation, Request};
use crate::verbs::Api;
use std::sync::Arc;

const MIRROR: &str = "kubernetes.io/config.mirror";
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
pub async fn admit(
    api: &Api,
    authorizers: &Authorizers,
    request: &Request<'_>,
    new: Option<&Value>,
    old: Option<&Value>,
) -> Result<(), ApiError> {
    let node = match identity(request.user) {
        None => return Ok(()),
        Some("") => {
            let why = format!("could not determine node from user {:?}", request.user.name);
            return Err(request.forbid_unnamed(&why));
        }
        Some(node) => node,
    };
    let write = Write { api, authorizers, request, new, old, node };
    let name = &request.resource.name;
    let refused = match (name.group.as_str(), name.resource.as_str(), request.info.subresource.as_str()) {
        ("", "pods", "") => write.pod().await,
        ("", "pods", "status") => write.pod_status(),
        ("", "pods", "eviction") => write.eviction().await,
        ("", "pods", other) => {
            refuse(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed"))
        }
        ("", "nodes", _) => write.node(),
        ("", "persistentvolumeclaims", "status") => write.claim_status(),
        ("", "persistentvolumeclaims", _) => refuse("may only update PVC status"),
        ("", "serviceaccounts", "token") => write.token().await,
        ("coordination.k8s.io", "leases", _) => write.lease(),
        ("storage.k8s.io", "csinodes", _) => {
            write.named("can only access CSINode with the same name as the requesting node")
        }
        ("resource.k8s.io", "resourceslices", _) => write.slice(),
        ("certificates.k8s.io", "certificatesigningrequests", "") => write.certificate_request(),
        ("certificates.k8s.io", "podcertificaterequests", _) => write.pod_certificate().await,
        _ => Ok(()),
    };
    refused.map_err(|refusal| match (refusal, new.or(old)) {
        (Refusal::Forbidden(why), Some(object)) => request.forbid(object, &why),
        (Refusal::Forbidden(why), None) => request.forbid_unnamed(&why),
        (Refusal::Answer(error), _) => *error,
    })
}

/// One write of one node. Each rule says why it refuses.
struct Write<'a> {
    api: &'a Api,
    authorizers: &'a Authorizers,
    request: &'a Request<'a>,
    new: Option<&'a Value>,
    old: Option<&'a Value>,
    node: &'a str,
}

/// Why a write is refused.
enum Refusal {
    /// It is not the node's to write.
    Forbidden(String),
    /// Another answer, such as that something is not there.
    Answer(Box<ApiError>),
}

impl<T: Into<String>> From<T> for Refusal {
    fn from(why: T) -> Self {
        Self::Forbidden(why.into())
    }
}

type Ruling<T = ()> = Result<T, Refusal>;

fn refuse<T>(why: impl Into<String>) -> Ruling<T> {
    Err(Refusal::Forbidden(why.into()))
}

impl Write<'_> {
    async fn pod(&self) -> Ruling {
        let node = self.node;
        match (self.request.operation, self.new, self.old) {
            (Operation::Create, Some(pod), _) => self.new_pod(pod).await,
            (Operation::Delete, _, Some(pod)) if value::text(pod, "spec.nodeName") == node => Ok(()),
            (Operation::Delete, _, _) => {
                refuse(format!("node {node:?} can only delete pods with spec.nodeName set to itself"))
            }
            (operation, _, _) => {
                let operation = operation.name();
                refuse(format!(
                    "unexpected operation {operation:?}, node {node:?} can only create and delete mirror pods"
                ))
            }
        }
    }

    fn pod_status(&self) -> Ruling {
        let node = self.node;
        let (Some(new), Some(old)) = (self.new, self.old) else {
            return refuse("unexpected operation \"DELETE\"");
        };
        if value::text(old, "spec.nodeName") != node {
            return refuse(format!(
                "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
            ));
        }
        let same = |path: &str| value::at(new, path) == value::at(old, path);
        if !same("metadata.labels") {
            return refuse(format!("node {node:?} cannot update labels through pod status"));
        }
        if !same("status.resourceClaimStatuses") {
            return refuse(format!("node {node:?} cannot update resource claim statues"));
        }
        if !same("status.extendedResourceClaimStatus") {
            return refuse(format!("node {node:?} cannot update extended resource claim status"));
        }
        Ok(())
    }

    async fn eviction(&self) -> Ruling {
        let pod = self.stored("", "pod", &self.request.info.name).await?;
        if pod.meta().field("spec.nodeName") == Some(self.node) {
            return Ok(());
        }
        refuse(format!("node {} can only evict pods with spec.nodeName set to itself", self.node))
    }

    /// An object of the request's namespace or of the whole cluster, as of now. Upstream's caches name a kind in the singular.
    async fn stored(&self, group: &str, singular: &str, name: &str) -> Ruling<Arc<Object>> {
        let missing = || ApiError::not_found(&GroupResource::new(group, singular), name);
        let found = match self.api.registry.stored(group, &format!("{singular}s")) {
            Some(resource) => self
                .api
                .read(resource, &resource.key(&self.request.info.namespace, name))
                .await
                .and_then(|found| found.ok_or_else(missing)),
            None => Err(missing()),
        };
        found.map_err(|error| Refusal::Answer(Box::new(error)))
    }

    fn node(&self) -> Ruling {
        let node = self.node;
        let requested = match self.request.operation {
            Operation::Create => self.new.map_or("", |new| value::text(new, "metadata.name")),
            _ => &self.request.info.name,
        };
        if requested != node {
            return refuse(format!("node {node:?} is not allowed to modify node {requested:?}"));
        }
        let Some(new) = self.new else { return Ok(()) };
        let source =
            |object: &Value| value::at(object, "spec.configSource").filter(|source| !source.is_null()).cloned();
        match self.old {
            None => {
                if source(new).is_some() {
                    return refuse(format!("node {node:?} is not allowed to create pods with a non-nil configSource"));
                }
                let forbidden = forbidden_labels(new, &Value::Null);
                if !forbidden.is_empty() {
                    return refuse(format!(
                        "node {node:?} is not allowed to set the following labels: {}",
                        forbidden.join(", ")
                    ));
                }
            }
            Some(old) => {
                if source(new).is_some() && source(new) != source(old) {
                    return refuse(format!(
                        "node {node:?} is not allowed to update configSource to a new non-nil configSource"
                    ));
                }
                if value::list(new, "spec.taints") != value::list(old, "spec.taints") {
                    return refuse(format!("node {node:?} is not allowed to modify taints"));
                }
                if value::list(new, "metadata.ownerReferences") != value::list(old, "metadata.ownerReferences") {
                    return refuse(format!("node {node:?} is not allowed to modify ownerReferences"));
                }
                let forbidden = forbidden_labels(new, old);
                if !forbidden.is_empty() {
                    return refuse(format!("is not allowed to modify labels: {}", forbidden.join(", ")));
                }
            }
        }
        Ok(())
    }

    fn claim_status(&self) -> Ruling {
        let (Some(new), Some(old)) = (self.new, self.old) else {
            return refuse("unexpected operation \"DELETE\"");
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
            return refuse(format!(
                "node {:?} is not allowed to update fields other than status.quantity and status.conditions",
                self.node
            ));
        }
        Ok(())
    }

    fn lease(&self) -> Ruling {
        if self.request.info.namespace != NODE_LEASES {
            return refuse(format!("can only access leases in the {NODE_LEASES:?} system namespace"));
        }
        self.named("can only access node lease with the same name as the requesting node")
    }

    /// The object has the node's name.
    fn named(&self, refusal: &str) -> Ruling {
        let name = match self.request.operation {
            Operation::Create => self.new.map_or("", |new| value::text(new, "metadata.name")),
            _ => &self.request.info.name,
        };
        if name == self.node { Ok(()) } else { refuse(refusal) }
    }

    fn slice(&self) -> Ruling {
        let own = |slice: Option<&Value>| slice.is_some_and(|slice| value::text(slice, "spec.nodeName") == self.node);
        match self.request.operation {
            Operation::Create if !own(self.new) => {
                refuse("can only create ResourceSlice with the same NodeName as the requesting node")
            }
            Operation::Delete if !own(self.old) => {
                refuse("can only delete ResourceSlice with the same NodeName as the requesting node")
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
            return refuse(format!("can only create a node CSR with CN={wanted}"));
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
}
