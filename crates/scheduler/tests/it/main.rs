//! The scheduler against a real API server, with its own identity and nothing but its own rights.

mod extender;
mod writes;

use std::sync::Arc;

use client::{Client, DeleteOptions, Patch};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::rest::User;
use scheduler::Config;
use scheduler::config::Configuration;
use scheduler::testing::{PodBuilder, container, node, pod};
use serde_json::json;
use testkit::{object, objects};
use tokio_util::sync::{CancellationToken, DropGuard};

/// A cluster with a scheduler, and the administrator's client.
struct Rig {
    client: Client,
    _cluster: testkit::Cluster,
    _running: DropGuard,
}

impl Rig {
    async fn start() -> Self {
        Self::with(|_| Config::default()).await
    }

    /// With a configuration, which may need to know the administrator's client.
    async fn with(config: impl FnOnce(&Client) -> Config) -> Self {
        let cluster = testkit::Cluster::start().await;
        let config = config(&cluster.in_process());
        let stop = CancellationToken::new();
        let own = cluster.in_process_as(User::new("system:kube-scheduler", ["system:authenticated"]));
        let told = stop.clone();
        tokio::spawn(async move { scheduler::run(config, own, told).await.expect("the scheduler runs") });
        Self { client: cluster.in_process(), _cluster: cluster, _running: stop.drop_guard() }
    }

    async fn node(&self, wanted: Node) {
        let mut made: Node = self.client.create(&wanted).await.expect("a node");
        made.status = wanted.status;
        self.client.update_status(&made).await.expect("its status");
        // New nodes are tainted as not ready until a controller finds otherwise.
        let ready = Patch::Merge(json!({ "spec": { "taints": null } }));
        let name = made.metadata.name.unwrap_or_default();
        self.client.patch::<Node>("", &name, &ready).await.expect("an untainted node");
    }

    async fn pod(&self, builder: PodBuilder) {
        self.create(builder.build()).await;
    }

    async fn create(&self, mut pod: Pod) {
        (pod.metadata.uid, pod.metadata.resource_version, pod.status) = (None, None, None);
        self.client.create(&pod).await.expect("a pod");
    }

    async fn priority_class(&self) {
        let high = PriorityClass {
            metadata: ObjectMeta { name: Some("high".into()), ..Default::default() },
            value: Some(1000),
            ..Default::default()
        };
        self.client.create(&high).await.expect("a priority class");
    }

    async fn bound(&self, name: &str) -> String {
        let is_bound = |p: Option<&Pod>| p.and_then(|p| p.spec.as_ref()?.node_name.as_ref()).is_some();
        let pod = object::<Pod>(&self.client, "default", name, "the pod is bound", is_bound).await;
        pod.and_then(|p| p.spec.as_ref()?.node_name.clone()).expect("it was just seen")
    }

    async fn event(&self, name: &str, reason: &str) -> Arc<Event> {
        let about = |e: &Arc<Event>| {
            e.reason.as_deref() == Some(reason) && e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(name)
        };
        let events =
            objects::<Event>(&self.client, "default", "the event is recorded", |all| all.iter().any(about)).await;
        events.into_iter().find(about).expect("it was just seen")
    }
}

fn small(name: &str, cpu: &str) -> PodBuilder {
    pod(name).with(container("main").image("busybox").cpu(cpu))
}

/// A pod of class `high`.
fn important(name: &str, cpu: &str) -> Pod {
    let mut pod = small(name, cpu).build();
    pod.spec.get_or_insert_default().priority_class_name = Some("high".into());
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_bound_through_the_api_and_its_user_is_told() {
    let rig = Rig::start().await;
    rig.node(node("n1").cpu("1").memory("1Gi").build()).await;
    rig.pod(small("p", "100m")).await;
    assert_eq!(rig.bound("p").await, "n1");
    let event = rig.event("p", "Scheduled").await;
    assert_eq!(event.note.as_deref(), Some("Successfully assigned default/p to n1"));
    assert_eq!((event.action.as_deref(), event.type_.as_deref()), (Some("Binding"), Some("Normal")));
    assert_eq!(event.reporting_controller.as_deref(), Some("default-scheduler"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_come_from_the_scheduler_that_a_pod_names() {
    let rig = Rig::with(|_| Config {
        configuration: Configuration::parse(json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
            "profiles": [{ "schedulerName": "default-scheduler" }, { "schedulerName": "second" }],
        }))
        .expect("a configuration"),
        ..Config::default()
    })
    .await;
    rig.node(node("n1").cpu("1").memory("1Gi").build()).await;
    rig.pod(small("p", "100m").scheduler("second")).await;
    assert_eq!(rig.bound("p").await, "n1");
    let event = rig.event("p", "Scheduled").await;
    assert_eq!(event.reporting_controller.as_deref(), Some("second"));
    assert_eq!(event.reporting_instance.as_deref(), Some("second-localhost"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unschedulable_pod_says_why_and_is_bound_when_a_node_comes() {
    let rig = Rig::start().await;
    rig.node(node("small").cpu("1").memory("1Gi").build()).await;
    rig.pod(small("p", "2")).await;
    let condition = |p: Option<&Pod>| {
        let conditions = p.and_then(|p| p.status.as_ref()?.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|c| c.type_ == "PodScheduled" && c.status == "False")
    };
    let seen = object::<Pod>(&rig.client, "default", "p", "the condition is set", |p| condition(p).is_some()).await;
    let condition = condition(seen.as_deref()).expect("it was just seen");
    let message = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";
    assert_eq!((condition.reason.as_deref(), condition.message.as_deref()), (Some("Unschedulable"), Some(message)));
    assert_eq!(rig.event("p", "FailedScheduling").await.note.as_deref(), Some(message));
    rig.node(node("large").cpu("4").memory("1Gi").build()).await;
    assert_eq!(rig.bound("p").await, "large");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_of_higher_priority_takes_the_place_of_another() {
    let rig = Rig::start().await;
    rig.node(node("n").cpu("1").memory("1Gi").build()).await;
    rig.priority_class().await;
    rig.pod(small("low", "800m")).await;
    assert_eq!(rig.bound("low").await, "n");
    rig.create(important("important", "800m")).await;
    // The victim is told why and asked to go; its kubelet, which is this test, lets it.
    let leaving = |p: Option<&Pod>| p.is_some_and(|p| p.metadata.deletion_timestamp.is_some());
    let victim = object::<Pod>(&rig.client, "default", "low", "the victim is leaving", leaving).await;
    let conditions = victim.and_then(|p| p.status.as_ref()?.conditions.clone()).unwrap_or_default();
    let target = conditions.iter().find(|c| c.type_ == "DisruptionTarget").expect("a disruption condition");
    assert_eq!(target.reason.as_deref(), Some("PreemptionByScheduler"));
    assert_eq!(target.message.as_deref(), Some("default-scheduler: preempting to accommodate a higher priority pod"));
    let now = DeleteOptions { grace_period_seconds: Some(0), ..Default::default() };
    rig.client.delete::<Pod>("default", "low", &now).await.expect("the victim goes");
    assert_eq!(rig.bound("important").await, "n");
    assert!(rig.event("low", "Preempted").await.note.as_deref().is_some_and(|n| n.ends_with("on node n")));
}
