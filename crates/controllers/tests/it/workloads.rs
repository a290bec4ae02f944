//! Workloads through create, scale, update, roll back and delete.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints, Event, Node, Pod, Service, ServiceAccount};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::api::Faults;
use crate::world::World;

pub fn deployment(name: &str, replicas: i32, image: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "progressDeadlineSeconds": 600,
            "revisionHistoryLimit": 10,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": image, "ports": [{"name": "http", "containerPort": 8080}]}]},
            },
        },
    })
}

fn counts(deployment: &Deployment) -> (i32, i32, i32) {
    let status = deployment.status.clone().unwrap_or_default();
    let count = |count: Option<i32>| count.unwrap_or_default();
    (count(status.replicas), count(status.updated_replicas), count(status.available_replicas))
}

fn reasons(deployment: &Deployment) -> Vec<String> {
    let conditions = deployment.status.clone().unwrap_or_default().conditions.unwrap_or_default();
    conditions.into_iter().filter_map(|condition| condition.reason).collect()
}

#[tokio::test(start_paused = true)]
async fn a_deployment_creates_scales_updates_and_rolls_back() {
    let world = World::start();
    world.nodes(3);
    world.put::<Deployment>(deployment("web", 3, "v1"));
    world.settle().await;
    let get = || world.get::<Deployment>("default", "web").expect("the deployment is there");
    assert_eq!(counts(&get()), (3, 3, 3));
    assert_eq!(get().status.and_then(|status| status.observed_generation), get().metadata.generation);
    assert_eq!(reasons(&get()), ["MinimumReplicasAvailable", "NewReplicaSetAvailable"]);
    let sets = world.list::<ReplicaSet>("default");
    let hash = sets[0].metadata.labels.as_ref().and_then(|labels| labels.get("pod-template-hash")).cloned();
    assert_eq!(sets[0].metadata.name.as_deref(), Some(format!("web-{}", hash.expect("a hash")).as_str()));

    world.edit::<Deployment>("default", "web", |deployment| deployment["spec"]["replicas"] = json!(5));
    world.settle().await;
    assert_eq!(counts(&get()), (5, 5, 5));

    world.edit::<Deployment>("default", "web", |deployment| {
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!("v2");
    });
    world.settle().await;
    assert_eq!(counts(&get()), (5, 5, 5));
    let revision = |deployment: &Deployment| {
        deployment.metadata.annotations.clone().unwrap_or_default()["deployment.kubernetes.io/revision"].clone()
    };
    assert_eq!(revision(&get()), "2");
    assert_eq!(world.list::<ReplicaSet>("default").len(), 2);

    // What `kubectl rollout undo` does: the old template again.
    world.edit::<Deployment>("default", "web", |deployment| {
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!("v1");
    });
    world.settle().await;
    assert_eq!(revision(&get()), "3");
    assert_eq!(world.list::<ReplicaSet>("default").len(), 2, "the old ReplicaSet is used again");
    let pods = world.list::<Pod>("default");
    assert_eq!(pods.len(), 5);

    let events: Vec<String> = world.list::<Event>("default").into_iter().filter_map(|event| event.message).collect();
    assert!(
        events
            .iter()
            .any(|message| message.starts_with("Scaled up replica set web-") && message.ends_with(" from 0 to 3")),
        "{events:?}"
    );
    assert!(events.iter().any(|message| message.starts_with("Created pod: web-")));
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_writes_nothing() {
    let world = World::start();
    world.nodes(2);
    world.put::<Deployment>(deployment("web", 3, "v1"));
    world.put::<Service>(service("web"));
    world.settle().await;
    let before = world.api.with(|store| store.writes());
    world.pass(Duration::from_secs(40)).await;
    assert_eq!(world.api.with(|store| store.writes()), before);
}

fn service(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": name}, "clusterIP": "10.96.0.10", "ipFamilies": ["IPv4"], "ports": [{"name": "http", "port": 80, "targetPort": "http"}]},
    })
}

