//! Cases for the plan: a pod in a line of words, the runtime's state in another, the plan in a third.

use super::*;
use crate::pod::state::Sandbox;
use k8s_openapi::api::core::v1::{Container as Spec, PodSpec, Probe};

/// `init:a sidecar:b main:c` and a restart policy.
fn pod(policy: &str, members: &str) -> Pod {
    let mut spec = PodSpec { restart_policy: Some(policy.into()), ..Default::default() };
    let mut init = Vec::new();
    for word in members.split_whitespace() {
        let (kind, name) = word.split_once(':').unwrap();
        let container = Spec { name: name.into(), image: Some("i".into()), ..Default::default() };
        match kind {
            "init" => init.push(container),
            "sidecar" => init.push(Spec { restart_policy: Some("Always".into()), ..container }),
            "probed" => init.push(Spec {
                restart_policy: Some("Always".into()),
                startup_probe: Some(Probe::default()),
                ..container
            }),
            "main" => spec.containers.push(container),
            other => panic!("{other}"),
        }
    }
    spec.init_containers = Some(init);
    Pod { spec: Some(spec), ..Default::default() }
}

/// `a=running b=exited:1`, in a sandbox that is `ready`, `dead` or missing (`none`).
fn state(sandbox: &str, containers: &str) -> State {
    let sandboxes = match sandbox {
        "none" => vec![],
        word => vec![Sandbox {
            id: "s".into(),
            attempt: 0,
            ready: word == "ready",
            created_at: 1,
            ips: vec!["10.0.0.1".into()],
            host_network: false,
        }],
    };
    let containers = containers.split_whitespace().map(|word| {
        let (name, life) = word.split_once('=').unwrap();
        let (life, code) = life.split_once(':').unwrap_or((life, "0"));
        let life = match life {
            "created" => Life::Created,
            "running" => Life::Running,
            "exited" => Life::Exited,
            _ => Life::Unknown,
        };
        let status = node::cri::v1::ContainerStatus { id: format!("id-{name}"), ..Default::default() };
        let mut container = Container::new(status, "s");
        container.name = name.into();
        container.life = life;
        container.exit_code = code.parse().unwrap();
        container
    });
    State::new(sandboxes, containers.collect())
}

/// The plan in words: `kill-pod sandbox:0 kill:a start:b`.
fn words(pod: &Pod, plan: &Plan) -> String {
    let mut out = Vec::new();
    out.extend(plan.kill_pod.then(|| "kill-pod".to_owned()));
    out.extend(plan.sandbox.as_ref().map(|sandbox| format!("sandbox:{}", sandbox.attempt)));
    out.extend(plan.kill.iter().map(|kill| format!("kill:{}", kill.name)));
    out.extend(plan.start.iter().map(|start| {
        let list = match start.kind {
            Kind::Init => spec::init_containers(pod),
            _ => spec::containers(pod),
        };
        format!("start:{}", list[start.index].name)
    }));
    out.join(" ")
}

#[track_caller]
fn check_with(pod: &Pod, sandbox: &str, containers: &str, verdicts: &Verdicts, expect: &str) {
    assert_eq!(words(pod, &plan(pod, &state(sandbox, containers), verdicts)), expect);
}

#[track_caller]
fn check(policy: &str, members: &str, sandbox: &str, containers: &str, expect: &str) {
    check_with(&pod(policy, members), sandbox, containers, &Verdicts::default(), expect);
}

#[test]
fn a_new_pod_gets_a_sandbox_and_its_first_containers() {
    check("Always", "main:a main:b", "none", "", "sandbox:0 start:a start:b");
    check("Always", "init:i main:a", "none", "", "sandbox:0 start:i");
}

#[test]
fn init_containers_run_one_by_one() {
    check("Always", "init:i init:j main:a", "ready", "", "start:i");
    check("Always", "init:i init:j main:a", "ready", "i=running", "");
    check("Always", "init:i init:j main:a", "ready", "i=exited", "start:j");
    check("Always", "init:i init:j main:a", "ready", "i=exited j=running", "");
    check("Always", "init:i init:j main:a", "ready", "i=exited j=exited", "start:a");
    check("Always", "init:i init:j main:a", "ready", "i=exited:1", "start:i");
    check("Never", "init:i init:j main:a", "ready", "i=exited:1", "kill-pod");
    check("OnFailure", "init:i main:a", "ready", "i=exited:1", "start:i");
}

