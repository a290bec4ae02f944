//! The cluster as scheduling sees it: nodes, the pods placed on them, and the objects that plugins look up.
//!
//! One owner mutates the model between scheduling cycles and lends it, unchanged, to a cycle. So a cycle needs no
//! snapshot: the model *is* the snapshot, and keeping it costs what changed and nothing more. Placing a pod is *assuming*
//! it until the API confirms; assumed pods take room like any other.
//!
//! Deliberately absent: locks, clocks, clients.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::classes::{Classes, Membership, terms_of};
use crate::model::node::{NodeIdx, NodeInfo};
use crate::model::objects::Objects;
use crate::model::pod::PodInfo;
use crate::model::topology::Topology;
use rules::selectors::{Labels, NodeFacts};

/// A container image as nodes report it.
#[derive(Debug, Clone, Default)]
pub struct ImageState {
    /// Bytes, as first reported.
    pub size: i64,
    /// The nodes that have it.
    pub nodes: FxHashSet<NodeIdx>,
}

#[derive(Debug)]
struct Placed {
    info: Arc<PodInfo>,
    node: NodeIdx,
    assumed: bool,
    membership: Membership,
}

/// Some nodes of the model, in an order.
#[derive(Debug, Clone, Copy)]
pub struct NodeList<'a> {
    cluster: &'a Cluster,
    order: &'a [NodeIdx],
}

impl<'a> NodeList<'a> {
    pub fn iter(self) -> impl Iterator<Item = &'a NodeInfo> {
        self.order.iter().map(move |idx| self.cluster.node(*idx))
    }

    pub fn len(self) -> usize {
        self.order.len()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.order.is_empty()
    }
}

/// Why the model refused a change: a broken promise of its caller, which scheduling survives.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ClusterError {
    /// The pod is placed already.
    #[error("pod {0} is in the cache, so can't be assumed")]
    AlreadyPlaced(String),
    /// The node is not known.
    #[error("node {0} not found")]
    NoSuchNode(String),
}

/// The model of the cluster.
#[derive(Debug, Default)]
pub struct Cluster {
    nodes: Vec<NodeInfo>,
    /// The generations of the nodes once more, dense: scans look at these first, and often at nothing else.
    generations: Vec<u64>,
    by_name: FxHashMap<Arc<str>, NodeIdx>,
    vacant: Vec<NodeIdx>,
    order: Vec<NodeIdx>,
    order_is_stale: bool,
    pods: FxHashMap<Arc<str>, Placed>,
    assumed: usize,
    generation: u64,
    images: FxHashMap<String, Arc<ImageState>>,
    /// Counts the changes of [`Cluster::images`] and of the set of nodes: what image scores depend on.
    images_generation: u64,
    /// How many placed pods name a claim, by namespace and name.
    claim_users: FxHashMap<String, u32>,
    classes: Classes,
    topology: Topology,
    /// Everything but pods and nodes.
    pub objects: Objects,
}

impl Cluster {
    pub fn new() -> Self {
        Self::default()
    }

    fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// Takes in a node, new or changed.
    pub fn set_node(&mut self, node: Arc<Node>) {
        let idx = self.slot(node.metadata.name.as_deref().unwrap_or_default());
        let generation = self.next_generation();
        let known = self.nodes[idx.row()].node().cloned();
        if known.as_ref().is_none_or(|old| zone(old) != zone(&node)) {
            self.order_is_stale = true;
        }
        self.update_images(idx, known.as_deref(), Some(&node));
        self.nodes[idx.row()].set_node(Some(node), generation);
        self.generations[idx.row()] = generation;
        self.topology.update(&self.nodes[idx.row()]);
    }

    /// Notes that something is new about a node that is not kept here: which pods are promised to it.
    pub fn touch(&mut self, name: &str) {
        let Some(&idx) = self.by_name.get(name) else { return };
        let generation = self.next_generation();
        self.nodes[idx.row()].touch(generation);
        self.generations[idx.row()] = generation;
    }

