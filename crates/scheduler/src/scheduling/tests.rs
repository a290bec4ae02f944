//! The state machine as a whole: what goes in, what comes out.

mod extenders;

use std::sync::Arc;
use std::time::Duration;

use informer::clock::Fake;
use k8s_openapi::api::core::v1::{Node, Pod};

use super::*;
use crate::framework::api::ApiFailure;
use crate::model::objects::Object;
use crate::testing::{node, pod};

fn seen(pod: Pod) -> Object {
    Object::Pod(Arc::new(PodInfo::new(Arc::new(pod))))
}

/// A scheduler of the default configuration, with its clock.
struct Rig {
    scheduler: Scheduler,
    clock: Arc<Fake>,
}

impl Rig {
    fn new() -> Self {
        let clock = Fake::at(Timestamp::UNIX_EPOCH);
        let scheduler =
            Scheduler::new(&Configuration::default(), Registry::default(), Vec::new(), clock.clone(), 1).unwrap();
        Self { scheduler, clock }
    }

    fn node(&mut self, node: Node) -> &mut Self {
        self.scheduler.observe(None, Some(Object::Node(Arc::new(node))));
        self
    }

    fn pod(&mut self, pod: Pod) -> &mut Self {
        self.scheduler.observe(None, Some(seen(pod)));
        self
    }

    fn replace(&mut self, old: Pod, new: Pod) -> &mut Self {
        self.scheduler.observe(Some(seen(old)), Some(seen(new)));
        self
    }

    fn delete(&mut self, pod: Pod) -> &mut Self {
        self.scheduler.observe(Some(seen(pod)), None);
        self
    }

    /// Runs until nothing is left to try, and says what it did.
    fn run(&mut self) -> Vec<String> {
        while self.scheduler.schedule_one() {}
        self.scheduler.check_invariants().unwrap();
        self.scheduler.take_effects().into_iter().map(describe).collect()
    }
}

fn describe(effect: Effect) -> String {
    match effect {
        Effect::Bind(job) => format!("bind {} to {}", job.pod.name(), job.node),
        Effect::Preempt(job) => {
            let victims: Vec<_> = job.victims.iter().map(|v| v.name().to_owned()).collect();
            format!("preempt {} on {} for {}", victims.join(","), job.node, job.preemptor.name())
        }
        Effect::PatchStatus { pod, patch } => {
            let name = pod.name();
            let condition = &patch["status"]["conditions"][0];
            match condition["reason"].as_str() {
                Some(reason) => format!("patch {name}: {reason}"),
                None => format!("patch {name}: nominate {}", patch["status"]["nominatedNodeName"]),
            }
        }
        Effect::Record(event) => {
            format!("{} {}: {}", event.reason, event.pod.name(), event.note)
        }
    }
}

#[test]
fn a_pod_is_bound_to_a_node_with_room_and_the_event_follows_the_binding() {
    let mut rig = Rig::new();
    rig.node(node("full").cpu("100m").build()).node(node("free").cpu("2").build()).pod(pod("p").cpu("1").build());
    assert_eq!(rig.run(), ["bind p to free"]);
    rig.scheduler.bound("uid-p");
    assert_eq!(rig.run(), ["Scheduled p: Successfully assigned default/p to free"]);
}

#[test]
fn assumed_pods_take_room_before_they_are_bound() {
    let mut rig = Rig::new();
    rig.node(node("n").cpu("1").build()).pod(pod("a").cpu("600m").build()).pod(pod("b").cpu("600m").build());
    assert_eq!(
        rig.run(),
        [
            "bind a to n",
            "FailedScheduling b: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod.",
            "patch b: Unschedulable"
        ]
    );
    // The binding fails: the room is free again, and `b` is tried before `a` has sat out its backoff.
    rig.scheduler.bind_failed("uid-a", &ApiFailure::Other("connection refused".into()));
    assert_eq!(rig.run(), ["FailedScheduling a: connection refused", "patch a: SchedulerError", "bind b to n"]);
}

#[test]
fn unschedulable_pods_wake_only_when_it_may_help() {
    let mut rig = Rig::new();
    rig.node(node("n").cpu("1").build()).pod(pod("p").cpu("2").build());
    assert!(rig.run()[0].starts_with("FailedScheduling p: 0/1 nodes are available: 1 Insufficient cpu."));
    // Too small a node does not help; a large one does.
    rig.node(node("small").cpu("1500m").build());
    assert!(!rig.scheduler.has_work());
    rig.node(node("large").cpu("4").build());
    assert_eq!(rig.run(), ["bind p to large"]);
}

