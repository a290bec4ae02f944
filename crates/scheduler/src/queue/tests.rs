//! The queue with a fake clock and plugins that answer as told.

use std::cell::{Cell, RefCell};

use super::*;
use crate::framework::{Action, PluginSet};
use crate::plugins::priority_sort::PrioritySort;
use crate::testing::{node, pod};

const FIT: PluginId = PluginId(1);
const GATES: PluginId = PluginId(2);

struct Told {
    gate: Cell<bool>,
    helps: Cell<Option<bool>>,
    asked: RefCell<Vec<String>>,
}

impl Told {
    fn new() -> Self {
        Self { gate: Cell::new(false), helps: Cell::new(Some(false)), asked: RefCell::default() }
    }
}

impl Judge for Told {
    fn pre_enqueue(&self, _: &PodInfo) -> Result<(), Gate> {
        if self.gate.get() { Err(Gate { plugin: GATES, opens_by_itself: false }) } else { Ok(()) }
    }

    fn interested(&self, event: &ClusterEvent) -> PluginSet {
        let mut set = PluginSet::default();
        if event.resource == Resource::Node {
            set.insert(FIT);
        }
        set
    }

    fn hint(&self, pod: &PodInfo, _: PluginSet, _: PluginSet, _: &ClusterEvent) -> Option<bool> {
        self.asked.borrow_mut().push(pod.name().to_owned());
        self.helps.get()
    }
}

fn queue() -> Queue {
    Queue::new(QueueConfig::default(), Arc::new(PrioritySort), Arc::default(), Vec::new())
}

