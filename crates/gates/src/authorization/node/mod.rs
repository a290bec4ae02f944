//! Node: a kubelet may read what its own pods refer to, write what is its own, and nothing else.
//!
//! What needs the content of a write (that a Lease or a Pod is the node's own) is checked by the NodeRestriction
//! admission plug-in, after this.

mod graph;

use std::sync::Arc;

use machinery::rest::User;
use machinery::{Value, value};
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use rules::names::NODE_LEASES;
use serde::Deserialize as _;
use storage::Lookup;
use storage::cache::{Cache, News, Place};

use super::rbac::{allows, of_facts};
use super::{Attributes, Authorizer, Rule, Rules, Verdict};
use graph::Graph;
pub use graph::Kind;

/// The node behind a user: `Some("")` for a node without a name, `None` for everybody else.
pub fn identity(user: &User) -> Option<&str> {
    let is_node = user.groups.iter().any(|group| group == "system:nodes");
    let name = user.name.strip_prefix("system:node:")?;
    is_node.then_some(name)
}

/// The kinds of objects that a pod refers to by name, also a pod that a node made up itself.
pub fn kinds_in(pod: &Value) -> serde_json::Result<Vec<Kind>> {
    let read = graph::Pod::deserialize(pod)?;
    Ok(read.written(value::text(pod, "metadata.name")).into_iter().map(|(kind, _)| kind).collect())
}

#[derive(Default)]
struct State {
    graph: Graph,
    pods: Place,
    volumes: Place,
}

pub struct Node {
    pods: Arc<Cache>,
    volumes: Arc<Cache>,
    attachments: Option<Arc<Cache>>,
    slices: Option<Arc<Cache>>,
    certificate_requests: Option<Arc<Cache>>,
    /// What every node may do: the rules of the bootstrap role `system:node`, and what its Services need.
    rules: Vec<Rule>,
    state: RwLock<State>,
}

impl Node {
    /// On the caches of what nodes use.
    pub fn new(lookup: &dyn Lookup) -> Option<Self> {
        let cache = |group: &str, plural: &str| lookup.objects(group, plural);
        let role = facts::rbac().roles.iter().find(|role| role.namespace.is_none() && role.name == "system:node")?;
        Some(Self {
            pods: cache("", "pods")?,
            volumes: cache("", "persistentvolumes")?,
            attachments: cache("storage.k8s.io", "volumeattachments"),
            slices: cache("resource.k8s.io", "resourceslices"),
            certificate_requests: cache("certificates.k8s.io", "podcertificaterequests"),
            rules: role.rules.iter().filter(|rule| !rule.gated).map(of_facts).chain(services()).collect(),
            state: RwLock::default(),
        })
    }

