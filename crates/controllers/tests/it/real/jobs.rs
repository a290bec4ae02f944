//! Pods that a Job lost, and namespaces that do not end because of what is in them.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use serde_json::json;
use testkit::objects;

use super::{Rig, finalizers, pod};

const TRACKING: &str = "batch.kubernetes.io/job-tracking";

fn job() -> serde_json::Value {
    json!({
        "metadata": {"name": "work", "namespace": "default"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "img"}]}}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_a_job_releases_loses_the_jobs_finalizer() {
    let rig = Rig::start().await;
    let _running = rig.run("job-controller");
    rig.create::<Job>(job()).await;
    let pods = objects::<Pod>(&rig.client, "default", "a pod of the job", |pods| pods.len() == 1).await;
    assert_eq!(finalizers(&pods[0]), [TRACKING]);
    let name = pods[0].metadata.name.clone().unwrap_or_default();
    let labels = json!({"batch.kubernetes.io/controller-uid": null, "controller-uid": null, "job-name": null, "batch.kubernetes.io/job-name": null});
    rig.patch::<Pod>("default", &name, json!({"metadata": {"labels": labels}})).await;
    let released = rig.until::<Pod>("default", &name, "a pod without an owner", |pod| finalizers(pod).is_empty()).await;
    assert!(released.metadata.owner_references.as_deref().unwrap_or_default().is_empty());
    // It belongs to nobody now, and goes when somebody deletes it.
    rig.delete::<Job>("default", "work").await;
    let now = client::DeleteOptions { grace_period_seconds: Some(0), ..client::DeleteOptions::default() };
    rig.client.delete::<Pod>("default", &name, &now).await.expect("it can be deleted");
    rig.gone::<Pod>("default", &name).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_a_job_adopts_is_counted() {
    let rig = Rig::start().await;
    let mut wanted = job();
    wanted["spec"]["suspend"] = json!(true);
    let job = rig.create::<Job>(wanted).await;
    let labels = job.spec.and_then(|spec| spec.selector?.match_labels).expect("the server's selector");
    rig.create::<Pod>(pod("stray", json!({"labels": labels}), json!({"restartPolicy": "Never"}))).await;
    let _running = rig.run("job-controller");
    let adopted = rig
        .until::<Pod>("default", "stray", "an owner", |pod| {
            pod.metadata.owner_references.as_ref().is_some_and(|owners| !owners.is_empty())
        })
        .await;
    assert_eq!(finalizers(&adopted), [TRACKING]);
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_jobs_that_went_while_nobody_was_there_are_let_go() {
    let rig = Rig::start().await;
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "gone", "uid": "1-2-3", "controller": true}]);
    let set =
        json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "gone", "uid": "1-2-3", "controller": true}]);
    rig.create::<Pod>(pod(
        "owned",
        json!({"finalizers": [TRACKING, "example.com/other"], "ownerReferences": owner}),
        json!({}),
    ))
    .await;
    rig.create::<Pod>(pod("free", json!({"finalizers": [TRACKING]}), json!({}))).await;
    rig.create::<Pod>(pod("foreign", json!({"finalizers": [TRACKING], "ownerReferences": set}), json!({}))).await;
    // A Job of the same name is not the same Job.
    let mut namesake = job();
    namesake["metadata"]["name"] = json!("gone");
    namesake["spec"]["suspend"] = json!(true);
    rig.create::<Job>(namesake).await;
    let _running = rig.run("job-controller");
    let owned = rig
        .until::<Pod>("default", "owned", "one finalizer less", |pod| finalizers(pod) == ["example.com/other"])
        .await;
    assert!(owned.metadata.deletion_timestamp.is_none(), "whether it goes is for others to say");
    rig.until::<Pod>("default", "free", "no finalizer", |pod| finalizers(pod).is_empty()).await;
    let foreign = rig.client.get::<Pod>("default", "foreign").await.expect("the pod");
    assert_eq!(finalizers(&foreign), [TRACKING]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_says_which_pods_and_finalizers_it_waits_for() {
    let rig = Rig::start().await;
    rig.create::<Namespace>(json!({"metadata": {"name": "stuck"}})).await;
    let account = testkit::build::service_account("default");
    rig.client.create(&testkit::build::Build::in_namespace(account, "stuck")).await.expect("an account");
    rig.create::<Pod>(pod("held", json!({"namespace": "stuck", "finalizers": ["example.com/hold"]}), json!({}))).await;
    let _running = rig.run("namespace-controller");
    rig.delete::<Namespace>("", "stuck").await;
    let says = |namespace: &Namespace, type_: &str, reason: &str, message: &str| {
        let conditions = namespace.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| {
            condition.type_ == type_
                && condition.reason.as_deref() == Some(reason)
                && condition.message.as_deref() == Some(message)
        })
    };
    let stuck = rig
        .until::<Namespace>("", "stuck", "the truth about the pod", |namespace| {
            says(
                namespace,
                "NamespaceContentRemaining",
                "SomeResourcesRemain",
                "Some resources are remaining: pods. has 1 resource instances",
            )
        })
        .await;
    assert!(says(
        &stuck,
        "NamespaceFinalizersRemaining",
        "SomeFinalizersRemain",
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    ));
    assert!(says(
        &stuck,
        "NamespaceDeletionDiscoveryFailure",
        "ResourcesDiscovered",
        "All resources successfully discovered"
    ));
    rig.patch::<Pod>("stuck", "held", json!({"metadata": {"finalizers": null}})).await;
    rig.gone::<Namespace>("", "stuck").await;
}
