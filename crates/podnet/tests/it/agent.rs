//! The whole pod network of a node: a real API server, and a kernel that somebody interferes with.

use std::time::{Duration, Instant};

use client::DeleteOptions;
use informer::Informers;
use k8s_openapi::api::core::v1::Node;
use podnet::{Config, Mode};
use tokio_util::sync::CancellationToken;

use crate::{NODES, Net, run};

fn until(what: &str, mut met: impl FnMut() -> bool) {
    let started = Instant::now();
    while !met() {
        assert!(started.elapsed() < Duration::from_secs(60), "did not happen: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn node(name: &str, address: &str, number: u8) -> Node {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": name},
        "spec": {"podCIDR": format!("10.1.{number}.0/24"), "podCIDRs": [format!("10.1.{number}.0/24")]},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_follow_the_nodes_and_come_back_when_the_kernel_loses_them() {
    let cluster = testkit::Cluster::start().await;
    let (api, net) = (cluster.in_process(), Net::new());
    for (name, address, _, number) in NODES {
        let made = node(name, address, number);
        let mut created = api.create(&made).await.unwrap();
        created.status = made.status;
        api.update_status(&created).await.unwrap();
    }
    let (shutdown, client) = (CancellationToken::new(), cluster.in_process());
    let stop = shutdown.clone();
    let config = Config {
        node_name: "a".into(),
        mode: Mode::Vxlan,
        cluster_cidrs: vec!["10.1.0.0/16".parse().unwrap()],
        cni: None,
    };
    let agent = net.spawn_inside("a", move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { podnet::run(config, &Informers::new(client), stop).await.unwrap() });
    });
    let routes = || net.ip("a", "route show proto 84");
    let complete = || {
        let routes = routes();
        routes.contains("10.1.1.0/24 via 192.0.2.2") && routes.contains("10.1.2.0/24 via 10.1.2.0 dev trireme.vxlan")
    };
    let nft =
        |args: &[&str]| run(std::process::Command::new("ip").args(["netns", "exec", &net.name("a"), "nft"]).args(args));
    let masquerades = || nft(&["list", "ruleset"]).contains("masquerade");
    until("routes to both nodes", complete);
    until("masquerading", masquerades);

    // A link that goes takes its routes along; the kernel says nothing about them.
    net.ip("a", "link set eth0 down");
    net.ip("a", "link set eth0 up");
    net.ip("a", "route add default via 192.0.2.254");
    until("routes after the link came back", complete);
    net.ip("a", "route del 10.1.1.0/24");
    until("a route that was deleted", complete);
    net.ip("a", "link del trireme.vxlan");
    until("the tunnel again", complete);
    nft(&["flush", "ruleset"]);
    until("masquerading again", masquerades);

    api.delete::<Node>("", "b", &DeleteOptions::default()).await.unwrap();
    until("no route to a node that left", || !routes().contains("10.1.1.0/24"));
    shutdown.cancel();
    agent.join().unwrap();
    cluster.stop().await;
}