    /// Drops a node. Pods on it stay accounted until they are deleted too.
    pub fn remove_node(&mut self, name: &str) {
        let Some(&idx) = self.by_name.get(name) else { return };
        let generation = self.next_generation();
        let known = self.nodes[idx.row()].node().cloned();
        self.update_images(idx, known.as_deref(), None);
        self.nodes[idx.row()].set_node(None, generation);
        self.generations[idx.row()] = generation;
        self.topology.update(&self.nodes[idx.row()]);
        self.order_is_stale = true;
        self.vacate_if_unused(idx);
    }

    /// Takes in a pod that the API says is on a node: confirms it if assumed, moves it if assumed elsewhere.
    pub fn set_pod(&mut self, info: Arc<PodInfo>) {
        let Some(node) = info.node_name().map(str::to_owned) else { return };
        self.take(info.uid());
        let idx = self.slot(&node);
        self.place(info, idx, false);
    }

    /// Drops a pod, assumed or confirmed.
    pub fn remove_pod(&mut self, uid: &str) {
        self.take(uid);
    }

    /// Places a pod on a node ahead of the API.
    pub fn assume(&mut self, info: Arc<PodInfo>, node: NodeIdx) -> Result<(), ClusterError> {
        if self.pods.contains_key(info.uid()) {
            return Err(ClusterError::AlreadyPlaced(format!("{}/{}", info.namespace(), info.name())));
        }
        self.place(info, node, true);
        Ok(())
    }

    /// Takes an assumed pod back; a confirmed one stays.
    pub fn forget(&mut self, uid: &str) -> bool {
        let assumed = self.is_assumed(uid);
        if assumed {
            self.take(uid);
        }
        assumed
    }

    fn place(&mut self, info: Arc<PodInfo>, idx: NodeIdx, assumed: bool) {
        let generation = self.next_generation();
        for (_, term) in terms_of(&info) {
            self.topology.retain(&term.topology_key, &self.nodes);
        }
        self.count_claims(&info, true);
        let membership = self.classes.add(&info, idx);
        self.nodes[idx.row()].add_pod(info.clone(), generation);
        self.generations[idx.row()] = generation;
        self.assumed += usize::from(assumed);
        self.pods.insert(info.uid().clone(), Placed { info, node: idx, assumed, membership });
    }

    fn take(&mut self, uid: &str) {
        let Some(placed) = self.pods.remove(uid) else { return };
        self.assumed -= usize::from(placed.assumed);
        let generation = self.next_generation();
        self.nodes[placed.node.row()].remove_pod(uid, generation);
        self.generations[placed.node.row()] = generation;
        self.classes.remove(&placed.membership, placed.node);
        self.count_claims(&placed.info, false);
        for (_, term) in terms_of(&placed.info) {
            self.topology.release(&term.topology_key);
        }
        self.vacate_if_unused(placed.node);
    }

    fn count_claims(&mut self, info: &PodInfo, up: bool) {
        for claim in info.named_claims() {
            let key = format!("{}/{claim}", info.namespace());
            if up {
                *self.claim_users.entry(key).or_insert(0) += 1;
            } else if let Some(users) = self.claim_users.get_mut(&key) {
                *users -= 1;
                if *users == 0 {
                    self.claim_users.remove(&key);
                }
            }
        }
    }

    fn slot(&mut self, name: &str) -> NodeIdx {
        if let Some(&idx) = self.by_name.get(name) {
            return idx;
        }
        let name: Arc<str> = name.into();
        let idx = self.vacant.pop().unwrap_or(NodeIdx(self.nodes.len() as u32));
        let info = NodeInfo::unknown(idx, name.clone());
        if idx.row() == self.nodes.len() {
            self.nodes.push(info);
            self.generations.push(0);
        } else {
            self.nodes[idx.row()] = info;
        }
        self.by_name.insert(name, idx);
        idx
    }

    fn vacate_if_unused(&mut self, idx: NodeIdx) {
        let info = &self.nodes[idx.row()];
        if info.node().is_none() && info.pods().is_empty() {
            self.by_name.remove(info.shared_name());
            self.nodes[idx.row()] = NodeInfo::unknown(idx, "".into());
            self.vacant.push(idx);
        }
    }

