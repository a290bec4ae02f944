//! What a pod has in common with its replicas: labels, affinities and tolerations, parsed once and shared.
//!
//! Thousands of pods come from one template. [`Shapes`] recognises them, so that they hold one [`Shape`] between them:
//! that is most of what is known of a pod, and comparing two replicas is comparing two pointers.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};

use k8s_openapi::api::core::v1::{self as core, Pod};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};

use crate::model::resources::{Declared, declared};
use rules::selectors::{LabelSelector, Labels, PreferredNodeTerm, RequiredNodeAffinity, SelectorError};

/// A port that a pod takes on its host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Address; `0.0.0.0` stands for all of them.
    pub ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    pub port: i32,
}

impl HostPort {
    /// Whether both cannot be taken on one host.
    pub fn conflicts(&self, other: &Self) -> bool {
        const ALL: &str = "0.0.0.0";
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == ALL || other.ip == ALL || self.ip == other.ip)
    }
}

/// One term of inter-pod affinity or anti-affinity. Equal terms of different pods are equal values.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AffinityTerm {
    /// Namespaces by name, in order.
    pub namespaces: Vec<String>,
    pub namespace_selector: LabelSelector,
    pub selector: LabelSelector,
    /// The node label that defines a domain.
    pub topology_key: String,
}

impl AffinityTerm {
    fn parse(namespace: &str, term: &core::PodAffinityTerm) -> Result<Self, SelectorError> {
        let mut namespaces = term.namespaces.clone().unwrap_or_default();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.push(namespace.to_owned());
        }
        namespaces.sort_unstable();
        namespaces.dedup();
        Ok(Self {
            namespaces,
            namespace_selector: LabelSelector::parse(term.namespace_selector.as_ref())?,
            selector: LabelSelector::parse(term.label_selector.as_ref())?,
            topology_key: term.topology_key.clone(),
        })
    }

    /// Whether a pod of this namespace, with these labels, is meant.
    pub fn matches(&self, namespace: &str, namespace_labels: Option<&Labels>, labels: Option<&Labels>) -> bool {
        (self.namespaces.iter().any(|n| n == namespace) || self.namespace_selector.matches(namespace_labels))
            && self.selector.matches(labels)
    }
}

/// Inter-pod affinity of a pod. Weights of the required lists are unused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct PodAffinity {
    /// Pods that must be in the same domain.
    pub required: Vec<AffinityTerm>,
    /// Pods that must not be.
    pub required_anti: Vec<AffinityTerm>,
    /// Pods that should be, by weight.
    pub preferred: Vec<(i32, AffinityTerm)>,
    /// Pods that should not be, by weight.
    pub preferred_anti: Vec<(i32, AffinityTerm)>,
}

/// A topology spread constraint, with `matchLabelKeys` already merged into the selector.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SpreadConstraint {
    /// How uneven the domains may be.
    pub max_skew: i32,
    /// The node label that defines a domain.
    pub topology_key: String,
    /// Pods that are counted.
    pub selector: LabelSelector,
    /// Fewer domains than this count as having an empty one.
    pub min_domains: i32,
    /// Whether nodes outside the pod's node affinity are left out.
    pub honor_affinity: bool,
    /// Whether nodes with untolerated taints are left out.
    pub honor_taints: bool,
    /// `DoNotSchedule` as opposed to `ScheduleAnyway`.
    pub hard: bool,
}

impl SpreadConstraint {
    /// Parses one constraint of a pod with these labels.
    pub fn parse(constraint: &core::TopologySpreadConstraint, labels: Option<&Labels>) -> Result<Self, SelectorError> {
        let mut selector = LabelSelector::parse(constraint.label_selector.as_ref())?;
        let keys = constraint.match_label_keys.iter().flatten();
        let narrowed: Labels = keys.filter_map(|key| Some((key.clone(), labels?.get(key)?.clone()))).collect();
        if !narrowed.is_empty() {
            selector = selector.and(&LabelSelector::from_labels(&narrowed));
        }
        Ok(Self {
            max_skew: constraint.max_skew,
            topology_key: constraint.topology_key.clone(),
            selector,
            min_domains: constraint.min_domains.unwrap_or(1),
            honor_affinity: constraint.node_affinity_policy.as_deref() != Some("Ignore"),
            honor_taints: constraint.node_taints_policy.as_deref() == Some("Honor"),
            hard: constraint.when_unsatisfiable == "DoNotSchedule",
        })
    }
}

