//! What becomes of a pod on a hollow node.
//!
//! It runs and is ready at once. A pod that may end (its policy is not to restart always) and belongs to a Job ends at once too, successfully. Annotations tell
//! otherwise: [`RUN_FOR`] how long its containers run, [`EXIT_CODE`] how they end, [`READY`] `false` that they never get ready. A pod that is deleted ends when it is told
//! to, or after [`STOP_FOR`], but never later than its grace period allows.

use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, HostIP, Pod, PodCondition, PodIP,
    PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use rules::pods::{condition, is_ready, is_terminal, phase};

/// Seconds that a pod's containers run; without it those of Jobs end at once and others never.
pub const RUN_FOR: &str = "hollow.trireme.io/run-for";
pub const EXIT_CODE: &str = "hollow.trireme.io/exit-code";
/// `false`: the pod runs and never gets ready.
pub const READY: &str = "hollow.trireme.io/ready";
/// Seconds that a pod's containers take to stop.
pub const STOP_FOR: &str = "hollow.trireme.io/stop-for";

/// How a container ends that is stopped.
const STOPPED: i32 = 143;

/// What a kubelet would do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing until the pod changes.
    Nothing,
    /// Nothing until some time has passed.
    Wait(Duration),
    /// Say how the pod is now.
    Report(Report),
    /// Remove the pod for good.
    Remove,
}

/// What is to be said of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    Running {
        /// And do their work.
        ready: bool,
    },
    /// Its containers ended with this code.
    Ended(i32),
}

/// The next step of a pod.
pub fn next(pod: &Pod, now: Timestamp) -> Step {
    let ended = is_terminal(pod);
    if let Some(Time(deadline)) = &pod.metadata.deletion_timestamp {
        let left = stop_left(pod, *deadline, now);
        let held = pod.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        return match (left.is_zero(), ended) {
            (false, false) => Step::Wait(left),
            // Whoever holds the pod wants to know how it ended.
            (true, false) if held => Step::Report(Report::Ended(STOPPED)),
            _ if held => Step::Nothing,
            _ => Step::Remove,
        };
    }
    if ended {
        return Step::Nothing;
    }
    let ready = annotation(pod, READY) != Some("false") && gates_are_open(pod);
    if phase(pod) != "Running" || ready != is_ready(pod) {
        return Step::Report(Report::Running { ready });
    }
    let Some(run_for) = run_for(pod) else { return Step::Nothing };
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref()).map_or(now, |time| time.0);
    let left = clock::since(clock::add(started, run_for), now);
    if left.is_zero() {
        Step::Report(Report::Ended(number(pod, EXIT_CODE).unwrap_or_default()))
    } else {
        Step::Wait(left)
    }
}

/// How long a deleted pod may still run.
fn stop_left(pod: &Pod, deadline: Timestamp, now: Timestamp) -> Duration {
    let Some(stop_for) = number(pod, STOP_FOR) else { return Duration::ZERO };
    // The deletion timestamp is when the grace period is over, not when it began.
    let grace = pod.metadata.deletion_grace_period_seconds.unwrap_or_default();
    let began = clock::since(deadline, Timestamp::UNIX_EPOCH).saturating_sub(seconds(grace));
    let end = clock::add(Timestamp::UNIX_EPOCH, began + seconds(i64::from(stop_for).min(grace)));
    clock::since(end, now)
}

fn run_for(pod: &Pod) -> Option<Duration> {
    let policy = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()).unwrap_or("Always");
    if policy == "Always" {
        return None;
    }
    let of_job = pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == "Job");
    match number(pod, RUN_FOR) {
        Some(count) => Some(seconds(count.into())),
        None => of_job.then_some(Duration::ZERO),
    }
}

fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

fn number(pod: &Pod, key: &str) -> Option<i32> {
    annotation(pod, key)?.parse().ok()
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or_default())
}

fn holds(pod: &Pod, type_: &str) -> bool {
    condition(pod, type_).is_some_and(|condition| condition.status == "True")
}