#[test]
fn the_forgotten_are_tried_again_in_the_end() {
    let mut rig = Rig::new();
    rig.node(node("n").cpu("1").build()).pod(pod("p").cpu("2").build());
    rig.run();
    assert!(!rig.scheduler.schedule_one());
    rig.clock.advance(Duration::from_secs(301));
    rig.scheduler.tick();
    assert!(rig.scheduler.has_work());
}

#[test]
fn without_nodes_the_message_is_its_own() {
    let mut rig = Rig::new();
    rig.pod(pod("p").build());
    assert_eq!(rig.run(), ["FailedScheduling p: no nodes available to schedule pods", "patch p: Unschedulable"]);
    rig.clock.advance(Duration::from_secs(60));
    rig.scheduler.tick();
    assert!(!rig.scheduler.has_work(), "nothing is tried while there is no node");
    rig.node(node("n").cpu("1").build());
    rig.clock.advance(Duration::from_secs(60));
    rig.scheduler.tick();
    assert!(rig.scheduler.has_work(), "a node is news");
}

#[test]
fn gated_pods_wait_for_their_gates() {
    let mut rig = Rig::new();
    let gated = pod("p").gate("example.com/g").build();
    rig.node(node("n").cpu("1").build()).pod(gated.clone());
    assert!(rig.run().is_empty());
    assert_eq!(rig.scheduler.pending().gated, 1);
    rig.replace(gated, pod("p").version("2").build());
    assert_eq!(rig.run(), ["bind p to n"]);
}

#[test]
fn pods_of_other_schedulers_are_accounted_but_not_scheduled() {
    let mut rig = Rig::new();
    rig.node(node("n").cpu("1").build()).pod(pod("other").scheduler("mine").cpu("1").build());
    assert!(rig.run().is_empty());
    rig.pod(pod("placed").scheduler("mine").cpu("800m").on("n").build()).pod(pod("p").cpu("500m").build());
    assert!(rig.run()[0].contains("1 Insufficient cpu"));
}

#[test]
fn a_pod_deleted_while_binding_frees_its_room_and_is_not_retried() {
    let mut rig = Rig::new();
    let p = pod("p").cpu("1").build();
    rig.node(node("n").cpu("1").build()).pod(p.clone());
    assert_eq!(rig.run(), ["bind p to n"]);
    rig.delete(p).pod(pod("q").cpu("1").build());
    assert_eq!(rig.run(), ["bind q to n"]);
    rig.scheduler.bind_failed("uid-p", &ApiFailure::NotFound("pods \"p\" not found".into()));
    assert!(rig.run().is_empty());
}

#[test]
fn a_node_deleted_under_way_costs_only_the_attempt() {
    let mut rig = Rig::new();
    let gone = node("gone").cpu("1").build();
    rig.node(gone.clone()).pod(pod("p").cpu("1").build());
    assert_eq!(rig.run(), ["bind p to gone"]);
    rig.scheduler.observe(Some(Object::Node(Arc::new(gone))), None);
    rig.scheduler.bind_failed("uid-p", &ApiFailure::NotFound("nodes \"gone\" not found".into()));
    assert_eq!(rig.run(), ["FailedScheduling p: nodes \"gone\" not found", "patch p: SchedulerError"]);
    rig.node(node("new").cpu("1").build());
    rig.clock.advance(Duration::from_secs(3));
    rig.scheduler.tick();
    assert_eq!(rig.run(), ["bind p to new"]);
}

#[test]
fn higher_priority_goes_first() {
    let mut rig = Rig::new();
    rig.node(node("n").cpu("1").build());
    rig.pod(pod("low").cpu("1").build()).pod(pod("high").priority(10).cpu("1").build());
    assert_eq!(rig.run()[0], "bind high to n");
}

#[test]
fn a_pod_that_names_its_node_goes_nowhere_else() {
    let mut rig = Rig::new();
    rig.node(node("a").cpu("1").build()).node(node("b").cpu("1").build());
    rig.pod(pod("p").node_field("In", &["b"]).build()).pod(pod("q").node_field("In", &["c"]).build());
    assert_eq!(
        rig.run(),
        [
            "bind p to b",
            "FailedScheduling q: 0/2 nodes are available: 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.",
            "patch q: Unschedulable"
        ]
    );
}

/// A Permit plugin that makes every pod wait for a minute.
struct Hold;

impl crate::framework::Plugin for Hold {
    fn name(&self) -> &'static str {
        "Hold"
    }

    fn points(self: Arc<Self>) -> crate::framework::Points {
        crate::framework::Points { permit: Some(self), ..Default::default() }
    }
}

impl crate::framework::Permit for Hold {
    fn permit(
        &self,
        _: &crate::framework::CycleState,
        _: &Arc<PodInfo>,
        _: &crate::model::node::NodeInfo,
    ) -> crate::framework::PermitOutcome {
        crate::framework::PermitOutcome::Wait(Duration::from_secs(60))
    }
}

