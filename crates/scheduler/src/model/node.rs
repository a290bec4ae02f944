//! A node as scheduling sees it: capacity, what is taken of it, and the pods that take it.
//!
//! Nodes live in one dense table of the cluster model and are addressed by [`NodeIdx`]; a scan over them touches
//! contiguous memory and follows no pointer for the common questions (room, ports, taints).

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Taint};

use crate::model::pod::{HostPort, PodInfo};
use crate::model::resources::Resources;
use rules::selectors::{Labels, NodeFacts};
use rules::tolerations::repels;

/// Position of a node in the cluster model's table; stable while the node, or a pod on it, is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeIdx(pub u32);

impl NodeIdx {
    /// As an index into a table with a row per node.
    pub fn row(self) -> usize {
        self.0 as usize
    }
}

/// What scheduling knows of a node.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    idx: NodeIdx,
    /// Grows with every change of this node; equal generations mean equal contents.
    generation: u64,
    allocatable: Resources,
    allowed_pods: i64,
    requested: Resources,
    non_zero: (i64, i64),
    repelling_taints: bool,
    discouraging_taints: bool,
    unschedulable: bool,
    pods: Vec<Arc<PodInfo>>,
    ports: Vec<HostPort>,
    name: Arc<str>,
    node: Option<Arc<Node>>,
}

impl NodeInfo {
    /// A node of which only the name is known: a pod claims to be on it.
    pub(crate) fn unknown(idx: NodeIdx, name: Arc<str>) -> Self {
        Self {
            idx,
            generation: 0,
            allocatable: Resources::default(),
            allowed_pods: 0,
            requested: Resources::default(),
            non_zero: (0, 0),
            repelling_taints: false,
            discouraging_taints: false,
            unschedulable: false,
            pods: Vec::new(),
            ports: Vec::new(),
            name,
            node: None,
        }
    }

    pub(crate) fn set_node(&mut self, node: Option<Arc<Node>>, generation: u64) {
        self.generation = generation;
        let status = node.as_ref().and_then(|n| n.status.as_ref());
        (self.allocatable, self.allowed_pods) = Resources::from_list(status.and_then(|s| s.allocatable.as_ref()));
        let spec = node.as_ref().and_then(|n| n.spec.as_ref());
        let taints = spec.and_then(|s| s.taints.as_deref()).unwrap_or_default();
        self.repelling_taints = taints.iter().any(repels);
        self.discouraging_taints = taints.iter().any(|t| t.effect == "PreferNoSchedule");
        self.unschedulable = spec.and_then(|s| s.unschedulable).unwrap_or(false);
        self.node = node;
    }

    pub(crate) fn touch(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// Places a pod. Public for what-if copies; the cluster model keeps its own nodes through its own methods.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>, generation: u64) {
        self.account(&pod, 1);
        self.ports.extend(pod.host_ports.iter().cloned());
        self.pods.push(pod);
        self.generation = generation;
    }

    /// Takes a pod away; `false` when it was not here.
    pub fn remove_pod(&mut self, uid: &str, generation: u64) -> bool {
        let Some(position) = self.pods.iter().position(|p| &**p.uid() == uid) else { return false };
        let pod = self.pods.swap_remove(position);
        self.account(&pod, -1);
        for port in &pod.host_ports {
            if let Some(held) = self.ports.iter().position(|p| p == port) {
                self.ports.swap_remove(held);
            }
        }
        self.generation = generation;
        true
    }

    fn account(&mut self, pod: &PodInfo, sign: i64) {
        self.requested.add(pod.requests(), sign);
        let (cpu, memory) = pod.non_zero_requests();
        self.non_zero.0 += sign * cpu;
        self.non_zero.1 += sign * memory;
    }

    /// Where the node is in tables with a row per node.
    pub fn idx(&self) -> NodeIdx {
        self.idx
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn shared_name(&self) -> &Arc<str> {
        &self.name
    }

    /// Grows with every change of this node.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The object; `None` while only pods vouch for the node.
    pub fn node(&self) -> Option<&Arc<Node>> {
        self.node.as_ref()
    }

    pub fn allocatable(&self) -> &Resources {
        &self.allocatable
    }

    /// `status.allocatable.pods`.
    pub fn allowed_pods(&self) -> i64 {
        self.allowed_pods
    }

    /// The sum of the requests of the pods here.
    pub fn requested(&self) -> &Resources {
        &self.requested
    }

    /// CPU and memory requested, with a default for containers that request none.
    pub fn non_zero_requested(&self) -> (i64, i64) {
        self.non_zero
    }

    /// The pods here, assumed ones included, in no particular order.
    pub fn pods(&self) -> &[Arc<PodInfo>] {
        &self.pods
    }

    /// The host ports taken.
    pub fn ports(&self) -> &[HostPort] {
        &self.ports
    }

    pub fn taints(&self) -> &[Taint] {
        self.node.as_ref().and_then(|n| n.spec.as_ref()?.taints.as_deref()).unwrap_or_default()
    }

    /// Whether any taint keeps intolerant pods off.
    pub fn has_repelling_taints(&self) -> bool {
        self.repelling_taints
    }

    /// Whether any taint merely discourages intolerant pods.
    pub fn has_discouraging_taints(&self) -> bool {
        self.discouraging_taints
    }

    pub fn is_unschedulable(&self) -> bool {
        self.unschedulable
    }
}

impl NodeFacts for NodeInfo {
    fn name(&self) -> &str {
        &self.name
    }

    fn labels(&self) -> Option<&Labels> {
        self.node.as_ref()?.metadata.labels.as_ref()
    }
}
