//! Resources that change while a pod runs.

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod, PodSpec};
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
    resize_all(rig, name, &[resources]).await;
}

/// Asks for other resources of the first containers.
async fn resize_all(rig: &Rig, name: &str, resources: &[Value]) {
    change(rig, name, |spec| {
        for (container, resources) in spec.containers.iter_mut().zip(resources) {
            container.resources = Some(serde_json::from_value(resources.clone()).unwrap());
        }
    })
    .await;
}

async fn change(rig: &Rig, name: &str, change: impl Fn(&mut PodSpec)) {
    loop {
        let mut pod: Pod = rig.admin.get("default", name).await.unwrap();
        change(pod.spec.as_mut().unwrap());
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
async fn a_pod_is_resized_as_a_whole() {
    let rig = Rig::start().await;
    let whole = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}});
    let script = "trap 'exit 0' TERM; dd if=/dev/zero of=/dev/shm/a bs=1M count=16; while :; do sleep 0.1; done";
    rig.pod("whole", json!({"resources": whole("200m", "64Mi"), "containers": [sh("main", script)]})).await;
    rig.ready("whole").await;
    let told = |pod: &Pod| serde_json::to_value(pod.status.as_ref()?.resources.as_ref()?).ok();
    let pod = rig.until("whole", "told", |pod| told(pod) == Some(whole("200m", "64Mi"))).await;
    let allocated = serde_json::to_value(pod.status.unwrap().allocated_resources).unwrap();
    assert_eq!(allocated, json!({"cpu": "200m", "memory": "64Mi"}));
    for (cpu, memory, refused) in [("300m", "96Mi", false), ("300m", "1Mi", true), ("100m", "64Mi", false)] {
        change(&rig, "whole", |spec| spec.resources = serde_json::from_value(whole(cpu, memory)).unwrap()).await;
        rig.until("whole", memory, |pod| {
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let going = conditions.into_iter().find(|condition| condition.type_ == "PodResizeInProgress");
            let why = going.and_then(|condition| condition.message.as_deref()).unwrap_or_default();
            match refused {
                true => why.contains("pod memory limit (1048576) below current usage"),
                false => going.is_none() && told(pod) == Some(whole(cpu, memory)),
            }
        })
        .await;
    }
    rig.event("whole", "ResizeError: Pod resize error: ").await;
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

/// What each container has in force, as the status says it.
fn in_force(pod: &Pod) -> Vec<Value> {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone()).unwrap_or_default();
    statuses.iter().map(|status| serde_json::to_value(&status.resources).unwrap()).collect()
}

/// Several containers at once, some of which get more and some less; one that asks for the same in other words gets nothing new.
#[tokio::test]
async fn containers_of_a_pod_trade_what_they_have() {
    let rig = Rig::start().await;
    let both = |cpu: &str, memory: &str| {
        let amounts = json!({"cpu": cpu, "memory": memory});
        json!({"requests": amounts, "limits": amounts})
    };
    let spec = |all: &[Value]| {
        let containers = ["c1", "c2", "c3"].iter().zip(all).map(|(name, resources)| {
            let mut container = sh(name, LOOP);
            container["resources"] = resources.clone();
            container
        });
        json!({"containers": containers.collect::<Vec<_>>()})
    };
    let begin = [both("100m", "64Mi"), both("100m", "64Mi"), both("100m", "64Mi")];
    rig.pod("guaranteed", spec(&begin)).await;
    let few = [json!({"requests": {"cpu": "10m", "memory": "16Mi"}}), json!({}), json!({"limits": {"cpu": "50m"}})];
    rig.pod("burstable", spec(&few)).await;
    let lives = |pod: &Pod| -> Vec<(Option<String>, i32)> {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.clone()).unwrap();
        statuses.into_iter().map(|status| (status.container_id, status.restart_count)).collect()
    };
    let before = [lives(&rig.ready("guaranteed").await), lives(&rig.ready("burstable").await)];
    for wanted in [
        // More in all, less in all, and each its own way.
        [both("200m", "96Mi"), both("150m", "96Mi"), both("50m", "48Mi")],
        [both("210m", "100Mi"), both("60m", "48Mi"), both("40m", "40Mi")],
        [both("220m", "100Mi"), both("50m", "64Mi"), both("60m", "64Mi")],
    ] {
        resize_all(&rig, "guaranteed", &wanted).await;
        let pod = rig.until("guaranteed", "resized", |pod| in_force(pod) == wanted).await;
        for (name, wanted) in ["c1", "c2", "c3"].iter().zip(&wanted) {
            let milli: i64 = wanted["limits"]["cpu"].as_str().unwrap().trim_end_matches('m').parse().unwrap();
            assert_eq!(rig.container_number(&pod, name, "cpu", "cpu.cfs_quota_us", "cpu.max"), milli * 100, "{name}");
        }
        assert_eq!(lives(&pod), before[0], "none was started again");
    }
    // Limits and requests that were not there before.
    let more = [
        json!({"requests": {"cpu": "20m", "memory": "16Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}),
        json!({"requests": {"cpu": "15m"}, "limits": {"cpu": "100m"}}),
        json!({"requests": {"cpu": "50m"}, "limits": {"cpu": "50m"}}),
    ];
    resize_all(&rig, "burstable", &more).await;
    let pod = rig.until("burstable", "resized", |pod| in_force(pod) == more).await;
    assert_eq!(rig.container_number(&pod, "c2", "cpu", "cpu.cfs_quota_us", "cpu.max"), 10_000);
    assert_eq!(lives(&pod), before[1]);
    // The same in other words.
    let generation = pod.metadata.generation;
    let words =
        json!({"requests": {"cpu": "0.02", "memory": "16384Ki"}, "limits": {"cpu": "0.2", "memory": "65536Ki"}});
    resize(&rig, "burstable", words).await;
    let pod = rig
        .until("burstable", "observed", |pod| {
            pod.status.as_ref().is_some_and(|status| status.observed_generation >= generation)
        })
        .await;
    assert_eq!(rig.container_number(&pod, "c1", "cpu", "cpu.cfs_quota_us", "cpu.max"), 20_000);
    assert_eq!((condition(&pod, "PodResizeInProgress"), condition(&pod, "PodResizePending")), (None, None));
    assert_eq!(lives(&pod), before[1]);
    rig.stop().await;
}