    /// The graph, with everything in it that the caches have.
    fn current(&self) -> RwLockReadGuard<'_, State> {
        let state = self.state.read();
        if !state.pods.is_behind(&self.pods) && !state.volumes.is_behind(&self.volumes) {
            return state;
        }
        drop(state);
        let mut state = self.state.write();
        let State { graph, pods, volumes } = &mut *state;
        match pods.advance(&self.pods) {
            None => {}
            Some(News::Everything(objects)) => {
                graph.forget_pods();
                objects.iter().for_each(|pod| set_pod(graph, pod));
            }
            Some(News::Changes(changes)) => {
                for change in changes {
                    match (&change.new, &change.old) {
                        (Some(new), _) => set_pod(graph, new),
                        (None, Some(old)) => graph.remove_pod(&old.meta().namespace, &old.meta().name),
                        (None, None) => {}
                    }
                }
            }
        }
        match volumes.advance(&self.volumes) {
            None => {}
            Some(News::Everything(objects)) => {
                graph.forget_volumes();
                objects.iter().for_each(|volume| set_volume(graph, volume));
            }
            Some(News::Changes(changes)) => {
                for change in changes {
                    match (&change.new, &change.old) {
                        (Some(new), _) => set_volume(graph, new),
                        (None, Some(old)) => graph.remove_volume(&old.meta().name),
                        (None, None) => {}
                    }
                }
            }
        }
        RwLockWriteGuard::downgrade(state)
    }

    /// Takes in what is new while the caches have it at hand: who comes later has to read all pods. Before anybody asks there is nothing to keep up.
    fn keep_up(&self) {
        if self.state.read().pods.has_begun() {
            drop(self.current());
        }
    }

    /// Whether a claim, secret and so on is one that the node's pods use.
    fn reaches(&self, node: &str, kind: Kind, asked: &Attributes<'_>) -> Verdict {
        if asked.name.is_empty() {
            return Verdict::no_opinion("No Object name found");
        }
        related(node, self.current().graph.reaches(node, kind, asked.namespace, asked.name))
    }

    fn read(&self, node: &str, kind: Kind, asked: &Attributes<'_>) -> Verdict {
        match asked {
            Attributes { verb, .. } if !matches!(*verb, "get" | "list" | "watch") => {
                Verdict::no_opinion("can only read resources of this type")
            }
            Attributes { subresource, .. } if !subresource.is_empty() => Verdict::no_opinion("cannot read subresource"),
            Attributes { namespace: "", .. } => Verdict::no_opinion("can only read namespaced object of this type"),
            asked => self.reaches(node, kind, asked),
        }
    }

    /// A `get` of one object, which `related_to` finds to be the node's or not.
    fn get(&self, node: &str, asked: &Attributes<'_>, related_to: impl FnOnce() -> bool) -> Verdict {
        match asked {
            Attributes { verb, .. } if *verb != "get" => {
                Verdict::no_opinion("can only get individual resources of this type")
            }
            Attributes { subresource, .. } if !subresource.is_empty() => Verdict::no_opinion("cannot get subresource"),
            Attributes { name: "", .. } => Verdict::no_opinion("No Object name found"),
            _ => related(node, related_to()),
        }
    }

    fn claim(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        if asked.subresource.is_empty() && !asked.name.is_empty() && matches!(asked.verb, "list" | "watch") {
            // Upstream's nodes ask again and again. Ours hear of it when a claim of theirs is bound, or has to grow.
            return self.reaches(node, Kind::Claim, asked);
        }
        if asked.subresource != "status" {
            return self
                .get(node, asked, || self.current().graph.reaches(node, Kind::Claim, asked.namespace, asked.name));
        }
        match asked.verb {
            "update" | "patch" => self.reaches(node, Kind::Claim, asked),
            _ => Verdict::no_opinion("can only get/update/patch this type"),
        }
    }

    fn service_account(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        if asked.verb == "get" && asked.subresource.is_empty() {
            return self.read(node, Kind::ServiceAccount, asked);
        }
        if asked.verb != "create" || asked.name.is_empty() {
            return Verdict::no_opinion("can only create tokens for individual service accounts");
        }
        if asked.subresource != "token" {
            return Verdict::no_opinion("can only create token subresource of serviceaccount");
        }
        self.reaches(node, Kind::ServiceAccount, asked)
    }

    fn lease(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        if !matches!(asked.verb, "get" | "create" | "update" | "patch" | "delete") {
            return Verdict::no_opinion("can only get, create, update, patch, or delete a node lease");
        }
        if asked.namespace != NODE_LEASES {
            return Verdict::no_opinion(format!("can only access leases in the {NODE_LEASES:?} system namespace"));
        }
        if asked.verb != "create" && asked.name != node {
            return Verdict::no_opinion("can only access node lease with the same name as the requesting node");
        }
        Verdict::ALLOW
    }

    fn csi_node(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        if !asked.subresource.is_empty() {
            return Verdict::no_opinion("cannot authorize CSINode subresources");
        }
        if !matches!(asked.verb, "get" | "create" | "update" | "patch" | "delete") {
            return Verdict::no_opinion("can only get, create, update, patch, or delete a CSINode");
        }
        if asked.verb != "create" && asked.name != node {
            return Verdict::no_opinion("can only access CSINode with the same name as the requesting node");
        }
        Verdict::ALLOW
    }

    fn slice(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        if !asked.subresource.is_empty() {
            return Verdict::no_opinion("cannot authorize ResourceSlice subresources");
        }
        match asked.verb {
            "create" => Verdict::ALLOW,
            "get" | "update" | "patch" | "delete" => {
                related(node, owned(&self.slices, asked.name, "spec.nodeName", node))
            }
            "watch" | "list" | "deletecollection" if requires(asked, "spec.nodeName", node) => Verdict::ALLOW,
            "watch" | "list" | "deletecollection" => {
                Verdict::no_opinion("can only list/watch/deletecollection resourceslices with nodeName field selector")
            }
            _ => Verdict::no_opinion(
                "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
            ),
        }
    }

    fn certificate_request(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        if !asked.subresource.is_empty() {
            return Verdict::no_opinion("nodes may not access the status subresource of PodCertificateRequests");
        }
        match asked.verb {
            "create" => Verdict::ALLOW,
            "get" => {
                let key = format!("{}/{}", asked.namespace, asked.name);
                related(node, owned(&self.certificate_requests, &key, "spec.nodeName", node))
            }
            "list" | "watch" if requires(asked, "spec.nodeName", node) => Verdict::ALLOW,
            "list" | "watch" => {
                Verdict::no_opinion("can only list/watch podcertificaterequests with nodeName field selector")
            }
            verb => Verdict::no_opinion(format!("nodes may not {verb} podcertificaterequests")),
        }
    }

    fn node(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        match (asked.subresource, asked.verb) {
            ("", "create" | "update" | "patch") | ("status", "update" | "patch") => Verdict::ALLOW,
            ("", "get" | "list" | "watch") => match asked.name {
                name if name == node => Verdict::ALLOW,
                // Upstream's proxy reads them with an identity of its own.
                "" => Verdict::ALLOW,
                other => Verdict::no_opinion(format!("node '{node}' cannot read '{other}', only its own Node object")),
            },
            _ => Verdict::NO_OPINION,
        }
    }

    fn pod(&self, node: &str, asked: &Attributes<'_>) -> Verdict {
        let own = || {
            let key = format!("{}/{}", asked.namespace, asked.name);
            self.pods.get(&key).is_some_and(|pod| pod.meta().field("spec.nodeName") == Some(node))
        };
        match (asked.subresource, asked.verb) {
            ("", "get") => self.get(node, asked, own),
            ("", "list" | "watch") if requires(asked, "spec.nodeName", node) => Verdict::ALLOW,
            ("", "list" | "watch") if !asked.name.is_empty() => related(node, own()),
            ("", "list" | "watch") => Verdict::no_opinion("can only list/watch pods with spec.nodeName field selector"),
            ("", "create" | "delete") | ("status", "update" | "patch") | ("eviction", "create") => Verdict::ALLOW,
            _ => Verdict::NO_OPINION,
        }
    }
}

