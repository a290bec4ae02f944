//! An idle cluster does nothing: no writes, no leases that nobody contests.

use std::time::Duration;

use client::{Gvr, ListParams};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use testkit::build::deployment;
use testkit::{Server, ServerOptions};

/// Longer than any lease is renewed, any queue retries and any upstream loop looks for work.
const IDLE: Duration = Duration::from_secs(20);

/// How often threads of this name of the server were put to sleep or set aside.
fn switches(server: &Server, name: &str) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.id().expect("it runs"))).expect("its threads");
    let status = threads
        .map(|thread| std::fs::read_to_string(thread.expect("a thread").path().join("status")).unwrap_or_default());
    let ours = status.filter(|status| status.lines().next() == Some(&format!("Name:\t{name}")));
    let counts = ours.map(|status| -> u64 {
        let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
        lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    });
    counts.sum()
}

/// The revision of the store.
async fn revision(server: &Server) -> String {
    let params = ListParams { limit: Some(1), ..ListParams::default() };
    let namespaces = server.client().dynamic(&Gvr::new("", "v1", "namespaces"));
    namespaces.list("", &params).await.expect("a list").revision
}

/// Waits until nothing is written for a while, which is what makes a cluster idle.
async fn settled(server: &Server) -> String {
    let quiet = async {
        let mut before = revision(server).await;
        loop {
            // Nothing can be waited for but the absence of everything.
            tokio::time::sleep(Duration::from_secs(3)).await;
            let now = revision(server).await;
            if now == before {
                return now;
            }
            before = now;
        }
    };
    tokio::time::timeout(Duration::from_secs(180), quiet).await.expect("the cluster comes to rest")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_control_plane_writes_nothing_while_nothing_happens() {
    let arguments = vec!["--disable-agent".to_owned()];
    let server = Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await;
    let client = server.client();
    client.create(&deployment("web", 3)).await.expect("a deployment");
    testkit::objects::<Deployment>(&client, "default", "the pods are made", |all| {
        all.iter().any(|deployment| deployment.status.as_ref().is_some_and(|status| status.replicas == Some(3)))
    })
    .await;
    let before = settled(&server).await;
    let watched = switches(&server, "watchdog");
    assert!(watched > 0, "the watchdog has had something to watch");
    tokio::time::sleep(IDLE).await;
    let watched = switches(&server, "watchdog") - watched;
    assert!(watched < 100, "the watchdog of an idle process was awake {watched} times");
    assert_eq!(revision(&server).await, before, "somebody wrote without a reason");
    let leases = client.list::<Lease>("kube-system", &ListParams::default()).await.expect("a list").items;
    let names: Vec<_> = leases.iter().filter_map(|lease| lease.metadata.name.clone()).collect();
    assert!(!names.iter().any(|name| name == "kube-controller-manager" || name == "kube-scheduler"), "{names:?}");
}