fn gates_are_open(pod: &Pod) -> bool {
    let gates = pod.spec.iter().filter_map(|spec| spec.readiness_gates.as_ref()).flatten();
    gates.into_iter().all(|gate| holds(pod, &gate.condition_type))
}

/// An address for a pod, different for each of the first four million.
pub fn address(number: u32) -> String {
    std::net::Ipv4Addr::from(0x0a80_0000 | ((number + 1) & 0x003f_ffff)).to_string()
}

/// The pod's status after a report. An address that it has stays.
pub fn status(pod: &Pod, report: Report, address: &str, now: Timestamp) -> PodStatus {
    let mut status = pod.status.clone().unwrap_or_default();
    let ready = report == Report::Running { ready: true };
    status.phase = Some(
        match report {
            Report::Running { .. } => "Running",
            Report::Ended(0) => "Succeeded",
            Report::Ended(_) => "Failed",
        }
        .to_owned(),
    );
    let done = matches!(report, Report::Ended(0)).then_some("PodCompleted");
    for (type_, holds) in [
        ("PodReadyToStartContainers", !matches!(report, Report::Ended(_))),
        ("Initialized", true),
        ("Ready", ready),
        ("ContainersReady", ready),
    ] {
        let reason = if type_ == "Ready" || type_ == "ContainersReady" { done } else { None };
        set_condition(&mut status, type_, holds, reason, now);
    }
    status.host_ip.get_or_insert_with(|| "127.0.0.1".to_owned());
    status.host_ips.get_or_insert_with(|| vec![HostIP { ip: "127.0.0.1".to_owned() }]);
    let address = status.pod_ip.get_or_insert_with(|| address.to_owned()).clone();
    status.pod_ips.get_or_insert_with(|| vec![PodIP { ip: address }]);
    let started = status.start_time.get_or_insert(Time(now)).clone();
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let statuses = containers.map(|container| {
        let image = container.image.clone().unwrap_or_default();
        let state = match report {
            Report::Running { .. } => ContainerState {
                running: Some(ContainerStateRunning { started_at: Some(started.clone()) }),
                ..ContainerState::default()
            },
            Report::Ended(code) => ContainerState {
                terminated: Some(ContainerStateTerminated {
                    exit_code: code,
                    reason: Some(if code == 0 { "Completed" } else { "Error" }.to_owned()),
                    started_at: Some(started.clone()),
                    finished_at: Some(Time(now)),
                    ..ContainerStateTerminated::default()
                }),
                ..ContainerState::default()
            },
        };
        ContainerStatus {
            name: container.name.clone(),
            image_id: image.clone(),
            image,
            ready,
            started: Some(matches!(report, Report::Running { .. })),
            state: Some(state),
            ..ContainerStatus::default()
        }
    });
    status.container_statuses = Some(statuses.collect());
    status
}

