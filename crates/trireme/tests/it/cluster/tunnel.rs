//! Two nodes that share no link: containers reach each other through a VXLAN, as themselves, in packets that fit.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::container;
use super::dev::Dev;

/// What is sent: more than fits into any one packet.
const BYTES: u64 = 3_000_000;

/// A page, a large file, and one that says who asks.
const SERVE: &str = "mkdir -p /tmp/www/cgi-bin && echo far > /tmp/www/index.html && \
    busybox head -c 3000000 /dev/zero > /tmp/www/large && \
    printf '#!/bin/sh\\necho; echo $REMOTE_ADDR\\n' > /tmp/www/cgi-bin/who && busybox chmod +x /tmp/www/cgi-bin/who && \
    exec httpd -f -p 8080 -h /tmp/www";

async fn address(dev: &Dev, name: &str) -> String {
    let pod = dev.client().get::<Pod>("default", name).await.expect("a pod");
    pod.status.and_then(|status| status.pod_ip).expect("an address")
}

/// A figure of a node's network, by its name in the kernel's table.
fn figure(dev: &Dev, node: u8, name: &str) -> u64 {
    let table = dev.on(node, &["cat", "/proc/net/snmp"]);
    let mut lines = table.lines().filter(|line| line.starts_with("Ip: "));
    let (names, values) = (lines.next().expect("names"), lines.next().expect("values"));
    let place = names.split(' ').position(|word| word == name).expect("the figure");
    values.split(' ').nth(place).and_then(|value| value.parse().ok()).expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_reach_each_other_through_a_tunnel() {
    let dev = Dev::tunnelled(2);
    let pod = |name: &str, node: u8, container: Value| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"nodeName": dev.node(node), "terminationGracePeriodSeconds": 1, "containers": [container]},
        })
    };
    let probe = json!({"readinessProbe": {"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1}});
    let items = [
        pod("near", 1, container("while sleep 1; do :; done", &json!({}))),
        pod("far", 2, container(SERVE, &probe)),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "far"},
               "spec": {"selector": {"app": "far"}, "ports": [{"port": 80, "targetPort": 8080}]}}),
    ];
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    dev.kubectl.run_with(&["apply", "-f", "-"], &list).await;
    for name in ["near", "far"] {
        dev.patiently(&["wait", "--for=condition=Ready", "pod", name, "--timeout=30s"]).await;
    }
    let (near, far) = (address(&dev, "near").await, address(&dev, "far").await);
    let inside =
        async |script: &str| dev.kubectl.run(&["exec", "near", "--", "sh", "-c", script]).await.trim().to_owned();

    let routes = dev.on(1, &["ip", "route"]);
    assert!(routes.contains("10.210.1.0/24 via 10.210.1.0 dev trireme.vxlan"), "{routes}");
    assert_eq!(inside("cat /sys/class/net/eth0/mtu").await, "1450");
    let seen = inside(&format!("busybox wget -q -O - http://{far}:8080/cgi-bin/who")).await;
    assert!(seen.trim_matches(['[', ']']).trim_start_matches("::ffff:") == near, "as itself: {seen}");
    let large = format!("busybox wget -q -O - http://{far}:8080/large | busybox wc -c");
    assert_eq!(inside(&large).await, BYTES.to_string());
    let wait = "until busybox timeout 2 wget -q -O - http://far/; do sleep 0.1; done";
    assert_eq!(inside(&format!("busybox timeout 60 sh -c '{wait}'")).await, "far", "by the name of its Service");
    assert_eq!(
        dev.on(1, &["busybox", "wget", "-q", "-O", "-", &format!("http://{far}:8080/")]).trim(),
        "far",
        "from a node"
    );

    // It was the tunnel, and no packet had to be cut in two on its way.
    let link: Value =
        serde_json::from_str(&dev.on(1, &["ip", "-j", "-s", "link", "show", "trireme.vxlan"])).expect("JSON");
    assert!(link[0]["stats64"]["rx"]["bytes"].as_u64().expect("bytes") > BYTES, "{link}");
    for node in 1..=2 {
        assert_eq!(figure(&dev, node, "FragCreates"), 0, "node {node}");
    }
}
