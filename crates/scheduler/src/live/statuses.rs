//! Statuses of pods that wait to be written.
//!
//! Scheduling never waits for them, and a few are under way at a time: what a flood of pods that fit nowhere has to be told must not take the
//! API server from those who make the pods, nor keep pods that do fit from being bound. So they may wait for long; what waits is kept as text, a
//! fraction of a tree, and a pod never has more than one patch waiting, however often it is tried meanwhile. What is no longer so is not said: a
//! pod that is bound after all takes back that it fits nowhere.

use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::framework::api::Api;
use crate::model::pod::PodInfo;

/// Patches under way at the same time. A pod always has the same lane, so that its patches keep their order.
const LANES: usize = 2;

pub struct Statuses {
    lanes: Vec<Arc<Lane>>,
    /// They end with this.
    _writers: JoinSet<()>,
}

#[derive(Default)]
struct Lane {
    waiting: Mutex<Waiting>,
    more: Notify,
    /// What was under way is done.
    done: Notify,
}

impl Statuses {
    /// Must be made within a runtime.
    pub fn new(api: &Arc<dyn Api>) -> Self {
        let lanes: Vec<Arc<Lane>> = (0..LANES).map(|_| Arc::default()).collect();
        let mut writers = JoinSet::new();
        for lane in &lanes {
            writers.spawn(write(Arc::clone(api), Arc::clone(lane)));
        }
        Self { lanes, _writers: writers }
    }

    /// Applies a strategic merge patch to the status of a pod, in its turn.
    pub fn patch(&self, pod: Arc<PodInfo>, patch: Value) {
        let lane = self.lane(pod.uid());
        lane.waiting.lock().add(pod, patch);
        lane.more.notify_one();
    }

    /// Takes back what waits for a pod that is about to be bound.
    pub fn withdraw(&self, uid: &Arc<str>) -> Withdrawn {
        let lane = Arc::clone(self.lane(uid));
        let nomination = lane.waiting.lock().patches.remove(uid).and_then(|(_, patch)| nomination(&patch));
        Withdrawn { uid: Arc::clone(uid), nomination, lane }
    }

    fn lane(&self, uid: &str) -> &Arc<Lane> {
        let mut hasher = FxHasher::default();
        uid.hash(&mut hasher);
        &self.lanes[hasher.finish() as usize % LANES]
    }
}

/// What waited for a pod, and perhaps is being written now.
pub struct Withdrawn {
    uid: Arc<str>,
    nomination: Option<Value>,
    lane: Arc<Lane>,
}

impl Withdrawn {
    /// The patch with the node that is kept for the pod, if that has not been told yet. Waits until none is under way.
    pub async fn nomination(self) -> Option<Value> {
        loop {
            let mut done = pin!(self.lane.done.notified());
            done.as_mut().enable();
            if self.lane.waiting.lock().under_way.as_ref() != Some(&self.uid) {
                return self.nomination;
            }
            done.await;
        }
    }
}

fn nomination(patch: &str) -> Option<Value> {
    let node = read(patch)["status"].get_mut("nominatedNodeName")?.take();
    Some(json!({ "status": { "nominatedNodeName": node } }))
}

async fn write(api: Arc<dyn Api>, lane: Arc<Lane>) {
    loop {
        let next = lane.waiting.lock().next();
        let Some((pod, patch)) = next else {
            lane.more.notified().await;
            continue;
        };
        send(&*api, &pod, patch).await;
        lane.waiting.lock().under_way = None;
        lane.done.notify_waiters();
    }
}

/// Applies a patch now. A pod that is gone needs none.
pub async fn send(api: &dyn Api, pod: &PodInfo, patch: Value) {
    if let Err(error) = api.patch_pod_status(pod, patch).await
        && !error.is_not_found()
    {
        tracing::warn!(pod = pod.name(), %error, "cannot update the status of a pod");
    }
}

/// Patches that have not been sent, at most one of a pod.
#[derive(Default)]
struct Waiting {
    order: VecDeque<Arc<str>>,
    patches: FxHashMap<Arc<str>, (Arc<PodInfo>, Box<str>)>,
    under_way: Option<Arc<str>>,
}