    fn update_images(&mut self, idx: NodeIdx, old: Option<&Node>, new: Option<&Node>) {
        let images = |node: Option<&Node>| node.and_then(|n| n.status.as_ref()?.images.clone());
        let (old_images, new_images) = (images(old), images(new));
        if old.is_some() == new.is_some() && old_images == new_images {
            return;
        }
        self.images_generation += 1;
        for name in old_images.iter().flatten().flat_map(|i| i.names.iter().flatten()) {
            if let Some(state) = self.images.get_mut(name) {
                let state = Arc::make_mut(state);
                state.nodes.remove(&idx);
                if state.nodes.is_empty() {
                    self.images.remove(name);
                }
            }
        }
        for image in new_images.iter().flatten() {
            for name in image.names.iter().flatten() {
                let state = Arc::make_mut(self.images.entry(name.clone()).or_default());
                if state.nodes.is_empty() {
                    state.size = image.size_bytes.unwrap_or(0);
                }
                state.nodes.insert(idx);
            }
        }
    }

    /// Keeps track of a topology key for ever, whether pods use it or not.
    pub fn track(&mut self, key: &str) {
        self.topology.retain(key, &self.nodes);
    }

    /// Makes ready what a cycle for this pod will ask: call once before the cycle.
    pub fn prepare(&mut self, pod: &PodInfo) {
        for key in pod.topology_keys() {
            self.topology.ensure(key, &self.nodes);
        }
        if self.order_is_stale {
            self.order_is_stale = false;
            self.order = interleave_zones(&self.nodes);
        }
    }

    /// The schedulable nodes in scanning order: zones take turns, so that any stretch of it spans them all.
    pub fn order(&self) -> &[NodeIdx] {
        &self.order
    }

    /// The generation of every node, by row.
    pub fn generations(&self) -> &[u64] {
        &self.generations
    }

    /// The nodes of a list of positions.
    pub fn list<'a>(&'a self, order: &'a [NodeIdx]) -> NodeList<'a> {
        NodeList { cluster: self, order }
    }

    /// A node by position.
    pub fn node(&self, idx: NodeIdx) -> &NodeInfo {
        &self.nodes[idx.row()]
    }

    /// A node by name; `None` when only pods vouch for it.
    pub fn node_named(&self, name: &str) -> Option<&NodeInfo> {
        self.by_name.get(name).map(|idx| self.node(*idx)).filter(|n| n.node().is_some())
    }

