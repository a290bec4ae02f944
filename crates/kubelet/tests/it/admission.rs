//! What the node itself lets in: pods that were bound to it, pods of its own files and URLs, and who has to go for them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::rig::{NODE, Rig, condition, phase, sh};

const LOOP: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn asking(cpu: &str) -> Value {
    let mut container = sh("main", LOOP);
    container["resources"] = json!({"requests": {"cpu": cpu}});
    container
}

/// Processors that pods may ask for.
async fn processors(rig: &Rig) -> u64 {
    rig.eventually_node().await;
    let node: Node = rig.admin.get("", NODE).await.unwrap();
    let allocatable = node.status.unwrap().allocatable.unwrap();
    // No pod was here yet, and the disk is as large as it will be then.
    assert_ne!(allocatable["ephemeral-storage"].0, "0");
    allocatable["cpu"].0.parse().expect("whole processors")
}

#[tokio::test]
async fn a_pod_without_room_is_refused_and_a_critical_one_takes_it() {
    let rig = Rig::start().await;
    let all = processors(&rig).await;
    let most = format!("{}m", all * 1000 - 200);
    rig.pod("small", json!({"containers": [asking("50m")]})).await;
    rig.pod("large", json!({"containers": [asking(&most)]})).await;
    rig.ready("small").await;
    rig.ready("large").await;
    rig.pod("late", json!({"containers": [asking("500m")]})).await;
    let late = rig.until("late", "refused", |pod| phase(pod) == "Failed").await.status.unwrap();
    assert_eq!(late.reason.as_deref(), Some("OutOfcpu"));
    let message = late.message.unwrap();
    let expect = "Pod was rejected: Node didn't have enough resource: cpu, requested: 500, used: ";
    assert!(message.starts_with(expect), "{message}");
    // What would help is the going of the large one; the small one stays.
    let critical = json!({"priorityClassName": "system-node-critical", "containers": [asking("500m")]});
    rig.pod("critical", critical.clone()).await;
    assert_eq!(phase(&rig.ready("critical").await), "Running");
    let large = rig.until("large", "preempted", |pod| phase(pod) == "Failed").await;
    let status = large.status.clone().unwrap();
    assert_eq!(
        (status.reason.as_deref(), status.message.as_deref()),
        (Some("Preempting"), Some("Preempted in order to admit critical pod"))
    );
    let disruption = status.conditions.unwrap().into_iter().find(|c| c.type_ == "DisruptionTarget").unwrap();
    assert_eq!(disruption.reason.as_deref(), Some("TerminationByKubelet"));
    assert_eq!(disruption.message.as_deref(), Some("Pod was preempted by Kubelet to accommodate a critical pod."));
    rig.event("large", "Preempting: Preempted in order to admit critical pod").await;
    let small: Pod = rig.admin.get("default", "small").await.unwrap();
    assert_eq!((phase(&small), condition(&small, "Ready")), ("Running", Some("True")));
    // More than the node has is more than anybody could give.
    let mut endless = critical;
    endless["containers"][0]["resources"]["requests"]["cpu"] = json!((all + 1).to_string());
    rig.pod("endless", endless).await;
    let endless = rig.until("endless", "refused", |pod| phase(pod) == "Failed").await.status.unwrap();
    assert_eq!(endless.reason.as_deref(), Some("UnexpectedAdmissionError"));
    let message = endless.message.unwrap();
    assert!(message.contains("no set of running pods found to reclaim resources: [(res: cpu, q: "), "{message}");
    rig.stop().await;
}

#[tokio::test]
async fn kernel_parameters_that_are_not_allowed_are_refused() {
    let rig = Rig::start_with(|config| config.allowed_unsafe_sysctls = vec!["kernel.msg*".into()]).await;
    let setting = |name: &str| {
        let script = format!("cat /proc/sys/kernel/msgmax; {LOOP}");
        json!({"securityContext": {"sysctls": [{"name": name, "value": "10007"}]}, "containers": [sh("main", &script)]})
    };
    rig.pod("unsafe", setting("kernel.shmmni")).await;
    let refused = rig.until("unsafe", "refused", |pod| phase(pod) == "Failed").await.status.unwrap();
    assert_eq!(refused.reason.as_deref(), Some("SysctlForbidden"));
    let message = "forbidden sysctl: \"kernel.shmmni\" not allowlisted";
    assert_eq!(refused.message, Some(format!("Pod was rejected: {message}")));
    rig.event("unsafe", &format!("SysctlForbidden: {message}")).await;
    rig.pod("allowed", setting("kernel.msgmax")).await;
    let allowed = rig.ready("allowed").await;
    assert_eq!(rig.log(&allowed, "main", 0), "10007\n");
    rig.stop().await;
}

