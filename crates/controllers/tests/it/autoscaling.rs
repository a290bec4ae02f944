//! HorizontalPodAutoscalers with a metrics API, and without one.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Event, Pod};
use serde_json::{Value, json};

use crate::api::Faults;
use crate::workloads::deployment;
use crate::world::World;

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods";

fn autoscaler() -> Value {
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
    json!({
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 8, "metrics": [cpu],
        },
    })
}

fn world() -> World {
    let world = World::with(
        "deployment-controller,replicaset-controller,horizontal-pod-autoscaler-controller",
        Faults::default(),
    );
    world.nodes(3);
    let mut web = deployment("web", 2, "v1");
    web["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "1"}});
    world.put::<Deployment>(web);
    world
}

/// Every pod uses this much CPU.
fn measure(world: &World, cpu: &str) {
    let items: Vec<Value> = world
        .list::<Pod>("default")
        .iter()
        .map(|pod| {
            json!({"metadata": {"name": pod.metadata.name}, "timestamp": "2026-01-02T00:00:00Z", "window": "30s",
                   "containers": [{"name": "c", "usage": {"cpu": cpu}}]})
        })
        .collect();
    world.api.aggregate(METRICS, json!({"items": items}));
}

/// Kubelets say when pods started; those of this world leave it out.
fn started(world: &World) {
    for pod in world.list::<Pod>("default") {
        let name = pod.metadata.name.unwrap_or_default();
        world.edit::<Pod>("default", &name, |pod| pod["status"]["startTime"] = json!("2026-01-01T00:00:00Z"));
    }
}

fn condition(world: &World, type_: &str) -> (String, String, String) {
    let status = world.get::<HorizontalPodAutoscaler>("default", "web").and_then(|scaler| scaler.status);
    let conditions = status.and_then(|status| status.conditions).unwrap_or_default();
    let found = conditions.into_iter().find(|condition| condition.type_ == type_).expect("the condition is there");
    (found.status, found.reason.unwrap_or_default(), found.message.unwrap_or_default())
}

fn replicas(world: &World) -> Option<i32> {
    world.get::<Deployment>("default", "web").and_then(|deployment| deployment.spec.replicas)
}

#[tokio::test(start_paused = true)]
async fn load_makes_it_larger_at_once_and_smaller_after_five_quiet_minutes() {
    let world = world();
    world.settle().await;
    world.pass(Duration::from_secs(600)).await;
    started(&world);
    measure(&world, "1");
    world.put::<HorizontalPodAutoscaler>(autoscaler());
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(replicas(&world), Some(4), "twice the load, twice the pods");
    assert_eq!(condition(&world, "AbleToScale").1, "SucceededRescale");
    let (status, reason, message) = condition(&world, "ScalingActive");
    assert_eq!((status.as_str(), reason.as_str()), ("True", "ValidMetricFound"));
    assert_eq!(
        message,
        "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)"
    );
    let events: Vec<String> = world.list::<Event>("default").into_iter().filter_map(|event| event.message).collect();
    let wanted = "New size: 4; reason: cpu resource utilization (percentage of request) above target";
    assert!(events.iter().any(|message| message == wanted), "{events:?}");

    world.pass(Duration::from_secs(400)).await;
    started(&world);
    measure(&world, "100m");
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(condition(&world, "AbleToScale").1, "ScaleDownStabilized");
    assert!(replicas(&world) >= Some(4));
    world.pass(Duration::from_secs(400)).await;
    assert_eq!(replicas(&world), Some(2), "the least there may be");
    assert_eq!(condition(&world, "ScalingLimited").1, "TooFewReplicas");
}

#[tokio::test(start_paused = true)]
async fn without_metrics_it_says_what_is_missing_and_changes_nothing() {
    let world = world();
    world.pass(Duration::from_secs(1)).await;
    world.put::<HorizontalPodAutoscaler>(autoscaler());
    world.pass(Duration::from_secs(40)).await;
    assert_eq!(replicas(&world), Some(2));
    let (status, reason, message) = condition(&world, "ScalingActive");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "FailedGetResourceMetric"));
    assert_eq!(
        message,
        "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)"
    );
    let reasons: Vec<String> = world.list::<Event>("default").into_iter().filter_map(|event| event.reason).collect();
    assert!(reasons.contains(&"FailedGetResourceMetric".to_owned()), "{reasons:?}");
}

#[tokio::test(start_paused = true)]
async fn limits_hold_without_any_metric_and_a_missing_target_is_told() {
    let world = world();
    world.edit::<Deployment>("default", "web", |deployment| deployment["spec"]["replicas"] = json!(12));
    world.put::<HorizontalPodAutoscaler>(autoscaler());
    world.pass(Duration::from_secs(20)).await;
    assert_eq!(replicas(&world), Some(8));
    world.edit::<HorizontalPodAutoscaler>("default", "web", |scaler| {
        scaler["spec"]["scaleTargetRef"]["name"] = json!("nobody");
    });
    world.pass(Duration::from_secs(20)).await;
    let (status, reason, message) = condition(&world, "AbleToScale");
    assert_eq!((status.as_str(), reason.as_str()), ("False", "FailedGetScale"));
    assert_eq!(
        message,
        "the HPA controller was unable to get the target's current scale: deployments.apps \"nobody\" not found"
    );
}
