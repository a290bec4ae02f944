//! Extenders: real HTTP servers that take part in filtering, scoring, preemption and binding.

use std::net::SocketAddr;
use std::sync::Arc;

use client::Client;
use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status};
use parking_lot::Mutex;
use scheduler::Config;
use scheduler::config::Configuration;
use scheduler::testing::{container, node, pod};
use serde_json::{Value, json};
use testkit::object;

use crate::{Rig, important, small};

/// Answers a verb with a status and a body.
type Answer = Arc<dyn Fn(String, Value) -> BoxFuture<'static, (u16, Value)> + Send + Sync>;

/// An extender: what it was asked is remembered.
struct Extender {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Extender {
    fn start(answer: Answer) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("a listener for the runtime");
        let address = listener.local_addr().expect("an address");
        let asked: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        let remember = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, remember) = (answer.clone(), remember.clone());
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answer, remember) = (answer.clone(), remember.clone());
                    async move {
                        let verb = request.uri().path().trim_start_matches("/api/").to_owned();
                        let body = request.into_body().collect().await?.to_bytes();
                        let args: Value = serde_json::from_slice(&body).expect("JSON");
                        remember.lock().push((verb.clone(), args.clone()));
                        let (code, body) = answer(verb, args).await;
                        let status = StatusCode::from_u16(code).expect("a status");
                        let response =
                            Response::builder().status(status).body(Full::new(Bytes::from(body.to_string())));
                        Ok::<_, hyper::Error>(response.expect("a response"))
                    }
                });
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(async move { connection.serve_connection(TokioIo::new(stream), service).await });
            }
        });
        Self { address, asked }
    }

    fn url(&self) -> String {
        format!("http://{}/api", self.address)
    }

    /// The arguments of every call of a verb.
    fn calls(&self, verb: &str) -> Vec<Value> {
        self.asked.lock().iter().filter(|(v, _)| v == verb).map(|(_, args)| args.clone()).collect()
    }
}

fn config(extenders: Value) -> Config {
    let configuration = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": extenders,
    });
    Config { configuration: Configuration::parse(configuration).expect("a configuration"), ..Config::default() }
}