#[tokio::test]
async fn what_somebody_adds_to_the_nodes_capacity_can_be_asked_for() {
    let mut rig = Rig::start().await;
    rig.eventually_node().await;
    let admin = rig.admin.clone();
    let set = async |amount: Value| {
        let patch = json!({"status": {"capacity": {"example.com/dongle": amount}}});
        admin.patch_status::<Node>("", NODE, &client::Patch::Merge(patch)).await.unwrap();
    };
    let allocatable = |node: Option<&Node>| {
        let list = node.and_then(|node| node.status.as_ref()?.allocatable.as_ref());
        list.and_then(|list| list.get("example.com/dongle")).map(|amount| amount.0.clone())
    };
    set(json!("3")).await;
    let three = |node: Option<&Node>| allocatable(node).as_deref() == Some("3");
    testkit::object::<Node>(&rig.admin, "", NODE, "three dongles to be had", three).await;
    let asking = |amount: &str| {
        let mut container = sh("main", LOOP);
        container["resources"] = json!({"limits": {"example.com/dongle": amount}});
        json!({"containers": [container]})
    };
    rig.pod("two", asking("2")).await;
    rig.ready("two").await;
    rig.pod("more", asking("2")).await;
    let refused = rig.until("more", "refused", |pod| phase(pod) == "Failed").await.status.unwrap();
    assert_eq!(refused.reason.as_deref(), Some("OutOfexample.com/dongle"));
    // Who offers something has to offer it again to a node that starts anew; what runs, runs on.
    rig.crash_kubelet().await;
    rig.start_kubelet();
    let none = |node: Option<&Node>| allocatable(node).as_deref() == Some("0");
    testkit::object::<Node>(&rig.admin, "", NODE, "dongles forgotten", none).await;
    rig.ready("two").await;
    set(json!("3")).await;
    testkit::object::<Node>(&rig.admin, "", NODE, "three dongles again", three).await;
    set(Value::Null).await;
    testkit::object::<Node>(&rig.admin, "", NODE, "no dongles", |node| node.is_some() && allocatable(node).is_none())
        .await;
    rig.stop().await;
}

#[tokio::test]
async fn all_pods_together_are_kept_from_what_is_reserved() {
    let rig = Rig::start_with(|config| {
        config.node.reserved_memory = 1 << 30;
        config.node.reserved_cpu_milli = 500;
        config.node.reserved_pids = 1000;
    })
    .await;
    let machine = kubelet::registration::machine::Machine::read(rig.dir.path());
    rig.eventually("limits", || {
        let memory = rig.pods_number("memory", "memory.limit_in_bytes", "memory.max");
        let processes = rig.pods_number("pids", "pids.max", "pids.max");
        memory == Some(machine.memory - (1 << 30)) && processes == Some(machine.processes.0 - 1000)
    })
    .await;
    if std::path::Path::new("/sys/fs/cgroup/cpu").exists() {
        let shares = (machine.processors * 1000 - 500) * 1024 / 1000;
        assert_eq!(rig.pods_number("cpu", "cpu.shares", ""), Some(shares));
    }
    testkit::objects::<k8s_openapi::api::core::v1::Event>(&rig.admin, "default", "the event", |events| {
        events.iter().any(|event| {
            event.reason.as_deref() == Some("NodeAllocatableEnforced")
                && event.message.as_deref() == Some("Updated Node Allocatable limit across pods")
        })
    })
    .await;
    rig.stop().await;
}

/// Serves a document that can be changed; nothing is a server that fails.
async fn serve(document: Arc<Mutex<Option<String>>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/pod", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = vec![0; 4096];
            let count = stream.read(&mut asked).await.unwrap_or(0);
            let asked = String::from_utf8_lossy(&asked[..count]).to_lowercase();
            let body = document.lock().unwrap().clone().filter(|_| asked.contains("x-key: secret\r\n"));
            let answer = match body {
                Some(body) => format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()),
                None => "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    url
}

#[tokio::test]
async fn a_url_is_a_source_of_pods_whose_silence_ends_nothing() {
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "containers": [sh("main", LOOP)]},
    });
    let document = Arc::new(Mutex::new(Some(manifest.to_string())));
    let url = serve(document.clone()).await;
    let mut rig = Rig::start_with(|config| {
        let headers = vec![("X-Key".to_owned(), "secret".to_owned())];
        let every = Some(Duration::from_millis(100));
        config.static_url = Some(kubelet::configuration::static_url(url, headers, every).unwrap());
    })
    .await;
    let id = |pod: &Pod| pod.status.clone().unwrap().container_statuses.unwrap()[0].container_id.clone();
    let mirror = rig.ready("web-node-1").await;
    assert_eq!(mirror.metadata.annotations.as_ref().unwrap()["kubernetes.io/config.source"], "http");
    // A kubelet that starts anew while the server is silent lets the pod run, and knows it again later.
    *document.lock().unwrap() = None;
    rig.crash_kubelet().await;
    rig.start_kubelet();
    rig.pod("other", json!({"containers": [sh("main", LOOP)]})).await;
    rig.ready("other").await;
    *document.lock().unwrap() = Some(manifest.to_string());
    let again = rig.ready("web-node-1").await;
    assert_eq!(id(&again), id(&mirror));
    *document.lock().unwrap() = Some(String::new());
    rig.gone("web-node-1").await;
    rig.stop().await;
}

#[tokio::test]
async fn the_image_of_a_file_that_vanished_meanwhile_is_removed() {
    let mut rig = Rig::start().await;
    let file = rig.dir.path().join("manifests/web.yaml");
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "containers": [sh("main", LOOP)]},
    });
    std::fs::write(&file, manifest.to_string()).unwrap();
    rig.ready("web-node-1").await;
    rig.crash_kubelet().await;
    std::fs::remove_file(&file).unwrap();
    rig.start_kubelet();
    rig.gone("web-node-1").await;
    rig.stop().await;
}
