//! DaemonSets, StatefulSets and Jobs.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod};
use serde_json::{Value, json};

use crate::api::Faults;
use crate::world::World;

pub fn template(name: &str, image: &str) -> Value {
    json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": image}]}})
}

fn names(world: &World) -> Vec<String> {
    world.list::<Pod>("default").into_iter().filter_map(|pod| pod.metadata.name).collect()
}

fn images(world: &World) -> Vec<String> {
    let mut images: Vec<String> = world
        .list::<Pod>("default")
        .into_iter()
        .filter_map(|pod| pod.spec?.containers.into_iter().next()?.image)
        .collect();
    images.sort();
    images
}

/// Kubelets of this world bind by round robin; daemons say where they belong.
fn bind_daemons(world: &World) {
    for pod in world.list::<Pod>("default") {
        let meta = pod.metadata;
        let spec = pod.spec.unwrap_or_default();
        let terms = spec
            .affinity
            .and_then(|affinity| affinity.node_affinity?.required_during_scheduling_ignored_during_execution);
        let node = terms.and_then(|terms| {
            terms.node_selector_terms.first()?.match_fields.as_ref()?.first()?.values.as_ref()?.first().cloned()
        });
        if let (None, Some(node)) = (spec.node_name, node) {
            world.edit::<Pod>("default", &meta.name.unwrap_or_default(), |pod| pod["spec"]["nodeName"] = json!(node));
        }
    }
}

pub async fn settle_daemons(world: &mut World) {
    for _ in 0..40 {
        world.kubelets = false;
        world.settle().await;
        bind_daemons(world);
        world.kubelets = true;
        world.settle().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_runs_on_every_node_it_fits_and_rolls() {
    let mut world = World::with("daemonset-controller", Faults::default());
    world.nodes(3);
    world.edit::<Node>("", "n2", |node| node["metadata"]["labels"] = json!({"no": "daemons"}));
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "no", "operator": "DoesNotExist"}]}]}}});
    let mut pod = template("d", "v1");
    pod["spec"]["affinity"] = affinity;
    world.put::<DaemonSet>(json!({
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": pod,
                 "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}},
    }));
    settle_daemons(&mut world).await;
    let status = world.get::<DaemonSet>("default", "d").and_then(|set| set.status).expect("a status");
    assert_eq!(
        (status.desired_number_scheduled, status.number_ready, status.updated_number_scheduled),
        (2, 2, Some(2))
    );

    world.edit::<Node>("", "n2", |node| node["metadata"]["labels"] = json!({}));
    settle_daemons(&mut world).await;
    assert_eq!(names(&world).len(), 3);

    world.edit::<DaemonSet>("default", "d", |set| {
        set["spec"]["template"]["spec"]["containers"][0]["image"] = json!("v2");
    });
    settle_daemons(&mut world).await;
    assert_eq!(images(&world), ["v2", "v2", "v2"]);
    assert_eq!(world.list::<ControllerRevision>("default").len(), 2);

    world.edit::<Node>("", "n0", |node| node["spec"]["taints"] = json!([{"key": "gpu", "effect": "NoExecute"}]));
    settle_daemons(&mut world).await;
    assert_eq!(names(&world).len(), 2);
}

