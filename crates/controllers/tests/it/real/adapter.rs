//! Autoscalers by what applications say of themselves: an adapter as people run it beside Prometheus, behind the aggregation layer. It reads the pages of
//! pods in Prometheus' text, keeps two looks at each, and serves what counters grew by in a second.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use informer::clock;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Event, Pod, Service};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use parking_lot::Mutex;
use serde_json::{Value, json};
use testkit::Https;

use super::{Rig, pod};

const GROUP_VERSION: &str = "custom.metrics.k8s.io/v1beta1";
const COUNTER: &str = "http_requests_total";
const METRIC: &str = "http_requests_per_second";
/// Between two looks at a page.
const INTERVAL: u64 = 30;

/// The pods of an application by name, with the labels of the pods and what their pages said at the last two looks.
type Pages = BTreeMap<String, (&'static str, [String; 2])>;

/// A page of a server that answered so many requests, of its home page and of another.
fn page(home: u64, other: u64) -> String {
    format!(
        "# HELP {COUNTER} Requests.\n# TYPE {COUNTER} counter\n\
         {COUNTER}{{page=\"home\",code=\"200\"}} {home}\n{COUNTER}{{page=\"cart\",code=\"200\"}} {other}\n\
         process_open_fds 12\n"
    )
}

/// The sum of a counter over those of its series that have a label.
fn total(page: &str, label: &str) -> u64 {
    let series = page.lines().filter(|line| line.starts_with(COUNTER) && line.contains(label));
    series.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum()
}

#[derive(Clone, Default)]
struct Adapter {
    pages: Arc<Mutex<Pages>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Adapter {
    /// Looks at a pod's page once more.
    fn scrape(&self, pod: &str, app: &'static str, now: String) {
        let mut pages = self.pages.lock();
        let before = pages.remove(pod).map_or_else(|| page(0, 0), |(_, [_, last])| last);
        pages.insert(pod.to_owned(), (app, [before, now]));
    }

    /// What grew by how much in a second, in the form of a metric.
    fn value(pod: &str, kind: &str, [before, now]: &[String; 2], label: &str) -> Value {
        let milli = (total(now, label) - total(before, label)) * 1000 / INTERVAL;
        json!({
            "describedObject": {"kind": kind, "namespace": "default", "name": pod, "apiVersion": "/v1"},
            "metricName": METRIC, "timestamp": "2026-01-01T00:00:00Z", "windowSeconds": INTERVAL, "value": format!("{milli}m"),
        })
    }

    fn answer(&self, request: &http::Request<Bytes>) -> http::Response<Bytes> {
        let asked = request.uri().to_string();
        self.asked.lock().push(asked.clone());
        let (path, query) = asked.split_once('?').unwrap_or((&asked, ""));
        let root = format!("/apis/{GROUP_VERSION}");
        let label = if query.contains("metricLabelSelector=page%3Dhome") { "page=\"home\"" } else { "" };
        let pages = self.pages.lock();
        let of = |app: &str| pages.iter().filter(move |(_, (owner, _))| *owner == app).collect::<Vec<_>>();
        let items: Vec<Value> = match path.strip_prefix(&root) {
            Some("") => {
                let resource = |name: &str| json!({"name": format!("{name}/{METRIC}"), "singularName": "", "namespaced": true, "kind": "MetricValueList", "verbs": ["get"]});
                let list = json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": GROUP_VERSION, "resources": [resource("pods"), resource("services")]});
                return json_answer(&list);
            }
            Some("/namespaces/default/pods/*/http_requests_per_second")
                if query.contains("labelSelector=app%3Dweb") =>
            {
                of("web").iter().map(|(pod, (_, looks))| Self::value(pod, "Pod", looks, label)).collect()
            }
            Some("/namespaces/default/services/shop/http_requests_per_second") => {
                of("shop").iter().map(|(_, (_, looks))| Self::value("shop", "Service", looks, label)).collect()
            }
            _ => {
                let mut response = json_answer(
                    &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}),
                );
                *response.status_mut() = http::StatusCode::NOT_FOUND;
                return response;
            }
        };
        json_answer(&json!({"kind": "MetricValueList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": items}))
    }
}

fn json_answer(body: &Value) -> http::Response<Bytes> {
    let response = http::Response::builder().header("content-type", "application/json");
    response.body(Bytes::from(body.to_string())).expect("an answer")
}

/// Puts the adapter behind the API server.
async fn register(rig: &Rig, adapter: &Https) {
    let port: u16 = adapter.url().rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    rig.create::<Service>(json!({
        "metadata": {"name": "adapter", "namespace": "default"}, "spec": {"type": "ExternalName", "externalName": "localhost"},
    }))
    .await;
    rig.create::<APIService>(json!({"metadata": {"name": "v1beta1.custom.metrics.k8s.io"}, "spec": {
        "group": "custom.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "adapter", "port": port},
    }}))
    .await;
    rig.until::<APIService>("", "v1beta1.custom.metrics.k8s.io", "the adapter is available", |service| {
        let conditions = service.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "Available" && one.status == "True")
    })
    .await;
}