    /// The size of an array with an element per node.
    pub fn rows(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the pod is placed but not confirmed.
    pub fn is_assumed(&self, uid: &str) -> bool {
        self.pods.get(uid).is_some_and(|p| p.assumed)
    }

    /// A placed pod and its node.
    pub fn placed(&self, uid: &str) -> Option<(&Arc<PodInfo>, NodeIdx)> {
        self.pods.get(uid).map(|p| (&p.info, p.node))
    }

    /// How many pods are placed.
    pub fn pod_count(&self) -> usize {
        self.pods.len()
    }

    /// How many placed pods the API has not confirmed yet.
    pub fn assumed_count(&self) -> usize {
        self.assumed
    }

    /// How many placed pods name this claim.
    pub fn claim_users(&self, namespace: &str, claim: &str) -> u32 {
        self.claim_users.get(&format!("{namespace}/{claim}")).copied().unwrap_or(0)
    }

    /// An image that some node has.
    pub fn image(&self, name: &str) -> Option<&Arc<ImageState>> {
        self.images.get(name)
    }

    /// Changes when image scores may.
    pub fn images_generation(&self) -> u64 {
        self.images_generation
    }

    /// Placed pods by their labels and terms.
    pub fn classes(&self) -> &Classes {
        &self.classes
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The labels of a namespace.
    pub fn namespace_labels(&self, namespace: &str) -> Option<&Labels> {
        self.objects.namespaces.named(namespace)?.metadata.labels.as_ref()
    }
}

/// Region and zone of a node, as far as labelled.
fn zone(node: &Node) -> (Option<&str>, Option<&str>) {
    let label = |key: &str| node.labels().and_then(|l| l.get(key)).map(String::as_str);
    (label("topology.kubernetes.io/region"), label("topology.kubernetes.io/zone"))
}

fn interleave_zones(nodes: &[NodeInfo]) -> Vec<NodeIdx> {
    let mut zones: Vec<Vec<NodeIdx>> = Vec::new();
    let mut numbers = FxHashMap::default();
    for info in nodes {
        let Some(node) = info.node() else { continue };
        let number = *numbers.entry(zone(node)).or_insert_with(|| {
            zones.push(Vec::new());
            zones.len() - 1
        });
        zones[number].push(info.idx());
    }
    let longest = zones.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|turn| zones.iter().filter_map(move |z| z.get(turn).copied())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};

    fn info(pod: k8s_openapi::api::core::v1::Pod) -> Arc<PodInfo> {
        Arc::new(PodInfo::new(Arc::new(pod)))
    }

    #[test]
    fn an_assumed_pod_takes_room_until_forgotten_or_confirmed() {
        let mut cluster = Cluster::new();
        cluster.set_node(Arc::new(node("n1").cpu("2").build()));
        let p = info(pod("p").cpu("500m").build());
        let idx = cluster.node_named("n1").unwrap().idx();
        cluster.assume(p.clone(), idx).unwrap();
        assert_eq!(cluster.node(idx).requested().milli_cpu, 500);
        assert!(cluster.assume(p.clone(), idx).is_err());
        assert!(cluster.forget(p.uid()));
        assert_eq!(cluster.node(idx).requested().milli_cpu, 0);

        cluster.assume(p.clone(), idx).unwrap();
        cluster.set_pod(info(pod("p").cpu("500m").on("n1").build()));
        assert!(!cluster.forget(p.uid()), "confirmed pods stay");
        assert_eq!(cluster.node(idx).requested().milli_cpu, 500);
    }

    #[test]
    fn a_pod_bound_elsewhere_than_assumed_moves() {
        let mut cluster = Cluster::new();
        for name in ["n1", "n2"] {
            cluster.set_node(Arc::new(node(name).cpu("2").build()));
        }
        let idx = cluster.node_named("n1").unwrap().idx();
        cluster.assume(info(pod("p").cpu("1").build()), idx).unwrap();
        cluster.set_pod(info(pod("p").cpu("1").on("n2").build()));
        assert_eq!(cluster.node(idx).pods().len(), 0);
        assert_eq!(cluster.node_named("n2").unwrap().requested().milli_cpu, 1000);
    }

    #[test]
    fn a_removed_node_keeps_its_pods_accounted_but_is_not_scanned() {
        let mut cluster = Cluster::new();
        cluster.set_node(Arc::new(node("n1").build()));
        cluster.set_pod(info(pod("p").on("n1").build()));
        cluster.remove_node("n1");
        cluster.prepare(&PodInfo::new(Arc::new(pod("q").build())));
        assert!(cluster.order().is_empty() && cluster.node_named("n1").is_none());
        assert_eq!(cluster.pod_count(), 1);
        cluster.remove_pod("uid-p");
        assert_eq!(cluster.vacant.len(), 1, "the row is free again");
    }

    #[test]
    fn zones_take_turns_in_the_scanning_order() {
        let mut cluster = Cluster::new();
        for (name, zone) in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")] {
            cluster.set_node(Arc::new(node(name).label("topology.kubernetes.io/zone", zone).build()));
        }
        cluster.prepare(&PodInfo::new(Arc::new(pod("q").build())));
        let names: Vec<_> = cluster.order().iter().map(|i| cluster.node(*i).name().to_owned()).collect();
        assert_eq!(names, ["a1", "b1", "a2", "a3"]);
    }

    #[test]
    fn classes_vanish_with_their_last_pod() {
        let mut cluster = Cluster::new();
        cluster.set_node(Arc::new(node("n1").build()));
        cluster.set_pod(info(pod("p").label("app", "x").anti_affinity("app", "x", "zone").on("n1").build()));
        assert_eq!(cluster.classes().in_namespace("default").count(), 1);
        assert_eq!(cluster.classes().terms().count(), 1);
        cluster.remove_pod("uid-p");
        assert_eq!(cluster.classes().in_namespace("default").count(), 0);
        assert!(cluster.classes().has_no_terms());
    }
}