fn stateful(replicas: i32) -> Value {
    json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas,
            "serviceName": "db",
            "podManagementPolicy": "OrderedReady",
            "selector": {"matchLabels": {"app": "db"}},
            "template": template("db", "v1"),
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"},
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_goes_up_down_and_through_updates_in_order() {
    let world = World::with("statefulset-controller,garbage-collector-controller", Faults::default());
    world.nodes(2);
    world.put::<StatefulSet>(stateful(3));
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(names(&world), ["db-0"], "the next one waits for it");
    world.settle().await;
    assert_eq!(names(&world), ["db-0", "db-1", "db-2"]);
    let claims = || -> Vec<String> {
        world.list::<PersistentVolumeClaim>("default").into_iter().filter_map(|claim| claim.metadata.name).collect()
    };
    assert_eq!(claims(), ["data-db-0", "data-db-1", "data-db-2"]);
    let status = || world.get::<StatefulSet>("default", "db").and_then(|set| set.status).expect("a status");
    assert_eq!((status().replicas, status().ready_replicas, status().updated_replicas), (3, Some(3), Some(3)));

    world.edit::<StatefulSet>("default", "db", |set| {
        set["spec"]["template"]["spec"]["containers"][0]["image"] = json!("v2");
        set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(1);
    });
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(images(&world), ["v1", "v2", "v2"], "the partition holds the first one back");
    assert_ne!(status().current_revision, status().update_revision);
    world.edit::<StatefulSet>("default", "db", |set| {
        set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = json!(0);
    });
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(images(&world), ["v2", "v2", "v2"]);
    assert_eq!(status().current_revision, status().update_revision);

    world.edit::<StatefulSet>("default", "db", |set| set["spec"]["replicas"] = json!(1));
    world.pass(Duration::from_secs(3)).await;
    assert_eq!(names(&world), ["db-0"]);
    assert_eq!(claims(), ["data-db-0"], "claims of pods scaled away go with them");
}

fn job(spec: Value) -> Value {
    let mut job = json!({
        "metadata": {"name": "j"},
        "spec": {
            "selector": {"matchLabels": {"app": "j"}},
            "template": template("j", "v1"),
            "backoffLimit": 2,
            "parallelism": 1,
            "completions": 1,
            "completionMode": "NonIndexed",
        },
    });
    job["spec"]["template"]["spec"]["restartPolicy"] = json!("Never");
    for (key, value) in spec.as_object().into_iter().flatten() {
        job["spec"][key] = value.clone();
    }
    job
}

/// Ends all running pods.
fn end_pods(world: &World, phase: &str) {
    for pod in world.list::<Pod>("default") {
        if pod.status.and_then(|status| status.phase).as_deref() == Some("Running") {
            world.edit::<Pod>("default", &pod.metadata.name.unwrap_or_default(), |pod| {
                pod["status"]["phase"] = json!(phase);
                pod["status"]["conditions"] =
                    json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
            });
        }
    }
}

fn conditions(world: &World) -> Vec<String> {
    let status = world.get::<Job>("default", "j").and_then(|job| job.status).unwrap_or_default();
    let conditions = status.conditions.unwrap_or_default().into_iter();
    conditions
        .map(|condition| format!("{}={} {}", condition.type_, condition.status, condition.reason.unwrap_or_default()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_job_completes_when_enough_pods_succeeded() {
    let world = World::with("job-controller", Faults::default());
    world.nodes(2);
    world.put::<Job>(job(json!({"parallelism": 2, "completions": 3})));
    world.settle().await;
    assert_eq!(names(&world).len(), 2);
    end_pods(&world, "Succeeded");
    world.settle().await;
    assert_eq!(names(&world).len(), 3);
    end_pods(&world, "Succeeded");
    world.settle().await;
    let status = world.get::<Job>("default", "j").and_then(|job| job.status).expect("a status");
    assert_eq!((status.succeeded, status.failed, status.active), (Some(3), None, None));
    assert_eq!(conditions(&world), ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"]);
    assert!(status.completion_time.is_some());
    assert!(world.list::<Pod>("default").iter().all(|pod| pod.metadata.finalizers.as_ref().is_none_or(Vec::is_empty)));
}

/// Takes the owner from every pod; answers the kinds of those that they have then.
async fn orphan_all(world: &World) -> Vec<String> {
    for name in names(world) {
        world.edit::<Pod>("default", &name, |pod| pod["metadata"]["ownerReferences"] = Value::Null);
    }
    world.settle().await;
    let owners =
        world.list::<Pod>("default").into_iter().flat_map(|pod| pod.metadata.owner_references.unwrap_or_default());
    owners.map(|owner| owner.kind).collect()
}

#[tokio::test(start_paused = true)]
async fn pods_that_lost_their_owner_are_adopted_again() {
    let world = World::with("job-controller", Faults::default());
    world.nodes(2);
    world.put::<Job>(job(json!({"parallelism": 2, "completions": 2})));
    world.settle().await;
    let before = names(&world);
    assert_eq!(orphan_all(&world).await, ["Job", "Job"]);
    assert_eq!(names(&world), before, "and none was made in their place");

    let mut world = World::with("daemonset-controller", Faults::default());
    world.nodes(2);
    let spec = json!({"selector": {"matchLabels": {"app": "d"}}, "template": template("d", "v1")});
    world.put::<DaemonSet>(json!({"metadata": {"name": "d"}, "spec": spec}));
    settle_daemons(&mut world).await;
    let before = names(&world);
    assert_eq!(orphan_all(&world).await, ["DaemonSet", "DaemonSet"]);
    assert_eq!(names(&world), before);
}

#[tokio::test(start_paused = true)]
async fn a_job_fails_after_its_backoff_limit_and_waits_between_attempts() {
    let world = World::with("job-controller", Faults::default());
    world.nodes(1);
    world.put::<Job>(job(json!({})));
    world.settle().await;
    end_pods(&world, "Failed");
    world.settle().await;
    assert_eq!(names(&world).len(), 1, "the next attempt waits");
    for _ in 0..2 {
        world.pass(Duration::from_secs(60)).await;
        end_pods(&world, "Failed");
    }
    world.pass(Duration::from_secs(60)).await;
    let status = world.get::<Job>("default", "j").and_then(|job| job.status).expect("a status");
    assert_eq!(status.failed, Some(3));
    assert_eq!(conditions(&world), ["FailureTarget=True BackoffLimitExceeded", "Failed=True BackoffLimitExceeded"]);
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_does_every_index_once() {
    let world = World::with("job-controller", Faults::default());
    world.nodes(2);
    world.put::<Job>(job(json!({"parallelism": 3, "completions": 4, "completionMode": "Indexed"})));
    world.settle().await;
    let mut indexes: Vec<String> = world
        .list::<Pod>("default")
        .into_iter()
        .filter_map(|pod| pod.metadata.labels?.remove("batch.kubernetes.io/job-completion-index"))
        .collect();
    indexes.sort();
    assert_eq!(indexes, ["0", "1", "2"]);
    for _ in 0..3 {
        end_pods(&world, "Succeeded");
        world.settle().await;
    }
    let status = world.get::<Job>("default", "j").and_then(|job| job.status).expect("a status");
    assert_eq!(status.completed_indexes.as_deref(), Some("0-3"));
    assert!(conditions(&world).contains(&"Complete=True CompletionsReached".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_pods_and_a_deadline_ends_one() {
    let world = World::with("job-controller", Faults::default());
    world.nodes(1);
    world.put::<Job>(job(json!({"suspend": true, "activeDeadlineSeconds": 30})));
    world.settle().await;
    assert!(names(&world).is_empty());
    world.edit::<Job>("default", "j", |job| job["spec"]["suspend"] = json!(false));
    world.settle().await;
    assert_eq!(names(&world).len(), 1);
    world.pass(Duration::from_secs(35)).await;
    assert!(conditions(&world).contains(&"Failed=True DeadlineExceeded".to_owned()), "{:?}", conditions(&world));
}

#[tokio::test(start_paused = true)]
async fn a_failure_policy_ends_a_job_at_once() {
    let world = World::with("job-controller", Faults::default());
    world.nodes(1);
    let rules = json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]);
    world.put::<Job>(job(json!({"podFailurePolicy": {"rules": rules}})));
    world.settle().await;
    let name = names(&world).remove(0);
    world.edit::<Pod>("default", &name, |pod| {
        pod["status"]["phase"] = json!("Failed");
        pod["status"]["containerStatuses"] = json!([{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": 42}}}]);
    });
    world.settle().await;
    assert!(conditions(&world).contains(&"Failed=True PodFailurePolicy".to_owned()), "{:?}", conditions(&world));
}
