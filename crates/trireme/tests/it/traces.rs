//! Spans of an apply at a collector: a gRPC server of the test's own, as an administrator would name it with `--tracing-config-file`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use client::{Client, Gvr};
use http::Method;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use machinery::rest::Body;
use otlp::v1::trace_service_server::{TraceService, TraceServiceServer};
use otlp::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse, Span, SpanKind, any_value};
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::{HollowNodes, Https, Server, ServerOptions, eventually};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tonic::codegen::Service as _;

/// A span and the service that it is from.
#[derive(Debug, Clone)]
pub struct Received {
    pub service: String,
    pub span: Span,
}

/// Keeps what it gets.
#[derive(Clone, Default)]
pub struct Collector {
    received: Arc<Mutex<Vec<Received>>>,
    more: Arc<Notify>,
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        for of_service in request.into_inner().resource_spans {
            let attributes = of_service.resource.map(|resource| resource.attributes).unwrap_or_default();
            let service = attributes.iter().find(|one| one.key == "service.name").map(text_of).unwrap_or_default();
            let spans = of_service.scope_spans.into_iter().flat_map(|scope| scope.spans);
            self.received.lock().extend(spans.map(|span| Received { service: service.clone(), span }));
        }
        self.more.notify_one();
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

fn text_of(pair: &otlp::v1::KeyValue) -> String {
    match pair.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        None => String::new(),
    }
}

impl Received {
    pub fn attribute(&self, key: &str) -> String {
        self.span.attributes.iter().find(|pair| pair.key == key).map(text_of).unwrap_or_default()
    }

    pub fn is_child_of(&self, parent: &Self) -> bool {
        self.span.parent_span_id == parent.span.span_id && self.span.trace_id == parent.span.trace_id
    }
}

impl Collector {
    /// Starts it; its address.
    async fn start(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let collector = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                collector.serve(stream);
            }
        });
        address
    }

    /// Starts it at a socket, which processes of every network reach.
    pub fn start_at(&self, socket: &Path) {
        let listener = tokio::net::UnixListener::bind(socket).expect("a socket");
        let collector = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                collector.serve(stream);
            }
        });
    }

    fn serve(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let collector = self.clone();
        let answer = service_fn(move |request| TraceServiceServer::new(collector.clone()).call(request));
        tokio::spawn(async move {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // A client that goes away in the middle is the client's affair.
            let _ = server.serve_connection(TokioIo::new(stream), answer).await;
        });
    }

    /// Spans of a trace, once there is what is waited for.
    pub async fn until(&self, what: &str, trace: &[u8], enough: impl Fn(&[Received]) -> bool) -> Vec<Received> {
        let waiting = async {
            loop {
                let more = self.more.notified();
                let of_trace: Vec<Received> =
                    self.received.lock().iter().filter(|one| one.span.trace_id == trace).cloned().collect();
                if enough(&of_trace) {
                    return of_trace;
                }
                more.await;
            }
        };
        eventually(what, waiting).await
    }
}

pub const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

pub fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits");
    (0..hex.len()).step_by(2).map(digits).collect()
}

async fn start(directory: &Path, address: &str, rate: u32) -> Server {
    let file = directory.join("tracing.yaml");
    let text = format!(
        "{{apiVersion: apiserver.config.k8s.io/v1, kind: TracingConfiguration, endpoint: '{address}', samplingRatePerMillion: {rate}}}"
    );
    std::fs::write(&file, text).expect("a file");
    let tokens = directory.join("tokens.csv");
    std::fs::write(&tokens, "secret-of-bob,bob,1\n").expect("a file");
    let arguments = [
        "--disable-agent",
        "--tracing-config-file",
        &file.to_string_lossy(),
        "--token-auth-file",
        &tokens.to_string_lossy(),
    ];
    let arguments = arguments.map(str::to_owned).to_vec();
    Server::start(ServerOptions { binary: env!("CARGO_BIN_EXE_trireme").into(), arguments }).await
}

