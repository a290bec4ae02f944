//! Another authority in place of the cluster's, seen by a node in a process of its own: it learns of both, is signed by the new one, and its pods go on.

use std::process::Command;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::dev::{BINARY, Dev, said};
use super::{container, end, exec, step, until};

/// One step of the rotation, after which everybody starts again.
async fn rotate(dev: &Dev, name: &str) {
    step(name);
    let data = dev.data(1).display().to_string();
    said(Command::new(BINARY).args(["certificates", "rotate-ca", name, "--data-dir", &data]));
    for number in [1, 2] {
        // As a service manager does it: pods go on.
        end(dev, number, "-TERM").await;
        dev.trireme(&["start", &dev.node(number)]);
    }
    let begun = Timestamp::now();
    let renewed = |lease: &Lease| {
        let time = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        time.is_some_and(|time| time.0 > begun)
    };
    dev.object("kube-node-lease", &dev.node(2), "the agent is believed", renewed).await;
    dev.ready(2, true).await;
    // The API server believes its kubelet, too.
    exec(dev, "one").await;
}

async fn pod(dev: &Dev) -> Arc<Pod> {
    let running = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
    dev.object("default", "one", "a running pod", running).await
}

fn read(path: &std::path::Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_follows_from_one_authority_to_another() {
    let dev = Dev::rotated(2);
    let wanted = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "namespace": "default"},
        "spec": {
            "nodeName": dev.node(2), "terminationGracePeriodSeconds": 0,
            "containers": [container("sleep 86400", &json!({}))],
        },
    });
    dev.ready(2, true).await;
    dev.kubectl.run_with(&["apply", "-f", "-"], &wanted.to_string()).await;
    let before = pod(&dev).await;
    let (file, authority) = (dev.data(2).join("agent/pki/client.pem"), dev.data(1).join("pki/ca.crt"));
    let (old, first) = (read(&authority), read(&file));

    rotate(&dev, "begin").await;
    let believed = dev.data(2).join("agent/pki/ca.crt");
    until("the agent knows of both", || read(&believed).matches("BEGIN CERTIFICATE").count() == 2).await;
    rotate(&dev, "switch").await;
    until("the agent's certificate is another one", || read(&file) != first).await;
    exec(&dev, "one").await;
    rotate(&dev, "finish").await;

    // Nobody but the new one is believed any more, so it is the new one that signed what the agent shows.
    assert_ne!(read(&authority), old);
    let after = pod(&dev).await;
    assert_eq!(after.metadata.uid, before.metadata.uid);
    let container = |pod: &Pod| {
        let status =
            pod.status.as_ref().and_then(|status| status.container_statuses.as_ref()).map(|all| all[0].clone());
        status.map(|status| (status.container_id, status.restart_count))
    };
    assert_eq!(container(&after), container(&before), "its container ran all the time");
}
