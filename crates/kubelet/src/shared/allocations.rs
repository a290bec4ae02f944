//! What all pods of the node were given together, and who waits for some of it to be given back.
//!
//! Workers ask one by one and in any order; who comes first is decided here. A pod is granted what it asks for only out of the room that is left
//! when every pod before it that fits has been granted, so two workers never get the same room, and a pod that waits is not
//! overtaken by one of less importance. It has to fit beside what the others have now as well: who is to be given less has it still, until its own
//! worker asks.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use crate::pod::{resources, spec};
use crate::worker::News;
use rules::qos::{self, Class};

/// Pods as they were granted, and what was asked for and could not be granted yet, by uid.
#[derive(Debug, Default)]
pub struct Allocations(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    granted: HashMap<String, Arc<Pod>>,
    waiting: HashMap<String, Waiting>,
    /// How many have begun to wait.
    turns: u64,
}

/// A pod that waits for room.
#[derive(Debug)]
struct Waiting {
    asked: Arc<Pod>,
    turn: u64,
    news: Arc<News>,
}

/// Who comes first: who asks for no more than it has, then the more important, then the guaranteed, then who waits longest.
type Rank = (bool, Reverse<i32>, bool, u64);

impl State {
    fn rank(&self, asked: &Pod, turn: u64) -> Rank {
        let granted = self.granted.get(spec::uid(asked));
        let grows =
            |name: &str, of: fn(&Pod, &str) -> i64| granted.is_none_or(|granted| of(asked, name) > of(granted, name));
        let growing = grows("cpu", resources::request_milli) || grows("memory", resources::request);
        let priority = asked.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
        (growing, Reverse(priority), qos::class(asked) != Class::Guaranteed, turn)
    }

    /// Everything that will be given to others than this pod before its own asked is looked at.
    fn before(&self, uid: &str, rank: &Rank, fits: impl Fn(&Pod, &[Arc<Pod>]) -> bool) -> Vec<Arc<Pod>> {
        let without = |given: &HashMap<&str, Arc<Pod>>, uid: &str| -> Vec<Arc<Pod>> {
            given.iter().filter(|(one, _)| **one != uid).map(|(_, pod)| pod.clone()).collect()
        };
        let mut given: HashMap<&str, Arc<Pod>> =
            self.granted.iter().map(|(uid, pod)| (uid.as_str(), pod.clone())).collect();
        let mut first: Vec<(Rank, &String, &Waiting)> = self
            .waiting
            .iter()
            .map(|(uid, waiting)| (self.rank(&waiting.asked, waiting.turn), uid, waiting))
            .filter(|(other, other_uid, _)| *other_uid != uid && other < rank)
            .collect();
        first.sort_unstable_by_key(|(rank, ..)| *rank);
        for (_, uid, waiting) in first {
            if fits(&waiting.asked, &without(&given, uid)) {
                given.insert(uid, waiting.asked.clone());
            }
        }
        without(&given, uid)
    }

    fn notify_waiting(&self) {
        self.waiting.values().for_each(|waiting| waiting.news.notify());
    }
}

impl Allocations {
    /// Notes what a pod was given.
    pub fn set(&self, pod: Arc<Pod>) {
        let mut state = self.0.lock();
        state.granted.insert(spec::uid(&pod).to_owned(), pod);
        state.notify_waiting();
    }

    /// A pod has given everything back.
    pub fn remove(&self, uid: &str) {
        let mut state = self.0.lock();
        state.waiting.remove(uid);
        state.granted.remove(uid);
        state.notify_waiting();
    }

    /// Gives a pod what it asks for, or says why it has to wait: then it is notified when there may be room. `refusal` judges a pod
    /// beside others.
    pub fn grant<V>(
        &self,
        asked: &Arc<Pod>,
        news: &Arc<News>,
        refusal: impl Fn(&Pod, &[Arc<Pod>]) -> Option<V>,
    ) -> Result<(), V> {
        let mut state = self.0.lock();
        let uid = spec::uid(asked);
        let turn = state.waiting.get(uid).map_or(state.turns, |waiting| waiting.turn);
        let rank = state.rank(asked, turn);
        let others = state.before(uid, &rank, |pod, others| refusal(pod, others).is_none());
        let now: Vec<_> = state.granted.iter().filter(|(other, _)| *other != uid).map(|(_, pod)| pod.clone()).collect();
        match refusal(asked, &others).or_else(|| refusal(asked, &now)) {
            None => {
                state.waiting.remove(uid);
                state.granted.insert(uid.to_owned(), asked.clone());
                // What it had before may be enough for somebody.
                state.notify_waiting();
                Ok(())
            }
            Some(verdict) => {
                state.turns += u64::from(!state.waiting.contains_key(uid));
                state.waiting.insert(uid.to_owned(), Waiting { asked: asked.clone(), turn, news: news.clone() });
                Err(verdict)
            }
        }
    }

    /// Processor time asked for by pods between guaranteed and best effort, in thousandths.
    pub fn burstable_milli(&self) -> i64 {
        let state = self.0.lock();
        let burstable = state.granted.values().filter(|pod| qos::class(pod) == Class::Burstable);
        burstable.map(|pod| resources::request_milli(pod, "cpu")).sum()
    }