/// A webhook that lets everything pass and remembers the traces that it was named.
async fn webhook(server: &Server, seen: &Arc<Mutex<Vec<String>>>) -> Https {
    let seen = Arc::clone(seen);
    let hook = Https::start(|_| {
        move |request: http::Request<Bytes>| {
            let header = request.headers().get("traceparent").and_then(|value| value.to_str().ok()).unwrap_or_default();
            seen.lock().push(header.to_owned());
            let review: Value = serde_json::from_slice(request.body()).expect("a review");
            let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                "response": {"uid": review["request"]["uid"], "allowed": true}});
            http::Response::new(Bytes::from(answer.to_string()))
        }
    })
    .await;
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "watching"},
        "webhooks": [{
            "name": "watching.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("{}/hook", hook.url()), "caBundle": STANDARD.encode(hook.authority())},
            "rules": [{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["deployments"]}],
        }],
    });
    let kinds = Gvr::new("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations");
    server.client().dynamic(&kinds).create("", &configuration).await.expect("a webhook");
    hook
}

fn deployment() -> Value {
    let labels = json!({"app": "web"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}},
    })
}

async fn send(server: &Server, method: Method, path: &str, body: Option<Value>) {
    send_traced(&server.client(), method, path, body).await;
}

/// A request of an administrator that is part of the trace.
pub async fn send_traced(client: &Client, method: Method, path: &str, body: Option<Value>) {
    let mut request = http::Request::new(body.map_or(Body::Empty, |body| Body::Bytes(body.to_string().into())));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().expect("a path");
    request.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    let parent = format!("00-{TRACE}-{SPAN}-01");
    request.headers_mut().insert("traceparent", parent.parse().expect("a header"));
    let answer = client.request(request).await.expect("an answer");
    assert!(answer.status().is_success(), "{}", answer.status());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_is_one_trace_with_the_right_parents() {
    let (collector, directory) = (Collector::default(), tempfile::tempdir().expect("a directory"));
    let server = start(directory.path(), &collector.start().await, 0).await;
    let _nodes = HollowNodes::start(&server.client(), 1).await;
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let _hook = webhook(&server, &seen).await;
    // Webhooks are taken in a moment after they are written.
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let is_asked = async {
        loop {
            let mut tried = deployment();
            tried["metadata"]["name"] = json!("tried");
            send(&server, Method::POST, &format!("{path}?dryRun=All"), Some(tried)).await;
            if !seen.lock().is_empty() {
                return;
            }
        }
    };
    eventually("the webhook is asked", is_asked).await;
    seen.lock().clear();
    send(&server, Method::POST, path, Some(deployment())).await;

    let binds = |spans: &[Received]| spans.iter().filter(|one| one.span.name == "bind").count() >= 2;
    let spans = collector.until("both pods are bound", &bytes_of(TRACE), binds).await;
    let is_apply = |one: &&Received| {
        one.span.kind() == SpanKind::Server && one.attribute("http.target") == path && one.service == "apiserver"
    };
    let apply = spans.iter().find(is_apply).expect("the request");
    assert_eq!(apply.span.parent_span_id, bytes_of(SPAN), "an administrator is believed to be the parent");
    assert_eq!(apply.span.name, "POST /apis/apps/v1/namespaces/{:namespace}/deployments");
    assert_eq!(apply.attribute("http.response.status_code"), "201");
    let of_apply = |name: &str| {
        let found = spans.iter().find(|one| one.span.name == name && one.is_child_of(apply));
        found.unwrap_or_else(|| panic!("{name} of the request in {spans:#?}"))
    };
    for name in ["TLS + authentication", "Authorisation chain (RBAC)", "Schema + OpenAPI validation"] {
        of_apply(name);
    }
    let asked = of_apply("Call validating webhook");
    assert_eq!((asked.attribute("webhook").as_str(), asked.span.kind()), ("watching.example.com", SpanKind::Client));
    let span: String = asked.span.span_id.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(*seen.lock(), [format!("00-{TRACE}-{span}-01")], "the webhook can go on with the trace");

    let commit = of_apply("etcd Txn — MVCC revision bump");
    let turns: Vec<&Received> = spans.iter().filter(|one| one.span.name == "reconcile deployment-controller").collect();
    let turn = turns.iter().find(|one| one.is_child_of(commit)).expect("a turn follows the commit");
    assert_eq!(turn.service, "kube-controller-manager");
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let made = spans.iter().find(|one| one.attribute("http.target") == sets && one.span.kind() == SpanKind::Server);
    assert!(made.is_some_and(|made| made.is_child_of(turn)), "the ReplicaSet is made by that turn: {spans:#?}");
    assert!(turn.attribute("decided").starts_with("created ReplicaSet web-"), "{turn:#?}");
    // Every span but the first has a parent that was sent too.
    let ids: HashMap<&[u8], &str> = spans.iter().map(|one| (&one.span.span_id[..], &*one.span.name)).collect();
    let bind = spans.iter().find(|one| one.span.name == "bind").expect("it was waited for");
    assert!(ids.contains_key(&bind.span.parent_span_id[..]), "{bind:#?}");
    assert_eq!(bind.service, "kube-scheduler");
    assert!(spans.iter().all(|one| one.span.end_time_unix_nano >= one.span.start_time_unix_nano));

    let untraced = collector.received.lock().iter().filter(|one| one.span.trace_id != bytes_of(TRACE)).count();
    assert_eq!(untraced, 0, "nobody else is sampled at a rate of 0");
    let figures = String::from_utf8(server.client().raw("/metrics").await.expect("figures").to_vec()).expect("text");
    let sent = figures.lines().find_map(|line| line.strip_prefix("trireme_trace_spans_exported_total "));
    assert!(sent.and_then(|count| count.parse::<f64>().ok()) >= Some(spans.len() as f64), "{sent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scheduler_says_which_plug_ins_refused_how_many_nodes() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path(), &Collector::default().start().await, 0).await;
    let client = server.client();
    let _nodes = HollowNodes::start(&client, 3).await;
    let pods = Gvr::new("", "v1", "pods");
    let pod = |name: &str, cpu: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {
            "containers": [{"name": "main", "image": "web:1", "resources": {"requests": {"cpu": cpu}}}]}})
    };
    // Of all three nodes, once the scheduler knows them and they are ready.
    let decided = async |name: &str, cpu: &str, wanted: Value| {
        let made = client.dynamic(&pods).create("default", &pod(name, cpu)).await.expect("a pod");
        let path = format!("/debug/hops?uid={}", made["metadata"]["uid"].as_str().expect("a uid"));
        let said = async {
            loop {
                let trail = client.raw(&path).await.expect("hops");
                let trail: Value = serde_json::from_slice(&trail).expect("a document");
                let spans = trail["hops"].as_array().cloned().unwrap_or_default();
                let of_all = |span: &&Value| span["stage"] == "schedule" && span["nodes"] == 3;
                if spans.iter().filter(of_all).any(|span| span["decided"] == wanted) {
                    return;
                }
                tokio::task::yield_now().await;
            }
        };
        eventually(&format!("a cycle for {name}: {wanted}"), said).await;
    };
    decided("huge", "900", json!("NodeResourcesFit refused 3 nodes")).await;
    // Nobody refused anything.
    decided("small", "10m", Value::Null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_does_not_decide_what_is_exported_and_the_last_spans_are_sent() {
    let (collector, directory) = (Collector::default(), tempfile::tempdir().expect("a directory"));
    let mut server = start(directory.path(), &collector.start().await, 1_000_000).await;
    let port = server.port();
    let url = format!("https://127.0.0.1:{port}/api/v1/namespaces/default/pods");
    let bearer = "Authorization: Bearer secret-of-bob";
    let parent = format!("traceparent: 00-{TRACE}-{SPAN}-01");
    let mut curl = server.command("curl");
    let output = curl.args(["--silent", "--insecure", "-H", bearer, "-H", &parent, &url]).output().await.expect("curl");
    assert!(String::from_utf8_lossy(&output.stdout).contains("forbidden"), "{output:?}");
    // What is queued when the server stops is still sent.
    assert!(server.stop().await, "it stops");
    let received = collector.received.lock().clone();
    let linked = |one: &&Received| one.span.links.iter().any(|link| link.span_id == bytes_of(SPAN));
    let own = received.iter().find(linked).expect("a span that is linked with the user's");
    assert!(own.span.parent_span_id.is_empty() && own.span.trace_id != bytes_of(TRACE), "{own:#?}");
    assert_eq!(own.span.name, "GET /api/v1/namespaces/{:namespace}/pods");
    assert!(
        received
            .iter()
            .all(|one| one.attribute("http.target").is_empty() || !format!("{one:?}").contains("secret-of-bob"))
    );
}
