//! Statuses as users see them: a pod and a runtime state in a few words, the status's lines in a few more.

use super::*;
use crate::pod::state::{Container as Runtime, Life, Sandbox};
use crate::probes;
use k8s_openapi::api::core::v1::{Container, PodCondition, PodReadinessGate, PodSpec, Probe};

fn condition<'a>(status: &'a PodStatus, name: &str) -> Option<&'a PodCondition> {
    status.conditions.as_ref()?.iter().find(|condition| condition.type_ == name)
}

fn pod(policy: &str, init: &[&str], regular: &[&str]) -> Pod {
    let container = |name: &&str| Container { name: (*name).into(), image: Some("i".into()), ..Default::default() };
    let spec = PodSpec {
        restart_policy: Some(policy.into()),
        init_containers: Some(init.iter().map(container).collect()),
        containers: regular.iter().map(container).collect(),
        ..Default::default()
    };
    Pod { spec: Some(spec), ..Default::default() }
}

fn state(words: &str) -> State {
    let sandbox = Sandbox {
        id: "s".into(),
        attempt: 0,
        ready: true,
        created_at: 1,
        ips: vec!["10.0.0.9".into()],
        host_network: false,
    };
    let containers = words.split_whitespace().enumerate().map(|(number, word)| {
        let (name, life) = word.split_once('=').unwrap();
        let (life, code) = life.split_once(':').unwrap_or((life, "0"));
        let status = node::cri::v1::ContainerStatus { id: format!("id-{name}-{number}"), ..Default::default() };
        let mut container = Runtime::new(status, "s");
        container.name = name.into();
        container.created_at = number as i64;
        container.restarts = words.matches(&format!("{name}=")).count() as u32 - 1;
        container.exit_code = code.parse().unwrap();
        container.life = match life {
            "running" => Life::Running,
            "exited" => Life::Exited,
            "created" => Life::Created,
            _ => Life::Unknown,
        };
        container
    });
    let containers = containers.collect();
    State::new(if words == "nothing" { vec![] } else { vec![sandbox] }, containers)
}

struct Case {
    pod: Pod,
    state: State,
    old: PodStatus,
    verdicts: Verdicts,
    waiting: HashMap<String, Waiting>,
    terminal: bool,
    resize: Resize,
}

impl Case {
    fn new(pod: Pod, words: &str) -> Self {
        let state = if words.is_empty() { State::default() } else { state(words) };
        Self {
            pod,
            state,
            old: PodStatus::default(),
            verdicts: Verdicts::default(),
            waiting: HashMap::new(),
            terminal: false,
            resize: Resize::default(),
        }
    }

    fn status(&self) -> PodStatus {
        status(&View {
            pod: &self.pod,
            old: &self.old,
            state: &self.state,
            verdicts: &self.verdicts,
            waiting: &self.waiting,
            terminal: self.terminal,
            verdict: None,
            allocation: None,
            resize: &self.resize,
            host_ips: &["192.168.1.1".to_owned()],
            runtime: "containerd",
            now: Timestamp::UNIX_EPOCH,
        })
    }
}

fn phase_of(policy: &str, init: &[&str], regular: &[&str], words: &str) -> String {
    Case::new(pod(policy, init, regular), words).status().phase.unwrap()
}

#[test]
fn phases() {
    assert_eq!(phase_of("Always", &[], &["a"], ""), "Pending");
    assert_eq!(phase_of("Always", &[], &["a"], "a=running"), "Running");
    assert_eq!(phase_of("Always", &[], &["a", "b"], "a=running"), "Pending");
    assert_eq!(phase_of("Always", &[], &["a"], "a=exited:1"), "Running");
    assert_eq!(phase_of("OnFailure", &[], &["a"], "a=exited:1"), "Running");
    assert_eq!(phase_of("OnFailure", &[], &["a"], "a=exited"), "Succeeded");
    assert_eq!(phase_of("Never", &[], &["a", "b"], "a=exited b=exited:1"), "Failed");
    assert_eq!(phase_of("Never", &[], &["a", "b"], "a=exited b=running"), "Running");
    assert_eq!(phase_of("Always", &["i"], &["a"], "i=running"), "Pending");
    assert_eq!(phase_of("Never", &["i"], &["a"], "i=exited:1"), "Failed");
    assert_eq!(phase_of("Always", &["i"], &["a"], "i=exited:1"), "Pending");
    assert_eq!(phase_of("Always", &["i"], &["a"], "i=exited a=running"), "Running");
}

