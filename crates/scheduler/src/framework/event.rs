//! What happens in the cluster, as far as it may make an unschedulable pod schedulable.

use std::fmt;
use std::ops::BitOr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use crate::model::objects::Object;
use crate::model::pod::PodInfo;
use crate::model::resources::Resources;

/// What kind of object changed. Pods are told apart by what they are to the pod in question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// A pod that is on a node.
    AssignedPod,
    /// Another pod that waits.
    UnscheduledPod,
    /// The very pod that is asked about.
    TargetPod,
    Node,
    PersistentVolume,
    PersistentVolumeClaim,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    StorageClass,
    VolumeAttachment,
    /// Anything: an event after which everything is tried again.
    Any,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AssignedPod => "AssignedPod",
            Self::UnscheduledPod => "UnscheduledPod",
            Self::TargetPod => "TargetPod",
            Self::Node => "Node",
            Self::PersistentVolume => "PersistentVolume",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::CsiNode => "CSINode",
            Self::CsiDriver => "CSIDriver",
            Self::CsiStorageCapacity => "CSIStorageCapacity",
            Self::StorageClass => "storage.k8s.io/StorageClass",
            Self::VolumeAttachment => "VolumeAttachment",
            Self::Any => "*",
        })
    }
}

/// A set of ways in which an object can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Action(u32);
impl Action {
    pub const ADD: Self = Self(1);
    pub const DELETE: Self = Self(1 << 1);
    pub const NODE_ALLOCATABLE: Self = Self(1 << 2);
    pub const NODE_LABEL: Self = Self(1 << 3);
    pub const NODE_TAINT: Self = Self(1 << 4);
    pub const NODE_CONDITION: Self = Self(1 << 5);
    pub const NODE_ANNOTATION: Self = Self(1 << 6);
    pub const NODE_DECLARED_FEATURE: Self = Self(1 << 7);
    pub const POD_LABEL: Self = Self(1 << 8);
    pub const POD_SCALE_DOWN: Self = Self(1 << 9);
    pub const POD_SCALE_UP: Self = Self(1 << 10);
    pub const POD_TOLERATION: Self = Self(1 << 11);
    pub const POD_GATES_ELIMINATED: Self = Self(1 << 12);
    pub const OTHER_UPDATE: Self = Self(1 << 13);
    pub const UPDATE: Self = Self(((1 << 14) - 1) & !3);
    pub const ALL: Self = Self((1 << 14) - 1);

    fn contains(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    fn label(self) -> &'static str {
        match self {
            Self::ADD => "Add",
            Self::DELETE => "Delete",
            Self::NODE_ALLOCATABLE => "UpdateNodeAllocatable",
            Self::NODE_LABEL => "UpdateNodeLabel",
            Self::NODE_TAINT => "UpdateNodeTaint",
            Self::NODE_CONDITION => "UpdateNodeCondition",
            Self::NODE_ANNOTATION => "UpdateNodeAnnotation",
            Self::NODE_DECLARED_FEATURE => "UpdateNodeDeclaredFeature",
            Self::POD_LABEL => "UpdatePodLabel",
            Self::POD_SCALE_DOWN => "UpdatePodScaleDown",
            Self::POD_SCALE_UP => "UpdatePodScaleUp",
            Self::POD_TOLERATION => "UpdatePodToleration",
            Self::POD_GATES_ELIMINATED => "UpdatePodSchedulingGatesEliminated",
            _ => "Update",
        }
    }
}

impl BitOr for Action {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The events that a plugin wants to be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    pub resource: Resource,
    pub actions: Action,
}

impl Interest {
    /// Interest in everything: for plugins that cannot say what helps.
    pub const ANY: Self = Self::new(Resource::Any, Action::ALL);

    /// Interest in these changes of this kind.
    pub const fn new(resource: Resource, actions: Action) -> Self {
        Self { resource, actions }
    }

    /// Whether an event is of interest.
    pub fn covers(&self, event: &ClusterEvent) -> bool {
        (self.resource == Resource::Any || self.resource == event.resource) && self.actions.contains(event.action)
    }
}

/// What happened, as metrics label it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventLabel {
    /// A change of an object.
    Change(Resource, Action),
    /// Something within the scheduler.
    Custom(&'static str),
}

impl EventLabel {
    /// A pod to schedule was created.
    pub const POD_ADDED: Self = Self::Change(Resource::UnscheduledPod, Action::ADD);
    pub const ATTEMPT_FAILED: Self = Self::Custom("ScheduleAttemptFailure");
    /// A pod has sat out its backoff.
    pub const BACKOFF_COMPLETE: Self = Self::Custom("BackoffComplete");
    /// A pod need not sit out its backoff, as there is nothing better to do.
    pub const POP_FROM_BACKOFF: Self = Self::Custom("PopFromBackoffQ");
    /// A plugin asked for a pod to be tried again.
    pub const FORCE_ACTIVATE: Self = Self::Custom("ForceActivate");
    /// No event helped a pod in time.
    pub const TIMEOUT: Self = Self::Custom("UnschedulableTimeout");
}

impl fmt::Display for EventLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change(resource, action) => write!(f, "{resource}{}", action.label()),
            Self::Custom(label) => f.write_str(label),
        }
    }
}