#[tokio::test(start_paused = true)]
async fn a_service_gets_the_endpoints_of_its_ready_pods() {
    let world = World::start();
    world.nodes(2);
    world.put::<Service>(service("web"));
    world.settle().await;
    assert_eq!(world.list::<EndpointSlice>("default").len(), 1, "a slice says that there are none");
    world.put::<Deployment>(deployment("web", 2, "v1"));
    world.settle().await;
    let slices = world.list::<EndpointSlice>("default");
    let endpoints: Vec<_> = slices.iter().flat_map(|slice| slice.endpoints.clone().unwrap_or_default()).collect();
    assert_eq!(endpoints.len(), 2);
    assert!(
        endpoints
            .iter()
            .all(|endpoint| endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) == Some(true))
    );
    let ports: Vec<_> =
        slices.iter().flat_map(|slice| slice.ports.clone().unwrap_or_default()).filter_map(|port| port.port).collect();
    assert_eq!(ports, [8080]);
    let legacy = world.get::<Endpoints>("default", "web").expect("endpoints");
    assert_eq!(legacy.subsets.unwrap_or_default()[0].addresses.as_ref().map(Vec::len), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_gets_its_account_and_certificates() {
    let world = World::start();
    world.settle().await;
    assert!(world.get::<ServiceAccount>("default", "default").is_some());
    assert!(world.get::<ConfigMap>("default", "kube-root-ca.crt").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_recreate_rollout_never_runs_old_and_new_together() {
    let world = World::start();
    world.nodes(2);
    let mut wanted = deployment("web", 3, "v1");
    wanted["spec"]["strategy"] = json!({"type": "Recreate"});
    world.put::<Deployment>(wanted);
    world.settle().await;
    world.edit::<Deployment>("default", "web", |deployment| {
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!("v2");
    });
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let images: std::collections::BTreeSet<String> = world
            .list::<Pod>("default")
            .into_iter()
            .filter_map(|pod| pod.spec?.containers.into_iter().next()?.image)
            .collect();
        assert!(images.len() <= 1, "{images:?}");
        world.run_pods();
    }
    world.settle().await;
    let done = world.get::<Deployment>("default", "web").expect("the deployment is there");
    assert_eq!(counts(&done), (3, 3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_stuck_rollout_exceeds_its_deadline() {
    let world = World::with("deployment-controller,replicaset-controller", Faults::default());
    world.nodes(2);
    let mut wanted = deployment("web", 2, "v1");
    wanted["spec"]["progressDeadlineSeconds"] = json!(60);
    wanted["spec"]["template"]["metadata"]["annotations"] = json!({"test/stuck": "yes"});
    world.put::<Deployment>(wanted);
    world.pass(Duration::from_secs(70)).await;
    let stuck = world.get::<Deployment>("default", "web").expect("the deployment is there");
    assert!(reasons(&stuck).contains(&"ProgressDeadlineExceeded".to_owned()), "{:?}", reasons(&stuck));
}

#[tokio::test(start_paused = true)]
async fn nodes_get_ranges_and_silent_ones_lose_their_pods() {
    let world = World::start();
    world.nodes(3);
    world.settle().await;
    let ranges: std::collections::BTreeSet<String> =
        world.list::<Node>("").into_iter().filter_map(|node| node.spec?.pod_cidr).collect();
    assert_eq!(ranges.len(), 3);

    world.put::<Deployment>(deployment("web", 3, "v1"));
    world.settle().await;
    // Two nodes keep reporting; the third falls silent.
    for turn in 0..40 {
        for node in ["n1", "n2"] {
            world.edit::<Node>("", node, |node| {
                node["status"]["conditions"][0]["lastHeartbeatTime"] = json!(format!("2026-01-01T00:{:02}:00Z", turn));
            });
        }
        world.pass(Duration::from_secs(10)).await;
    }
    let lost = world.get::<Node>("", "n0").expect("the node is there");
    let ready = lost.status.and_then(|status| status.conditions).unwrap_or_default();
    assert_eq!(ready[0].status, "Unknown");
    assert_eq!(ready[0].reason.as_deref(), Some("NodeStatusUnknown"));
    let taints: Vec<String> = lost
        .spec
        .and_then(|spec| spec.taints)
        .unwrap_or_default()
        .into_iter()
        .map(|taint| format!("{}:{}", taint.key, taint.effect))
        .collect();
    assert!(taints.contains(&"node.kubernetes.io/unreachable:NoExecute".to_owned()), "{taints:?}");
    assert!(taints.contains(&"node.kubernetes.io/unreachable:NoSchedule".to_owned()), "{taints:?}");
}