#[test]
fn a_terminal_pod_ends_whatever_its_policy() {
    let mut case = Case::new(pod("Always", &[], &["a"]), "a=exited:1");
    case.terminal = true;
    let status = case.status();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    assert_eq!(condition(&status, "Ready").unwrap().reason.as_deref(), Some("PodFailed"));
}

#[test]
fn a_phase_never_leaves_its_end() {
    let mut case = Case::new(pod("Never", &[], &["a"]), "a=running");
    case.old.phase = Some("Failed".into());
    case.old.reason = Some("Evicted".into());
    let status = case.status();
    assert_eq!((status.phase.as_deref(), status.reason.as_deref()), (Some("Failed"), Some("Evicted")));
}

#[test]
fn waiting_containers_say_why() {
    let mut case = Case::new(pod("Always", &[], &["a"]), "a=exited:1");
    let why = Waiting { reason: "CrashLoopBackOff".into(), message: "back-off 10s".into() };
    case.waiting.insert("a".into(), why);
    let status = case.status().container_statuses.unwrap().remove(0);
    assert_eq!(status.state.unwrap().waiting.unwrap().reason.as_deref(), Some("CrashLoopBackOff"));
    assert_eq!(status.last_state.unwrap().terminated.unwrap().exit_code, 1);
}

#[test]
fn a_new_pod_waits_for_its_containers_or_its_initialization() {
    let reason = |case: &Case| {
        case.status().container_statuses.unwrap()[0].state.clone().unwrap().waiting.unwrap().reason.unwrap()
    };
    assert_eq!(reason(&Case::new(pod("Always", &[], &["a"]), "")), "ContainerCreating");
    assert_eq!(reason(&Case::new(pod("Always", &["i"], &["a"]), "")), "PodInitializing");
}

#[test]
fn readiness_follows_probes_and_gates() {
    let mut one = pod("Always", &[], &["a"]);
    one.spec.as_mut().unwrap().containers[0].readiness_probe = Some(Probe::default());
    let mut case = Case::new(one, "a=running");
    let status = case.status();
    let ready = condition(&status, "Ready").unwrap();
    assert_eq!(ready.message.as_deref(), Some("containers with unready status: [a]"));
    case.verdicts.set("id-a-0", probes::Kind::Readiness, probes::Verdict::Success);
    assert_eq!(condition(&case.status(), "Ready").unwrap().status, "True");
    let gate = PodReadinessGate { condition_type: "x/y".into() };
    case.pod.spec.as_mut().unwrap().readiness_gates = Some(vec![gate]);
    let status = case.status();
    assert_eq!(condition(&status, "ContainersReady").unwrap().status, "True");
    assert_eq!(
        condition(&status, "Ready").unwrap().message.as_deref(),
        Some("corresponding condition of pod readiness gate \"x/y\" does not exist.")
    );
}

#[test]
fn a_restarted_container_shows_its_last_end_and_its_count() {
    let case = Case::new(pod("Always", &[], &["a"]), "a=exited:3 a=running");
    let status = case.status().container_statuses.unwrap().remove(0);
    assert_eq!(status.last_state.unwrap().terminated.unwrap().exit_code, 3);
    assert_eq!(status.restart_count, 1);
    assert_eq!(status.container_id.as_deref(), Some("containerd://id-a-1"));
}

#[test]
fn a_container_that_vanished_is_remembered_to_have_run() {
    let mut case = Case::new(pod("Always", &[], &["a"]), "a=running");
    case.old = case.status();
    case.state.containers.clear();
    let status = case.status();
    let container = &status.container_statuses.as_ref().unwrap()[0];
    let last = container.last_state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    assert_eq!(container.restart_count, 1);
    assert_eq!(status.phase.as_deref(), Some("Running"));
}

