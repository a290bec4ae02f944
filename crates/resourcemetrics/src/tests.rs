//! Rules that upstream's metrics-server has, as tables.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;

use crate::collect::{Collector, Kubelets, RESOLUTION};
use crate::objects::{self, About};
use crate::points::Points;
use crate::{Batch, Point, text};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + seconds).expect("a time of our age")
}

fn point(start: i64, time: i64, cpu_millis: u64) -> Point {
    Point { start: Some(at(start)), time: at(time), cpu: cpu_millis * 1_000_000, memory: 4096 }
}

fn key() -> (String, String) {
    ("default".to_owned(), "web".to_owned())
}

fn batch(containers: &[(&str, Point)]) -> Batch {
    let containers = containers.iter().map(|(name, point)| ((*name).to_owned(), *point)).collect();
    Batch { pods: [(key(), containers)].into(), ..Batch::default() }
}

#[test]
fn a_kubelets_text_becomes_points() {
    let text = r#"# HELP container_cpu_usage_seconds_total [STABLE] words
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="a",namespace="default",pod="web"} 1.5 1800000007000
container_cpu_usage_seconds_total{container="b",namespace="default",pod="half"} 2 1800000007000
container_memory_working_set_bytes{container="a",namespace="default",pod="web"} 8192 1800000006000
container_start_time_seconds{container="a",namespace="default",pod="web"} 1.8e+09
node_cpu_usage_seconds_total 12.25 1800000001000
node_memory_working_set_bytes 1e+09
pod_cpu_usage_seconds_total{namespace="default",pod="web"} 1.6 1800000007000
odd{a="}\"",b} 1
broken{a="
container_cpu_usage_seconds_total{container="a",namespace="default",pod="odd"} NaN
"#;
    let mut batch = Batch::default();
    text::read(text, "one", at(1), &mut batch);
    let web = Point { start: Some(at(0)), time: at(7), cpu: 1_500_000_000, memory: 8192 };
    assert_eq!(batch.pods, [(key(), BTreeMap::from([("a".to_owned(), web)]))].into(), "half a pod is none");
    let node = Point { start: None, time: at(1), cpu: 12_250_000_000, memory: 1_000_000_000 };
    assert_eq!(batch.nodes, [("one".to_owned(), node)].into());
}

#[test]
fn use_is_what_happened_between_two_moments() {
    let mut points = Points::new(RESOLUTION);
    points.store(batch(&[("a", point(-100, 0, 1000))]));
    assert_eq!(points.pod(&key()), None, "one moment says nothing");
    points.store(batch(&[("a", point(-100, 10, 1500))]));
    let usage = points.pod(&key()).expect("two moments");
    assert_eq!((usage.time, usage.window, usage.containers[0].1.cpu), (at(10), Duration::from_secs(10), 50_000_000));
    // The kubelet has not measured since: what is known stays.
    points.store(batch(&[("a", point(-100, 10, 1500))]));
    assert_eq!(points.pod(&key()), Some(usage));
    // It was not asked, or did not answer: nothing is known.
    points.store(Batch::default());
    assert_eq!(points.pod(&key()), None);
}

#[test]
fn a_container_that_began_anew_is_not_measured_against_the_old_one() {
    let mut points = Points::new(RESOLUTION);
    points.store(batch(&[("a", point(-100, 0, 9000)), ("b", point(-100, 0, 10))]));
    points.store(batch(&[("a", point(8, 15, 200)), ("b", point(-100, 15, 25))]));
    assert_eq!(points.pod(&key()), None, "a pod without one of its containers is none");
    // Old enough that its start counts as a moment, young enough that there is no other.
    points.store(batch(&[("a", point(16, 30, 700)), ("b", point(-100, 30, 40))]));
    let usage = points.pod(&key()).expect("all containers are there");
    assert_eq!(
        usage.containers.iter().map(|(name, usage)| (name.as_str(), usage.cpu)).collect::<Vec<_>>(),
        [("a", 50_000_000), ("b", 1_000_000)]
    );
    // A counter that went back is no use; the other containers are still told.
    points.store(batch(&[("a", point(16, 45, 600)), ("b", point(-100, 45, 55))]));
    let usage = points.pod(&key()).expect("one container is left");
    assert_eq!(usage.containers.len(), 1);
}

#[test]
fn objects_and_tables_are_written_as_upstream_writes_them() {
    let mut points = Points::new(RESOLUTION);
    for (time, cpu) in [(0, 1000), (15, 1003)] {
        let mut batch = batch(&[("a", point(-100, time, cpu)), ("b", point(-100, time, 2 * cpu))]);
        batch.nodes.insert("one".to_owned(), Point { start: None, time: at(time), cpu: cpu * 1_000_000, memory: 1234 });
        points.store(batch);
    }
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let about = About { namespace: "default", name: "web", labels: &labels };
    let pod = objects::pod(about, &points.pod(&key()).expect("two moments"), at(20));
    assert_eq!(
        pod,
        json!({
            "kind": "PodMetrics",
            "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web"}, "creationTimestamp": "2027-01-15T08:00:20Z"},
            "timestamp": "2027-01-15T08:00:15Z",
            "window": "15s",
            "containers": [
                {"name": "a", "usage": {"cpu": "200u", "memory": "4Ki"}},
                {"name": "b", "usage": {"cpu": "400u", "memory": "4Ki"}},
            ],
        })
    );
    let about = About { namespace: "", name: "one", labels: &BTreeMap::new() };
    let node = objects::node(about, &points.node("one").expect("two moments"), at(20));
    assert_eq!(
        (&node["usage"], &node["metadata"]["namespace"]),
        (&json!({"cpu": "200u", "memory": "1234"}), &json!(null))
    );
    let table = objects::table(&[pod], |item| item["metadata"].clone());
    assert_eq!(table["rows"][0]["cells"], json!(["web", "600u", "8Ki", "15s"]));
}

/// One kubelet that counts how often it is asked; each time more has been used.
#[derive(Default)]
struct One(Mutex<u64>);

impl Kubelets for One {
    fn nodes(&self) -> Vec<String> {
        vec!["one".to_owned()]
    }

    fn scrape<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<String, String>> {
        let mut count = self.0.lock();
        *count += 1;
        let text = format!("node_cpu_usage_seconds_total {count}\nnode_memory_working_set_bytes 5\n");
        Box::pin(async move { Ok(text) })
    }

    fn now(&self) -> Timestamp {
        at(i64::try_from(*self.0.lock()).expect("a small number"))
    }
}

#[tokio::test(start_paused = true)]
async fn kubelets_are_asked_while_somebody_asks_and_not_otherwise() {
    let one = Arc::new(One::default());
    let collector = Collector::new(one.clone());
    let asked = || *one.0.lock();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(asked(), 0, "nobody has asked");
    let usage = collector.read(|points| points.node("one")).await.expect("the first question waits for two rounds");
    assert_eq!((usage.cpu, asked()), (1_000_000_000, 2));
    collector.read(|points| points.node("one")).await.expect("the second one does not wait");
    assert_eq!(asked(), 2);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(asked(), 6, "a round every 15 seconds");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let at_rest = asked();
    assert!(at_rest < 12, "{at_rest} rounds although nobody asked");
    collector.read(|points| points.node("one")).await.expect("it begins anew");
    assert_eq!(asked(), at_rest + 2);
}
