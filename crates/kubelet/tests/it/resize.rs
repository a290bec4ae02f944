//! Resources that change while a pod runs.

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use serde_json::{Value, json};

use crate::rig::{NODE, Rig, condition, sh};

const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn main_of(pod: &Pod) -> Option<ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first().cloned()
}

fn cpu_limit(pod: &Pod) -> Option<String> {
    Some(main_of(pod)?.resources?.limits?.get("cpu")?.0.clone())
}

async fn resize(rig: &Rig, name: &str, resources: Value) {
    loop {
        let mut pod: Pod = rig.admin.get("default", name).await.unwrap();
        pod.spec.as_mut().unwrap().containers[0].resources = Some(serde_json::from_value(resources.clone()).unwrap());
        match rig.admin.update_subresource::<Pod, _, Pod>("default", name, "resize", &pod).await {
            // The kubelet writes the pod's status meanwhile.
            Err(error) if error.is_conflict() => {}
            other => break drop(other.unwrap()),
        }
    }
}

/// What the node has of processors for pods, in thousandths.
async fn allocatable_milli(rig: &Rig) -> i64 {
    rig.eventually_node().await;
    let node: Node = rig.admin.get("", NODE).await.unwrap();
    let cpu = node.status.unwrap().allocatable.unwrap()["cpu"].0.clone();
    match cpu.strip_suffix('m') {
        Some(milli) => milli.parse().unwrap(),
        None => cpu.parse::<i64>().unwrap() * 1000,
    }
}

#[tokio::test]
async fn a_running_pod_gets_more_and_less_without_being_restarted() {
    let mut rig = Rig::start().await;
    let resources = |cpu: &str, memory: &str| json!({"requests": {"cpu": "10m", "memory": "16Mi"}, "limits": {"cpu": cpu, "memory": memory}});
    let mut container = sh("main", LOOP);
    container["resources"] = resources("200m", "64Mi");
    // The first of two: what is noted of a container stays when the next one is made.
    rig.pod("flexible", json!({"containers": [container, sh("other", LOOP)]})).await;
    let before = main_of(&rig.ready("flexible").await).unwrap();
    resize(&rig, "flexible", resources("400m", "128Mi")).await;
    let pod = rig
        .until("flexible", "resized", |pod| {
            cpu_limit(pod).as_deref() == Some("400m") && condition(pod, "PodResizeInProgress").is_none()
        })
        .await;
    let after = main_of(&pod).unwrap();
    assert_eq!((after.container_id.as_ref(), after.restart_count), (before.container_id.as_ref(), 0));
    assert_eq!(rig.container_number(&pod, "main", "cpu", "cpu.cfs_quota_us", "cpu.max"), 40_000);
    rig.event("flexible", "ResizeStarted: Pod resize started: {\"containers\":[{\"name\":\"main\"").await;
    rig.event("flexible", "ResizeCompleted: Pod resize completed: ").await;
    // A kubelet that starts anew does not take a wish for a grant: what is in force is on its disk.
    rig.crash_kubelet().await;
    resize(&rig, "flexible", resources("100m", "64Mi")).await;
    rig.start_kubelet();
    let pod = rig.until("flexible", "resized again", |pod| cpu_limit(pod).as_deref() == Some("100m")).await;
    let after = main_of(&pod).unwrap();
    assert_eq!((after.container_id, after.restart_count), (before.container_id, 0));
    assert_eq!(rig.container_number(&pod, "main", "cpu", "cpu.cfs_quota_us", "cpu.max"), 10_000);
    rig.stop().await;
}

#[tokio::test]
async fn a_resize_can_ask_for_a_restart_and_may_have_to_wait() {
    let rig = Rig::start().await;
    let mut container = sh("main", LOOP);
    container["resources"] = json!({"requests": {"cpu": "10m", "memory": "16Mi"}});
    container["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
    rig.pod("picky", json!({"containers": [container]})).await;
    rig.ready("picky").await;
    resize(&rig, "picky", json!({"requests": {"cpu": "10m", "memory": "32Mi"}})).await;
    rig.until("picky", "restarted", |pod| main_of(pod).is_some_and(|status| status.restart_count == 1)).await;
    rig.event("picky", "Killing: Container main resize requires restart").await;
    // A neighbour has all but a little: what is asked for beyond that has to wait until it goes.
    let cpu = allocatable_milli(&rig).await;
    let mut container = sh("main", LOOP);
    container["resources"] = json!({"requests": {"cpu": format!("{}m", cpu - 100)}});
    rig.pod("neighbour", json!({"containers": [container], "terminationGracePeriodSeconds": 1})).await;
    rig.ready("neighbour").await;
    resize(&rig, "picky", json!({"requests": {"cpu": "500m", "memory": "32Mi"}})).await;
    let pod = rig.until("picky", "waiting", |pod| condition(pod, "PodResizePending") == Some("True")).await;
    let conditions = pod.status.clone().unwrap().conditions.unwrap();
    let pending = conditions.iter().find(|c| c.type_ == "PodResizePending").unwrap();
    assert_eq!(pending.reason.as_deref(), Some("Deferred"));
    let wanted = format!("Node didn't have enough resource: cpu, requested: 500, used: {}, capacity: {cpu}", cpu - 100);
    assert_eq!(pending.message.as_deref(), Some(wanted.as_str()));
    rig.event("picky", "ResizeDeferred: Pod resize OutOfcpu: ").await;
    rig.delete("neighbour").await;
    rig.until("picky", "content", |pod| {
        let given = main_of(pod).and_then(|status| status.allocated_resources?.get("cpu").cloned());
        condition(pod, "PodResizePending").is_none() && given.is_some_and(|cpu| cpu.0 == "500m")
    })
    .await;
    rig.stop().await;
}
