//! A server that is told to stop goes in order: it is not ready first, still answers for as long as it was told to, and finishes what is under way.

use std::time::Duration;

use client::{Client, Event, ListParams, WatchParams};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use testkit::build::config_map;
use testkit::{Server, ServerOptions, eventually};

/// Waits until the server says that it is not ready.
async fn not_ready(client: &Client) {
    eventually("the server is not ready", async {
        while client.raw("/readyz/shutdown").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_is_not_ready_first_and_answers_meanwhile() {
    let arguments = ["--disable-agent", "--shutdown-delay-duration=4s"].map(str::to_owned).to_vec();
    let mut server = Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await;
    let client = server.client();
    let revision = client.list::<ConfigMap>("default", &ListParams::default()).await.expect("a list").revision;
    let params = WatchParams { resource_version: Some(revision), ..WatchParams::default() };
    let mut events = client.watch::<ConfigMap>("default", &params).await.expect("a watch");
    let stopping = tokio::spawn(async move {
        let stopped = server.stop().await;
        (stopped, server.log_text())
    });
    not_ready(&client).await;
    client.raw("/livez").await.expect("it lives");
    client.get::<Namespace>("", "default").await.expect("it answers");
    client.create(&config_map("late", "k", "v")).await.expect("it takes what comes");
    // The watch has it, and ends without an error.
    let mut seen = false;
    eventually("the watch ends", async {
        while let Some(event) = events.next().await {
            match event.expect("it ends in order") {
                Event::Added(object) => seen |= object.metadata.name.as_deref() == Some("late"),
                other => drop(other),
            }
        }
    })
    .await;
    assert!(seen, "nothing that was acknowledged is missing");
    let (stopped, log) = stopping.await.expect("no panic");
    assert!(stopped, "{log}");
}
