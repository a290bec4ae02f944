//! Builders of nodes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerImage, Node, NodeSpec, NodeStatus, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

#[derive(Debug, Clone)]
pub struct NodeBuilder(Node);

/// A node of this name with its hostname label and room for 110 pods, but no CPU or memory until given.
pub fn node(name: &str) -> NodeBuilder {
    NodeBuilder(Node {
        metadata: ObjectMeta {
            name: Some(name.into()),
            uid: Some(format!("uid-{name}")),
            labels: Some(BTreeMap::from([("kubernetes.io/hostname".to_owned(), name.to_owned())])),
            ..Default::default()
        },
        spec: Some(NodeSpec::default()),
        status: Some(NodeStatus {
            allocatable: Some(BTreeMap::from([("pods".to_owned(), Quantity("110".into()))])),
            ..Default::default()
        }),
    })
}

impl NodeBuilder {
    pub fn build(self) -> Node {
        self.0
    }

    pub fn cpu(self, quantity: &str) -> Self {
        self.allocatable("cpu", quantity)
    }

    pub fn memory(self, quantity: &str) -> Self {
        self.allocatable("memory", quantity)
    }

    /// With room for so many pods.
    pub fn pods(self, count: u32) -> Self {
        self.allocatable("pods", &count.to_string())
    }

    /// With any allocatable resource.
    pub fn allocatable(mut self, name: &str, quantity: &str) -> Self {
        let status = self.0.status.get_or_insert_default();
        status.allocatable.get_or_insert_default().insert(name.into(), Quantity(quantity.into()));
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0.metadata.labels.get_or_insert_default().insert(key.into(), value.into());
        self
    }

    pub fn without_label(mut self, key: &str) -> Self {
        self.0.metadata.labels.get_or_insert_default().remove(key);
        self
    }

    pub fn taint(mut self, key: &str, value: &str, effect: &str) -> Self {
        self.0.spec.get_or_insert_default().taints.get_or_insert_default().push(Taint {
            key: key.into(),
            value: (!value.is_empty()).then(|| value.into()),
            effect: effect.into(),
            time_added: None,
        });
        self
    }

    pub fn unschedulable(mut self) -> Self {
        self.0.spec.get_or_insert_default().unschedulable = Some(true);
        self
    }

    pub fn image(mut self, name: &str, size: i64) -> Self {
        let images = self.0.status.get_or_insert_default().images.get_or_insert_default();
        images.push(ContainerImage { names: Some(vec![name.into()]), size_bytes: Some(size) });
        self
    }
}
