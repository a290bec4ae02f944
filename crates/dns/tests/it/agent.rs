//! The server on a real API: names follow their objects.

use std::net::SocketAddr;
use std::time::Duration;

use dns::Config;
use informer::Informers;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;
use testkit::{Cluster, eventually};
use tokio_util::sync::CancellationToken;

async fn dig(server: SocketAddr, name: &str) -> String {
    let (ip, port) = (format!("@{}", server.ip()), server.port().to_string());
    let output =
        tokio::process::Command::new("dig").args([&ip, "-p", &port, "+short", "+tries=1", name]).output().await;
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// Asks until the answer is this one.
async fn until(server: SocketAddr, name: &str, want: &str) {
    let asking = async {
        while dig(server, name).await != want {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    eventually(&format!("{name} is {want:?}"), asking).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_follow_their_objects() {
    let cluster = Cluster::start().await;
    let api = cluster.in_process();
    // An address of our own: a port that was taken and given back may be somebody else's by now.
    let [.., high, low] = std::process::id().to_be_bytes();
    let server = SocketAddr::from(([127, 53, high, low], 5353));
    let shutdown = CancellationToken::new();
    let (stop, client) = (shutdown.clone(), cluster.in_process());
    let running =
        tokio::spawn(async move { dns::run(Config::new(vec![server]), &Informers::new(client), stop).await.unwrap() });

    let service = |name: &str, spec: serde_json::Value| -> Service {
        serde_json::from_value(json!({"metadata": {"namespace": "default", "name": name}, "spec": spec})).unwrap()
    };
    let web = api.create(&service("web", json!({"ports": [{"port": 80}]}))).await.unwrap();
    let ip = web.spec.clone().unwrap().cluster_ip.unwrap();
    until(server, "web.default.svc.cluster.local", &format!("{ip}\n")).await;

    api.create(&service("db", json!({"clusterIP": "None", "ports": [{"port": 80}]}))).await.unwrap();
    let slice = |addresses: &[&str]| -> EndpointSlice {
        let endpoints: Vec<_> = addresses.iter().map(|a| json!({"addresses": [a]})).collect();
        let meta = json!({"namespace": "default", "name": "db-1", "labels": {"kubernetes.io/service-name": "db"}});
        serde_json::from_value(json!({"metadata": meta, "addressType": "IPv4", "endpoints": endpoints})).unwrap()
    };
    let made = api.create(&slice(&["10.1.0.2"])).await.unwrap();
    until(server, "db.default.svc.cluster.local", "10.1.0.2\n").await;
    let mut moved = slice(&["10.1.0.3"]);
    moved.metadata = made.metadata;
    api.update(&moved).await.unwrap();
    until(server, "db.default.svc.cluster.local", "10.1.0.3\n").await;

    api.delete::<Service>("default", "web", &client::DeleteOptions::default()).await.unwrap();
    until(server, "web.default.svc.cluster.local", "").await;
    shutdown.cancel();
    running.await.unwrap();
    cluster.stop().await;
}