fn holding() -> (Rig, PluginId) {
    let mut registry = Registry::default();
    registry.add("Hold", Box::new(|_| Ok(Arc::new(Hold))));
    let plugin = registry.id("Hold").unwrap();
    let mut configuration = Configuration::default();
    let enabled = crate::config::PluginRef { name: "Hold".into(), weight: 0 };
    configuration.profiles[0].plugins.permit.enabled.push(enabled);
    let clock = Fake::at(Timestamp::UNIX_EPOCH);
    let scheduler = Scheduler::new(&configuration, registry, Vec::new(), clock.clone(), 1).unwrap();
    (Rig { scheduler, clock }, plugin)
}

#[test]
fn a_pod_waits_for_permission_and_keeps_its_room_meanwhile() {
    let (mut rig, plugin) = holding();
    rig.node(node("n").cpu("1").build()).pod(pod("p").cpu("1").build());
    assert_eq!(rig.run(), ["patch p: nominate \"n\""]);
    rig.pod(pod("q").cpu("1").build());
    assert!(rig.run()[0].contains("1 Insufficient cpu"));
    rig.scheduler.allow("uid-p", plugin);
    assert_eq!(rig.run(), ["bind p to n"]);
}

#[test]
fn permission_that_does_not_come_in_time_is_refused() {
    let (mut rig, _) = holding();
    rig.node(node("n").cpu("1").build()).pod(pod("p").cpu("1").build());
    rig.run();
    assert!(rig.scheduler.next_deadline().is_some());
    rig.clock.advance(Duration::from_secs(61));
    rig.scheduler.tick();
    let told = rig.run();
    assert_eq!(
        told[0],
        "FailedScheduling p: 0/1 nodes are available: 1 rejected due to timeout after waiting at plugin Hold."
    );
}

/// A Filter plugin that panics on one pod.
struct Faulty;

impl crate::framework::Plugin for Faulty {
    fn name(&self) -> &'static str {
        "Faulty"
    }

    fn points(self: Arc<Self>) -> crate::framework::Points {
        crate::framework::Points { filter: Some(self), ..Default::default() }
    }
}

impl crate::framework::Filter for Faulty {
    fn filter(
        &self,
        _: &crate::framework::CycleState,
        pod: &PodInfo,
        _: &crate::model::node::NodeInfo,
        _: &crate::model::cluster::Cluster,
    ) -> crate::framework::Verdict {
        assert_ne!(pod.name(), "poison", "a mistake");
        crate::framework::Verdict::Pass
    }
}

#[test]
fn a_pod_on_which_a_plugin_panics_keeps_no_other_pod_from_its_node() {
    let mut registry = Registry::default();
    registry.add("Faulty", Box::new(|_| Ok(Arc::new(Faulty))));
    let mut configuration = Configuration::default();
    let enabled = crate::config::PluginRef { name: "Faulty".into(), weight: 0 };
    configuration.profiles[0].plugins.filter.enabled.push(enabled);
    let clock = Fake::at(Timestamp::UNIX_EPOCH);
    let scheduler = Scheduler::new(&configuration, registry, Vec::new(), clock.clone(), 1).unwrap();
    let mut rig = Rig { scheduler, clock };
    rig.node(node("n").cpu("4").build());
    rig.pod(pod("poison").cpu("1").build()).pod(pod("a").cpu("1").build()).pod(pod("b").cpu("1").build());
    let told = format!("FailedScheduling poison: {PANICKED}");
    let mut done = rig.run();
    done.sort();
    assert_eq!(done, [&told, "bind a to n", "bind b to n", "patch poison: SchedulerError"]);
    rig.clock.advance(Duration::from_secs(60));
    rig.scheduler.tick();
    assert_eq!(rig.run()[0], told, "it is tried again");
}

#[test]
fn preemption_makes_room_and_holds_it_for_the_preemptor() {
    let mut rig = Rig::new();
    let low = pod("low").priority(1).cpu("1").on("n").build();
    rig.node(node("n").cpu("1").build()).pod(low.clone());
    rig.pod(pod("high").priority(10).cpu("1").build());
    let told = rig.run();
    assert_eq!(told[0], "preempt low on n for high");
    assert!(told[1].ends_with("preemption: found a potential placement for pod on node n, preempting 1 victims"));
    // The victim goes while the evictions are still under way: the pod is not tried before they are done.
    rig.delete(low);
    assert!(rig.run().is_empty());
    rig.pod(pod("sneaky").priority(1).cpu("1").build());
    assert!(rig.run()[0].starts_with("FailedScheduling sneaky"), "the room is promised to another");
    let preemptor = pod("high").priority(10).cpu("1").info();
    rig.scheduler.preempted(&preemptor, false);
    assert_eq!(rig.run(), ["bind high to n"]);
}

