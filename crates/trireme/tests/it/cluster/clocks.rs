//! Two nodes whose clocks are five seconds apart, and what is told of pods on both: in which order things happened, whose time it was, and that
//! what an agent does belongs to the trace of the request that led to it.
//!
//! The kernel has no namespace for the time of day. A library that the processes load first answers for it, in the process of one node alone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use client::{Event, WatchParams};
use futures::StreamExt as _;
use http::Method;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use testkit::eventually;

use super::dev::{BINARY, Dev, IMAGE, said};
use crate::node::pod_ready;
use crate::traces::{Collector, Received, TRACE, bytes_of, send_traced};

const AHEAD: i64 = 5;
/// How much of what was measured may be missing from what is told.
const TOLERANCE: f64 = 0.05;

/// `NAME=SECONDS` in the environment: the process with an argument of this name sees the time of day so much ahead.
const CLOCK: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long ahead;

__attribute__((constructor)) static void begin(void) {
    static char line[1 << 16];
    const char *told = getenv("TRIREME_TEST_CLOCK"), *is = told ? strchr(told, '=') : NULL;
    int file = is ? open("/proc/self/cmdline", O_RDONLY) : -1;
    if (file < 0) return;
    ssize_t length = read(file, line, sizeof line - 1);
    close(file);
    for (ssize_t at = 0; at < length; at += strlen(line + at) + 1)
        if (strlen(line + at) == (size_t)(is - told) && !strncmp(line + at, told, is - told)) ahead = atol(is + 1);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int answer = syscall(SYS_clock_gettime, clock, time);
    if (!answer && clock == CLOCK_REALTIME) time->tv_sec += ahead;
    return answer;
}
"#;

fn library(directory: &Path) -> PathBuf {
    let (source, library) = (directory.join("clock.c"), directory.join("clock.so"));
    std::fs::write(&source, CLOCK).expect("a file");
    said(Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source));
    library
}

#[tokio::test(flavor = "multi_thread")]
async fn hops_are_in_order_and_add_up_whatever_the_clocks_of_nodes_show() {
    let directory = tempfile::tempdir().expect("a directory");
    let (collector, socket) = (Collector::default(), directory.path().join("collector"));
    collector.start_at(&socket);
    let endpoint = format!("unix://{}", socket.display());
    let file = directory.path().join("tracing.yaml");
    let configuration =
        json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "TracingConfiguration", "endpoint": endpoint});
    std::fs::write(&file, configuration.to_string()).expect("a file");
    let server = format!("--server-arg=--tracing-config-file={}", file.display());
    // Nothing is sampled that does not belong to a trace already.
    let kubelet =
        format!("--node-arg=--kubelet-setting=tracing={}", json!({"endpoint": endpoint, "samplingRatePerMillion": 0}));
    let dev = Dev::with_clock(2, &library(directory.path()), AHEAD, &[&server, &kubelet]);
    dev.ready(2, true).await;
    for number in [1, 2] {
        assert_eq!(ahead(&dev, number).await.round() as i64, if number == 2 { AHEAD } else { 0 });
        let name = format!("timed-{number}");
        let (uid, measured) = start(&dev, number, &name).await;
        told(&dev, &name, measured);
        traced(&collector, &uid).await;
    }
}

/// How far a node's clock is ahead of the test's, in seconds.
async fn ahead(dev: &Dev, number: u8) -> f64 {
    let path = format!("/api/v1/nodes/{}/proxy/debug/hops?uid=0", dev.node(number));
    let answer: Value = serde_json::from_str(&dev.kubectl.run(&["get", "--raw", &path]).await).expect("a document");
    let theirs: Timestamp = answer["now"].as_str().and_then(|now| now.parse().ok()).expect("a time");
    theirs.duration_since(Timestamp::now()).as_secs_f64()
}

/// A pod that takes its time in several hops: there is no room for it at first, something has to be done before it starts, and it is ready
/// later than it runs. Its uid, and how long it took from sending it until somebody saw it ready.
async fn start(dev: &Dev, number: u8, name: &str) -> (String, Duration) {
    let (client, node) = (dev.client(), dev.node(number));
    dev.kubectl.run(&["cordon", &node]).await;
    let container = |name: &str, script: &str| json!({"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": ["sh", "-c", script]});
    let mut main = container("main", "trap 'exit 0' TERM; sleep 86400 & wait");
    main["readinessProbe"] = json!({"exec": {"command": ["true"]}, "initialDelaySeconds": 3, "periodSeconds": 1});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": {
        "nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 1,
        "initContainers": [container("before", "sleep 2")], "containers": [main],
    }});
    let params = WatchParams { field_selector: format!("metadata.name={name}"), ..WatchParams::default() };
    let mut events = client.watch::<Pod>("default", &params).await.expect("a watch");
    let sent = Instant::now();
    send_traced(&client, Method::POST, "/api/v1/namespaces/default/pods", Some(pod)).await;
    let seen = async {
        let mut held = true;
        while let Some(event) = events.next().await {
            let (Event::Added(pod) | Event::Modified(pod)) = event.expect("an event") else { continue };
            let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let waits = conditions.into_iter().any(|one| one.type_ == "PodScheduled" && one.status == "False");
            if waits && std::mem::take(&mut held) {
                dev.kubectl.run(&["uncordon", &node]).await;
            }
            if pod_ready(&pod) {
                return pod.metadata.uid.clone().expect("a uid");
            }
        }
        panic!("the watch ended: {}", dev.logs());
    };
    let uid = eventually("the pod is ready", seen).await;
    (uid, sent.elapsed())
}

