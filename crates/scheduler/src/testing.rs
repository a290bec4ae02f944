//! Builders of pods and nodes for tests and benchmarks: `pod("a").cpu("100m").on("n1")`, `node("n1").taint(...)`.

mod node;

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, ContainerStatus, NodeAffinity, NodeSelector, NodeSelectorRequirement,
    NodeSelectorTerm, PersistentVolumeClaimVolumeSource, Pod, PodAffinity, PodAffinityTerm, PodAntiAffinity,
    PodCondition, PodResourceClaim, PodSchedulingGate, PodSpec, PodStatus, PreferredSchedulingTerm,
    ResourceRequirements, Toleration, TopologySpreadConstraint, Volume, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference, Time};

use crate::model::pod::PodInfo;
pub use node::{NodeBuilder, node};

#[derive(Debug, Clone)]
pub struct ContainerBuilder(Container);

/// A container of this name.
pub fn container(name: &str) -> ContainerBuilder {
    ContainerBuilder(Container { name: name.into(), ..Default::default() })
}

impl ContainerBuilder {
    pub fn cpu(self, quantity: &str) -> Self {
        self.request("cpu", quantity)
    }

    pub fn memory(self, quantity: &str) -> Self {
        self.request("memory", quantity)
    }

    pub fn request(mut self, name: &str, quantity: &str) -> Self {
        let resources = self.0.resources.get_or_insert_with(ResourceRequirements::default);
        resources.requests.get_or_insert_default().insert(name.into(), Quantity(quantity.into()));
        self
    }

    /// Requests and limits any resource, as extended ones want it.
    pub fn limit(mut self, name: &str, quantity: &str) -> Self {
        self = self.request(name, quantity);
        let resources = self.0.resources.get_or_insert_with(ResourceRequirements::default);
        resources.limits.get_or_insert_default().insert(name.into(), Quantity(quantity.into()));
        self
    }

    /// Makes an init container a sidecar.
    pub fn always(mut self) -> Self {
        self.0.restart_policy = Some("Always".into());
        self
    }

    pub fn image(mut self, image: &str) -> Self {
        self.0.image = Some(image.into());
        self
    }

    /// Takes a host port.
    pub fn host_port(mut self, ip: &str, protocol: &str, port: i32) -> Self {
        self.0.ports.get_or_insert_default().push(ContainerPort {
            container_port: port,
            host_port: Some(port),
            host_ip: (!ip.is_empty()).then(|| ip.into()),
            protocol: (!protocol.is_empty()).then(|| protocol.into()),
            name: None,
        });
        self
    }
}

#[derive(Debug, Clone)]
pub struct PodBuilder(Pod);

/// A pod of this name in namespace `default`, with uid `uid-<name>`.
pub fn pod(name: &str) -> PodBuilder {
    PodBuilder(Pod {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("default".into()),
            uid: Some(format!("uid-{name}")),
            resource_version: Some("1".into()),
            ..Default::default()
        },
        spec: Some(PodSpec { scheduler_name: Some("default-scheduler".into()), ..Default::default() }),
        status: Some(PodStatus::default()),
    })
}

impl PodBuilder {
    fn spec(&mut self) -> &mut PodSpec {
        self.0.spec.get_or_insert_default()
    }

    fn status(&mut self) -> &mut PodStatus {
        self.0.status.get_or_insert_default()
    }

    pub fn build(self) -> Pod {
        self.0
    }

    /// The pod as scheduling sees it.
    pub fn info(self) -> Arc<PodInfo> {
        Arc::new(PodInfo::new(Arc::new(self.0)))
    }

    pub fn namespace(mut self, namespace: &str) -> Self {
        self.0.metadata.namespace = Some(namespace.into());
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0.metadata.labels.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    /// With a resource version.
    pub fn version(mut self, version: &str) -> Self {
        self.0.metadata.resource_version = Some(version.into());
        self
    }

    pub fn owner(mut self, api_version: &str, kind: &str, name: &str) -> Self {
        self.0.metadata.owner_references.get_or_insert_default().push(OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            controller: Some(true),
            ..Default::default()
        });
        self
    }

    pub fn terminating(mut self) -> Self {
        self.0.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        self
    }

    /// Bound to a node.
    pub fn on(mut self, node: &str) -> Self {
        self.spec().node_name = Some(node.into());
        self
    }

    /// Nominated to a node.
    pub fn nominated(mut self, node: &str) -> Self {
        self.status().nominated_node_name = Some(node.into());
        self
    }

    /// Started at a second of the epoch.
    pub fn started(mut self, second: i64) -> Self {
        let time = k8s_openapi::jiff::Timestamp::from_second(second).unwrap_or_default();
        self.status().start_time = Some(Time(time));
        self
    }