/// The controller of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    pub api_version: String,
    pub kind: String,
    pub name: String,
}

/// What a pod has in common with its replicas.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Shape {
    pub scheduler_name: String,
    pub labels: Option<Labels>,
    /// The controller among the owners.
    pub owner: Option<Box<Owner>>,
    pub tolerations: Box<[core::Toleration]>,
    /// The names of the scheduling gates.
    pub gates: Box<[String]>,
    /// The images of containers and volumes.
    pub images: Box<[String]>,
    /// Features that the node must declare.
    pub features: Box<[&'static str]>,
    /// Whether the pod needs devices allocated to it.
    pub claims_devices: bool,
    /// Whether others may be evicted for the pod.
    pub never_preempts: bool,
    /// Ports taken on the host.
    pub host_ports: Box<[HostPort]>,
    /// `nodeSelector` and required node affinity.
    pub required_node: Option<Box<RequiredNodeAffinity>>,
    pub preferred_nodes: Box<[PreferredNodeTerm]>,
    /// Inter-pod affinity, when the pod has any.
    pub affinity: Option<Box<PodAffinity>>,
    /// Spread constraints in the order of the spec.
    pub spread: Box<[SpreadConstraint]>,
    /// Requests and limits as the spec has them.
    pub declared: Declared,
    /// Why the affinity or the constraints could not be read.
    pub invalid: Option<Box<SelectorError>>,
    /// A digest of what local filters and scores look at.
    pub(super) needs: u64,
}

impl Shape {
    /// Reads a pod. One whose selectors are invalid is kept, with the reason: scheduling reports it.
    pub fn new(pod: &Pod) -> Self {
        let Some(spec) = pod.spec.as_ref() else { return Self::default() };
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let labels = pod.metadata.labels.as_ref();
        let mut invalid = None;
        let affinity = match spec.affinity.as_ref().map(|a| parse_affinity(namespace, a)) {
            Some(Ok(affinity)) => (affinity != PodAffinity::default()).then(|| Box::new(affinity)),
            Some(Err(error)) => {
                invalid = Some(Box::new(error));
                None
            }
            None => None,
        };
        let constraints = spec.topology_spread_constraints.iter().flatten();
        let spread = match constraints.map(|c| SpreadConstraint::parse(c, labels)).collect() {
            Ok(constraints) => constraints,
            Err(error) => {
                invalid = invalid.or(Some(Box::new(error)));
                Box::default()
            }
        };
        let required_node = RequiredNodeAffinity::parse(Some(spec));
        let node_affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
        let preferred = node_affinity.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref());
        let mut shape = Self {
            scheduler_name: spec.scheduler_name.clone().unwrap_or_else(|| "default-scheduler".to_owned()),
            labels: labels.cloned(),
            owner: owner(pod),
            tolerations: spec.tolerations.clone().unwrap_or_default().into(),
            gates: spec.scheduling_gates.iter().flatten().map(|g| g.name.clone()).collect(),
            images: images(spec),
            features: features(spec),
            claims_devices: spec.resource_claims.as_ref().is_some_and(|claims| !claims.is_empty()),
            never_preempts: spec.preemption_policy.as_deref() == Some("Never"),
            host_ports: host_ports(spec),
            required_node: (!required_node.is_empty()).then(|| Box::new(required_node)),
            preferred_nodes: PreferredNodeTerm::parse_all(preferred).into(),
            affinity,
            spread,
            declared: declared(spec),
            invalid,
            needs: 0,
        };
        let mut hasher = FxHasher::default();
        shape.hash_needs(&mut hasher);
        shape.needs = hasher.finish();
        shape
    }

    fn hash_needs(&self, hasher: &mut FxHasher) {
        (&self.scheduler_name, &self.host_ports, &self.required_node, &self.preferred_nodes).hash(hasher);
        for t in &self.tolerations {
            (&t.key, &t.operator, &t.value, &t.effect).hash(hasher);
        }
        (&self.images, &self.features).hash(hasher);
    }

    /// Whether local filters and scores see no difference.
    pub(super) fn has_same_needs(&self, other: &Self) -> bool {
        self.needs == other.needs
            && self.scheduler_name == other.scheduler_name
            && self.host_ports == other.host_ports
            && self.required_node == other.required_node
            && self.preferred_nodes == other.preferred_nodes
            && self.tolerations == other.tolerations
            && self.images == other.images
            && self.features == other.features
    }

    fn digest(&self) -> u64 {
        let mut hasher = FxHasher::default();
        self.needs.hash(&mut hasher);
        (&self.labels, &self.owner, &self.gates, &self.affinity, &self.spread).hash(&mut hasher);
        hasher.finish()
    }
}

