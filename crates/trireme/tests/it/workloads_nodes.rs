//! What administrators do to nodes: cordon, drain, taint; and how soon a cluster follows.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::json;

use crate::workloads::Hollow;

const NODES: &str = "get pods -l app=web -o jsonpath={.items[*].spec.nodeName}";

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_cordoned_drained_and_tainted() {
    let cluster = Hollow::start_process(2).await;
    cluster.k("create deployment web --image=img:1 --replicas=4").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    assert!(cluster.k(NODES).await.contains("hollow-0"), "the pods are spread");

    cluster.k("cordon hollow-0").await;
    assert!(cluster.k("get node hollow-0 --no-headers").await.contains("SchedulingDisabled"));
    cluster.k("drain hollow-0 --ignore-daemonsets --timeout=50s").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    assert_eq!(cluster.k("get pods --field-selector spec.nodeName=hollow-0 -o name").await, "");
    cluster.k("uncordon hollow-0").await;

    // A budget that allows no disruption holds a drain up, and says so.
    cluster.k("create poddisruptionbudget all --selector=app=web --min-available=100%").await;
    cluster.k("wait --for=jsonpath={.status.currentHealthy}=4 pdb/all --timeout=50s").await;
    let held = cluster.kubectl.fail(&["drain", "hollow-1", "--ignore-daemonsets", "--timeout=3s"]).await;
    assert!(held.contains("Cannot evict pod as it would violate the pod's disruption budget."), "{held}");
    cluster.k("delete pdb all").await;

    cluster.k("taint nodes hollow-1 gone=true:NoExecute").await;
    cluster.k("uncordon hollow-1").await;
    cluster.k("wait --for=delete pods --field-selector spec.nodeName=hollow-1 --timeout=50s").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    assert!(!cluster.k(NODES).await.contains("hollow-1"));
    cluster.k("taint nodes hollow-1 gone-").await;

    // A node that is deleted takes its pods along; a hollow one comes back.
    cluster.k("delete node hollow-0 --timeout=50s").await;
    cluster.k("wait --for=condition=Ready node/hollow-0 --timeout=50s").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    cluster.end().await;
}

/// Upstream allows for fifty seconds until all but two of two hundred new Services have their endpoints.
#[tokio::test(flavor = "multi_thread")]
async fn new_services_have_their_endpoints_at_once() {
    let cluster = Hollow::start(1).await;
    cluster.k("create deployment web --image=img:1 --replicas=1").await;
    cluster.k("rollout status deployment/web --timeout=50s").await;
    let client = cluster.server.client();
    let started = Instant::now();
    for number in 0..200 {
        let service = json!({"metadata": {"name": format!("s{number}"), "namespace": "default"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
        let service: Service = serde_json::from_value(service).expect("a Service");
        client.create(&service).await.expect("created");
    }
    testkit::objects::<EndpointSlice>(&client, "default", "an endpoint for every Service", |slices| {
        let served = slices.iter().filter(|slice| slice.endpoints.as_ref().is_some_and(|all| !all.is_empty()));
        served.count() >= 200
    })
    .await;
    assert!(started.elapsed() < Duration::from_secs(50), "{:?}", started.elapsed());
    cluster.end().await;
}