    pub fn priority(mut self, priority: i32) -> Self {
        self.spec().priority = Some(priority);
        self
    }

    pub fn never_preempts(mut self) -> Self {
        self.spec().preemption_policy = Some("Never".into());
        self
    }

    pub fn scheduler(mut self, name: &str) -> Self {
        self.spec().scheduler_name = Some(name.into());
        self
    }

    /// With one more container.
    pub fn with(mut self, container: ContainerBuilder) -> Self {
        self.spec().containers.push(container.0);
        self
    }

    /// With one more init container.
    pub fn with_init(mut self, container: ContainerBuilder) -> Self {
        self.spec().init_containers.get_or_insert_default().push(container.0);
        self
    }

    /// With one more container that requests CPU.
    pub fn cpu(self, quantity: &str) -> Self {
        self.with(container("cpu").cpu(quantity))
    }

    /// With one more container that requests memory.
    pub fn memory(self, quantity: &str) -> Self {
        self.with(container("memory").memory(quantity))
    }

    pub fn pod_level(mut self, name: &str, quantity: &str) -> Self {
        let resources = self.spec().resources.get_or_insert_default();
        resources.requests.get_or_insert_default().insert(name.into(), Quantity(quantity.into()));
        self
    }

    pub fn overhead(mut self, name: &str, quantity: &str) -> Self {
        self.spec().overhead.get_or_insert_default().insert(name.into(), Quantity(quantity.into()));
        self
    }

    /// With a container whose granted and running CPU differ from the request.
    pub fn resized(mut self, container: &str, granted: &str, running: &str) -> Self {
        let cpu = |q: &str| Some(BTreeMap::from([("cpu".to_owned(), Quantity(q.into()))]));
        self.status().container_statuses.get_or_insert_default().push(ContainerStatus {
            name: container.into(),
            allocated_resources: cpu(granted),
            resources: Some(ResourceRequirements { requests: cpu(running), ..Default::default() }),
            ..Default::default()
        });
        self
    }

    pub fn condition(mut self, kind: &str, status: &str, reason: &str) -> Self {
        self.status().conditions.get_or_insert_default().push(PodCondition {
            type_: kind.into(),
            status: status.into(),
            reason: Some(reason.into()),
            ..Default::default()
        });
        self
    }

    /// With a scheduling gate.
    pub fn gate(mut self, name: &str) -> Self {
        self.spec().scheduling_gates.get_or_insert_default().push(PodSchedulingGate { name: name.into() });
        self
    }

    /// With a toleration; empty parts are left out.
    pub fn tolerates(mut self, key: &str, operator: &str, value: &str, effect: &str) -> Self {
        let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        self.spec().tolerations.get_or_insert_default().push(Toleration {
            key: some(key),
            operator: some(operator),
            value: some(value),
            effect: some(effect),
            toleration_seconds: None,
        });
        self
    }

