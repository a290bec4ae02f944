//! Network policies on two nodes with real containers: from the first packet on, across nodes, through Services, after a kill.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::dev::{self, Dev};
use super::{container, step, until};
use crate::node::BINARY;

fn pod(dev: &Dev, name: &str, node: u8, container: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": dev.node(node), "terminationGracePeriodSeconds": 1, "containers": [container]},
    })
}

fn policy(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec})
}

async fn apply(dev: &Dev, items: Vec<Value>) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string();
    dev.kubectl.run_with(&["apply", "-f", "-"], &list).await;
}

/// Whether a pod gets the page.
async fn reaches(dev: &Dev, client: &str, url: &str) -> bool {
    let script = format!("busybox timeout 2 wget -q -O - {url} || echo kept");
    !dev.kubectl.run(&["exec", client, "--", "sh", "-c", &script]).await.contains("kept")
}

async fn becomes(dev: &Dev, client: &str, url: &str, wanted: bool) {
    let started = Instant::now();
    while reaches(dev, client, url).await != wanted {
        assert!(started.elapsed() < dev::PATIENCE, "{client} and {url}: not {wanted}; {}", dev.logs());
    }
}

async fn address(dev: &Dev, name: &str) -> String {
    let pod = dev.client().get::<Pod>("default", name).await.expect("a pod");
    pod.status.and_then(|status| status.pod_ip).expect("an address")
}

/// When the server's readiness last changed: one probe that fails changes it.
async fn ready_since(dev: &Dev) -> String {
    let path = "-o=jsonpath={.status.conditions[?(@.type=='Ready')].lastTransitionTime}";
    dev.kubectl.run(&["get", "pod", "server", path]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn network_policies_on_two_nodes() {
    let dev = Dev::policed(2);
    step("pods");
    let serve = "mkdir /tmp/www && hostname > /tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www";
    let probe = json!({"httpGet": {"path": "/", "port": 8080}, "periodSeconds": 1, "failureThreshold": 1});
    let server = json!({"ports": [{"name": "web", "containerPort": 8080}], "readinessProbe": probe});
    let idle = || container("while sleep 1; do :; done", &json!({}));
    apply(
        &dev,
        vec![
            pod(&dev, "server", 2, container(serve, &server)),
            pod(&dev, "near", 2, idle()),
            pod(&dev, "far", 1, idle()),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "server"},
                   "spec": {"selector": {"app": "server"}, "ports": [{"port": 80, "targetPort": 8080}]}}),
        ],
    )
    .await;
    for name in ["server", "near", "far"] {
        dev.patiently(&["wait", "--for=condition=Ready", "pod", name, "--timeout=30s"]).await;
    }
    becomes(&dev, "near", "http://server/", true).await;
    becomes(&dev, "far", "http://server/", true).await;
    let since = ready_since(&dev).await;
    let ip = address(&dev, "server").await;
    // The runtime tells how pods are linked, so that their sources are checked.
    let bound = dev.on(2, &["nft", "list", "set", "bridge", "trireme-netpol", "bound4"]);
    assert!(bound.contains(&ip), "{bound}");

    step("who is allowed, by name of a Service and of a port, from another node");
    let from_far = json!([{"from": [{"podSelector": {"matchLabels": {"app": "far"}}}], "ports": [{"port": "web"}]}]);
    apply(
        &dev,
        vec![policy("server", json!({"podSelector": {"matchLabels": {"app": "server"}}, "ingress": from_far}))],
    )
    .await;
    becomes(&dev, "near", "http://server/", false).await;
    assert!(!reaches(&dev, "near", &format!("http://{ip}:8080/")).await);
    becomes(&dev, "far", "http://server/", true).await;
    assert!(reaches(&dev, "far", &format!("http://{ip}:8080/")).await);
    let config = dev.data(1).join("admin.kubeconfig");
    let explain = |from: &str| {
        let mut command = Command::new(BINARY);
        command.args(["netpol", "explain", from, "default/server", "8080", "--kubeconfig"]).arg(&config);
        String::from_utf8_lossy(&command.output().expect("the binary").stdout).into_owned()
    };
    let (allowed, denied) = (explain("far"), explain("near"));
    assert!(
        allowed.contains("default/server (rule 1)") && allowed.contains("far to default/server: allowed"),
        "{allowed}"
    );
    assert!(denied.contains("near to default/server: denied"), "{denied}");

    step("verdicts are followed, with the policies that they follow from");
    let mut watch = Command::new("nsenter");
    watch.arg(format!("--net={}", dev.network(2).display())).arg(BINARY).args(["netpol", "watch", "--kubeconfig"]);
    let mut watch = watch.arg(&config).stdout(Stdio::piped()).spawn().expect("the binary");
    let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines();
    assert!(lines.next().expect("a line").expect("text").starts_with("VERDICT"));
    assert!(!reaches(&dev, "near", &format!("http://{ip}:8080/")).await);
    let denied = lines.next().expect("a line").expect("text");
    let _ = watch.kill();
    let _ = watch.wait();
    let words: Vec<&str> = denied.split_whitespace().collect();
    assert_eq!(words, ["Denied", "Ingress", "default/near", "default/server", "8080/TCP", "default/server"]);

    step("a pod that races its start");
    let out = json!({"podSelector": {"matchLabels": {"app": "quick"}}, "policyTypes": ["Egress"], "egress": []});
    apply(&dev, vec![policy("quick", out)]).await;
    // It sends as early and as often as it can; the policy is older than the pod.
    let race = format!(
        "i=0; while test $i -lt 20; do busybox timeout 1 wget -q -O - http://{ip}:8080/ && echo reached; i=$((i + 1)); done; \
         nslookup kubernetes.default.svc.cluster.local > /dev/null 2>&1 && echo reached; echo over; while sleep 1; do :; done"
    );
    apply(&dev, vec![policy("open", json!({"podSelector": {"matchLabels": {"app": "server"}}, "ingress": [{}]}))])
        .await;
    becomes(&dev, "near", "http://server/", true).await;
    apply(&dev, vec![pod(&dev, "quick", 2, container(&race, &json!({})))]).await;
    let started = Instant::now();
    loop {
        let said = dev.kubectl.output(&["logs", "quick"], "").await.stdout;
        assert!(!said.contains("reached"), "{said}");
        if said.contains("over") {
            break;
        }
        assert!(started.elapsed() < dev::PATIENCE, "{said}; {}", dev.logs());
    }
    dev.kubectl.run(&["delete", "networkpolicy", "open"]).await;
    becomes(&dev, "near", "http://server/", false).await;

    assert_eq!(ready_since(&dev).await, since, "the kubelet's probes came through all of this");

    step("SIGKILL of Trireme leaves policies in force, and the next start takes over");
    let pid = dev.pid(2);
    assert!(Command::new("kill").args(["-KILL", &pid]).status().is_ok_and(|status| status.success()));
    until("it is dead", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('Z'))
    })
    .await;
    assert!(reaches(&dev, "far", &format!("http://{ip}:8080/")).await);
    let table = dev.on(2, &["nft", "list", "map", "inet", "trireme-netpol", "ingress-isolated4"]);
    assert!(table.contains(&ip), "{table}");
    dev.trireme(&["start", &dev.node(2)]);
    dev.patiently(&["exec", "near", "--", "true"]).await;
    assert!(!reaches(&dev, "near", &format!("http://{ip}:8080/")).await);
    apply(&dev, vec![policy("server", json!({"podSelector": {"matchLabels": {"app": "server"}}, "ingress": [{}]}))])
        .await;
    becomes(&dev, "near", "http://server/", true).await;
}
