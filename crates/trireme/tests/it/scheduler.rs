//! The scheduler as a process of its own, and what it shows of itself there and beside the API server.

use std::net::SocketAddr;

use client::Client;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use testkit::{Server, ServerOptions};
use tokio::process::{Child, Command};

use crate::endpoint::{self, page, somebody};

const BINARY: &str = env!("CARGO_BIN_EXE_trireme");

async fn server(arguments: &[&str]) -> Server {
    let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    Server::start(ServerOptions { binary: BINARY.into(), arguments }).await
}

/// A scheduler with its own identity, serving at this address.
fn scheduler(server: &Server, address: SocketAddr, kubeconfig: &std::path::Path) -> Child {
    let mut command = Command::new(BINARY);
    command.args(["scheduler", "--leader-elect=true", "--kubeconfig"]).arg(kubeconfig);
    command.args(endpoint::arguments(server, address));
    command.kill_on_drop(true).spawn().expect("the binary")
}

/// `system:kube-scheduler`, with nothing but its own rights.
fn own_kubeconfig(server: &Server) -> std::path::PathBuf {
    let pki = server.data_dir().join("pki");
    let text = |name: &str| std::fs::read_to_string(pki.join(name)).expect("the server's own file");
    let pair = pki::Pair { chain_pem: text("kube-scheduler.crt"), key_pem: text("kube-scheduler.key") };
    let address = format!("https://127.0.0.1:{}", server.port());
    let file = server.data_dir().join("scheduler.kubeconfig");
    pki::write_private(&file, &pki::kubeconfig(&address, &text("ca.crt"), "scheduler", &pair)).expect("a kubeconfig");
    file
}

async fn bind_one(client: &Client) {
    let node: Node = serde_json::from_value(json!({ "metadata": { "name": "n" } })).expect("a node");
    client.create(&node).await.expect("a node");
    let room = json!({ "status": {
        "allocatable": { "cpu": "4", "memory": "8Gi", "pods": "10" },
        "conditions": [{ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready" }],
    } });
    client.patch_status::<Node>("", "n", &client::Patch::Merge(room)).await.expect("room");
    let ready = client::Patch::Merge(json!({ "spec": { "taints": null } }));
    client.patch::<Node>("", "n", &ready).await.expect("an untainted node");
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "p", "namespace": "default" },
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{ "name": "c", "image": "busybox", "resources": { "requests": { "cpu": "100m" } } }],
        },
    }))
    .expect("a pod");
    testkit::eventually("the default service account is there", async {
        while client.create(&pod).await.is_err() {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    })
    .await;
    let is_bound = |pod: Option<&Pod>| pod.and_then(|p| p.spec.as_ref()?.node_name.as_ref()).is_some();
    testkit::object::<Pod>(client, "default", "p", "the pod is bound", is_bound).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_of_its_own_serves_health_and_figures_to_those_who_may() {
    let server = server(&["--disable-agent", "--disable-scheduler"]).await;
    let address = SocketAddr::from(([127, 0, 0, 1], testkit::free_port()));
    let _running = scheduler(&server, address, &own_kubeconfig(&server));
    let nobody = somebody(&server, address, None);
    endpoint::ready(&nobody).await;
    bind_one(&server.client()).await;
    assert_eq!(page(&nobody, "/livez").await, Ok("ok".to_owned()));
    assert_eq!(page(&nobody, "/metrics").await, Err(Some(403)));
    let figures = testkit::eventually("the administrator's certificate is believed", async {
        loop {
            // A connection of its own: a certificate is asked for when one is made.
            match page(&somebody(&server, address, Some("admin")), "/metrics").await {
                Ok(figures) if figures.contains("result=\"scheduled\"") => return figures,
                _ => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
    })
    .await;
    for line in [
        "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 1",
        "scheduler_pending_pods{queue=\"active\"} 0",
        "leader_election_master_status{name=\"kube-scheduler\"} 1",
    ] {
        assert!(figures.lines().any(|l| l == line), "{line} is not in\n{figures}");
    }
    assert!(figures.contains("process_resident_memory_bytes"));
    let admin = somebody(&server, address, Some("admin"));
    let resources = page(&admin, "/metrics/resources").await.expect("figures of pods");
    let line = "kube_pod_resource_request{namespace=\"default\",node=\"n\",pod=\"p\",priority=\"0\",resource=\"cpu\",scheduler=\"default-scheduler\",unit=\"cores\"} 0.1";
    assert!(resources.lines().any(|l| l == line), "{line} is not in\n{resources}");
    let configuration = page(&admin, "/configz").await.expect("the configuration");
    let configuration: serde_json::Value = serde_json::from_str(&configuration).expect("JSON");
    let profile = &configuration["componentconfig"]["profiles"][0];
    assert_eq!(profile["schedulerName"], "default-scheduler", "{configuration}");
    let status = page(&admin, "/statusz").await.expect("what it is");
    assert!(status.starts_with("\nkube-scheduler statusz\nWarning: This endpoint is not meant"), "{status}");
    assert!(status.ends_with("\nPaths: /configz /flagz /healthz /livez /metrics /readyz /statusz\n"), "{status}");
    let flags = page(&admin, "/flagz").await.expect("what it was started with");
    assert!(
        flags.lines().any(|line| line == "leader-elect-lease-duration=15s" || line.starts_with("secure-port=")),
        "{flags}"
    );
    for closed in ["/metrics/resources", "/configz", "/statusz", "/flagz"] {
        assert_eq!(page(&nobody, closed).await, Err(Some(403)), "{closed}");
    }
    let report = page(&nobody, "/readyz?verbose").await.expect("it is ready");
    assert_eq!(report, "[+]leaderElection ok\n[+]shutdown ok\n[+]sched-handler-sync ok\nreadyz check passed\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_the_api_server_the_schedulers_figures_are_the_servers() {
    let server = server(&["--disable-agent"]).await;
    let client = server.client();
    bind_one(&client).await;
    let figures = testkit::eventually("the attempt is counted", async {
        loop {
            let figures = page(&client, "/metrics").await.expect("figures");
            if figures
                .contains("scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 1")
            {
                return figures;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    for name in ["scheduler_scheduling_attempt_duration_seconds", "scheduler_pending_pods", "workqueue_depth"] {
        assert_eq!(figures.matches(&format!("# TYPE {name} ")).count(), 1, "{name} is there once");
    }
}