#[test]
fn what_plugins_do_is_measured() {
    let mut rig = Rig::new();
    rig.node(node("n").cpu("4").build());
    for index in 0..20 {
        rig.pod(pod(&format!("p{index}")).cpu("100m").build());
    }
    rig.run();
    (0..20).for_each(|index| rig.scheduler.bound(&format!("uid-p{index}")));
    rig.pod(pod("large").priority(1).cpu("9").build());
    rig.run();
    rig.scheduler.measure();
    let text = rig.scheduler.metrics().render();
    let profile = "profile=\"default-scheduler\"";
    for line in [
        format!("scheduler_schedule_attempts_total{{{profile},result=\"scheduled\"}} 20"),
        format!("scheduler_schedule_attempts_total{{{profile},result=\"unschedulable\"}} 1"),
        format!("scheduler_plugin_evaluation_total{{extension_point=\"Filter\",plugin=\"NodeResourcesFit\",{profile}}} 21"),
        format!("scheduler_unschedulable_pods{{plugin=\"NodeResourcesFit\",{profile}}} 1"),
        "scheduler_queue_incoming_pods_total{event=\"UnscheduledPodAdd\",queue=\"active\"} 21".to_owned(),
        "scheduler_queue_incoming_pods_total{event=\"ScheduleAttemptFailure\",queue=\"unschedulable\"} 1".to_owned(),
        "scheduler_pending_pods{queue=\"unschedulable\"} 1".to_owned(),
        "scheduler_cache_size{type=\"assumed_pods\"} 20".to_owned(),
        "scheduler_preemption_attempts_total 1".to_owned(),
        "scheduler_pod_scheduling_attempts_count 20".to_owned(),
        // Single plugins are timed in one of ten cycles, extension points in all.
        format!("scheduler_framework_extension_point_duration_seconds_count{{extension_point=\"Reserve\",{profile},status=\"Success\"}} 20"),
        format!("scheduler_framework_extension_point_duration_seconds_count{{extension_point=\"Filter\",{profile},status=\"Unschedulable\"}} 1"),
        "scheduler_plugin_execution_duration_seconds_count{extension_point=\"PreFilter\",plugin=\"NodeAffinity\",status=\"Skip\"} 2".to_owned(),
    ] {
        assert!(text.lines().any(|l| l == line), "{line}\nnot in\n{text}");
    }
}

#[test]
fn a_preemptor_is_not_tried_before_its_last_victim_is_seen_to_go() {
    let mut rig = Rig::new();
    let low = |name: &str| pod(name).priority(0).cpu("500m").on("n").build();
    // Room for the taking elsewhere, had it to evict once more.
    rig.node(node("n").cpu("1").build()).node(node("other").cpu("1").build());
    rig.pod(low("a")).pod(low("b")).pod(pod("c").priority(5).cpu("1").on("other").build());
    rig.pod(pod("high").priority(10).cpu("1").build());
    let told = rig.run();
    assert!(told[0].starts_with("preempt ") && told[0].ends_with("on n for high"), "{told:?}");
    let (first, last) = if told[0].contains("a,b") { ("a", "b") } else { ("b", "a") };
    // The API has answered both deletions, but the watch has shown only the first.
    rig.delete(low(first));
    rig.scheduler.preempted(&pod("high").priority(10).cpu("1").info(), false);
    assert_eq!(rig.run(), [""; 0], "what is on its way is waited for");
    rig.delete(low(last));
    assert_eq!(rig.run(), ["bind high to n"]);
}

#[test]
fn a_preemptor_whose_evictions_failed_is_tried_again_at_once() {
    let mut rig = Rig::new();
    rig.node(node("n").cpu("1").build()).pod(pod("low").priority(0).cpu("1").on("n").build());
    rig.pod(pod("high").priority(10).cpu("1").build());
    assert_eq!(rig.run()[0], "preempt low on n for high");
    rig.scheduler.preempted(&pod("high").priority(10).cpu("1").info(), true);
    assert_eq!(rig.run()[0], "preempt low on n for high");
}

#[test]
fn a_pod_that_claims_devices_is_told_that_it_gets_none() {
    let mut rig = Rig::new();
    rig.node(node("n").cpu("1").build()).pod(pod("p").cpu("1").resource_claim("gpu").build());
    assert_eq!(
        rig.run(),
        [
            "FailedScheduling p: 0/1 nodes are available: pod has resource claims, and this scheduler does not allocate devices. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
            "patch p: Unschedulable"
        ]
    );
    // What would help others does not help it.
    rig.node(node("m").cpu("8").build());
    assert_eq!(rig.run(), [""; 0]);
}
