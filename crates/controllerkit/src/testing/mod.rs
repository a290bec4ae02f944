//! Builders for tests: `pod("a").on("n1").ready()`.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Container, Node, NodeCondition, NodeSpec, NodeStatus, Pod, PodCondition, PodSpec, PodStatus, Taint,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

/// A second of the epoch, as a time.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a second that fits")
}

/// A pod under construction.
pub struct PodBuilder(Pod);

/// A pending pod without a node.
pub fn pod(name: &str) -> PodBuilder {
    PodBuilder(Pod {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("ns".into()),
            uid: Some(format!("uid-{name}")),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: vec![Container { name: "c".into(), ..Container::default() }],
            ..PodSpec::default()
        }),
        status: Some(PodStatus { phase: Some("Pending".into()), ..PodStatus::default() }),
    })
}

impl PodBuilder {
    fn status(&mut self) -> &mut PodStatus {
        self.0.status.get_or_insert_default()
    }

    pub fn on(mut self, node: &str) -> Self {
        self.0.spec.get_or_insert_default().node_name = Some(node.into());
        self
    }

    pub fn phase(mut self, phase: &str) -> Self {
        self.status().phase = Some(phase.into());
        self
    }

    /// Running and ready since the epoch.
    pub fn ready(self) -> Self {
        self.ready_since(0)
    }

    pub fn ready_since(mut self, second: i64) -> Self {
        let condition = PodCondition {
            type_: "Ready".into(),
            status: "True".into(),
            last_transition_time: Some(Time(at(second))),
            ..PodCondition::default()
        };
        self.status().conditions.get_or_insert_default().push(condition);
        self.phase("Running")
    }

    pub fn deleting(mut self) -> Self {
        self.0.metadata.deletion_timestamp = Some(Time(at(0)));
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0.metadata.labels.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0.metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    pub fn finalizer(mut self, name: &str) -> Self {
        self.0.metadata.finalizers.get_or_insert_default().push(name.into());
        self
    }

    pub fn address(mut self, ip: &str) -> Self {
        self.status().pod_ip = Some(ip.into());
        self
    }

    /// Whatever else a test needs.
    pub fn with(mut self, change: impl FnOnce(&mut Pod)) -> Self {
        change(&mut self.0);
        self
    }

    pub fn build(self) -> Arc<Pod> {
        Arc::new(self.0)
    }
}

/// A node under construction.
pub struct NodeBuilder(Node);

/// A node that never reported.
pub fn node(name: &str) -> NodeBuilder {
    let metadata = ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    NodeBuilder(Node { metadata, spec: Some(NodeSpec::default()), status: Some(NodeStatus::default()) })
}

impl NodeBuilder {
    pub fn condition(mut self, type_: &str, status: &str) -> Self {
        let condition = NodeCondition { type_: type_.into(), status: status.into(), ..NodeCondition::default() };
        self.0.status.get_or_insert_default().conditions.get_or_insert_default().push(condition);
        self
    }

    pub fn ready(self) -> Self {
        self.condition("Ready", "True")
    }

    pub fn taint(mut self, key: &str, effect: &str) -> Self {
        let taint = Taint { key: key.into(), effect: effect.into(), ..Taint::default() };
        self.0.spec.get_or_insert_default().taints.get_or_insert_default().push(taint);
        self
    }

    pub fn cordoned(mut self) -> Self {
        self.0.spec.get_or_insert_default().unschedulable = Some(true);
        self
    }

    pub fn build(self) -> Arc<Node> {
        Arc::new(self.0)
    }
}