#[test]
fn an_init_container_the_runtime_forgot_is_not_run_again() {
    check("Always", "init:i init:j main:a", "ready", "j=exited", "start:a");
    check("Always", "init:i main:a", "ready", "a=running", "");
}

#[test]
fn sidecars_are_kept_running_beside_the_others() {
    check("Always", "sidecar:s init:i main:a", "ready", "", "start:s");
    check("Always", "sidecar:s init:i main:a", "ready", "s=running", "start:i");
    check("Always", "sidecar:s init:i main:a", "ready", "s=running i=running", "");
    check("Always", "sidecar:s init:i main:a", "ready", "s=exited i=running", "start:s");
    check("Always", "sidecar:s init:i main:a", "ready", "s=running i=exited", "start:a");
    check("Always", "sidecar:s main:a", "ready", "s=exited:1 a=running", "start:s");
    check("Never", "sidecar:s main:a", "ready", "s=exited a=running", "start:s");
}

#[test]
fn a_sidecar_with_a_startup_probe_holds_the_others_until_it_passed() {
    let pod = pod("Always", "probed:s main:a");
    let mut verdicts = Verdicts::default();
    check_with(&pod, "ready", "s=running", &verdicts, "");
    verdicts.set("id-s", probes::Kind::Startup, Verdict::Failure);
    check_with(&pod, "ready", "s=running", &verdicts, "kill:s start:s");
    verdicts.set("id-s", probes::Kind::Startup, Verdict::Success);
    check_with(&pod, "ready", "s=running", &verdicts, "start:a");
}

#[test]
fn restart_policies_decide_what_runs_again() {
    check("Always", "main:a", "ready", "a=exited", "start:a");
    check("OnFailure", "main:a main:b", "ready", "a=exited b=exited:1", "start:b");
    check("OnFailure", "main:a", "ready", "a=exited", "kill-pod");
    check("Never", "main:a main:b", "ready", "a=exited:1 b=running", "");
    check("Never", "main:a main:b", "ready", "a=exited:1 b=exited", "kill-pod");
    check("Never", "main:a", "ready", "a=created", "start:a");
    check("Always", "main:a", "ready", "a=unknown", "kill:a start:a");
}

#[test]
fn sidecars_do_not_keep_a_finished_pod_alive() {
    check("Never", "sidecar:s main:a", "ready", "s=running a=exited", "kill-pod");
    check("Never", "sidecar:s main:a", "ready", "s=exited a=exited", "kill-pod");
}

#[test]
fn a_dead_sandbox_is_replaced_unless_the_pod_has_lived() {
    check("Always", "main:a", "dead", "a=exited:137", "sandbox:1 start:a");
    check("Always", "init:i main:a", "dead", "i=exited a=exited:137", "sandbox:1 start:i");
    check("Never", "main:a", "dead", "a=exited:137", "");
    check("OnFailure", "main:a", "dead", "a=exited", "");
    check("OnFailure", "main:a main:b", "dead", "a=exited b=exited:1", "sandbox:1 start:b");
    // Running containers in a dead sandbox go with it.
    check("Always", "main:a", "dead", "a=running", "kill-pod sandbox:1 start:a");
}

#[test]
fn failing_probes_restart_what_may_be_restarted() {
    let mut verdicts = Verdicts::default();
    verdicts.set("id-a", probes::Kind::Liveness, Verdict::Failure);
    check_with(&pod("Always", "main:a main:b"), "ready", "a=running b=running", &verdicts, "kill:a start:a");
    check_with(&pod("Never", "main:a main:b"), "ready", "a=running b=running", &verdicts, "kill:a");
    let killed = plan(&pod("Always", "main:a"), &state("ready", "a=running"), &verdicts);
    assert_eq!(killed.kill[0].message, "Container a failed liveness probe, will be restarted");
    assert_eq!(killed.kill[0].cause, Cause::LivenessProbe);
}

#[test]
fn a_changed_image_restarts_its_container() {
    let pod = pod("Never", "main:a");
    let mut state = state("ready", "a=running");
    state.containers[0].hash = "other".into();
    let plan = plan(&pod, &state, &Verdicts::default());
    assert_eq!(words(&pod, &plan), "kill:a start:a");
    assert_eq!(plan.kill[0].message, "Container a definition changed, will be restarted");
}

#[test]
fn a_deleted_pod_starts_nothing() {
    let mut pod = pod("Always", "main:a");
    pod.metadata.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    check_with(&pod, "ready", "a=exited", &Verdicts::default(), "kill-pod");
    check_with(&pod, "none", "", &Verdicts::default(), "");
}