/// The one whose end restarts all is a sidecar, so no regular container has an end of its own to come back from.
#[test]
fn a_pod_that_starts_over_has_not_failed() {
    let mut pod = pod("Never", &["init", "sidecar"], &["a"]);
    let sidecar = &mut pod.spec.as_mut().unwrap().init_containers.as_mut().unwrap()[1];
    sidecar.restart_policy = Some("Always".into());
    let rule = serde_json::json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
    sidecar.restart_policy_rules = serde_json::from_value(rule).unwrap();
    let mut case = Case::new(pod, "init=exited sidecar=running a=running");
    case.old = case.status();
    for words in ["init=exited sidecar=exited:42 a=running", "init=exited sidecar=exited:42 a=exited:137", ""] {
        case.state = state(words);
        case.old = case.status();
        assert_eq!(case.old.phase.as_deref(), Some("Running"), "{words}");
    }
    let all = case.old.init_container_statuses.iter().chain(&case.old.container_statuses).flatten();
    for (status, name) in all.zip(["init", "sidecar", "a"]) {
        let last = status.last_state.as_ref().and_then(|state| state.terminated.as_ref()).unwrap();
        assert_eq!((last.exit_code, last.reason.as_deref()), (137, Some("RestartingAllContainers")), "{name}");
        assert_eq!((status.name.as_str(), status.restart_count), (name, 1));
    }
    assert_eq!(condition(&case.old, "AllContainersRestarting").unwrap().status, "False");
    for (words, phase) in [("init=running", "Pending"), ("init=exited sidecar=running a=running", "Running")] {
        case.state = state(words);
        case.old = case.status();
        assert_eq!(case.old.phase.as_deref(), Some(phase), "{words}");
        let init = &case.old.init_container_statuses.as_ref().unwrap()[0];
        assert!(init.restart_count == 1 && init.last_state.as_ref().unwrap().terminated.is_some(), "{init:?}");
    }
}

#[test]
fn addresses_and_times_are_kept() {
    let mut case = Case::new(pod("Always", &[], &["a"]), "a=running");
    let first = case.status();
    assert_eq!((first.pod_ip.as_deref(), first.host_ip.as_deref()), (Some("10.0.0.9"), Some("192.168.1.1")));
    case.old = first.clone();
    case.state = State::default();
    case.terminal = true;
    assert_eq!(case.status().pod_ip, first.pod_ip);
    assert_eq!(case.status().start_time, first.start_time);
}

#[test]
fn init_containers_decide_the_initialized_condition() {
    let message = |words| {
        let status = Case::new(pod("Always", &["i", "j"], &["a"]), words).status();
        condition(&status, "Initialized").unwrap().message.clone()
    };
    assert_eq!(message("i=running").as_deref(), Some("containers with incomplete status: [i j]"));
    assert_eq!(message("i=exited j=running").as_deref(), Some("containers with incomplete status: [j]"));
    assert_eq!(message("i=exited j=exited"), None);
}

#[test]
fn a_pod_has_as_a_whole_what_it_had_until_a_change_is_done() {
    let asks = |milli: u32| {
        let resources = serde_json::json!({"requests": {"cpu": format!("{milli}m")}});
        let mut pod = pod("Always", &[], &["a"]);
        pod.spec.as_mut().unwrap().resources = serde_json::from_value(resources).unwrap();
        pod
    };
    let request = |status: &PodStatus| status.resources.clone()?.requests?.get("cpu").map(|cpu| cpu.0.clone());
    let allocated = |status: &PodStatus| status.allocated_resources.clone()?.get("cpu").map(|cpu| cpu.0.clone());
    let mut case = Case::new(asks(100), "a=running");
    case.old = case.status();
    case.pod = asks(200);
    case.resize.progress = Some(None);
    let during = case.status();
    assert_eq!((request(&during).as_deref(), allocated(&during).as_deref()), (Some("100m"), Some("200m")));
    case.resize.progress = None;
    assert_eq!(request(&case.status()).as_deref(), Some("200m"));
    assert_eq!(Case::new(pod("Always", &[], &["a"]), "").status().allocated_resources, None);
}