fn info(name: &str) -> Arc<PodInfo> {
    Arc::new(PodInfo::new(Arc::new(pod(name).build())))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn node_added() -> ClusterEvent {
    ClusterEvent::new(Resource::Node, Action::ADD, None, Some(Object::Node(Arc::new(node("n").build()))))
}

fn rejected(mut pod: QueuedPod) -> QueuedPod {
    pod.rejectors.insert(FIT);
    pod
}

#[test]
fn pods_come_by_priority_then_by_age() {
    let (mut queue, told) = (queue(), Told::new());
    queue.add(info("old"), &told, at(1));
    queue.add(info("young"), &told, at(2));
    queue.add(Arc::new(PodInfo::new(Arc::new(pod("high").priority(5).build()))), &told, at(3));
    let order: Vec<_> = std::iter::from_fn(|| queue.pop(at(4))).map(|p| p.info.name().to_owned()).collect();
    assert_eq!(order, ["high", "old", "young"]);
}

#[test]
fn a_rejected_pod_waits_for_an_event_that_helps() {
    let (mut queue, told) = (queue(), Told::new());
    queue.add(info("p"), &told, at(0));
    let pod = queue.pop(at(0)).unwrap();
    queue.failed(rejected(pod), &told, at(0));
    assert_eq!(queue.pending().unschedulable, 1);

    let unrelated = ClusterEvent::new(Resource::StorageClass, Action::ADD, None, None);
    queue.on_event(&unrelated, &told, at(0), |_| true);
    assert!(told.asked.borrow().is_empty(), "nobody is interested");

    told.helps.set(None);
    queue.on_event(&node_added(), &told, at(0), |_| true);
    assert_eq!(queue.pending().unschedulable, 1, "asked, but it does not help");

    told.helps.set(Some(false));
    queue.on_event(&node_added(), &told, at(0), |_| true);
    assert_eq!(queue.pending().backoff, 1);
    // Nothing else to do: the pod need not sit out its backoff.
    assert!(queue.pop(at(0)).is_some());
}

#[test]
fn backoff_doubles_up_to_its_limit_and_ends_at_whole_seconds() {
    let (mut queue, told) = (queue(), Told::new());
    queue.add(info("p"), &told, at(0));
    let mut now = 0;
    for expected in [1, 2, 4, 8, 10, 10] {
        queue.end_backoffs(at(now));
        let pod = queue.pop(at(now)).unwrap();
        // An error: no plugin to wait for, so the pod backs off and is not popped early.
        queue.failed(pod, &told, at(now));
        assert_eq!(queue.next_deadline(), Some(at(now + expected + 1)), "after {now}");
        assert!(queue.pop(at(now + expected)).is_none());
        now += expected + 1;
    }
}

#[test]
fn events_during_an_attempt_are_not_missed() {
    let (mut queue, told) = (queue(), Told::new());
    queue.add(info("p"), &told, at(0));
    let pod = queue.pop(at(0)).unwrap();
    queue.on_event(&node_added(), &told, at(0), |_| true);
    queue.failed(rejected(pod), &told, at(0));
    assert_eq!(queue.pending(), Pending { backoff: 1, ..Pending::default() });
    assert!(queue.events.is_empty(), "no pod is under way, so no event is kept");
}

#[test]
fn a_pending_plugin_waives_backoff() {
    let (mut queue, told) = (queue(), Told::new());
    queue.add(info("p"), &told, at(0));
    let mut pod = queue.pop(at(0)).unwrap();
    pod.pending.insert(FIT);
    queue.failed(pod, &told, at(0));
    told.helps.set(Some(true));
    queue.on_event(&node_added(), &told, at(0), |_| true);
    assert_eq!(queue.pending().active, 1);
}

#[test]
fn gated_pods_become_active_when_the_gate_opens() {
    let (mut queue, told) = (queue(), Told::new());
    told.gate.set(true);
    queue.add(info("p"), &told, at(0));
    assert_eq!(queue.pending().gated, 1);
    queue.on_event(&node_added(), &told, at(0), |_| true);
    assert!(told.asked.borrow().is_empty(), "the gating plugin does not care for nodes");
    told.gate.set(false);
    queue.activate(&info("p"), &told, at(0));
    assert_eq!(queue.pending().active, 1);
}

#[test]
fn the_forgotten_are_flushed_and_flushed_again() {
    let (mut queue, told) = (queue(), Told::new());
    queue.add(info("p"), &told, at(0));
    let pod = queue.pop(at(0)).unwrap();
    queue.failed(rejected(pod), &told, at(0));
    queue.flush_forgotten(&told, at(300));
    assert_eq!(queue.pending().unschedulable, 1, "not yet");
    assert!(queue.next_deadline().unwrap() > at(300));
    queue.flush_forgotten(&told, at(301));
    assert_eq!(queue.pending().active, 1);
}

#[test]
fn an_update_moves_a_pod_and_a_deletion_removes_it() {
    let (mut queue, told) = (queue(), Told::new());
    let old = pod("p").info();
    queue.add(old.clone(), &told, at(0));
    let popped = queue.pop(at(0)).unwrap();
    queue.failed(rejected(popped), &told, at(0));
    let new = pod("p").version("2").label("a", "b").info();
    told.helps.set(None);
    queue.update(&old, new.clone(), &told, at(0));
    assert_eq!(queue.pending().unschedulable, 1);
    told.helps.set(Some(false));
    queue.update(&old, new, &told, at(0));
    assert_eq!(queue.pop(at(0)).unwrap().info.labels().map(|l| l.len()), Some(1), "the new version");
    queue.delete("uid-p");
    assert_eq!(queue.pending(), Pending::default());
}

#[test]
fn nominations_survive_updates_that_do_not_know_them() {
    let (mut queue, told) = (queue(), Told::new());
    let old = pod("p").info();
    queue.add(old.clone(), &told, at(0));
    queue.nominator.set(&old, &Nomination::Set("n1".into()));
    queue.update(&old, pod("p").version("2").info(), &told, at(0));
    assert_eq!(queue.nominator.on("n1").len(), 1);
    queue.delete("uid-p");
    assert!(queue.nominator.is_empty());
}
