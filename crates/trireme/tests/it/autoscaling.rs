//! Autoscalers and the pods that they scale, all of it real: containers that burn CPU, measured by the kubelet, and containers that say themselves how much
//! they have to do, read by an adapter behind the aggregation layer as people run one beside Prometheus. A spike comes and goes; the timeline is printed.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use client::{Client, Event, ListParams, WatchParams};
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{self as core, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testkit::Https;

use crate::node::Machine;
use crate::servers::relay::Relay;

const IMAGE: &str = "trireme.local/scaled:1";
const GROUP_VERSION: &str = "custom.metrics.k8s.io/v1beta1";
const METRIC: &str = "jobs_per_second";
const MOST: i32 = 3;
/// Kubelets are asked every 15 s, autoscalers look every 15 s, and a new pod counts when it was measured twice.
const PATIENCE: Duration = Duration::from_secs(240);
/// Who wrote nothing for so long is gone.
const STALE: Duration = Duration::from_secs(5);

/// Burns as much as it may while somebody wants it to.
const BURN: &str =
    "while :; do if [ -e /load/on ]; then i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; else sleep 0.2; fi; done";
/// Says how much it does: what there is to do.
const SERVE: &str = "while :; do cat /load/rate > /load/served-$HOSTNAME; sleep 0.2; done";

#[tokio::test(flavor = "multi_thread")]
async fn a_spike_scales_real_pods_out_and_its_end_scales_them_in() {
    let machine = Machine::start("scaled", IMAGE).await;
    let client = machine.server.client();
    let load = tempfile::tempdir().expect("a directory");
    std::fs::write(load.path().join("rate"), "0").expect("a file");
    let files = load.path().to_owned();
    let adapter = Https::start(|_| move |request| answer(&files, &request)).await;
    let _relay = register(&client, &machine, &adapter).await;
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    let jobs = json!({"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": {"type": "AverageValue", "averageValue": "10"}}});
    for (name, script, metric) in [("burner", BURN, cpu), ("worker", SERVE, jobs)] {
        create::<Deployment>(&client, deployment(name, script, load.path())).await;
        create::<HorizontalPodAutoscaler>(&client, autoscaler(name, &metric)).await;
    }
    let mut timeline = Timeline::start(&client).await;
    timeline.until("both run", |ready| ready == [1, 1]).await;
    timeline.note("the spike begins");
    std::fs::write(load.path().join("rate"), "40").expect("a file");
    std::fs::write(load.path().join("on"), "").expect("a file");
    timeline.until("both are scaled out", |ready| ready == [MOST, MOST]).await;
    timeline.note("the spike is over");
    std::fs::remove_file(load.path().join("on")).expect("it is there");
    std::fs::write(load.path().join("rate"), "1").expect("a file");
    timeline.until("both are scaled in", |ready| ready == [1, 1]).await;
    for (name, above) in [
        ("burner", "cpu resource utilization (percentage of request) above target"),
        ("worker", "pods metric jobs_per_second above target"),
    ] {
        let events = events(&client, name).await;
        assert!(events.iter().any(|text| text.ends_with(&format!("reason: {above}"))), "{name}: {events:?}");
        let below = "New size: 1; reason: All metrics below target";
        assert!(events.iter().any(|text| text == below), "{name}: {events:?}");
    }
    drop(adapter);
    machine.clean().await;
}

async fn create<K: client::Kind + DeserializeOwned>(client: &Client, value: Value) {
    let object: K = serde_json::from_value(value).expect("an object");
    client.create(&object).await.expect("it can be created");
}

fn deployment(name: &str, script: &str, load: &Path) -> Value {
    let labels = json!({"app": name});
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": IMAGE, "command": ["sh", "-c", script],
                "resources": {"requests": {"cpu": "100m"}, "limits": {"cpu": "100m"}},
                "volumeMounts": [{"name": "load", "mountPath": "/load"}],
            }],
            "volumes": [{"name": "load", "hostPath": {"path": load}}],
        }}},
    })
}

fn autoscaler(name: &str, metric: &Value) -> Value {
    json!({"metadata": {"name": name, "namespace": "default"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 1, "maxReplicas": MOST, "metrics": [metric],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }})
}

/// What is said of an autoscaler.
async fn events(client: &Client, name: &str) -> Vec<String> {
    let selector =
        format!("involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name={name},reason=SuccessfulRescale");
    let params = ListParams { field_selector: selector, ..ListParams::default() };
    let events = client.list::<core::Event>("default", &params).await.expect("a list");
    events.items.iter().filter_map(|event| event.message.clone()).collect()
}

/// How many pods are ready, over time.
struct Timeline {
    begun: Instant,
    events: futures::stream::BoxStream<'static, Result<Event<Deployment>, client::Error>>,
    ready: BTreeMap<String, i32>,
}

