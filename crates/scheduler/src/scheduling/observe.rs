//! What the informers saw, taken into the model and the queue.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;

use super::{Profiles, Scheduler, judge, seconds};
use crate::framework::{Action, ClusterEvent, EventLabel, Resource, node_changes, pod_changes};
use crate::model::objects::Object;
use crate::model::pod::PodInfo;
use crate::queue::object_event;

impl Scheduler {
    /// Takes in what an informer saw.
    pub fn observe(&mut self, old: Option<Object>, new: Option<Object>) {
        match (old, new) {
            (None, Some(Object::Pod(new))) => self.pod_added(new),
            (Some(Object::Pod(old)), Some(Object::Pod(new))) => {
                let uid = old.uid().clone();
                self.pod_updated(&old, new);
                self.look_at_victim(&uid);
            }
            (Some(Object::Pod(old)), None) => {
                let uid = old.uid().clone();
                self.pod_deleted(old);
                self.look_at_victim(&uid);
            }
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
        self.metrics.event(event.label(), seconds(now, self.now()));
    }

    fn is_ours(&self, pod: &PodInfo) -> bool {
        self.profiles.iter().any(|p| p.name == pod.scheduler_name())
    }

    fn pod_added(&mut self, pod: Arc<PodInfo>) {
        if pod.node_name().is_some() {
            self.assigned(None, pod);
        } else if self.is_ours(&pod) && !pod.is_finished() {
            let now = self.now();
            self.queue.add(pod, judge!(self), now);
            self.metrics.event(EventLabel::POD_ADDED, seconds(now, self.now()));
        }
    }

    fn pod_updated(&mut self, old: &Arc<PodInfo>, new: Arc<PodInfo>) {
        if old.uid() != new.uid() {
            // The deletion was missed: two pods of one name.
            self.pod_deleted(old.clone());
            return self.pod_added(new);
        }
        if new.node_name().is_some() {
            return self.assigned(Some(old), new);
        }
        if !self.is_ours(&new) || old.resource_version() == new.resource_version() {
            return;
        }
        if new.is_finished() {
            return self.pod_deleted(new);
        }
        if let Some(under) = self.under_way.get_mut(new.uid()) {
            let deleting = under.latest.as_ref().is_some_and(|p| !p.is_terminating()) && new.is_terminating();
            let uid = new.uid().clone();
            under.latest = Some(new);
            if deleting {
                self.abandon(&uid);
            }
            return;
        }
        let now = self.now();
        self.queue.update(old, new.clone(), judge!(self), now);
        if old.nominated_node().is_some() && new.nominated_node() != old.nominated_node() {
            self.nomination_freed(old.clone(), new.priority);
        }
    }

    fn pod_deleted(&mut self, pod: Arc<PodInfo>) {
        self.queue.delete(pod.uid());
        if let Some(under) = self.under_way.get_mut(pod.uid()) {
            under.latest = None;
            // One that the API has confirmed goes like any other, though its binding is still to be answered.
            if self.cluster.is_assumed(pod.uid()) {
                return self.abandon(pod.uid());
            }
        }
        if self.cluster.placed(pod.uid()).is_some() {
            self.cluster.remove_pod(pod.uid());
            self.dispatch(&ClusterEvent::assigned_pod_delete(pod));
        } else if pod.nominated_node().is_some() {
            let priority = pod.priority;
            self.nomination_freed(pod, priority);
        }
    }

    /// Room promised to a pod is free again: for pods of no higher priority that is as good as a deletion.
    fn nomination_freed(&mut self, pod: Arc<PodInfo>, priority: i32) {
        let event = ClusterEvent::assigned_pod_delete(pod);
        let now = self.now();
        self.queue.on_event(&event, judge!(self), now, |waiting| waiting.priority <= priority);
    }

    /// The API says that the pod is on a node.
    fn assigned(&mut self, old: Option<&Arc<PodInfo>>, new: Arc<PodInfo>) {
        if new.is_finished() {
            // A finished pod takes no room.
            return self.pod_deleted(new);
        }
        self.cluster.set_pod(new.clone());
        if let Some(under) = self.under_way.get_mut(new.uid()) {
            under.latest = None;
        }
        match old.filter(|old| old.node_name().is_some()) {
            Some(old) => {
                for action in pod_changes(old, &new) {
                    let (before, after) = (Object::Pod(old.clone()), Object::Pod(new.clone()));
                    self.dispatch(&ClusterEvent::new(Resource::AssignedPod, action, Some(before), Some(after)));
                }
            }
            None => {
                self.queue.delete(new.uid());
                self.dispatch(&ClusterEvent::new(Resource::AssignedPod, Action::ADD, None, Some(Object::Pod(new))));
            }
        }
    }
}