    /// With a node selector label.
    pub fn node_selector(mut self, key: &str, value: &str) -> Self {
        self.spec().node_selector.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    fn affinity(&mut self) -> &mut Affinity {
        self.spec().affinity.get_or_insert_default()
    }

    /// With required node affinity: one more term of one requirement on a label.
    pub fn node_affinity(mut self, key: &str, operator: &str, values: &[&str]) -> Self {
        let term =
            NodeSelectorTerm { match_expressions: Some(vec![requirement(key, operator, values)]), match_fields: None };
        self.required_node_terms().push(term);
        self
    }

    /// With required node affinity: one more term on the node's name.
    pub fn node_field(mut self, operator: &str, values: &[&str]) -> Self {
        let term = NodeSelectorTerm {
            match_expressions: None,
            match_fields: Some(vec![requirement("metadata.name", operator, values)]),
        };
        self.required_node_terms().push(term);
        self
    }

    fn required_node_terms(&mut self) -> &mut Vec<NodeSelectorTerm> {
        let affinity = self.affinity().node_affinity.get_or_insert_with(NodeAffinity::default);
        let selector =
            affinity.required_during_scheduling_ignored_during_execution.get_or_insert_with(NodeSelector::default);
        &mut selector.node_selector_terms
    }

    /// With preferred node affinity on a label.
    pub fn prefers_node(mut self, weight: i32, key: &str, operator: &str, values: &[&str]) -> Self {
        let preference =
            NodeSelectorTerm { match_expressions: Some(vec![requirement(key, operator, values)]), match_fields: None };
        let affinity = self.affinity().node_affinity.get_or_insert_with(NodeAffinity::default);
        let terms = affinity.preferred_during_scheduling_ignored_during_execution.get_or_insert_default();
        terms.push(PreferredSchedulingTerm { weight, preference });
        self
    }

    /// With required affinity to pods of a label, in a domain.
    pub fn affinity_to(mut self, key: &str, value: &str, topology_key: &str) -> Self {
        let affinity = self.affinity().pod_affinity.get_or_insert_with(PodAffinity::default);
        let terms = affinity.required_during_scheduling_ignored_during_execution.get_or_insert_default();
        terms.push(term(key, value, topology_key));
        self
    }

    /// With required anti-affinity to pods of a label, in a domain.
    pub fn anti_affinity(mut self, key: &str, value: &str, topology_key: &str) -> Self {
        let affinity = self.affinity().pod_anti_affinity.get_or_insert_with(PodAntiAffinity::default);
        let terms = affinity.required_during_scheduling_ignored_during_execution.get_or_insert_default();
        terms.push(term(key, value, topology_key));
        self
    }

    /// With preferred affinity to pods of a label, in a domain.
    pub fn prefers_near(mut self, weight: i32, key: &str, value: &str, topology_key: &str) -> Self {
        let affinity = self.affinity().pod_affinity.get_or_insert_with(PodAffinity::default);
        let terms = affinity.preferred_during_scheduling_ignored_during_execution.get_or_insert_default();
        terms.push(WeightedPodAffinityTerm { weight, pod_affinity_term: term(key, value, topology_key) });
        self
    }

    /// With preferred anti-affinity to pods of a label, in a domain.
    pub fn prefers_away(mut self, weight: i32, key: &str, value: &str, topology_key: &str) -> Self {
        let affinity = self.affinity().pod_anti_affinity.get_or_insert_with(PodAntiAffinity::default);
        let terms = affinity.preferred_during_scheduling_ignored_during_execution.get_or_insert_default();
        terms.push(WeightedPodAffinityTerm { weight, pod_affinity_term: term(key, value, topology_key) });
        self
    }

    /// Changes the last required affinity term.
    pub fn last_affinity(mut self, change: impl FnOnce(&mut PodAffinityTerm)) -> Self {
        let terms = self
            .affinity()
            .pod_affinity
            .as_mut()
            .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_mut());
        if let Some(term) = terms.and_then(|t| t.last_mut()) {
            change(term);
        }
        self
    }

    /// Changes the last required anti-affinity term.
    pub fn last_anti_affinity(mut self, change: impl FnOnce(&mut PodAffinityTerm)) -> Self {
        let terms = self
            .affinity()
            .pod_anti_affinity
            .as_mut()
            .and_then(|a| a.required_during_scheduling_ignored_during_execution.as_mut());
        if let Some(term) = terms.and_then(|t| t.last_mut()) {
            change(term);
        }
        self
    }

    /// With a spread constraint over pods of a label.
    pub fn spread(mut self, max_skew: i32, topology_key: &str, when: &str, key: &str, value: &str) -> Self {
        self.spec().topology_spread_constraints.get_or_insert_default().push(TopologySpreadConstraint {
            max_skew,
            topology_key: topology_key.into(),
            when_unsatisfiable: when.into(),
            label_selector: Some(selector(key, value)),
            ..Default::default()
        });
        self
    }

    /// Changes the last spread constraint.
    pub fn last_spread(mut self, change: impl FnOnce(&mut TopologySpreadConstraint)) -> Self {
        if let Some(last) = self.spec().topology_spread_constraints.as_mut().and_then(|c| c.last_mut()) {
            change(last);
        }
        self
    }

    /// With a volume from a claim.
    pub fn claim(mut self, name: &str) -> Self {
        self.spec().volumes.get_or_insert_default().push(Volume {
            name: name.into(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: name.into(),
                read_only: None,
            }),
            ..Default::default()
        });
        self
    }

    /// With the host's network but users of its own, which not every kubelet can give it.
    pub fn isolated_on_host_network(mut self) -> Self {
        (self.spec().host_network, self.spec().host_users) = (Some(true), Some(false));
        self
    }

    /// With a claim of devices.
    pub fn resource_claim(mut self, name: &str) -> Self {
        let claim =
            PodResourceClaim { name: name.into(), resource_claim_name: Some(name.into()), ..Default::default() };
        self.spec().resource_claims.get_or_insert_default().push(claim);
        self
    }

    pub fn volume(mut self, volume: Volume) -> Self {
        self.spec().volumes.get_or_insert_default().push(volume);
        self
    }
}

/// A selector of one label.
pub fn selector(key: &str, value: &str) -> LabelSelector {
    LabelSelector { match_labels: Some(BTreeMap::from([(key.into(), value.into())])), match_expressions: None }
}

fn term(key: &str, value: &str, topology_key: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        label_selector: Some(selector(key, value)),
        topology_key: topology_key.into(),
        ..Default::default()
    }
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: key.into(),
        operator: operator.into(),
        values: (!values.is_empty()).then(|| values.iter().map(|v| (*v).to_owned()).collect()),
    }
}
