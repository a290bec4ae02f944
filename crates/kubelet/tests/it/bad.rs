//! Pods that misbehave: each ends as upstream's would, and the node stays healthy.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::json;

use crate::rig::{BUSYBOX, Rig, condition, phase, sh};

const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn first(pod: &Pod) -> ContainerStatus {
    pod.status.clone().unwrap().container_statuses.unwrap().remove(0)
}

#[tokio::test]
async fn a_container_that_takes_too_much_memory_is_killed_and_says_so() {
    let rig = Rig::start().await;
    // What is written to a file system in memory counts as the container's.
    let mut greedy = sh("main", "dd if=/dev/zero of=/memory/file bs=1M count=256; exit 3");
    greedy["resources"] = json!({"limits": {"memory": "32Mi"}});
    greedy["volumeMounts"] = json!([{"name": "memory", "mountPath": "/memory"}]);
    let volumes = json!([{"name": "memory", "emptyDir": {"medium": "Memory"}}]);
    rig.pod("greedy", json!({"restartPolicy": "Never", "containers": [greedy], "volumes": volumes})).await;
    let mut whole = sh("main", "x=0123456789abcdef; while :; do x=$x$x; done");
    whole["resources"] = json!({"limits": {"memory": "32Mi"}});
    rig.pod("whole", json!({"restartPolicy": "Never", "containers": [whole]})).await;
    let pod = rig.until("whole", "killed", |pod| phase(pod) == "Failed").await;
    let ended = first(&pod).state.unwrap().terminated.unwrap();
    assert_eq!((ended.reason.as_deref(), ended.exit_code), (Some("OOMKilled"), 137));
    rig.until("greedy", "ended", |pod| phase(pod) == "Failed").await;
    rig.stop().await;
}

#[tokio::test]
async fn a_fork_bomb_stays_in_its_pod_and_one_that_ignores_the_signal_is_killed() {
    let rig = Rig::start_with(|config| config.pod_pids = Some(64)).await;
    rig.pod("bomb", json!({"containers": [sh("main", "bomb() { bomb | bomb & }; bomb; while :; do sleep 1; done")]}))
        .await;
    rig.pod("deaf", json!({"containers": [sh("main", "trap '' TERM; while :; do sleep 0.1; done")]})).await;
    rig.pod("neighbour", json!({"containers": [sh("main", LOOP)]})).await;
    assert_eq!(condition(&rig.ready("neighbour").await, "Ready"), Some("True"));
    rig.ready("deaf").await;
    rig.delete("deaf").await;
    rig.delete("bomb").await;
    rig.stop().await;
}

#[tokio::test]
async fn links_in_volumes_lead_nowhere() {
    let rig = Rig::start().await;
    let script = "ln -s /etc /data/link; ln -sf /proc/1/root/etc/passwd /dev/termination-log; exit 1";
    let mut bender = sh("bender", script);
    bender["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let mut victim = sh("main", "ls /inside");
    victim["volumeMounts"] = json!([{"name": "data", "mountPath": "/inside", "subPath": "link"}]);
    let spec = json!({
        "restartPolicy": "Never",
        "containers": [bender, victim],
        "volumes": [{"name": "data", "emptyDir": {}}],
    });
    rig.pod("bent", spec).await;
    // The first start may have been before the link was there; after it, every one is refused.
    let pod = rig.until("bent", "ended", |pod| phase(pod) == "Failed" || !rig_waiting(pod).is_empty()).await;
    let hosts = std::fs::read_to_string("/etc/passwd").unwrap();
    let words = pod.status.clone().unwrap().container_statuses.unwrap();
    let words = words.iter().filter_map(|status| status.state.as_ref()?.terminated.as_ref()?.message.clone());
    assert!(words.into_iter().all(|message| !hosts.contains(message.trim())), "a link was followed");
    rig.stop().await;
}

fn rig_waiting(pod: &Pod) -> String {
    let statuses = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let reasons = statuses.filter_map(|status| status.state.as_ref()?.waiting.as_ref()?.reason.clone());
    reasons.filter(|reason| reason.ends_with("Error")).collect()
}

#[tokio::test]
async fn a_full_disk_of_its_own_is_the_pods_problem_only() {
    let rig = Rig::start().await;
    let script = "dd if=/dev/zero of=/small/file bs=1M count=8; echo code $? > /dev/termination-log; exit 1";
    let mut filler = sh("main", script);
    filler["volumeMounts"] = json!([{"name": "small", "mountPath": "/small"}]);
    let volumes = json!([{"name": "small", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}]);
    rig.pod("filler", json!({"restartPolicy": "Never", "containers": [filler], "volumes": volumes})).await;
    let pod = rig.until("filler", "ended", |pod| phase(pod) == "Failed").await;
    let ended = first(&pod).state.unwrap().terminated.unwrap();
    assert_eq!((ended.reason.as_deref(), ended.message.as_deref()), (Some("Error"), Some("code 1\n")));
    rig.pod("after", json!({"containers": [sh("main", LOOP)]})).await;
    let ready = tokio::time::timeout(Duration::from_secs(120), rig.ready("after")).await;
    assert!(ready.is_ok());
    rig.stop().await;
}

#[tokio::test]
async fn a_pod_that_asks_for_users_of_its_own_needs_a_runtime_that_can() {
    let rig = Rig::start().await;
    rig.pod("own", json!({"hostUsers": false, "containers": [sh("main", LOOP)]})).await;
    // Debian 12's containerd cannot; one that can runs the pod.
    let refused = "FailedCreatePodSandBox: Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces";
    tokio::select! {
        event = rig.event("own", refused) => assert!(event.starts_with(refused), "{event}"),
        pod = rig.ready("own") => assert_eq!(phase(&pod), "Running"),
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_container_that_the_runtime_refuses_is_not_asked_for_without_a_pause() {
    let rig = Rig::start().await;
    let begun = Instant::now();
    let mut refused = sh("main", LOOP);
    refused["securityContext"] = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "none.json"}});
    rig.pod("refused", json!({"containers": [refused]})).await;
    let reason = |pod: &Pod| first_waiting(pod).map(|(reason, _)| reason);
    rig.until("refused", "refused", |pod| reason(pod).as_deref() == Some("CreateContainerError")).await;
    // Until others have come, nobody waits for this one.
    for name in ["first", "second"] {
        rig.pod(name, json!({"containers": [sh("main", LOOP)]})).await;
        rig.ready(name).await;
    }
    let tries = rig.events("refused").await.iter().filter(|event| event.starts_with("Failed:")).count();
    let (most, time) = (2 + begun.elapsed().as_secs() / 10, begun.elapsed());
    assert!((1..=most).contains(&(tries as u64)), "{tries} in {time:?}");
    rig.stop().await;
}