    /// One, as it was granted.
    pub fn get(&self, uid: &str) -> Option<Arc<Pod>> {
        self.0.lock().granted.get(uid).cloned()
    }

    /// A pod does not wait any more.
    pub fn settled(&self, uid: &str) {
        let mut state = self.0.lock();
        // Nobody has to leave room for it.
        if state.waiting.remove(uid).is_some() {
            state.notify_waiting();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(uid: &str, milli: i64, priority: i32, guaranteed: bool) -> Arc<Pod> {
        let cpu = json!({"cpu": format!("{milli}m"), "memory": "1Mi"});
        let limits = if guaranteed { cpu.clone() } else { json!({}) };
        let containers = json!([{"name": "c", "resources": {"requests": cpu, "limits": limits}}]);
        let pod =
            json!({"metadata": {"name": uid, "uid": uid}, "spec": {"priority": priority, "containers": containers}});
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    /// A node of one processor.
    fn refusal(pod: &Pod, others: &[Arc<Pod>]) -> Option<i64> {
        let asked = |pod: &Pod| resources::request_milli(pod, "cpu");
        let all = asked(pod) + others.iter().map(|other| asked(other)).sum::<i64>();
        (all > 1000).then_some(all)
    }

    fn granted(allocations: &Allocations, pod: Arc<Pod>) -> bool {
        allocations.grant(&pod, &Arc::default(), refusal).is_ok()
    }

    /// Three pods of 300, of which two want 600; the third one, in the end, gives its part back.
    fn first_served(asked: [(&str, i32, bool); 2], expect: &str) {
        let allocations = Allocations::default();
        for (uid, priority, guaranteed) in asked {
            allocations.set(pod(uid, 300, priority, guaranteed));
        }
        allocations.set(pod("gone", 300, 0, false));
        for (uid, priority, guaranteed) in asked {
            assert!(!granted(&allocations, pod(uid, 600, priority, guaranteed)), "{uid} waits");
        }
        allocations.remove("gone");
        // Whoever looks first, the same one gets it.
        for (uid, priority, guaranteed) in asked.into_iter().chain(asked) {
            assert_eq!(granted(&allocations, pod(uid, 600, priority, guaranteed)), uid == expect, "{uid}, {expect}");
        }
    }

    #[test]
    fn room_goes_to_the_more_important_then_the_guaranteed_then_who_waits_longer() {
        first_served([("a", 0, false), ("b", 7, false)], "b");
        first_served([("a", 7, false), ("b", 0, true)], "a");
        first_served([("a", 0, false), ("b", 0, true)], "b");
        first_served([("a", 0, false), ("b", 0, false)], "a");
    }

    #[test]
    fn nobody_is_given_what_another_has_not_given_back_yet() {
        let of = |uid: &str, milli, memory: &str| {
            let mut pod = Arc::unwrap_or_clone(pod(uid, milli, 0, false));
            let requests = json!({"cpu": format!("{milli}m"), "memory": memory});
            let container = &mut pod.spec.as_mut().expect("a spec").containers[0];
            container.resources.as_mut().expect("resources").requests = serde_json::from_value(requests).ok();
            Arc::new(pod)
        };
        let allocations = Allocations::default();
        for uid in ["gone", "a", "b", "c"] {
            allocations.set(of(uid, 250, "1Mi"));
        }
        // A node of four Mi.
        let judge = |pod: &Pod, others: &[Arc<Pod>]| {
            let memory: i64 = others.iter().map(|other| resources::request(other, "memory")).sum();
            refusal(pod, others).or_else(|| (resources::request(pod, "memory") + memory > 4 << 20).then_some(memory))
        };
        let grant = |pod: &Arc<Pod>| allocations.grant(pod, &Arc::default(), judge);
        // The second gives processor time back and wants memory, so it waits in line with the others.
        let asked = [of("a", 333, "1Mi"), of("b", 40, "2Mi"), of("c", 625, "1Mi")];
        assert!(asked.iter().all(|pod| grant(pod).is_err()), "there is no room yet");
        allocations.remove("gone");
        assert_eq!(grant(&asked[2]), Err(1125), "beside what the others have now");
        assert!(asked.iter().all(|pod| grant(pod).is_ok()), "in their order each has its room");
    }

    #[test]
    fn who_asks_for_no_more_waits_for_nobody() {
        let allocations = Allocations::default();
        allocations.set(pod("small", 500, 0, false));
        allocations.set(pod("large", 500, 9, false));
        assert!(!granted(&allocations, pod("large", 650, 9, false)));
        assert!(granted(&allocations, pod("small", 300, 0, false)), "it gives back");
        // There is room for the one that waits, so nobody of less importance gets it.
        assert!(!granted(&allocations, pod("small", 400, 0, false)));
        allocations.settled("large");
        assert!(granted(&allocations, pod("small", 400, 0, false)));
        assert_eq!(allocations.get("small").map(|pod| resources::request_milli(&pod, "cpu")), Some(400));
    }
}
