//! How objects go: at once, gracefully, held by finalizers, with or without their dependents; and how namespaces go.

use serde_json::json;
use testkit::Cluster;

use crate::http::{delete, get, merge, post, put};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn map(name: &str, finalizers: &[&str]) -> serde_json::Value {
    json!({"metadata": {"name": name, "finalizers": finalizers}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finalizer_holds_an_object_and_its_removal_lets_it_go() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let path = format!("{MAPS}/a");
    assert_eq!(post(&client, MAPS, map("a", &["example.com/hold"])).await.0, 201);
    let (code, marked) = delete(&client, &path, None).await;
    assert_eq!((code, &marked["kind"]), (200, &json!("ConfigMap")));
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let (_, again) = delete(&client, &path, None).await;
    assert_eq!(
        again["metadata"]["resourceVersion"], marked["metadata"]["resourceVersion"],
        "a second delete changes nothing"
    );
    let (code, error) =
        merge(&client, &path, json!({"metadata": {"finalizers": ["example.com/other", "example.com/hold"]}})).await;
    assert_eq!(code, 422, "a finalizer cannot be added to what is going: {error}");
    assert_eq!(merge(&client, &path, json!({"metadata": {"finalizers": null}})).await.0, 200);
    assert_eq!(get(&client, &path).await.0, 404);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn propagation_policies_become_the_collectors_finalizers() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    for (name, policy, finalizer) in [("o", "Orphan", "orphan"), ("f", "Foreground", "foregroundDeletion")] {
        post(&client, MAPS, map(name, &[])).await;
        let (code, marked) =
            delete(&client, &format!("{MAPS}/{name}"), Some(json!({"propagationPolicy": policy}))).await;
        assert_eq!(code, 200);
        assert_eq!(marked["metadata"]["finalizers"], json!([finalizer]), "{policy}");
    }
    post(&client, MAPS, map("b", &[])).await;
    let (code, status) = delete(&client, &format!("{MAPS}/b?propagationPolicy=Background"), None).await;
    assert_eq!((code, &status["status"]), (200, &json!("Success")));
    assert_eq!(status["details"]["name"], "b");
    let (code, error) = delete(&client, &format!("{MAPS}/o?propagationPolicy=Whatever"), None).await;
    assert_eq!((code, &error["reason"]), (422, &json!("Invalid")));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn preconditions_guard_a_deletion() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let (_, made) = post(&client, MAPS, map("a", &[])).await;
    let path = format!("{MAPS}/a");
    let wrong = json!({"preconditions": {"uid": "somebody-else"}});
    let (code, error) = delete(&client, &path, Some(wrong)).await;
    assert_eq!((code, &error["reason"]), (409, &json!("Conflict")));
    let stale = json!({"preconditions": {"resourceVersion": "1"}});
    assert_eq!(delete(&client, &path, Some(stale)).await.0, 409);
    let right = json!({"preconditions": {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}});
    assert_eq!(delete(&client, &path, Some(right)).await.0, 200);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_on_a_node_gets_its_grace_which_may_only_shrink() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    // Never scheduled: nobody has anything to finish.
    post(&client, PODS, pod("loose")).await;
    assert_eq!(delete(&client, &format!("{PODS}/loose"), None).await.0, 200);
    assert_eq!(get(&client, &format!("{PODS}/loose")).await.0, 404);

    post(&client, PODS, pod("bound")).await;
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "bound"}, "target": {"kind": "Node", "name": "n1"}});
    assert_eq!(post(&client, &format!("{PODS}/bound/binding"), binding.clone()).await.0, 201);
    let (code, error) = post(&client, &format!("{PODS}/bound/binding"), binding).await;
    assert_eq!(code, 409);
    assert_eq!(
        error["message"],
        "Operation cannot be fulfilled on pods/binding \"bound\": pod bound is already assigned to node \"n1\""
    );
    let path = format!("{PODS}/bound");
    let (_, marked) = delete(&client, &path, None).await;
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    let (_, longer) = delete(&client, &path, Some(json!({"gracePeriodSeconds": 60}))).await;
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 30);
    let (_, shorter) = delete(&client, &path, Some(json!({"gracePeriodSeconds": 5}))).await;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    assert_eq!(delete(&client, &path, Some(json!({"gracePeriodSeconds": 0}))).await.0, 200);
    assert_eq!(get(&client, &path).await.0, 404);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_on_its_way_out_takes_nothing_new_and_goes_with_its_last_finalizer() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let path = "/api/v1/namespaces/n";
    post(&client, "/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let (code, error) = post(&client, "/api/v1/namespaces/absent/configmaps", map("a", &[])).await;
    assert_eq!((code, &error["message"]), (404, &json!("namespaces \"absent\" not found")));
    let (code, going) = delete(&client, path, None).await;
    assert_eq!((code, &going["status"]["phase"]), (200, &json!("Terminating")));
    let (code, error) = post(&client, "/api/v1/namespaces/n/configmaps", map("a", &[])).await;
    assert_eq!(code, 403);
    assert_eq!(error["details"]["causes"][0]["reason"], "NamespaceTerminating");
    assert_eq!(
        error["message"],
        "configmaps \"a\" is forbidden: unable to create new content in namespace n because it is being terminated"
    );
    let (code, _) =
        put(&client, &format!("{path}/finalize"), json!({"metadata": {"name": "n"}, "spec": {"finalizers": []}})).await;
    assert_eq!(code, 200);
    assert_eq!(get(&client, path).await.0, 404);
    let (code, error) = delete(&client, "/api/v1/namespaces/kube-system", None).await;
    assert_eq!(
        (code, &error["message"]),
        (403, &json!("namespaces \"kube-system\" is forbidden: this namespace may not be deleted"))
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collection_is_deleted_by_selector() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    for (name, tier) in [("a", "x"), ("b", "x"), ("c", "y")] {
        post(&client, MAPS, json!({"metadata": {"name": name, "labels": {"tier": tier}}})).await;
    }
    let (code, _) = delete(&client, &format!("{MAPS}?labelSelector=tier%3Dx"), None).await;
    assert_eq!(code, 200);
    let (_, left) = get(&client, &format!("{MAPS}?labelSelector=tier")).await;
    let names: Vec<&str> =
        left["items"].as_array().unwrap().iter().filter_map(|item| item["metadata"]["name"].as_str()).collect();
    assert_eq!(names, ["c"]);
    cluster.stop().await;
}
