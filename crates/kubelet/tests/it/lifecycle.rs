//! Pods from their binding to their end.

use serde_json::json;

use crate::rig::{Rig, phase, sh};

#[tokio::test]
async fn a_pod_runs_is_reported_and_goes() {
    let rig = Rig::start().await;
    let script = "echo hello $GREETED; trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let mut container = sh("main", script);
    container["env"] = json!([{"name": "GREETED", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]);
    rig.pod("one", json!({"containers": [container]})).await;
    let pod = rig.ready("one").await;
    let status = pod.status.clone().unwrap();
    assert_eq!(phase(&pod), "Running");
    let ip = status.pod_ip.clone().unwrap();
    assert!(ip.starts_with("10.89."), "{ip}");
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
