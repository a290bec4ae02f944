//! The objects beside pods and nodes that plugins look up, as the informers delivered them.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass, VolumeAttachment};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use rules::selectors::Labels;
use rustc_hash::FxHashMap;

use crate::model::pod::PodInfo;

/// A controller of pods. Its selector is all that scheduling asks about.
#[derive(Debug)]
pub struct Selecting<S> {
    pub metadata: ObjectMeta,
    pub selector: S,
}

/// Any object that scheduling watches.
#[derive(Debug, Clone)]
pub enum Object {
    /// A pod, of whatever scheduler.
    Pod(Arc<PodInfo>),
    Node(Arc<Node>),
    /// A namespace, for its labels.
    Namespace(Arc<Namespace>),
    /// A service, for default spreading.
    Service(Arc<Service>),
    /// A replication controller, for default spreading.
    ReplicationController(Arc<Selecting<Labels>>),
    /// A replica set, for default spreading.
    ReplicaSet(Arc<Selecting<LabelSelector>>),
    /// A stateful set, for default spreading.
    StatefulSet(Arc<Selecting<LabelSelector>>),
    /// A disruption budget, for preemption.
    PodDisruptionBudget(Arc<PodDisruptionBudget>),
    PersistentVolumeClaim(Arc<PersistentVolumeClaim>),
    PersistentVolume(Arc<PersistentVolume>),
    StorageClass(Arc<StorageClass>),
    /// The drivers of a node.
    CsiNode(Arc<CSINode>),
    CsiDriver(Arc<CSIDriver>),
    /// Capacity left in a part of the cluster.
    CsiStorageCapacity(Arc<CSIStorageCapacity>),
    /// An attachment of a volume to a node.
    VolumeAttachment(Arc<VolumeAttachment>),
}

/// Objects of one kind by namespace and name. Cluster-scoped kinds have the empty namespace.
#[derive(Debug)]
pub struct Lister<T> {
    by_namespace: FxHashMap<String, FxHashMap<String, Arc<T>>>,
}

impl<T> Default for Lister<T> {
    fn default() -> Self {
        Self { by_namespace: FxHashMap::default() }
    }
}

impl<T> Lister<T> {
    /// An object of a namespaced kind.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        self.by_namespace.get(namespace)?.get(name)
    }

    /// An object of a cluster-scoped kind.
    pub fn named(&self, name: &str) -> Option<&Arc<T>> {
        self.get("", name)
    }

    /// The objects of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> impl Iterator<Item = &Arc<T>> {
        self.by_namespace.get(namespace).into_iter().flat_map(|names| names.values())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<T>> {
        self.by_namespace.values().flat_map(|names| names.values())
    }

    fn put(&mut self, meta: &ObjectMeta, object: Option<Arc<T>>) {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let name = meta.name.as_deref().unwrap_or_default();
        match object {
            Some(object) => {
                self.by_namespace.entry(namespace.to_owned()).or_default().insert(name.to_owned(), object);
            }
            None => {
                if let Some(names) = self.by_namespace.get_mut(namespace) {
                    names.remove(name);
                    if names.is_empty() {
                        self.by_namespace.remove(namespace);
                    }
                }
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Attachments {
    by_node: FxHashMap<String, Vec<Arc<VolumeAttachment>>>,
}

impl Attachments {
    /// The attachments to a node.
    pub fn on(&self, node: &str) -> &[Arc<VolumeAttachment>] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    fn put(&mut self, attachment: &Arc<VolumeAttachment>, present: bool) {
        // The node of an attachment never changes.
        let on_node = self.by_node.entry(attachment.spec.node_name.clone()).or_default();
        on_node.retain(|held| held.metadata.name != attachment.metadata.name);
        if present {
            on_node.push(attachment.clone());
        } else if on_node.is_empty() {
            self.by_node.remove(&attachment.spec.node_name);
        }
    }
}

/// The look-ups of all kinds but pods and nodes.
#[derive(Debug, Default)]
pub struct Objects {
    pub namespaces: Lister<Namespace>,
    pub services: Lister<Service>,
    pub replication_controllers: Lister<Selecting<Labels>>,
    pub replica_sets: Lister<Selecting<LabelSelector>>,
    pub stateful_sets: Lister<Selecting<LabelSelector>>,
    pub disruption_budgets: Lister<PodDisruptionBudget>,
    pub claims: Lister<PersistentVolumeClaim>,
    pub volumes: Lister<PersistentVolume>,
    pub storage_classes: Lister<StorageClass>,
    pub csi_nodes: Lister<CSINode>,
    pub csi_drivers: Lister<CSIDriver>,
    pub capacities: Lister<CSIStorageCapacity>,
    pub attachments: Attachments,
    /// Changes with [`Objects::disruption_budgets`].
    pub budgets_generation: u64,
}

impl Objects {
    /// Takes in an object, or drops it when `present` is false. Pods and nodes are not kept here.
    pub fn apply(&mut self, object: &Object, present: bool) {
        macro_rules! put {
            ($lister:ident, $object:ident) => {
                self.$lister.put(&$object.metadata, present.then(|| $object.clone()))
            };
        }
        match object {
            Object::Pod(_) | Object::Node(_) => {}
            Object::Namespace(o) => put!(namespaces, o),
            Object::Service(o) => put!(services, o),
            Object::ReplicationController(o) => put!(replication_controllers, o),
            Object::ReplicaSet(o) => put!(replica_sets, o),
            Object::StatefulSet(o) => put!(stateful_sets, o),
            Object::PodDisruptionBudget(o) => {
                self.budgets_generation += 1;
                put!(disruption_budgets, o)
            }
            Object::PersistentVolumeClaim(o) => put!(claims, o),
            Object::PersistentVolume(o) => put!(volumes, o),
            Object::StorageClass(o) => put!(storage_classes, o),
            Object::CsiNode(o) => put!(csi_nodes, o),
            Object::CsiDriver(o) => put!(csi_drivers, o),
            Object::CsiStorageCapacity(o) => put!(capacities, o),
            Object::VolumeAttachment(o) => self.attachments.put(o, present),
        }
    }
}