impl Waiting {
    fn add(&mut self, pod: Arc<PodInfo>, patch: Value) {
        match self.patches.entry(Arc::clone(pod.uid())) {
            Entry::Occupied(mut entry) => {
                let patch = combined(&entry.get().1, patch);
                entry.insert((pod, patch.to_string().into()));
            }
            Entry::Vacant(entry) => {
                // A node that is kept for a pod is news to others; that a pod waits is not urgent.
                match patch["status"]["conditions"].is_null() {
                    true => self.order.push_front(Arc::clone(pod.uid())),
                    false => self.order.push_back(Arc::clone(pod.uid())),
                }
                entry.insert((pod, patch.to_string().into()));
            }
        }
    }

    fn next(&mut self) -> Option<(Arc<PodInfo>, Value)> {
        while let Some(uid) = self.order.pop_front() {
            // Otherwise it was taken back.
            if let Some((pod, patch)) = self.patches.remove(&uid) {
                self.under_way = Some(uid);
                return Some((pod, read(&patch)));
            }
        }
        // A flood leaves no room behind.
        *self = Self::default();
        None
    }
}

fn read(patch: &str) -> Value {
    serde_json::from_str(patch).unwrap_or_default()
}

/// One patch for two of the same pod, one after the other.
fn combined(older: &str, newer: Value) -> Value {
    let mut status = read(older)["status"].take();
    let (Some(fields), Value::Object(changes)) = (status.as_object_mut(), newer["status"].clone()) else {
        return newer;
    };
    for (field, change) in changes {
        match (fields.get_mut(&field), change) {
            (Some(Value::Array(held)), Value::Array(items)) if field == "conditions" => {
                held.retain(|held| items.iter().all(|item| item["type"] != held["type"]));
                held.extend(items);
            }
            (_, change) => drop(fields.insert(field, change)),
        }
    }
    json!({ "status": status })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    fn info(name: &str) -> Arc<PodInfo> {
        Arc::new(PodInfo::new(Arc::new(pod(name).build())))
    }

    fn unschedulable(message: &str) -> Value {
        json!({"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}})
    }

    #[test]
    fn a_pod_that_is_tried_again_and_again_waits_once() {
        let mut waiting = Waiting::default();
        let (tried, other) = (info("tried"), info("other"));
        waiting.add(tried.clone(), unschedulable("first"));
        waiting.add(other.clone(), unschedulable("first"));
        waiting.add(tried.clone(), json!({"status": {"nominatedNodeName": "n1"}}));
        waiting.add(tried.clone(), unschedulable("second"));
        let (first, patch) = waiting.next().expect("two wait");
        assert_eq!(first.uid(), tried.uid());
        let mut both = unschedulable("second");
        both["status"]["nominatedNodeName"] = json!("n1");
        assert_eq!(patch, both);
        assert_eq!(waiting.next().expect("one waits").0.uid(), other.uid());
        assert!(waiting.next().is_none());
    }

    #[test]
    fn what_is_taken_back_is_not_said_and_comes_again_in_its_turn() {
        let mut waiting = Waiting::default();
        let (bound, other) = (info("bound"), info("other"));
        waiting.add(bound.clone(), unschedulable("no room"));
        waiting.add(other.clone(), unschedulable("no room"));
        waiting.patches.remove(bound.uid());
        assert_eq!(waiting.next().expect("one waits").0.uid(), other.uid());
        assert_eq!(waiting.under_way.as_ref(), Some(other.uid()));
        assert!(waiting.next().is_none());
        assert_eq!(nomination(&unschedulable("no room").to_string()), None);
        let told = json!({"status": {"conditions": [{"type": "PodScheduled"}], "nominatedNodeName": "n1"}});
        assert_eq!(nomination(&told.to_string()), Some(json!({"status": {"nominatedNodeName": "n1"}})));
    }

    #[test]
    fn conditions_of_other_types_stay_and_a_nomination_is_taken_back() {
        let older = json!({"status": {"conditions": [{"type": "A"}, {"type": "B"}], "nominatedNodeName": "n1"}});
        let newer = json!({"status": {"conditions": [{"type": "B", "status": "True"}], "nominatedNodeName": null}});
        let both = json!({"status": {"conditions": [{"type": "A"}, {"type": "B", "status": "True"}], "nominatedNodeName": null}});
        assert_eq!(combined(&older.to_string(), newer), both);
    }

    #[test]
    fn a_nomination_goes_before_those_that_fit_nowhere() {
        let mut waiting = Waiting::default();
        waiting.add(info("one"), unschedulable("no room"));
        waiting.add(info("two"), unschedulable("no room"));
        let bound = info("bound");
        waiting.add(bound.clone(), json!({"status": {"nominatedNodeName": "n1"}}));
        assert_eq!(waiting.next().expect("three wait").0.uid(), bound.uid());
    }
}