/// A node's proxy, DNS and pod network speak as the node, so a node may read what these need, beside all Nodes. It is no
/// role for `system:nodes`, because whoever is in that group without a node's name is no node.
fn services() -> [Rule; 3] {
    let rule = |group: &str, resource: &str| Rule {
        verbs: vec!["list".to_owned(), "watch".to_owned()],
        groups: vec![group.to_owned()],
        resources: vec![resource.to_owned()],
        ..Rule::default()
    };
    [rule("", "namespaces"), rule("discovery.k8s.io", "endpointslices"), rule("networking.k8s.io", "servicecidrs")]
}

fn set_pod(graph: &mut Graph, pod: &machinery::Object) {
    let meta = pod.meta();
    match serde_json::from_slice(&pod.stored()) {
        Ok(read) => graph.set_pod(&meta.namespace, &meta.name, &read),
        // Nothing may be reached through a pod that cannot be read.
        Err(_) => graph.remove_pod(&meta.namespace, &meta.name),
    }
}

fn set_volume(graph: &mut Graph, volume: &machinery::Object) {
    let name = &volume.meta().name;
    match serde_json::from_slice(&volume.stored()) {
        Ok(read) => graph.set_volume(name, &read),
        Err(_) => graph.remove_volume(name),
    }
}

fn related(node: &str, related: bool) -> Verdict {
    if related {
        return Verdict::ALLOW;
    }
    Verdict::no_opinion(format!("no relationship found between node '{node}' and this object"))
}

fn requires(asked: &Attributes<'_>, field: &str, node: &str) -> bool {
    asked.selectors.is_some_and(|selectors| selectors.require(field, node))
}

/// Whether an object names the node at a path.
fn owned(cache: &Option<Arc<Cache>>, key: &str, path: &str, node: &str) -> bool {
    let tree: Option<Value> = cache.as_ref().and_then(|cache| cache.get(key)).map(|object| object.to_value());
    tree.is_some_and(|tree| value::text(&tree, path) == node)
}

impl Authorizer for Node {
    fn authorize(&self, asked: &Attributes<'_>) -> Verdict {
        let node = match identity(asked.user) {
            None => return Verdict::NO_OPINION,
            Some("") => return Verdict::no_opinion(format!("unknown node for user {:?}", asked.user.name)),
            Some(node) => node,
        };
        let graph =
            |kind| self.get(node, asked, || self.current().graph.reaches(node, kind, asked.namespace, asked.name));
        if asked.is_resource {
            match (asked.group, asked.resource) {
                ("", "secrets") => return self.read(node, Kind::Secret, asked),
                ("", "configmaps") => return self.read(node, Kind::ConfigMap, asked),
                ("", "persistentvolumeclaims") => return self.claim(node, asked),
                ("", "persistentvolumes") => {
                    return self.get(node, asked, || self.current().graph.uses(node, asked.name));
                }
                ("resource.k8s.io", "resourceclaims") => return graph(Kind::ResourceClaim),
                ("storage.k8s.io", "volumeattachments") => {
                    return self.get(node, asked, || owned(&self.attachments, asked.name, "spec.nodeName", node));
                }
                ("", "serviceaccounts") => return self.service_account(node, asked),
                ("coordination.k8s.io", "leases") => return self.lease(node, asked),
                ("storage.k8s.io", "csinodes") => return self.csi_node(node, asked),
                ("resource.k8s.io", "resourceslices") => return self.slice(node, asked),
                ("", "nodes") => return self.node(node, asked),
                ("", "pods") => {
                    // Where pods change, nodes tell of theirs. A heartbeat would come as often, but waits for nobody's lock.
                    self.keep_up();
                    return self.pod(node, asked);
                }
                ("certificates.k8s.io", "podcertificaterequests") => return self.certificate_request(node, asked),
                _ => {}
            }
        }
        if self.rules.iter().any(|rule| allows(rule, asked)) { Verdict::ALLOW } else { Verdict::NO_OPINION }
    }

    fn rules(&self, user: &User, _: &str, rules: &mut Rules) {
        if identity(user).is_some() {
            rules.incomplete = true;
            rules.errors.push("node authorizer does not support user rule resolution".to_owned());
        }
    }
}

#[cfg(test)]
mod tests;