/// What `trireme trace` says of it.
fn told(dev: &Dev, name: &str, measured: Duration) {
    let kubeconfig = dev.data(1).join("admin.kubeconfig");
    let trace = |arguments: &[&str]| {
        said(Command::new(BINARY).args(["trace", name]).args(arguments).arg("--kubeconfig").arg(&kubeconfig))
    };
    let story: Value = serde_json::from_str(&trace(&["-o", "json"])).expect("a document");
    let seconds = |value: &Value| value.as_f64().expect("seconds");
    let starts = |stage: &str| {
        let spans = story["spans"].as_array().expect("spans").iter();
        let starts = spans
            .filter(|span| span["stage"] == stage)
            .map(|span| span["start"].as_str().and_then(|start| start.parse::<Timestamp>().ok()).expect("a time"));
        starts.min().unwrap_or_else(|| panic!("{stage} in {story:#}"))
    };
    let order = ["queue", "schedule", "bind", "pod", "sandbox", "create-container", "start-container", "probe"];
    let times: Vec<Timestamp> = order.iter().map(|stage| starts(stage)).collect();
    assert!(times.is_sorted(), "{order:?} at {times:?}");

    let way = &story["objects"][0]["way"];
    let list = |name: &str| way[name].as_array().unwrap_or_else(|| panic!("{name} in {way:#}")).iter();
    let parts: f64 = list("parts").map(|part| seconds(&part["seconds"])).sum();
    let gaps: f64 = list("gaps").map(|gap| seconds(&gap["seconds"])).sum();
    let (whole, measured) = (seconds(&way["seconds"]), measured.as_secs_f64());
    assert!((parts + gaps - whole).abs() < 1e-6 && (gaps - seconds(&way["between"])).abs() < 1e-6, "{way:#}");
    assert!((whole - measured).abs() < TOLERANCE * measured, "{measured} s were measured of {way:#}");
    assert!((parts - measured).abs() < TOLERANCE * measured, "{measured} s were measured of {way:#}");
    let part = |name: &str| {
        let found = list("parts").find(|part| part["name"] == name);
        seconds(&found.unwrap_or_else(|| panic!("{name} in {way:#}"))["seconds"])
    };
    // What is known to have taken its time did so in its own hop. For how long there was no room depends on who sees it how soon, and for how long a probe
    // waits on the age of a container, which the runtime tells by a clock that is not ahead.
    assert!(part("queue") > 0.0 && part("pod") > 1.5 && part("probe main") > 0.0, "{way:#}");
    let drawn = trace(&[]);
    assert!(drawn.contains(&format!("pod/{name} was ready ")), "{drawn}");
}

/// The node's spans belong to the trace of the request that made the pod.
async fn traced(collector: &Collector, uid: &str) {
    let of_node = |spans: &[Received], name: &str| {
        let mut all = spans.iter();
        let is = |one: &&Received| {
            one.service == "kubelet" && one.span.name == name && one.attribute("k8s.object.uid") == uid
        };
        all.find(is).cloned()
    };
    let parent_of = |spans: &[Received], child: &Received| {
        spans.iter().find(|one| one.span.span_id == child.span.parent_span_id).cloned()
    };
    // A pod has several turns of its worker; this is the one that made the sandbox.
    let turn = |spans: &[Received]| parent_of(spans, &of_node(spans, "sandbox")?);
    let whole = |spans: &[Received]| {
        of_node(spans, "probe").is_some() && turn(spans).is_some_and(|turn| parent_of(spans, &turn).is_some())
    };
    let spans = collector.until("the node's spans", &bytes_of(TRACE), whole).await;
    let turn = turn(&spans).expect("it was waited for");
    assert_eq!(turn.span.name, "syncPod", "{turn:#?}");
    let cause = parent_of(&spans, &turn).expect("it was waited for");
    assert_eq!((cause.service.as_str(), cause.attribute("k8s.object.uid").as_str()), ("apiserver", uid));
}
