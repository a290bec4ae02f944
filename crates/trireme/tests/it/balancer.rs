//! The load balancer for bare metal: one works where several servers share a store, and none where it is not wanted.

use std::time::Duration;

use client::Client;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::json;
use testkit::{Etcd, Server, ServerOptions};

/// A lease lasts 15 s, and is looked at every 2 to 4.4 s.
const TAKEOVER: Duration = Duration::from_secs(120);
const ALONE: [&str; 3] = ["--disable-agent", "--disable-controller-manager", "--disable-scheduler"];

async fn server(more: &[&str]) -> Server {
    let arguments = ALONE.iter().chain(more).map(|&argument| argument.to_owned()).collect();
    Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await
}

/// Makes a node that is ready.
async fn node(client: &Client, name: &str, address: &str) {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a node");
    let mut node = client.create(&node).await.expect("created");
    let status = json!({"addresses": [{"type": "InternalIP", "address": address}],
                        "conditions": [{"type": "Ready", "status": "True"}]});
    node.status = serde_json::from_value(status).expect("a status");
    client.update_status(&node).await.expect("updated");
}

async fn service(client: &Client, name: &str, port: u16) {
    let spec = json!({"type": "LoadBalancer", "ports": [{"port": port}]});
    let made = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
    client.create(&serde_json::from_value::<Service>(made).expect("a Service")).await.expect("created");
}

fn addresses(service: &Service) -> Vec<String> {
    let ingress = service.status.as_ref().and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    ingress.into_iter().flatten().filter_map(|ingress| ingress.ip.clone()).collect()
}

/// Waits until a Service has exactly these addresses.
async fn balanced(client: &Client, name: &str, want: &[&str]) {
    let asked = async {
        loop {
            if client.get::<Service>("default", name).await.is_ok_and(|service| addresses(&service) == want) {
                return;
            }
            // The server that a watch would have to survive is killed in between.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(TAKEOVER, asked).await.unwrap_or_else(|_| panic!("{name} never got {want:?}"));
}

async fn holder(client: &Client) -> String {
    let lease = client.get::<Lease>("kube-system", "service-lb").await.expect("a lease");
    lease.spec.and_then(|spec| spec.holder_identity).expect("a holder")
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_one_works_and_another_takes_over() {
    let etcd = Etcd::start().await;
    let endpoint = etcd.endpoint();
    let store = ["--store", "etcd", "--etcd-servers", endpoint.as_str()];
    let mut first = server(&store).await;
    let client = first.client();
    node(&client, "a", "192.0.2.1").await;
    service(&client, "one", 81).await;
    balanced(&client, "one", &["192.0.2.1"]).await;
    let leader = holder(&client).await;

    let second = server(&store).await;
    let client = second.client();
    service(&client, "two", 82).await;
    balanced(&client, "two", &["192.0.2.1"]).await;
    assert_eq!(holder(&client).await, leader, "the first one works on");

    first.kill().await;
    node(&client, "b", "192.0.2.2").await;
    service(&client, "three", 83).await;
    for name in ["one", "two", "three"] {
        balanced(&client, name, &["192.0.2.1", "192.0.2.2"]).await;
    }
    assert_ne!(holder(&client).await, leader, "the second one took over");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_another_one_turns_it_off() {
    let mut server = server(&["--disable-service-lb"]).await;
    let client = server.client();
    node(&client, "a", "192.0.2.1").await;
    service(&client, "web", 80).await;
    // It begins by saying what it may do: it never began.
    testkit::object::<ClusterRole>(&client, "", "system:coredns", "other roles of ours", |role| role.is_some()).await;
    assert!(client.get::<ClusterRole>("", "system:service-lb").await.is_err());
    assert!(addresses(&client.get::<Service>("default", "web").await.expect("the Service")).is_empty());
    assert!(server.stop().await, "{}", server.log_text());
    let mut server = server.with_arguments(&ALONE);
    server.spawn();
    server.ready().await;
    balanced(&server.client(), "web", &["192.0.2.1"]).await;
    assert!(server.stop().await, "{}", server.log_text());
}