impl Timeline {
    async fn start(client: &Client) -> Self {
        let params = WatchParams { send_initial_events: true, bookmarks: true, ..WatchParams::default() };
        let events = client.watch::<Deployment>("default", &params).await.expect("a watch").boxed();
        Self { begun: Instant::now(), events, ready: BTreeMap::new() }
    }

    fn note(&self, what: &str) {
        println!("{:6.1} s  {what}", self.begun.elapsed().as_secs_f64());
    }

    /// Follows until so many pods of each are ready, and no more are wanted.
    async fn until(&mut self, what: &str, met: impl Fn(&[i32]) -> bool) {
        let limit = Instant::now() + PATIENCE;
        loop {
            let event = tokio::time::timeout_at(limit.into(), self.events.next()).await;
            let event = event.unwrap_or_else(|_| panic!("{what}: {:?} are ready", self.ready));
            let Some(Ok(Event::Added(set) | Event::Modified(set))) = event else { continue };
            let name = set.metadata.name.clone().unwrap_or_default();
            let status = set.status.clone().unwrap_or_default();
            let (all, ready) = (status.replicas.unwrap_or_default(), status.ready_replicas.unwrap_or_default());
            if all == ready && self.ready.insert(name.clone(), ready) != Some(ready) {
                self.note(&format!("{name}: {ready} ready"));
            }
            if met(&self.ready.values().copied().collect::<Vec<_>>()) {
                return self.note(what);
            }
        }
    }
}

/// Puts the adapter behind the API server, by way of the host's end of the machine's link.
async fn register(client: &Client, machine: &Machine, adapter: &Https) -> Relay {
    let place = SocketAddr::new(machine.address(), 9);
    // Nothing is sent: the kernel only says from where it would be.
    let own = UdpSocket::bind("0.0.0.0:0").and_then(|socket| socket.connect(place).and_then(|()| socket.local_addr()));
    let own: IpAddr = own.expect("an address").ip();
    let at = adapter.url().strip_prefix("https://").and_then(|at| at.parse().ok()).expect("an address");
    let relay = Relay::to(SocketAddr::new(own, 0), at).await;
    let named = json!({"name": "adapter", "namespace": "default"});
    create::<Service>(
        client,
        json!({"metadata": named, "spec": {"ports": [{"port": 443, "targetPort": relay.address.port()}]}}),
    )
    .await;
    create::<EndpointSlice>(client, json!({
        "metadata": {"name": "adapter", "namespace": "default", "labels": {"kubernetes.io/service-name": "adapter"}},
        "addressType": "IPv4", "endpoints": [{"addresses": [own]}], "ports": [{"port": relay.address.port()}],
    }))
    .await;
    create::<APIService>(
        client,
        json!({"metadata": {"name": "v1beta1.custom.metrics.k8s.io"}, "spec": {
            "group": "custom.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": true, "service": named,
        }}),
    )
    .await;
    relay
}

/// The adapter: what pods said of themselves lately.
fn answer(load: &Path, request: &http::Request<Bytes>) -> http::Response<Bytes> {
    let root = format!("/apis/{GROUP_VERSION}");
    let body = match request.uri().path().strip_prefix(&root) {
        Some("") => json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": [
            {"name": format!("pods/{METRIC}"), "singularName": "", "namespaced": true, "kind": "MetricValueList", "verbs": ["get"]}]}),
        Some("/namespaces/default/pods/*/jobs_per_second") => {
            let items: Vec<Value> = said(load)
                .into_iter()
                .map(|(pod, value)| {
                    json!({
                        "describedObject": {"kind": "Pod", "namespace": "default", "name": pod, "apiVersion": "/v1"},
                        "metricName": METRIC, "timestamp": "2026-01-01T00:00:00Z", "value": value,
                    })
                })
                .collect();
            json!({"kind": "MetricValueList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": items})
        }
        _ => json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
    };
    let status = body["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(200);
    let response = http::Response::builder().status(status).header("content-type", "application/json");
    response.body(Bytes::from(body.to_string())).expect("an answer")
}

fn said(load: &Path) -> Vec<(String, String)> {
    let files = std::fs::read_dir(load).expect("a directory").filter_map(|file| file.ok().map(|file| file.path()));
    let fresh = |path: &PathBuf| {
        let written = path.metadata().and_then(|metadata| metadata.modified());
        written.is_ok_and(|written| SystemTime::now().duration_since(written).unwrap_or_default() < STALE)
    };
    let read = |path: PathBuf| {
        let pod = path.file_name()?.to_str()?.strip_prefix("served-")?.to_owned();
        // While it is written anew there is nothing in it.
        let value = std::fs::read_to_string(&path).ok()?.trim().to_owned();
        (!value.is_empty()).then_some((pod, value))
    };
    files.filter(fresh).filter_map(read).collect()
}
