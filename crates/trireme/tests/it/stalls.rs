//! One client's work is not another one's wait: requests that take long are served beside those that do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use client::{Client, Config, Event, WatchParams};
use futures::StreamExt as _;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use machinery::rest::{Body, Payload};
use serde_json::{Value, json};
use testkit::build::config_map;
use testkit::{Server, ServerOptions};
use tokio::sync::Notify;

/// Elements of a large request.
const ELEMENTS: usize = 10_000;
/// Clients that send them, more than there are threads that serve.
const SENDERS: usize = 4;
/// Rounds of small requests.
const ROUNDS: usize = 40;

/// Sends one request and takes the whole of its answer.
async fn send(client: &Client, method: Method, path: &str, content: &str, body: &str) {
    let body = if body.is_empty() { Body::Empty } else { Body::Bytes(body.to_owned().into()) };
    let request = http::Request::builder().method(method).uri(path).header("content-type", content).body(body);
    let response = client.request(request.expect("a request")).await.expect("an answer");
    let status = response.status();
    let Payload::Stream(mut pieces) = response.into_body() else { panic!("no bytes") };
    let mut answer = Vec::new();
    while let Some(piece) = pieces.next().await {
        answer.extend_from_slice(&piece.expect("a piece"));
    }
    assert!(status.is_success(), "{path}: {}", String::from_utf8_lossy(&answer[..answer.len().min(500)]));
}

/// Large requests of several kinds, all of them for show.
fn large() -> Vec<(Method, &'static str, &'static str, String)> {
    let finalizers =
        |letter: char| -> Vec<String> { (0..ELEMENTS).map(|number| format!("example.com/{letter}{number}")).collect() };
    let ports: Vec<Value> = (1..=ELEMENTS).map(|port| json!({"name": format!("p{port}"), "port": port})).collect();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "big"}, "spec": {"ports": ports}});
    let variables: Vec<Value> = (0..ELEMENTS).map(|at| json!({"name": format!("E{at}"), "value": "x"})).collect();
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "big"},
        "spec": {"containers": [{"name": "c", "image": "i", "env": variables}]}});
    let order: Vec<String> = finalizers('b').into_iter().chain(finalizers('a')).collect();
    let merge = json!({"metadata": {"finalizers": finalizers('b'), "$setElementOrder/finalizers": order,
        "$deleteFromPrimitiveList/finalizers": finalizers('a')}});
    let big = "/api/v1/namespaces/default/configmaps/big?dryRun=All";
    vec![
        (Method::PATCH, big, "application/strategic-merge-patch+json", merge.to_string()),
        (
            Method::PATCH,
            "/api/v1/namespaces/default/services/big?dryRun=All&fieldManager=test",
            "application/apply-patch+yaml",
            service.to_string(),
        ),
        (Method::POST, "/api/v1/namespaces/default/pods?dryRun=All", "application/json", pod.to_string()),
        // A small patch of a large object.
        (Method::PATCH, big, "application/merge-patch+json", json!({"data": {"a": "b"}}).to_string()),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn small_requests_do_not_take_turns_with_large_ones() {
    let arguments = vec!["--disable-agent".to_owned()];
    let server = Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await;
    let config = Config::from_kubeconfig(server.kubeconfig()).expect("a kubeconfig");
    let connect = || Client::https(config.clone()).expect("a client");
    let client = connect();
    let finalizers: Vec<String> = (0..ELEMENTS).map(|number| format!("example.com/a{number}")).collect();
    let mut big = config_map("big", "a", "b");
    big.metadata.finalizers = Some(finalizers);
    client.create(&big).await.expect("a large object");

    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let answered = Arc::new(Notify::new());
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..SENDERS {
        let (over, done, answered, client) = (over.clone(), done.clone(), answered.clone(), connect());
        senders.spawn(async move {
            let large = large();
            for at in (sender..).take_while(|_| !over.load(Ordering::Relaxed)) {
                let (method, path, content, body) = &large[at % large.len()];
                send(&client, method.clone(), path, content, body).await;
                done.fetch_add(1, Ordering::Relaxed);
                answered.notify_one();
            }
        });
    }
    let mut events = client.watch::<ConfigMap>("kube-public", &WatchParams::default()).await.expect("a watch");
    testkit::eventually("the large ones are under way", answered.notified()).await;
    let before = done.load(Ordering::Relaxed);
    for round in 0..ROUNDS {
        send(&client, Method::GET, "/api/v1/namespaces/default/configmaps/kube-root-ca.crt", "", "").await;
        // A connection of its own, as whoever asks for health makes one.
        send(&connect(), Method::GET, "/livez", "", "").await;
        let name = format!("small-{round}");
        let body = json!({"metadata": {"name": name}}).to_string();
        send(&client, Method::POST, "/api/v1/namespaces/kube-public/configmaps", "application/json", &body).await;
        loop {
            match events.next().await.expect("the watch goes on").expect("an event") {
                Event::Added(map) if map.metadata.name.as_ref() == Some(&name) => break,
                _ => {}
            }
        }
    }
    let meanwhile = done.load(Ordering::Relaxed) - before;
    over.store(true, Ordering::Relaxed);
    while let Some(sender) = senders.join_next().await {
        sender.expect("large requests are answered");
    }
    // Each round is four small requests. If each of them had waited for one large request, there would be four times as many.
    assert!(meanwhile < ROUNDS, "{meanwhile} large requests were served during {ROUNDS} rounds of small ones");
}