/// The shapes of the pods that are known.
#[derive(Debug, Default)]
pub struct Shapes(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_digest: FxHashMap<u64, Vec<Weak<Shape>>>,
    /// How many entries there were after the last look for dead ones.
    lately: usize,
}

impl Shapes {
    /// The one copy of a shape.
    pub fn share(&self, shape: Shape) -> Arc<Shape> {
        let mut known = self.0.lock();
        if known.by_digest.len() > 2 * known.lately + 64 {
            known.by_digest.retain(|_, same| {
                same.retain(|shape| shape.strong_count() > 0);
                !same.is_empty()
            });
            known.lately = known.by_digest.len();
        }
        let same = known.by_digest.entry(shape.digest()).or_default();
        if let Some(held) = same.iter().filter_map(Weak::upgrade).find(|held| **held == shape) {
            return held;
        }
        let shape = Arc::new(shape);
        same.push(Arc::downgrade(&shape));
        shape
    }
}

fn owner(pod: &Pod) -> Option<Box<Owner>> {
    let owner = rules::owners::controller(&pod.metadata)?;
    Some(Box::new(Owner { api_version: owner.api_version.clone(), kind: owner.kind.clone(), name: owner.name.clone() }))
}

fn images(spec: &core::PodSpec) -> Box<[String]> {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let of_containers = containers.map(|c| c.image.clone().unwrap_or_default());
    let of_volumes = spec.volumes.iter().flatten().filter_map(|v| v.image.as_ref());
    of_containers.chain(of_volumes.map(|i| i.reference.clone().unwrap_or_default())).collect()
}

/// Features of kubelets that not all of them have yet and the pod relies on.
fn features(spec: &core::PodSpec) -> Box<[&'static str]> {
    let mut features = Vec::new();
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    if containers.any(|c| c.restart_policy_rules.iter().flatten().any(|r| r.action == "RestartAllContainers")) {
        features.push("RestartAllContainersOnContainerExits");
    }
    if spec.host_network == Some(true) && spec.host_users == Some(false) {
        features.push("UserNamespacesHostNetworkSupport");
    }
    features.into()
}

fn parse_affinity(namespace: &str, affinity: &core::Affinity) -> Result<PodAffinity, SelectorError> {
    let required = |terms: Option<&Vec<core::PodAffinityTerm>>| {
        terms.into_iter().flatten().map(|t| AffinityTerm::parse(namespace, t)).collect::<Result<Vec<_>, _>>()
    };
    let preferred = |terms: Option<&Vec<core::WeightedPodAffinityTerm>>| {
        let weighted = terms.into_iter().flatten();
        weighted
            .map(|t| Ok((t.weight, AffinityTerm::parse(namespace, &t.pod_affinity_term)?)))
            .collect::<Result<Vec<_>, _>>()
    };
    let (to, away) = (affinity.pod_affinity.as_ref(), affinity.pod_anti_affinity.as_ref());
    Ok(PodAffinity {
        required: required(to.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()))?,
        required_anti: required(away.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref()))?,
        preferred: preferred(to.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()))?,
        preferred_anti: preferred(away.and_then(|a| a.preferred_during_scheduling_ignored_during_execution.as_ref()))?,
    })
}

/// Host ports of the containers that run as long as the pod: sidecars included, other init containers not.
fn host_ports(spec: &core::PodSpec) -> Box<[HostPort]> {
    let sidecars = spec.init_containers.iter().flatten().filter(|c| c.restart_policy.as_deref() == Some("Always"));
    sidecars
        .chain(&spec.containers)
        .flat_map(|c| c.ports.iter().flatten())
        .filter_map(|p| {
            let port = p.host_port.filter(|port| *port > 0)?;
            Some(HostPort {
                ip: p.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned()),
                protocol: p.protocol.clone().filter(|x| !x.is_empty()).unwrap_or_else(|| "TCP".to_owned()),
                port,
            })
        })
        .collect()
}
