//! One server alone becomes one that others can join, and goes back, with every object at its revision.

use k8s_openapi::api::core::v1::ConfigMap;
use testkit::build::config_map;
use testkit::{Server, ServerOptions, free_port};

use super::machines::{BINARY, Host};
use crate::command::run;

async fn revision(host: &Host, name: &str) -> Option<String> {
    host.client().get::<ConfigMap>("default", name).await.expect("it is there").metadata.resource_version
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_moves_into_an_etcd_and_back() {
    let arguments = vec!["--disable-agent".to_owned()];
    let mut host = Host { server: Server::start(ServerOptions { binary: BINARY.into(), arguments }).await };
    host.client().create(&config_map("before", "k", "v")).await.expect("created");
    let before = revision(&host, "before").await;
    let data = host.data_dir();
    let ports = [free_port(), free_port()].map(|port| port.to_string());
    let to_etcd = [
        "store",
        "move",
        "--to",
        "etcd",
        "--data-dir",
        &data,
        "--advertise-address",
        "127.0.0.1",
        "--etcd-client-port",
        &ports[0],
        "--etcd-peer-port",
        &ports[1],
    ];
    let (success, said) = run(&to_etcd);
    assert!(!success, "a store that is in use is not moved: {said}");
    assert!(host.server.stop().await, "{}", host.server.log_text());
    let (success, said) = run(&to_etcd);
    assert!(success && said.contains(".moved-"), "{said}");

    host.start_again().await;
    assert!(host.etcd().is_some(), "it looks after an etcd");
    assert_eq!(revision(&host, "before").await, before);
    host.client().create(&config_map("between", "k", "v")).await.expect("created");
    let between = revision(&host, "between").await;
    assert!(
        between.as_ref().and_then(|text| text.parse::<u64>().ok()) > before.as_ref().and_then(|text| text.parse().ok())
    );
    let back = ["store", "move", "--to", "embedded", "--data-dir", &data];
    let (success, said) = run(&back);
    assert!(!success && said.contains("stop the server first"), "{said}");
    assert!(host.server.stop().await, "{}", host.server.log_text());
    let (success, said) = run(&back);
    assert!(success, "{said}");

    host.start_again().await;
    assert!(host.etcd().is_none());
    assert_eq!((revision(&host, "before").await, revision(&host, "between").await), (before, between));
}