fn set_condition(status: &mut PodStatus, type_: &str, holds: bool, reason: Option<&str>, now: Timestamp) {
    let conditions = status.conditions.get_or_insert_default();
    let text = if holds { "True" } else { "False" };
    match conditions.iter_mut().find(|condition| condition.type_ == type_) {
        Some(known) => {
            if known.status != text {
                known.last_transition_time = Some(Time(now));
            }
            (known.status, known.reason) = (text.to_owned(), reason.map(str::to_owned));
        }
        None => conditions.push(PodCondition {
            type_: type_.to_owned(),
            status: text.to_owned(),
            reason: reason.map(str::to_owned),
            last_transition_time: Some(Time(now)),
            ..PodCondition::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, PodReadinessGate, PodSpec};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn pod(annotations: &[(&str, &str)]) -> Pod {
        let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let container = Container { name: "c".into(), image: Some("i".into()), ..Container::default() };
        Pod {
            metadata: ObjectMeta { annotations: Some(annotations), ..ObjectMeta::default() },
            spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
            status: None,
        }
    }

    fn of_job(mut pod: Pod) -> Pod {
        pod.spec.get_or_insert_default().restart_policy = Some("Never".into());
        pod.metadata.owner_references = Some(vec![OwnerReference { kind: "Job".into(), ..OwnerReference::default() }]);
        pod
    }

    /// Every step until nothing is left to do, as words.
    fn life(mut pod: Pod, from: i64) -> Vec<String> {
        let (mut now, mut words) = (from, Vec::new());
        loop {
            let step = next(&pod, at(now));
            words.push(format!("{step:?}"));
            match step {
                Step::Wait(delay) => now += i64::try_from(delay.as_secs()).expect("short"),
                Step::Report(report) => pod.status = Some(status(&pod, report, "10.0.0.1", at(now))),
                Step::Nothing | Step::Remove => return words,
            }
        }
    }

    #[test]
    fn pods_run_and_end_as_their_annotations_say() {
        assert_eq!(life(pod(&[]), 10), ["Report(Running { ready: true })", "Nothing"]);
        assert_eq!(life(pod(&[(READY, "false")]), 10), ["Report(Running { ready: false })", "Nothing"]);
        assert_eq!(life(of_job(pod(&[])), 10), ["Report(Running { ready: true })", "Report(Ended(0))", "Nothing"]);
        assert_eq!(
            life(of_job(pod(&[(RUN_FOR, "5"), (EXIT_CODE, "3")])), 10),
            ["Report(Running { ready: true })", "Wait(5s)", "Report(Ended(3))", "Nothing"]
        );
    }

    #[test]
    fn a_readiness_gate_holds_a_pod_back() {
        let mut gated = pod(&[]);
        let gate = PodReadinessGate { condition_type: "example.com/open".into() };
        gated.spec.get_or_insert_default().readiness_gates = Some(vec![gate]);
        assert_eq!(next(&gated, at(1)), Step::Report(Report::Running { ready: false }));
        let mut shown = status(&gated, Report::Running { ready: false }, "10.0.0.1", at(1));
        set_condition(&mut shown, "example.com/open", true, None, at(2));
        gated.status = Some(shown);
        assert_eq!(next(&gated, at(2)), Step::Report(Report::Running { ready: true }));
    }

    #[test]
    fn a_deleted_pod_stops_within_its_grace_period_and_goes_when_nobody_holds_it() {
        let deleted = |mut pod: Pod, held: bool| {
            pod.metadata.deletion_timestamp = Some(Time(at(130)));
            pod.metadata.deletion_grace_period_seconds = Some(30);
            pod.metadata.finalizers = held.then(|| vec!["batch.kubernetes.io/job-tracking".into()]);
            pod
        };
        assert_eq!(life(deleted(pod(&[]), false), 100), ["Remove"]);
        assert_eq!(life(deleted(pod(&[(STOP_FOR, "5")]), false), 100), ["Wait(5s)", "Remove"]);
        assert_eq!(life(deleted(pod(&[(STOP_FOR, "90")]), false), 100), ["Wait(30s)", "Remove"]);
        assert_eq!(life(deleted(pod(&[]), true), 100), ["Report(Ended(143))", "Nothing"]);
    }

    #[test]
    fn a_status_keeps_what_it_had() {
        let mut running = pod(&[]);
        running.status = Some(status(&running, Report::Running { ready: true }, "10.0.0.1", at(5)));
        let ended = status(&running, Report::Ended(0), "10.0.0.2", at(9));
        assert_eq!(ended.pod_ip.as_deref(), Some("10.0.0.1"));
        assert_eq!(ended.start_time, Some(Time(at(5))));
        let ready =
            ended.conditions.iter().flatten().find(|condition| condition.type_ == "Ready").expect("a condition");
        assert_eq!((ready.status.as_str(), ready.reason.as_deref()), ("False", Some("PodCompleted")));
        assert_eq!(ready.last_transition_time, Some(Time(at(9))));
    }

    #[test]
    fn addresses_differ() {
        assert_eq!(address(0), "10.128.0.1");
        assert_eq!(address(255), "10.128.1.0");
        assert_ne!(address(1), address(2));
    }
}
