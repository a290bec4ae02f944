//! A pod as scheduling sees it: everything a plugin asks for, computed once.
//!
//! A [`PodInfo`] is immutable and shared: the queue, the cluster model and a binding under way hold the same one. Where a
//! pod *is* belongs to the cluster model, not here, because an assumed pod's object does not know it yet.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{self as core, Pod};
use rustc_hash::FxHasher;

use crate::resources::{PodRequests, Resources, pod_requests};
use crate::selector::{LabelSelector, Labels, PreferredNodeTerm, RequiredNodeAffinity, SelectorError};

/// A port that a pod takes on its host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Address; `0.0.0.0` stands for all of them.
    pub ip: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Port number.
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
    /// Namespaces by label.
    pub namespace_selector: LabelSelector,
    /// Pods by label.
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
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
        if !selector.is_nothing() {
            for key in constraint.match_label_keys.iter().flatten() {
                if let Some(value) = labels.and_then(|l| l.get(key)) {
                    selector.require(key, value, true);
                }
            }
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

/// What scheduling knows of a pod.
#[derive(Debug, Clone)]
pub struct PodInfo {
    /// The object, shared with the informer that delivered it.
    pub pod: Arc<Pod>,
    uid: Arc<str>,
    /// `spec.priority`, zero when absent.
    pub priority: i32,
    requests: PodRequests,
    /// Ports taken on the host.
    pub host_ports: Box<[HostPort]>,
    /// `nodeSelector` and required node affinity.
    pub required_node: Option<Box<RequiredNodeAffinity>>,
    /// Preferred node affinity.
    pub preferred_nodes: Box<[PreferredNodeTerm]>,
    /// Inter-pod affinity, when the pod has any.
    pub affinity: Option<Box<PodAffinity>>,
    /// Spread constraints in the order of the spec.
    pub spread: Box<[SpreadConstraint]>,
    /// Why the affinity or the constraints could not be read.
    pub invalid: Option<SelectorError>,
    /// A digest of what [`PodInfo::has_same_needs`] compares.
    needs: u64,
}

impl PodInfo {
    /// Reads a pod. A pod whose selectors are invalid is kept, with the reason: scheduling reports it.
    pub fn new(pod: Arc<Pod>) -> Self {
        let spec = pod.spec.as_ref();
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut invalid = None;
        let affinity = match spec.and_then(|s| s.affinity.as_ref()).map(|a| parse_affinity(namespace, a)) {
            Some(Ok(affinity)) => (affinity != PodAffinity::default()).then(|| Box::new(affinity)),
            Some(Err(error)) => {
                invalid = Some(error);
                None
            }
            None => None,
        };
        let constraints = spec.and_then(|s| s.topology_spread_constraints.as_ref()).into_iter().flatten();
        let spread = match constraints.map(|c| SpreadConstraint::parse(c, pod.metadata.labels.as_ref())).collect() {
            Ok(constraints) => constraints,
            Err(error) => {
                invalid = invalid.or(Some(error));
                Box::default()
            }
        };
        let required_node = RequiredNodeAffinity::parse(spec);
        let preferred_nodes = PreferredNodeTerm::parse_all(spec.and_then(|s| {
            s.affinity.as_ref()?.node_affinity.as_ref()?.preferred_during_scheduling_ignored_during_execution.as_ref()
        }));
        let mut info = Self {
            uid: pod.metadata.uid.as_deref().unwrap_or_default().into(),
            priority: spec.and_then(|s| s.priority).unwrap_or(0),
            requests: pod_requests(&pod),
            host_ports: host_ports(spec),
            required_node: (!required_node.is_empty()).then(|| Box::new(required_node)),
            preferred_nodes: preferred_nodes.into(),
            affinity,
            spread,
            invalid,
            needs: 0,
            pod,
        };
        info.needs = info.digest();
        info
    }

    fn digest(&self) -> u64 {
        let mut hasher = FxHasher::default();
        let Resources { milli_cpu, memory, ephemeral_storage, .. } = self.requests();
        (milli_cpu, memory, ephemeral_storage, self.scoring_requests(), self.scheduler_name(), self.node_name())
            .hash(&mut hasher);
        self.requests().scalars().hash(&mut hasher);
        (&self.host_ports, &self.required_node, &self.preferred_nodes).hash(&mut hasher);
        for t in self.tolerations() {
            (&t.key, &t.operator, &t.value, &t.effect).hash(&mut hasher);
        }
        self.images().for_each(|image| image.hash(&mut hasher));
        hasher.finish()
    }

    /// The images of containers and volumes.
    pub fn images(&self) -> impl Iterator<Item = &str> {
        let spec = self.pod.spec.as_ref();
        let containers = spec.into_iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers));
        let of_containers = containers.map(|c| c.image.as_deref().unwrap_or_default());
        let of_volumes =
            self.volumes().iter().filter_map(|v| v.image.as_ref()).map(|i| i.reference.as_deref().unwrap_or_default());
        of_containers.chain(of_volumes)
    }

    /// Whether another pod asks the same of a node, taken by itself: everything that local filters and scores look at.
    pub fn has_same_needs(&self, other: &Self) -> bool {
        self.needs == other.needs
            && self.requests == other.requests
            && self.scheduler_name() == other.scheduler_name()
            && self.node_name() == other.node_name()
            && self.host_ports == other.host_ports
            && self.required_node == other.required_node
            && self.preferred_nodes == other.preferred_nodes
            && self.tolerations() == other.tolerations()
            && self.images().eq(other.images())
    }

    /// `metadata.uid`: the identity of a pod, as names are used again.
    pub fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    /// `metadata.name`.
    pub fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap_or_default()
    }

    /// `metadata.namespace`.
    pub fn namespace(&self) -> &str {
        self.pod.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// `metadata.labels`.
    pub fn labels(&self) -> Option<&Labels> {
        self.pod.metadata.labels.as_ref()
    }

    /// `spec.nodeName`, when the API has one.
    pub fn node_name(&self) -> Option<&str> {
        self.pod.spec.as_ref()?.node_name.as_deref().filter(|n| !n.is_empty())
    }

    /// `status.nominatedNodeName`.
    pub fn nominated_node(&self) -> Option<&str> {
        self.pod.status.as_ref()?.nominated_node_name.as_deref().filter(|n| !n.is_empty())
    }

    /// `spec.schedulerName`.
    pub fn scheduler_name(&self) -> &str {
        self.pod.spec.as_ref().and_then(|s| s.scheduler_name.as_deref()).unwrap_or("default-scheduler")
    }

    /// Whether deletion has been asked for.
    pub fn is_terminating(&self) -> bool {
        self.pod.metadata.deletion_timestamp.is_some()
    }

    /// The requests that filters compare and nodes account for.
    pub fn requests(&self) -> &Resources {
        &self.requests.exact
    }

    /// CPU and memory as nodes account them for scoring.
    pub fn non_zero_requests(&self) -> (i64, i64) {
        self.requests.non_zero
    }

    /// CPU and memory as scoring sees them for the incoming pod.
    pub fn scoring_requests(&self) -> (i64, i64) {
        self.requests.scoring
    }

    /// `spec.tolerations`.
    pub fn tolerations(&self) -> &[core::Toleration] {
        self.pod.spec.as_ref().and_then(|s| s.tolerations.as_deref()).unwrap_or_default()
    }

    /// `spec.volumes`.
    pub fn volumes(&self) -> &[core::Volume] {
        self.pod.spec.as_ref().and_then(|s| s.volumes.as_deref()).unwrap_or_default()
    }

    /// Every topology key that inter-pod affinity and spread constraints use.
    pub fn topology_keys(&self) -> impl Iterator<Item = &str> {
        let terms = self.affinity.iter().flat_map(|a| {
            let required = a.required.iter().chain(&a.required_anti);
            required.chain(a.preferred.iter().chain(&a.preferred_anti).map(|(_, term)| term))
        });
        terms.map(|t| t.topology_key.as_str()).chain(self.spread.iter().map(|c| c.topology_key.as_str()))
    }

    /// Names of the claims that the pod's volumes refer to, generic ephemeral volumes included.
    pub fn claim_names(&self) -> impl Iterator<Item = ClaimRef<'_>> {
        self.volumes().iter().filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(claim), _) => Some(ClaimRef::Named(&claim.claim_name)),
            (None, Some(_)) => Some(ClaimRef::Ephemeral { pod: self.name(), volume: &volume.name }),
            (None, None) => None,
        })
    }
}

/// A claim as a pod refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimRef<'a> {
    /// By name.
    Named(&'a str),
    /// Made for the pod from a template; its name joins both with a dash.
    Ephemeral {
        /// The owning pod.
        pod: &'a str,
        /// The volume of the pod.
        volume: &'a str,
    },
}

impl ClaimRef<'_> {
    /// The claim's name.
    pub fn name(&self) -> String {
        match self {
            Self::Named(name) => (*name).to_owned(),
            Self::Ephemeral { pod, volume } => format!("{pod}-{volume}"),
        }
    }
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
fn host_ports(spec: Option<&core::PodSpec>) -> Box<[HostPort]> {
    let Some(spec) = spec else { return Box::default() };
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