#[tokio::test]
async fn an_image_as_a_volume_needs_a_runtime_that_mounts_it() {
    let rig = Rig::start().await;
    let mut reader = sh("main", &format!("ls /image/bin; {LOOP}"));
    reader["volumeMounts"] = json!([{"name": "image", "mountPath": "/image"}]);
    let image =
        |reference: &str| json!([{"name": "image", "image": {"reference": reference, "pullPolicy": "IfNotPresent"}}]);
    rig.pod("mounts", json!({"containers": [reader.clone()], "volumes": image(BUSYBOX)})).await;
    let reason = |pod: &Pod| first_waiting(pod).map(|(reason, _)| reason);
    let ended = rig
        .until("mounts", "decided", |pod| {
            reason(pod).as_deref() == Some("CreateContainerError") || condition(pod, "Ready") == Some("True")
        })
        .await;
    // Debian 12's containerd does not know such mounts and says so; one that does shows the image's files.
    match first_waiting(&ended) {
        Some((_, message)) => assert!(message.starts_with("failed to generate container"), "{message}"),
        None => assert!(rig.log(&ended, "main", 0).contains("busybox")),
    }
    rig.pod("missing", json!({"containers": [reader], "volumes": image("127.0.0.1:1/none:1")})).await;
    rig.until("missing", "backing off", |pod| reason(pod).as_deref() == Some("ImagePullBackOff")).await;
    rig.event("missing", "Failed: Failed to pull image \"127.0.0.1:1/none:1\": ").await;
    rig.stop().await;
}

/// Why the first container waits: reason and message.
fn first_waiting(pod: &Pod) -> Option<(String, String)> {
    let waiting = pod.status.as_ref()?.container_statuses.as_ref()?.first()?.state.clone()?.waiting?;
    Some((waiting.reason?, waiting.message.unwrap_or_default()))
}

#[tokio::test]
async fn pods_deleted_while_they_start_leave_nothing() {
    let rig = Rig::start().await;
    let names: Vec<String> = (0..8).map(|number| format!("brief-{number}")).collect();
    for name in &names {
        rig.pod(name, json!({"containers": [sh("main", LOOP)]})).await;
        // Seen by the kubelet, which is making the sandbox now.
        rig.until(name, "seen", |pod| pod.status.as_ref().is_some_and(|status| status.start_time.is_some())).await;
        rig.admin.delete::<Pod>("default", name, &client::DeleteOptions::default()).await.unwrap();
    }
    for name in &names {
        rig.gone(name).await;
    }
    // Looks for mounts, sandboxes and groups that nobody knows.
    rig.stop().await;
}

#[tokio::test]
async fn an_end_by_the_rules_starts_the_whole_pod_over() {
    let rig = Rig::start().await;
    let shared = json!([{"name": "shared", "mountPath": "/shared"}]);
    let mut init = sh("init", "echo init >> /shared/runs");
    init["volumeMounts"] = shared.clone();
    let again = "test $(grep -c main /shared/runs) -lt 2 && exit 7; cat /shared/runs";
    let mut main = sh("main", &format!("echo main >> /shared/runs; {again}; {LOOP}"));
    main["volumeMounts"] = shared;
    main["restartPolicy"] = json!("Never");
    main["restartPolicyRules"] =
        json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [7]}}]);
    let spec = json!({
        "restartPolicy": "Never",
        "initContainers": [init],
        "containers": [main, sh("other", LOOP)],
        "volumes": [{"name": "shared", "emptyDir": {}}],
    });
    rig.pod("over", spec).await;
    let pod = rig.ready("over").await;
    assert_eq!(rig.log(&pod, "main", 1), "init\nmain\ninit\nmain\n");
    assert_eq!(condition(&pod, "AllContainersRestarting"), Some("False"));
    let counts = pod.status.clone().unwrap().container_statuses.unwrap();
    assert!(counts.iter().all(|status| status.restart_count == 1), "{counts:?}");
    rig.stop().await;
}