/// A Deployment and its pods, as far as anybody looks at them.
async fn application(rig: &Rig, name: &str, pods: &[&str]) {
    let labels = json!({"app": name});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "img"}]}});
    rig.create::<Deployment>(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": pods.len(), "selector": {"matchLabels": labels}, "template": template},
    }))
    .await;
    rig.patch_status::<Deployment>("default", name, json!({"status": {"replicas": pods.len()}})).await;
    for one in pods {
        rig.create::<Pod>(pod(one, json!({"labels": labels}), json!({"nodeName": "n1"}))).await;
        let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        rig.patch_status::<Pod>("default", one, ready).await;
    }
}

async fn autoscaler(rig: &Rig, name: &str, metric: Value) {
    rig.create::<HorizontalPodAutoscaler>(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                 "minReplicas": 1, "maxReplicas": 8, "metrics": [metric]},
    }))
    .await;
}

/// What an autoscaler wants, and why it could or could not.
async fn until_wants(rig: &Rig, name: &str, replicas: i32, reason: &str) {
    let what = format!("{name} wants {replicas}: {reason}");
    rig.until::<HorizontalPodAutoscaler>("default", name, &what, |scaler| {
        let status = scaler.status.clone().unwrap_or_default();
        let able = status.conditions.iter().flatten().find(|one| one.type_ == "AbleToScale");
        status.desired_replicas == replicas && able.and_then(|one| one.reason.as_deref()) == Some(reason)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_grows_and_shrinks_with_what_its_own_pages_say() {
    let rig = Rig::start().await;
    let adapter = Adapter::default();
    let serving = Https::start(|_| {
        let adapter = adapter.clone();
        move |request| adapter.answer(&request)
    })
    .await;
    register(&rig, &serving).await;
    application(&rig, "web", &["web-a", "web-b"]).await;
    application(&rig, "shop", &["shop-a"]).await;
    rig.create::<Service>(
        json!({"metadata": {"name": "shop", "namespace": "default"}, "spec": {"ports": [{"port": 80}]}}),
    )
    .await;
    // 20 and 15 requests in a second, where ten are as many as a pod should have.
    adapter.scrape("web-a", "web", page(600, 0));
    adapter.scrape("web-b", "web", page(300, 150));
    // 30 of them of the home page, which alone is asked for.
    adapter.scrape("shop-a", "shop", page(900, 9_000));
    autoscaler(&rig, "web", json!({"type": "Pods", "pods": {"metric": {"name": METRIC}, "target": {"type": "AverageValue", "averageValue": "10"}}}))
        .await;
    let home = json!({"name": METRIC, "selector": {"matchLabels": {"page": "home"}}});
    let shop = json!({"apiVersion": "v1", "kind": "Service", "name": "shop"});
    autoscaler(&rig, "shop", json!({"type": "Object", "object": {"metric": home, "describedObject": shop, "target": {"type": "Value", "value": "10"}}}))
        .await;
    let clock = clock::Fake::at(jiff::Timestamp::now());
    let _running = rig.run_at("horizontal-pod-autoscaler-controller", clock.clone());
    until_wants(&rig, "web", 4, "SucceededRescale").await;
    until_wants(&rig, "shop", 3, "SucceededRescale").await;
    for (name, size, kind) in
        [("web", 4, "pods metric http_requests_per_second"), ("shop", 3, "Service metric http_requests_per_second")]
    {
        let deployment = rig.client.get::<Deployment>("default", name).await.expect("a Deployment");
        assert_eq!(deployment.spec.replicas, Some(size));
        let message = format!("New size: {size}; reason: {kind} above target");
        testkit::objects::<Event>(&rig.client, "default", &message, |all| {
            all.iter().any(|event| event.message.as_deref() == Some(&message))
        })
        .await;
    }
    // Hardly anything is asked of it any more. It shrinks when that has been so for five minutes.
    adapter.scrape("web-a", "web", page(660, 0));
    adapter.scrape("web-b", "web", page(300, 210));
    let looked = || adapter.asked.lock().iter().filter(|path| path.contains("/pods/*/")).count();
    let before = looked();
    testkit::eventually("another look", async {
        while looked() == before {
            if clock.next_wake().is_some_and(|left| left <= Duration::from_secs(15)) {
                clock.advance(Duration::from_secs(1));
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    until_wants(&rig, "web", 4, "ScaleDownStabilized").await;
    clock.advance(Duration::from_secs(300));
    until_wants(&rig, "web", 1, "SucceededRescale").await;
}