async fn bind(client: Client, args: Value) -> (u16, Value) {
    let text = |field: &str| args[field].as_str().map(str::to_owned);
    let binding = Binding {
        metadata: ObjectMeta { name: text("PodName"), uid: text("PodUID"), ..Default::default() },
        target: ObjectReference { kind: Some("Node".into()), name: text("Node"), ..Default::default() },
    };
    let (namespace, name) = (text("PodNamespace").unwrap_or_default(), text("PodName").unwrap_or_default());
    let bound = client.create_subresource::<Pod, _, Status>(&namespace, &name, "binding", &binding).await;
    (200, json!({ "Error": bound.err().map(|e| e.to_string()).unwrap_or_default() }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extender_filters_scores_and_binds_the_pods_that_need_its_resource() {
    let mut extender = None;
    let rig = Rig::with(|admin| {
        let admin = admin.clone();
        let answer: Answer = Arc::new(move |verb, args| {
            let admin = admin.clone();
            async move {
                match verb.as_str() {
                    "filter" => (200, json!({ "NodeNames": ["b", "c"], "FailedNodes": { "a": "no fpga here" } })),
                    "prioritize" => (200, json!([{ "Host": "b", "Score": 0 }, { "Host": "c", "Score": 10 }])),
                    "bind" => bind(admin, args).await,
                    other => panic!("nobody asked for {other}"),
                }
            }
            .boxed()
        });
        let server = extender.insert(Extender::start(answer));
        config(json!([{
            "urlPrefix": server.url(), "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 100,
            "bindVerb": "bind", "nodeCacheCapable": true, "httpTimeout": "30s",
            "managedResources": [{ "name": "example.com/fpga", "ignoredByScheduler": true }],
        }]))
    })
    .await;
    let extender = extender.expect("it was started");
    for name in ["a", "b", "c"] {
        rig.node(node(name).cpu("4").memory("4Gi").build()).await;
    }
    // No node has the resource as far as the scheduler knows: the extender looks after it.
    rig.pod(pod("special").with(container("main").image("busybox").cpu("100m").limit("example.com/fpga", "1"))).await;
    assert_eq!(rig.bound("special").await, "c");
    let asked = &extender.calls("filter")[0];
    assert_eq!(asked["Pod"]["metadata"]["name"], "special");
    let mut names: Vec<_> = asked["NodeNames"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    names.sort_unstable();
    assert_eq!((names, asked["Nodes"].is_null()), (vec!["a", "b", "c"], true));
    assert_eq!(extender.calls("prioritize")[0]["NodeNames"].as_array().map(Vec::len), Some(2));
    let bound = extender.calls("bind");
    assert_eq!((&bound[0]["PodName"], &bound[0]["Node"]), (&json!("special"), &json!("c")));
    // The event comes after the binding, whoever made it.
    assert_eq!(
        rig.event("special", "Scheduled").await.note.as_deref(),
        Some("Successfully assigned default/special to c")
    );

    rig.pod(small("plain", "100m")).await;
    rig.bound("plain").await;
    assert_eq!(
        (extender.calls("filter").len(), extender.calls("bind").len()),
        (1, 1),
        "it does not concern the extender"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extender_that_wants_whole_nodes_gets_them_and_its_refusals_are_told() {
    let mut extender = None;
    let rig = Rig::with(|_| {
        let answer: Answer = Arc::new(|_, args| {
            let nodes = args["Nodes"]["items"].as_array().cloned().unwrap_or_default();
            let good: Vec<_> = nodes.into_iter().filter(|n| n["metadata"]["labels"]["good"] == "yes").collect();
            let refused = json!({ "bad": "the extender says no" });
            let answer = json!({ "Nodes": { "items": good }, "FailedAndUnresolvableNodes": refused });
            async move { (200, answer) }.boxed()
        });
        let server = extender.insert(Extender::start(answer));
        config(json!([{ "urlPrefix": server.url(), "filterVerb": "filter", "httpTimeout": "30s" }]))
    })
    .await;
    rig.node(node("bad").cpu("4").memory("4Gi").build()).await;
    rig.pod(small("p", "100m")).await;
    let refused = rig.event("p", "FailedScheduling").await;
    let note = refused.note.clone().unwrap_or_default();
    assert!(note.starts_with("0/1 nodes are available: 1 the extender says no."), "{note}");
    rig.node(node("good").label("good", "yes").cpu("4").memory("4Gi").build()).await;
    // What a rejection by an extender waits for nobody knows: the next event of any kind tries again.
    assert_eq!(rig.bound("p").await, "good");
    let asked = extender.expect("it was started").calls("filter");
    assert!(asked.iter().all(|args| args["NodeNames"].is_null() && args["Nodes"]["items"].is_array()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_extender_holds_pods_up_unless_it_is_ignorable() {
    let mut extenders = None;
    let rig = Rig::with(|_| {
        let broken: Answer = Arc::new(|_, _| async { (500, json!({})) }.boxed());
        let (ignorable, needed) = extenders.insert((Extender::start(broken.clone()), Extender::start(broken)));
        config(json!([
            { "urlPrefix": ignorable.url(), "filterVerb": "filter", "ignorable": true, "httpTimeout": "30s" },
            { "urlPrefix": needed.url(), "filterVerb": "filter", "httpTimeout": "30s",
              "managedResources": [{ "name": "example.com/fpga" }] },
        ]))
    })
    .await;
    rig.node(node("n").cpu("4").memory("4Gi").allocatable("example.com/fpga", "1").build()).await;
    rig.pod(small("plain", "100m")).await;
    assert_eq!(rig.bound("plain").await, "n", "the broken extender is ignorable");
    rig.pod(pod("special").with(container("main").image("busybox").limit("example.com/fpga", "1"))).await;
    let failed = |p: Option<&Pod>| {
        let conditions = p.and_then(|p| p.status.as_ref()?.conditions.as_ref());
        conditions.is_some_and(|c| c.iter().any(|c| c.reason.as_deref() == Some("SchedulerError")))
    };
    object::<Pod>(&rig.client, "default", "special", "the failure is told", failed).await;
    let note = rig.event("special", "FailedScheduling").await.note.clone().unwrap_or_default();
    assert!(note.contains("code 500"), "{note}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_extender_narrows_the_victims_of_preemption() {
    let mut extender = None;
    let rig = Rig::with(|_| {
        let answer: Answer = Arc::new(|verb, args| {
            let answer = match verb.as_str() {
                "preempt" => {
                    // Only evictions from node `b` will do.
                    let victims = &args["NodeNameToMetaVictims"]["b"];
                    json!({ "NodeNameToMetaVictims": { "b": victims } })
                }
                _ => json!({ "NodeNames": args["NodeNames"] }),
            };
            async move { (200, answer) }.boxed()
        });
        let server = extender.insert(Extender::start(answer));
        config(json!([{
            "urlPrefix": server.url(), "filterVerb": "filter", "preemptVerb": "preempt", "nodeCacheCapable": true,
            "httpTimeout": "30s",
        }]))
    })
    .await;
    rig.priority_class().await;
    for (name, low) in [("a", "low-a"), ("b", "low-b")] {
        rig.node(node(name).cpu("1").memory("1Gi").build()).await;
        rig.pod(small(low, "800m").node_selector("kubernetes.io/hostname", name)).await;
        assert_eq!(rig.bound(low).await, name);
    }
    rig.create(important("important", "800m")).await;
    let leaving = |p: Option<&Pod>| p.is_some_and(|p| p.metadata.deletion_timestamp.is_some());
    object::<Pod>(&rig.client, "default", "low-b", "the victim is leaving", leaving).await;
    let asked = extender.expect("it was started").calls("preempt");
    assert_eq!(asked[0]["NodeNameToMetaVictims"].as_object().map(|nodes| nodes.len()), Some(2));
    let untouched: Pod = rig.client.get("default", "low-a").await.expect("a pod");
    assert!(untouched.metadata.deletion_timestamp.is_none());
}
