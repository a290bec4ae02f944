//! Load balancers for bare metal.

use client::DeleteOptions;
use informer::Informers;
use k8s_openapi::api::core::v1::{Node, Service};
use serde_json::json;
use testkit::Cluster;
use tokio_util::sync::CancellationToken;

fn service(name: &str, spec: serde_json::Value) -> Service {
    serde_json::from_value(json!({"metadata": {"namespace": "default", "name": name}, "spec": spec}))
        .expect("a service")
}

#[tokio::test(flavor = "multi_thread")]
async fn load_balancers_get_the_addresses_of_ready_nodes() {
    let cluster = Cluster::start().await;
    let api = cluster.in_process();
    let node = |name: &str, address: &str, ready: &str| -> Node {
        serde_json::from_value(json!({"metadata": {"name": name}, "status": {
            "addresses": [{"type": "InternalIP", "address": address}],
            "conditions": [{"type": "Ready", "status": ready}]}}))
        .expect("an answer")
    };
    for made in [node("a", "192.0.2.1", "True"), node("b", "192.0.2.2", "False")] {
        let mut created = api.create(&made).await.expect("an answer");
        created.status = made.status;
        api.update_status(&created).await.expect("an answer");
    }
    let shutdown = CancellationToken::new();
    let (stop, informers) = (shutdown.clone(), Informers::new(cluster.in_process()));
    let running =
        tokio::spawn(async move { controllers::serviceloadbalancer::run(Default::default(), &informers, stop).await });
    let spec = json!({"type": "LoadBalancer", "ports": [{"port": 80}]});
    api.create(&service("first", spec.clone())).await.expect("an answer");
    let addresses = |service: Option<&Service>| -> Vec<String> {
        let ingress = service.and_then(|s| s.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref());
        ingress.into_iter().flatten().filter_map(|i| i.ip.clone()).collect()
    };
    testkit::object::<Service>(&api, "default", "first", "the ready node", |s| addresses(s) == ["192.0.2.1"]).await;
    // The same port again: it waits until the first one is gone.
    api.create(&service("second", spec)).await.expect("an answer");
    let mut b = api.get::<Node>("", "b").await.expect("an answer");
    b.status = node("b", "192.0.2.2", "True").status;
    api.update_status(&b).await.expect("an answer");
    let both = ["192.0.2.1", "192.0.2.2"];
    testkit::object::<Service>(&api, "default", "first", "both nodes", |s| addresses(s) == both).await;
    assert!(addresses(Some(&api.get::<Service>("default", "second").await.expect("an answer"))).is_empty());
    api.delete::<Service>("default", "first", &DeleteOptions::default()).await.expect("an answer");
    testkit::object::<Service>(&api, "default", "second", "its turn", |s| addresses(s) == both).await;
    shutdown.cancel();
    running.await.expect("an answer");
    cluster.stop().await;
}
