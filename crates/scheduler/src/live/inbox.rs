//! What waits for the scheduling thread: observations and results.
//!
//! Informers must not be held up and scheduling must not be hurried, so something has to give: observations of one object
//! that are still waiting become one, from its first state to its last. The inbox therefore never holds more than one
//! observation per object and one result per request under way, however far scheduling falls behind.

use std::sync::Arc;
use std::time::Duration;

use informer::Cached;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;

use crate::framework::api::ApiFailure;
use crate::model::objects::Object;
use crate::model::pod::PodInfo;

/// Something for the scheduling thread.
#[derive(Debug, Clone)]
pub enum Message {
    Observed {
        /// Before; absent for additions.
        old: Option<Object>,
        /// After; absent for deletions.
        new: Option<Object>,
    },
    /// A pod is bound.
    Bound(Arc<str>),
    /// A pod could not be bound.
    BindFailed(Arc<str>, ApiFailure),
    /// Evictions for a pod are done; whether they failed.
    Preempted(Arc<PodInfo>, bool),
}

#[derive(Default)]
struct Waiting {
    messages: Vec<Message>,
    /// Where the waiting observation of an object is.
    observed: FxHashMap<String, usize>,
    closed: bool,
}

/// The inbox of the scheduling thread.
#[derive(Default)]
pub struct Inbox {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

impl Inbox {
    pub fn push(&self, message: Message) {
        let mut waiting = self.waiting.lock();
        if let Message::Observed { old, new } = &message
            && let Some(object) = new.as_ref().or(old.as_ref())
        {
            let key = identity(object);
            let position = waiting.messages.len();
            if let Some(&earlier) = waiting.observed.get(&key)
                && let Some(Message::Observed { new: latest, .. }) = waiting.messages.get_mut(earlier)
            {
                *latest = new.clone();
                return;
            }
            waiting.observed.insert(key, position);
        }
        waiting.messages.push(message);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Takes all messages, waiting for the first at most so long; `None` when the inbox is closed.
    pub fn take(&self, patience: Option<Duration>) -> Option<Vec<Message>> {
        let mut waiting = self.waiting.lock();
        if waiting.messages.is_empty() && !waiting.closed && patience != Some(Duration::ZERO) {
            match patience {
                Some(patience) => {
                    self.arrived.wait_for(&mut waiting, patience);
                }
                None => self.arrived.wait(&mut waiting),
            }
        }
        if waiting.closed {
            return None;
        }
        waiting.observed.clear();
        Some(std::mem::take(&mut waiting.messages))
    }

    /// Ends the scheduling thread.
    pub fn close(&self) {
        self.waiting.lock().closed = true;
        self.arrived.notify_all();
    }
}

/// Kind, name and uid: two objects of one name are two.
fn identity(object: &Object) -> String {
    let (kind, meta): (&str, &ObjectMeta) = match object {
        Object::Pod(o) => ("pod", o.meta()),
        Object::Node(o) => ("node", &o.metadata),
        Object::Namespace(o) => ("namespace", &o.metadata),
        Object::Service(o) => ("service", &o.metadata),
        Object::ReplicationController(o) => ("replicationcontroller", &o.metadata),
        Object::ReplicaSet(o) => ("replicaset", &o.metadata),
        Object::StatefulSet(o) => ("statefulset", &o.metadata),
        Object::PodDisruptionBudget(o) => ("poddisruptionbudget", &o.metadata),
        Object::PersistentVolumeClaim(o) => ("persistentvolumeclaim", &o.metadata),
        Object::PersistentVolume(o) => ("persistentvolume", &o.metadata),
        Object::StorageClass(o) => ("storageclass", &o.metadata),
        Object::CsiNode(o) => ("csinode", &o.metadata),
        Object::CsiDriver(o) => ("csidriver", &o.metadata),
        Object::CsiStorageCapacity(o) => ("csistoragecapacity", &o.metadata),
        Object::VolumeAttachment(o) => ("volumeattachment", &o.metadata),
    };
    let part = |p: &Option<String>| p.clone().unwrap_or_default();
    format!("{kind}/{}/{}/{}", part(&meta.namespace), part(&meta.name), part(&meta.uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn observed(old: Option<&str>, new: Option<&str>) -> Message {
        let object = |version: &str| Object::Pod(pod("p").version(version).info());
        Message::Observed { old: old.map(object), new: new.map(object) }
    }

    fn version(object: &Option<Object>) -> Option<String> {
        match object {
            Some(Object::Pod(pod)) => pod.resource_version().map(str::to_owned),
            _ => None,
        }
    }

    #[test]
    fn observations_of_one_object_become_one() {
        let inbox = Inbox::default();
        inbox.push(observed(Some("1"), Some("2")));
        inbox.push(Message::Bound("x".into()));
        inbox.push(observed(Some("2"), Some("3")));
        let messages = inbox.take(None).unwrap();
        assert_eq!(messages.len(), 2);
        let Message::Observed { old, new } = &messages[0] else { panic!("the observation comes first") };
        assert_eq!((version(old).as_deref(), version(new).as_deref()), (Some("1"), Some("3")));
        // Taken ones are gone: the next starts anew.
        inbox.push(observed(Some("3"), Some("4")));
        assert_eq!(inbox.take(None).unwrap().len(), 1);
    }

    #[test]
    fn an_object_that_came_and_went_leaves_nothing_to_observe() {
        let inbox = Inbox::default();
        inbox.push(observed(None, Some("1")));
        inbox.push(observed(Some("1"), None));
        let messages = inbox.take(None).unwrap();
        assert!(matches!(&messages[..], [Message::Observed { old: None, new: None }]));
    }

    #[test]
    fn a_closed_inbox_ends_the_taking() {
        let inbox = Inbox::default();
        inbox.close();
        assert!(inbox.take(None).is_none());
    }
}
