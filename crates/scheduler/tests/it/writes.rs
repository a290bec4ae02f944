//! What scheduling costs the API where it fails or preempts: as many writes as upstream's scheduler makes, and none more.

use std::collections::BTreeMap;
use std::sync::Arc;

use client::Client;
use futures::future::BoxFuture;
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use machinery::rest::{Handler, Request, Response, User};
use parking_lot::Mutex;
use scheduler::Config;
use scheduler::testing::node;
use testkit::objects;
use tokio_util::sync::CancellationToken;

use super::{Rig, important, small};

/// Counts what is written on its way to the API server.
struct Counting {
    inner: Arc<dyn Handler>,
    writes: Mutex<BTreeMap<String, usize>>,
}

impl Handler for Counting {
    fn handle(&self, request: Request) -> BoxFuture<'_, Response> {
        if request.method() != Method::GET {
            let path = request.uri().path().trim_matches('/');
            let mut parts = path.split('/').skip_while(|part| *part != "namespaces").skip(2);
            let (resource, part) = (parts.next().unwrap_or(path), parts.nth(1));
            let subresource = part.map(|part| format!("/{part}")).unwrap_or_default();
            *self.writes.lock().entry(format!("{} {resource}{subresource}", request.method())).or_default() += 1;
        }
        self.inner.handle(request)
    }
}

/// A cluster whose scheduler's writes are counted.
async fn counted() -> (Rig, Arc<Counting>) {
    let cluster = testkit::Cluster::start().await;
    let counting = Arc::new(Counting { inner: cluster.handler(), writes: Mutex::default() });
    let own = Client::in_process(counting.clone(), User::new("system:kube-scheduler", ["system:authenticated"]));
    let stop = CancellationToken::new();
    let told = stop.clone();
    tokio::spawn(async move { scheduler::run(Config::default(), own, told).await.expect("the scheduler runs") });
    (Rig { client: cluster.in_process(), _cluster: cluster, _running: stop.drop_guard() }, counting)
}

/// How many events have this reason.
fn told(all: &[Arc<Event>], reason: &str) -> usize {
    all.iter().filter(|event| event.reason.as_deref() == Some(reason)).count()
}

fn writes_of<const N: usize>(expected: [(&str, usize); N]) -> BTreeMap<String, usize> {
    expected.map(|(what, count)| (what.to_owned(), count)).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_fits_nowhere_costs_one_status_and_one_event() {
    const PODS: usize = 400;
    let (rig, counting) = counted().await;
    for name in ["n1", "n2"] {
        rig.node(node(name).cpu("4").memory("8Gi").build()).await;
    }
    for number in 0..PODS {
        rig.pod(small(&format!("p-{number}"), "9")).await;
    }
    let is_told = |all: &[Arc<Event>]| told(all, "FailedScheduling") == PODS;
    objects::<Event>(&rig.client, "default", "everything is told", is_told).await;
    let is_written = |pod: &Arc<Pod>| {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "PodScheduled" && one.reason.as_deref() == Some("Unschedulable"))
    };
    objects::<Pod>(&rig.client, "default", "everything is written", |all| all.iter().all(is_written)).await;
    // One more node that is too small is news, and helps nobody: nobody is tried, nothing is written.
    rig.node(node("n3").cpu("4").memory("8Gi").build()).await;
    rig.pod(small("fits", "1")).await;
    rig.bound("fits").await;
    rig.event("fits", "Scheduled").await;
    let expected = writes_of([("PATCH pods/status", PODS), ("POST events", PODS + 1), ("POST pods/binding", 1)]);
    assert_eq!(*counting.writes.lock(), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_preemption_writes_what_upstreams_does_and_nothing_more() {
    const PREEMPTORS: usize = 12;
    const VICTIMS: usize = 3;
    let (rig, counting) = counted().await;
    rig.priority_class().await;
    for number in 0..PREEMPTORS {
        rig.node(node(&format!("n{number}")).cpu("4").memory("8Gi").build()).await;
    }
    // Four on each node, as in upstream's scheduler_perf: there is room for one that is important when three have gone.
    for number in 0..4 * PREEMPTORS {
        let mut low = small(&format!("low-{number}"), "900m").build();
        low.spec.get_or_insert_default().termination_grace_period_seconds = Some(0);
        rig.create(low).await;
    }
    for number in 0..4 * PREEMPTORS {
        rig.bound(&format!("low-{number}")).await;
    }
    for number in 0..PREEMPTORS {
        rig.create(important(&format!("high-{number}"), "3")).await;
    }
    for number in 0..PREEMPTORS {
        rig.bound(&format!("high-{number}")).await;
    }
    let left = objects::<Pod>(&rig.client, "default", "pods are left", |all| !all.is_empty()).await;
    assert_eq!(left.len(), PREEMPTORS * 2, "nobody was evicted in vain");
    // Events are written after the fact.
    let is_told = |all: &[Arc<Event>]| {
        told(all, "Scheduled") == 5 * PREEMPTORS
            && told(all, "Preempted") == VICTIMS * PREEMPTORS
            && told(all, "FailedScheduling") == PREEMPTORS
    };
    objects::<Event>(&rig.client, "default", "everything is told", is_told).await;
    let writes = counting.writes.lock().clone();
    let expected = [
        ("DELETE pods", VICTIMS * PREEMPTORS),
        // The condition of each victim, and once the condition and the nomination of each pod that preempts.
        ("PATCH pods/status", (VICTIMS + 1) * PREEMPTORS),
        ("POST events", (5 + VICTIMS + 1) * PREEMPTORS),
        ("POST pods/binding", 5 * PREEMPTORS),
    ];
    assert_eq!(writes, writes_of(expected));
}