/// A change in the cluster, with the object before and after.
#[derive(Debug, Clone)]
pub struct ClusterEvent {
    pub resource: Resource,
    pub action: Action,
    /// The object before; absent for additions.
    pub old: Option<Object>,
    /// The object after; absent for deletions.
    pub new: Option<Object>,
    custom_label: Option<&'static str>,
}

impl ClusterEvent {
    /// A change of an object.
    pub fn new(resource: Resource, action: Action, old: Option<Object>, new: Option<Object>) -> Self {
        Self { resource, action, old, new, custom_label: None }
    }

    /// A pod has been unschedulable for so long that it is tried again whatever the hints say.
    pub fn timeout() -> Self {
        Self { custom_label: Some("UnschedulableTimeout"), ..Self::new(Resource::Any, Action::ALL, None, None) }
    }

    /// A plugin asked for the pod to be tried again.
    pub fn force_activate(pod: Arc<PodInfo>) -> Self {
        Self {
            custom_label: Some("ForceActivate"),
            ..Self::new(Resource::Any, Action::ALL, None, Some(Object::Pod(pod)))
        }
    }

    /// A pod on a node is gone.
    pub fn assigned_pod_delete(pod: Arc<PodInfo>) -> Self {
        Self::new(Resource::AssignedPod, Action::DELETE, Some(Object::Pod(pod)), None)
    }

    /// Whether everything is tried again after it.
    pub fn is_wildcard(&self) -> bool {
        self.resource == Resource::Any
    }

    /// As metrics label it.
    pub fn label(&self) -> EventLabel {
        match self.custom_label {
            Some(label) => EventLabel::Custom(label),
            None => EventLabel::Change(self.resource, self.action),
        }
    }

    /// The node before and after.
    pub fn nodes(&self) -> (Option<&Arc<Node>>, Option<&Arc<Node>>) {
        fn node(object: &Object) -> Option<&Arc<Node>> {
            if let Object::Node(node) = object { Some(node) } else { None }
        }
        (self.old.as_ref().and_then(node), self.new.as_ref().and_then(node))
    }

    /// The pod before and after.
    pub fn pods(&self) -> (Option<&Arc<PodInfo>>, Option<&Arc<PodInfo>>) {
        fn pod(object: &Object) -> Option<&Arc<PodInfo>> {
            if let Object::Pod(pod) = object { Some(pod) } else { None }
        }
        (self.old.as_ref().and_then(pod), self.new.as_ref().and_then(pod))
    }
}

/// The changes of a pod that matter to scheduling; a plain update when none of the known ones.
pub fn pod_changes(old: &PodInfo, new: &PodInfo) -> Vec<Action> {
    let mut actions = Vec::new();
    if old.labels() != new.labels() {
        actions.push(Action::POD_LABEL);
    }
    let (before, after) = (old.requests(), new.requests());
    if any_less(after, before) {
        actions.push(Action::POD_SCALE_DOWN);
    }
    if any_less(before, after) {
        actions.push(Action::POD_SCALE_UP);
    }
    if !old.gates.is_empty() && new.gates.is_empty() {
        actions.push(Action::POD_GATES_ELIMINATED);
    }
    if old.tolerations().len() != new.tolerations().len() {
        actions.push(Action::POD_TOLERATION);
    }
    if actions.is_empty() {
        actions.push(Action::OTHER_UPDATE);
    }
    actions
}

fn any_less(a: &Resources, b: &Resources) -> bool {
    a.milli_cpu < b.milli_cpu
        || a.memory < b.memory
        || a.ephemeral_storage < b.ephemeral_storage
        || b.scalars().iter().any(|(name, amount)| a.scalar(name) < *amount)
}

/// The changes of a node that matter to scheduling; none when nothing does.
pub fn node_changes(old: &Node, new: &Node) -> Vec<Action> {
    let mut actions = Vec::new();
    let unschedulable = |n: &Node| n.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false);
    if unschedulable(old) && !unschedulable(new) {
        actions.push(Action::NODE_TAINT);
    }
    let status = |n: &Node| n.status.clone().unwrap_or_default();
    let (old_status, new_status) = (status(old), status(new));
    if old_status.allocatable != new_status.allocatable {
        actions.push(Action::NODE_ALLOCATABLE);
    }
    if old.metadata.labels != new.metadata.labels {
        actions.push(Action::NODE_LABEL);
    }
    let taints = |n: &Node| n.spec.as_ref().and_then(|s| s.taints.clone()).unwrap_or_default();
    if taints(old) != taints(new) {
        actions.push(Action::NODE_TAINT);
    }
    let conditions = |s: &k8s_openapi::api::core::v1::NodeStatus| {
        let mut list: Vec<_> = s.conditions.iter().flatten().map(|c| (c.type_.clone(), c.status.clone())).collect();
        list.sort_unstable();
        list
    };
    if conditions(&old_status) != conditions(&new_status) {
        actions.push(Action::NODE_CONDITION);
    }
    if old.metadata.annotations != new.metadata.annotations {
        actions.push(Action::NODE_ANNOTATION);
    }
    if old_status.declared_features != new_status.declared_features {
        actions.push(Action::NODE_DECLARED_FEATURE);
    }
    actions
}
