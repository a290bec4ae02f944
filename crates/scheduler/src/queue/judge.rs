//! What the queue asks before it tries a pod again.

use super::QueuedPod;
use crate::framework::{Action, ClusterEvent, PluginId, PluginSet, Resource};
use crate::model::objects::Object;
use crate::model::pod::PodInfo;

/// What the queue asks of the profiles and the cluster.
pub trait Judge {
    /// Whether the pod may become active; who says no, otherwise.
    fn pre_enqueue(&self, pod: &PodInfo) -> Result<(), Gate>;
    /// The plugins that are registered for such an event.
    fn interested(&self, event: &ClusterEvent) -> PluginSet;
    /// Whether the event may help: `None` no, `Some(true)` so much that backoff is waived.
    fn hint(&self, pod: &PodInfo, rejectors: PluginSet, pending: PluginSet, event: &ClusterEvent) -> Option<bool>;
}

/// What keeps a pod from becoming active.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gate {
    /// The plugin that said no.
    pub plugin: PluginId,
    /// Whether it will say so itself when it no longer does: events need not be tried.
    pub opens_by_itself: bool,
}

/// When a pod is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requeue {
    No,
    AfterBackoff,
    Immediately,
}

/// Whether an event may help a pod.
pub(super) fn worth(pod: &QueuedPod, event: &ClusterEvent, judge: &dyn Judge) -> Requeue {
    let rejectors = pod.rejectors.union(pod.pending);
    if rejectors.is_empty() {
        return Requeue::AfterBackoff;
    }
    if event.is_wildcard() {
        // An event about one pod helps only that one.
        let (_, about) = event.pods();
        let other = about.is_some_and(|p| p.uid() != pod.info.uid());
        return if other { Requeue::No } else { Requeue::AfterBackoff };
    }
    match judge.hint(&pod.info, rejectors, pod.pending, event) {
        None => Requeue::No,
        Some(true) => Requeue::Immediately,
        Some(false) => Requeue::AfterBackoff,
    }
}

/// The event for a change of an object that is neither pod nor node.
pub fn object_event(resource: Resource, old: Option<Object>, new: Option<Object>) -> ClusterEvent {
    let action = match (&old, &new) {
        (None, _) => Action::ADD,
        (_, None) => Action::DELETE,
        _ => Action::OTHER_UPDATE,
    };
    ClusterEvent::new(resource, action, old, new)
}
