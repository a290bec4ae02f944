//! Pods from their binding to their end.

use std::time::{Duration, Instant};

use client::DeleteOptions;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use serde_json::json;

use crate::rig::{Rig, condition, phase, sh};

const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn status<'a>(pod: &'a Pod, name: &str) -> &'a ContainerStatus {
    let status = pod.status.as_ref().unwrap();
    let lists = [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses];
    lists.into_iter().flatten().flatten().find(|s| s.name == name).unwrap()
}

fn waiting(pod: &Pod, name: &str) -> Option<String> {
    let state = pod.status.as_ref()?.container_statuses.as_ref()?.iter().find(|s| s.name == name)?.state.clone()?;
    state.waiting?.reason
}

#[tokio::test]
async fn a_pod_runs_is_reported_and_goes() {
    let rig = Rig::start().await;
    let mut container = sh("main", &format!("echo hello $GREETED; {LOOP}"));
    container["env"] = json!([{"name": "GREETED", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    rig.pod("one", json!({"containers": [container]})).await;
    let pod = rig.ready("one").await;
    let status = pod.status.clone().unwrap();
    assert_eq!(phase(&pod), "Running");
    let ip = status.pod_ip.clone().unwrap();
    assert!(ip.starts_with("198.19."), "{ip}");
    assert_eq!(status.host_ip.as_deref(), Some("127.0.0.1"));
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert!(container.container_id.as_ref().unwrap().starts_with("containerd://"));
    assert_eq!(rig.log(&pod, "main", 0), format!("hello {ip}\n"));
    rig.event("one", "Started: Container started").await;
    rig.event("one", "Pulled: Container image").await;
    rig.delete("one").await;
    rig.event("one", "Killing: Stopping container main").await;
    rig.stop().await;
}

#[tokio::test]
async fn init_containers_sidecars_and_a_job_run_in_order_to_success() {
    let rig = Rig::start().await;
    let mut sidecar = sh("sidecar", &format!("echo sidecar >> /shared/order; {LOOP}"));
    sidecar["restartPolicy"] = json!("Always");
    let mut spec = json!({
        "restartPolicy": "Never",
        "initContainers": [sh("first", "echo first >> /shared/order"), sidecar, sh("second", "echo second >> /shared/order")],
        "containers": [sh("main", "echo main >> /shared/order; cat /shared/order; printf done > /dev/termination-log")],
        "volumes": [{"name": "shared", "emptyDir": {}}],
    });
    for list in ["initContainers", "containers"] {
        for container in spec[list].as_array_mut().unwrap() {
            container["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
        }
    }
    rig.pod("job", spec).await;
    let pod = rig.until("job", "finished", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(rig.log(&pod, "main", 0), "first\nsidecar\nsecond\nmain\n");
    let ended = status(&pod, "main").state.clone().unwrap().terminated.unwrap();
    assert_eq!(
        (ended.exit_code, ended.reason.as_deref(), ended.message.as_deref()),
        (0, Some("Completed"), Some("done"))
    );
    let sidecar = status(&pod, "sidecar").state.clone().unwrap();
    assert!(sidecar.terminated.is_some(), "{sidecar:?}");
    assert_eq!(condition(&pod, "Initialized"), Some("True"));
    rig.stop().await;
}

#[tokio::test]
async fn a_crashing_container_backs_off_and_keeps_its_last_end() {
    let rig = Rig::start().await;
    rig.pod("crash", json!({"containers": [sh("main", "echo again; exit 3")]})).await;
    let pod =
        rig.until("crash", "backing off", |pod| waiting(pod, "main").as_deref() == Some("CrashLoopBackOff")).await;
    let container = status(&pod, "main");
    assert!(container.restart_count >= 1);
    assert_eq!(container.last_state.clone().unwrap().terminated.unwrap().exit_code, 3);
    assert_eq!(phase(&pod), "Running");
    rig.event("crash", "BackOff: Back-off restarting failed container main in pod crash_default(").await;
    rig.stop().await;
}

#[tokio::test]
async fn probes_decide_readiness_and_restarts() {
    let rig = Rig::start().await;
    let mut ready =
        sh("ready", &format!("mkdir /www; sleep 0.5; httpd -p 8080 -h /www; touch /www/index.html; {LOOP}"));
    ready["ports"] = json!([{"name": "web", "containerPort": 8080}]);
    ready["readinessProbe"] = json!({"httpGet": {"path": "/index.html", "port": "web"}, "periodSeconds": 1});
    let mut sick = sh("sick", LOOP);
    sick["livenessProbe"] = json!({
        "exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1, "terminationGracePeriodSeconds": 1,
    });
    rig.pod("ready", json!({"containers": [ready]})).await;
    rig.pod("sick", json!({"containers": [sick]})).await;
    rig.until("ready", "running", |pod| phase(pod) == "Running").await;
    rig.ready("ready").await;
    rig.until("sick", "restarted", |pod| {
        pod.status.as_ref().is_some_and(|s| s.container_statuses.iter().flatten().any(|c| c.restart_count > 0))
    })
    .await;
    rig.event("sick", "Unhealthy: Liveness probe failed:").await;
    rig.event("sick", "Killing: Container sick failed liveness probe, will be restarted").await;
    rig.stop().await;
}

#[tokio::test]
async fn a_missing_object_is_waited_for_and_its_changes_are_followed() {
    let rig = Rig::start().await;
    let mut container = sh("main", LOOP);
    container["volumeMounts"] = json!([{"name": "config", "mountPath": "/config"}]);
    container["env"] = json!([{"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "late", "key": "key"}}}]);
    let spec = json!({"containers": [container], "volumes": [{"name": "config", "configMap": {"name": "late"}}]});
    rig.pod("waits", spec).await;
    rig.event("waits", "FailedMount: MountVolume.SetUp failed for volume \"config\" : configmap \"late\" not found")
        .await;
    let mut map: k8s_openapi::api::core::v1::ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "late", "namespace": "default"}, "data": {"key": "one"}}))
            .unwrap();
    let map_made = rig.admin.create(&map).await.unwrap();
    let pod = rig.ready("waits").await;
    map = map_made;
    map.data = Some([("key".to_owned(), "two".to_owned())].into());
    rig.admin.update(&map).await.unwrap();
    let uid = pod.metadata.uid.clone().unwrap();
    let file = rig.dir.path().join(format!("kubelet/pods/{uid}/volumes/kubernetes.io~configmap/config/key"));
    rig.eventually("the file follows the object", || std::fs::read_to_string(&file).is_ok_and(|text| text == "two"))
        .await;
    rig.stop().await;
}

#[tokio::test]
async fn a_missing_image_is_reported_and_backed_off() {
    let rig = Rig::start().await;
    let mut container = sh("main", LOOP);
    container["image"] = json!("127.0.0.1:1/none:1");
    rig.pod("none", json!({"containers": [container.clone()]})).await;
    container["imagePullPolicy"] = json!("Never");
    rig.pod("never", json!({"containers": [container]})).await;
    rig.until("none", "backing off", |pod| waiting(pod, "main").as_deref() == Some("ImagePullBackOff")).await;
    rig.until("never", "refused", |pod| waiting(pod, "main").as_deref() == Some("ErrImageNeverPull")).await;
    rig.event("none", "Failed: Error: ErrImagePull").await;
    rig.event("none", "BackOff: Back-off pulling image \"127.0.0.1:1/none:1\"").await;
    rig.stop().await;
}

#[tokio::test]
async fn restarts_of_kubelet_and_containerd_restart_no_container() {
    let mut rig = Rig::start().await;
    for name in ["a", "b"] {
        rig.pod(name, json!({"containers": [sh("main", LOOP)]})).await;
    }
    let before = [rig.ready("a").await, rig.ready("b").await];
    rig.crash_kubelet().await;
    // One ends while nobody looks.
    let id = status(&before[1], "main").container_id.clone().unwrap();
    let id = id.trim_start_matches("containerd://").to_owned();
    node::cri::Runtime::stop_container(&rig.runtime(), &id, Duration::from_secs(1)).await.unwrap();
    rig.crash_containerd().await;
    rig.start_kubelet();
    let after = rig
        .until("b", "restarted", |pod| {
            status(pod, "main").restart_count == 1 && condition(pod, "Ready") == Some("True")
        })
        .await;
    assert_ne!(status(&after, "main").container_id, status(&before[1], "main").container_id);
    let after = rig.ready("a").await;
    assert_eq!(status(&after, "main").container_id, status(&before[0], "main").container_id);
    assert_eq!(status(&after, "main").restart_count, 0);
    // A pod deleted while the kubelet was away goes too.
    rig.crash_kubelet().await;
    rig.admin
        .delete::<Pod>("default", "a", &DeleteOptions { grace_period_seconds: Some(0), ..Default::default() })
        .await
        .unwrap();
    rig.start_kubelet();
    rig.stop().await;
}

#[tokio::test]
async fn grace_is_given_and_can_be_cut_short() {
    let rig = Rig::start().await;
    let deaf = |grace: i64| {
        json!({
            "terminationGracePeriodSeconds": grace,
            "containers": [sh("main", "trap '' TERM; while :; do sleep 0.1; done")],
        })
    };
    rig.pod("deaf", deaf(2)).await;
    rig.pod("cut", deaf(300)).await;
    rig.ready("deaf").await;
    rig.ready("cut").await;
    let since = Instant::now();
    rig.delete("deaf").await;
    let took = since.elapsed();
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(10), "{took:?}");
    rig.admin.delete::<Pod>("default", "cut", &DeleteOptions::default()).await.unwrap();
    rig.event("cut", "Killing: Stopping container main").await;
    let now = DeleteOptions { grace_period_seconds: Some(1), ..Default::default() };
    rig.admin.delete::<Pod>("default", "cut", &now).await.unwrap();
    rig.gone("cut").await;
    rig.stop().await;
}

#[tokio::test]
async fn limits_hold_and_running_out_of_memory_is_told() {
    let rig = Rig::start().await;
    let mut hungry = sh("main", "x=a; while :; do x=$x$x; done");
    hungry["resources"] = json!({"limits": {"memory": "32Mi", "cpu": "500m"}});
    rig.pod("hungry", json!({"restartPolicy": "Never", "containers": [hungry]})).await;
    let pod = rig.until("hungry", "killed", |pod| phase(pod) == "Failed").await;
    let ended = status(&pod, "main").state.clone().unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (137, Some("OOMKilled")));
    assert_eq!(pod.status.as_ref().unwrap().qos_class.as_deref(), Some("Guaranteed"));
    rig.stop().await;
}

#[tokio::test]
async fn a_pod_past_its_deadline_fails() {
    let rig = Rig::start().await;
    rig.pod("late", json!({"activeDeadlineSeconds": 1, "containers": [sh("main", LOOP)]})).await;
    let pod = rig.until("late", "failed", |pod| phase(pod) == "Failed").await;
    assert_eq!(pod.status.unwrap().reason.as_deref(), Some("DeadlineExceeded"));
    rig.stop().await;
}

#[tokio::test]
async fn many_pods_at_once_all_run_and_all_go() {
    let rig = Rig::start().await;
    let since = Instant::now();
    let names: Vec<String> = (0..20).map(|n| format!("many-{n}")).collect();
    for name in &names {
        rig.pod(name, json!({"containers": [sh("main", LOOP)]})).await;
    }
    for name in &names {
        rig.ready(name).await;
    }
    eprintln!("20 pods ready after {:?}", since.elapsed());
    rig.stop().await;
}

#[tokio::test]
async fn a_file_is_a_pod_with_an_image_in_the_api() {
    let rig = Rig::start().await;
    let file = rig.dir.path().join("manifests/web.yaml");
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "containers": [sh("main", LOOP)]},
    });
    std::fs::write(&file, manifest.to_string()).unwrap();
    let mirror = rig.ready("web-node-1").await;
    let id = status(&mirror, "main").container_id.clone();
    // Deleting the image ends nothing: it comes back with the same container behind it.
    let now = DeleteOptions { grace_period_seconds: Some(0), ..Default::default() };
    rig.admin.delete::<Pod>("default", "web-node-1", &now).await.unwrap();
    let again = rig
        .until("web-node-1", "back", |pod| {
            pod.metadata.uid != mirror.metadata.uid && condition(pod, "Ready") == Some("True")
        })
        .await;
    assert_eq!(status(&again, "main").container_id, id);
    std::fs::remove_file(&file).unwrap();
    rig.gone("web-node-1").await;
    rig.stop().await;
}
