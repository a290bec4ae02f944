//! What the informers saw, taken into the model and the queue.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};

use super::{Profiles, Scheduler, judge};
use crate::cluster::Cluster;
use crate::config::DEFAULT_SCHEDULER_NAME;
use crate::framework::{Action, ClusterEvent, Resource, node_changes, pod_changes};
use crate::objects::Object;
use crate::pod::PodInfo;
use crate::queue::object_event;

impl Scheduler {
    /// Takes in what an informer saw.
    pub fn observe(&mut self, old: Option<Object>, new: Option<Object>) {
        match (old, new) {
            (None, Some(Object::Pod(new))) => self.pod_added(new),
            (Some(Object::Pod(old)), Some(Object::Pod(new))) => self.pod_updated(&old, new),
            (Some(Object::Pod(old)), None) => self.pod_deleted(old),
            (old, Some(Object::Node(new))) => self.node_set(old, new),
            (Some(Object::Node(old)), None) => {
                let event = ClusterEvent::new(Resource::Node, Action::DELETE, Some(Object::Node(old.clone())), None);
                self.dispatch(&event);
                self.cluster.remove_node(old.metadata.name.as_deref().unwrap_or_default());
            }
            (old, new) => self.object_changed(old, new),
        }
    }

    fn object_changed(&mut self, old: Option<Object>, new: Option<Object>) {
        let Some(object) = new.as_ref().or(old.as_ref()) else { return };
        let resource = match object {
            Object::PersistentVolume(_) => Some(Resource::PersistentVolume),
            Object::PersistentVolumeClaim(_) => Some(Resource::PersistentVolumeClaim),
            Object::StorageClass(_) => Some(Resource::StorageClass),
            Object::CsiNode(_) => Some(Resource::CsiNode),
            Object::CsiDriver(_) => Some(Resource::CsiDriver),
            Object::CsiStorageCapacity(_) => Some(Resource::CsiStorageCapacity),
            Object::VolumeAttachment(_) => Some(Resource::VolumeAttachment),
            _ => None,
        };
        self.cluster.objects.apply(object, new.is_some());
        if let Some(resource) = resource {
            self.dispatch(&object_event(resource, old, new));
        }
    }

    fn node_set(&mut self, old: Option<Object>, new: Arc<Node>) {
        self.cluster.set_node(new.clone());
        let actions = match &old {
            Some(Object::Node(old)) => node_changes(old, &new),
            _ => vec![Action::ADD],
        };
        for action in actions {
            self.dispatch(&ClusterEvent::new(Resource::Node, action, old.clone(), Some(Object::Node(new.clone()))));
        }
    }

    pub(super) fn dispatch(&mut self, event: &ClusterEvent) {
        let now = self.now();
        self.queue.on_event(event, judge!(self), now, |_| true);
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let name = pod.spec.as_ref().and_then(|s| s.scheduler_name.as_deref()).unwrap_or(DEFAULT_SCHEDULER_NAME);
        self.profiles.iter().any(|p| p.name == name)
    }

    fn pod_added(&mut self, pod: Arc<Pod>) {
        if Cluster::is_assigned(&pod) {
            self.assigned(None, pod);
        } else if self.is_ours(&pod) && !is_finished(&pod) {
            let now = self.now();
            self.queue.add(Arc::new(PodInfo::new(pod)), judge!(self), now);
        }
    }

    fn pod_updated(&mut self, old: &Arc<Pod>, new: Arc<Pod>) {
        if old.metadata.uid != new.metadata.uid {
            // The deletion was missed: two pods of one name.
            self.pod_deleted(old.clone());
            return self.pod_added(new);
        }
        if Cluster::is_assigned(&new) {
            return self.assigned(Some(old), new);
        }
        if !self.is_ours(&new) || old.metadata.resource_version == new.metadata.resource_version {
            return;
        }
        let uid = new.metadata.uid.clone().unwrap_or_default();
        if is_finished(&new) {
            return self.pod_deleted(new);
        }
        if let Some(under) = self.under_way.get_mut(&*uid) {
            let deleting = under.latest.as_ref().is_some_and(|p| p.metadata.deletion_timestamp.is_none())
                && new.metadata.deletion_timestamp.is_some();
            under.latest = Some(new);
            if deleting {
                self.abandon(&uid);
            }
            return;
        }
        let now = self.now();
        let info = Arc::new(PodInfo::new(new));
        self.queue.update(old, info.clone(), judge!(self), now);
        let before = old.status.as_ref().and_then(|s| s.nominated_node_name.as_deref()).unwrap_or_default();
        if !before.is_empty() && info.nominated_node() != Some(before) {
            self.nomination_freed(old.clone(), info.priority);
        }
    }

    fn pod_deleted(&mut self, pod: Arc<Pod>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        self.queue.delete(&uid);
        if let Some(under) = self.under_way.get_mut(&*uid) {
            under.latest = None;
            self.abandon(&uid);
            return;
        }
        if self.cluster.placed(&uid).is_some() {
            self.cluster.remove_pod(&uid);
            self.dispatch(&ClusterEvent::assigned_pod_delete(pod));
        } else if pod.status.as_ref().and_then(|s| s.nominated_node_name.as_deref()).is_some_and(|n| !n.is_empty()) {
            let priority = pod.spec.as_ref().and_then(|s| s.priority).unwrap_or(0);
            self.nomination_freed(pod, priority);
        }
    }

    /// Room promised to a pod is free again: for pods of no higher priority that is as good as a deletion.
    fn nomination_freed(&mut self, pod: Arc<Pod>, priority: i32) {
        let event = ClusterEvent::assigned_pod_delete(pod);
        let now = self.now();
        self.queue.on_event(&event, judge!(self), now, |waiting| waiting.priority <= priority);
    }

    /// The API says that the pod is on a node.
    fn assigned(&mut self, old: Option<&Arc<Pod>>, new: Arc<Pod>) {
        let uid = new.metadata.uid.clone().unwrap_or_default();
        if is_finished(&new) {
            // A finished pod takes no room.
            return self.pod_deleted(new);
        }
        let was_assigned = old.is_some_and(|o| Cluster::is_assigned(o));
        self.cluster.set_pod(Arc::new(PodInfo::new(new.clone())));
        if let Some(under) = self.under_way.get_mut(&*uid) {
            under.latest = None;
        }
        let before = old.map(|o| Object::Pod(o.clone()));
        if was_assigned {
            for action in old.map(|old| pod_changes(old, &new)).unwrap_or_default() {
                self.dispatch(&ClusterEvent::new(
                    Resource::AssignedPod,
                    action,
                    before.clone(),
                    Some(Object::Pod(new.clone())),
                ));
            }
        } else {
            self.queue.delete(&uid);
            self.dispatch(&ClusterEvent::new(Resource::AssignedPod, Action::ADD, None, Some(Object::Pod(new))));
        }
    }
}

fn is_finished(pod: &Pod) -> bool {
    matches!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Succeeded" | "Failed"))
}
