//! What all pods of the node were given together, and who waits for some of it to be given back.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use crate::pod::qos::{self, Class};
use crate::pod::{resources, spec};
use crate::worker::News;

/// Pods as they were granted, by uid.
#[derive(Debug, Default)]
pub struct Allocations {
    granted: Mutex<HashMap<String, Arc<Pod>>>,
    /// Pods whose wish could not be granted yet.
    waiting: Mutex<HashMap<String, Arc<News>>>,
}

impl Allocations {
    /// Notes what a pod was given.
    pub fn set(&self, pod: Arc<Pod>) {
        self.granted.lock().insert(spec::uid(&pod).to_owned(), pod);
        self.tell();
    }

    /// A pod has given everything back.
    pub fn remove(&self, uid: &str) {
        self.waiting.lock().remove(uid);
        self.granted.lock().remove(uid);
        self.tell();
    }

    /// All but one.
    pub fn others(&self, uid: &str) -> Vec<Arc<Pod>> {
        self.granted.lock().iter().filter(|(one, _)| *one != uid).map(|(_, pod)| pod.clone()).collect()
    }

    /// Processor time asked for by pods between guaranteed and best effort, in thousandths.
    pub fn burstable_milli(&self) -> i64 {
        let granted = self.granted.lock();
        let burstable = granted.values().filter(|pod| qos::class(pod) == Class::Burstable);
        burstable.map(|pod| resources::request_milli(pod, "cpu")).sum()
    }

    /// One, as it was granted.
    pub fn get(&self, uid: &str) -> Option<Arc<Pod>> {
        self.granted.lock().get(uid).cloned()
    }

    /// A pod waits for room.
    pub fn deferred(&self, uid: &str, news: Arc<News>) {
        self.waiting.lock().insert(uid.to_owned(), news);
    }

    /// A pod does not wait any more.
    pub fn settled(&self, uid: &str) {
        self.waiting.lock().remove(uid);
    }

    fn tell(&self) {
        self.waiting.lock().values().for_each(|news| news.ring());
    }
}
