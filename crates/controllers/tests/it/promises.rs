//! What upstream's conformance suite asks of controllers and no other test here tells: each as one short story.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{
    ConfigMap, Endpoints, Event, Namespace, Node, Pod, ReplicationController, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::api::Faults;
use crate::more_workloads::{settle_daemons, template};
use crate::workloads::deployment;
use crate::world::World;

fn owners(pod: &Pod) -> Vec<String> {
    pod.metadata.owner_references.iter().flatten().map(|owner| owner.kind.clone()).collect()
}

fn job(spec: Value) -> Value {
    let mut all = json!({"template": template("j", "v1"), "parallelism": 1, "completions": 1, "backoffLimit": 6,
        "completionMode": "NonIndexed", "selector": {"matchLabels": {"app": "j"}}});
    all["template"]["spec"]["restartPolicy"] = json!("Never");
    all.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    all
}

/// A pod that nobody owns is taken over by a set that selects it; one that no longer matches is let go and replaced.
#[tokio::test(start_paused = true)]
async fn sets_adopt_orphans_and_release_strangers() {
    for kind in ["ReplicaSet", "ReplicationController", "Job"] {
        let world = World::start();
        world.nodes(1);
        let orphan =
            json!({"metadata": {"name": "orphan", "labels": {"app": "j"}}, "spec": template("j", "v1")["spec"]});
        world.put::<Pod>(orphan);
        world.settle().await;
        let set = json!({"replicas": 1, "selector": {"matchLabels": {"app": "j"}}, "template": template("j", "v1")});
        match kind {
            "ReplicaSet" => world.put::<ReplicaSet>(json!({"metadata": {"name": "set"}, "spec": set})),
            "Job" => world.put::<Job>(json!({"metadata": {"name": "set"}, "spec": job(json!({}))})),
            _ => {
                let spec = json!({"replicas": 1, "selector": {"app": "j"}, "template": template("j", "v1")});
                world.put::<ReplicationController>(json!({"metadata": {"name": "set"}, "spec": spec}))
            }
        };
        world.settle().await;
        let pods = world.list::<Pod>("default");
        assert_eq!(pods.len(), 1, "{kind}: none is made beside the orphan");
        assert_eq!(owners(&pods[0]), [kind]);
        world.edit::<Pod>("default", "orphan", |pod| pod["metadata"]["labels"]["app"] = json!("stranger"));
        world.pass(Duration::from_secs(5)).await;
        let pods = world.list::<Pod>("default");
        assert_eq!(pods.len(), 2, "{kind}: another takes its place");
        for pod in &pods {
            let wanted: &[&str] = if pod.metadata.name.as_deref() == Some("orphan") { &[] } else { &[kind] };
            assert_eq!(owners(pod), wanted, "{kind}: {:?}", pod.metadata.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn schedules_start_jobs_as_their_policy_says() {
    let world = World::with("cronjob-controller", Faults::default());
    let cron = |name: &str, policy: &str, suspend: bool| {
        let template = json!({"spec": job(json!({}))});
        json!({"metadata": {"name": name}, "spec": {"schedule": "* * * * *", "concurrencyPolicy": policy,
            "suspend": suspend, "jobTemplate": template}})
    };
    for (name, policy, suspend) in
        [("many", "Allow", false), ("one", "Forbid", false), ("newest", "Replace", false), ("none", "Allow", true)]
    {
        world.put::<CronJob>(cron(name, policy, suspend));
    }
    let made = |world: &World, name: &str| -> Vec<String> {
        let jobs = world.list::<Job>("default").into_iter();
        jobs.filter(|job| job.metadata.owner_references.iter().flatten().any(|owner| owner.name == name))
            .filter_map(|job| job.metadata.name)
            .collect()
    };
    world.pass(Duration::from_secs(70)).await;
    let (first, replaced) = (made(&world, "one"), made(&world, "newest"));
    assert_eq!((first.len(), replaced.len(), made(&world, "many").len()), (1, 1, 1));
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(made(&world, "many").len(), 2, "they run side by side");
    assert_eq!(made(&world, "one"), first, "the first one still runs");
    let newest = made(&world, "newest");
    assert!(newest.len() == 1 && newest != replaced, "{newest:?} in the place of {replaced:?}");
    assert_eq!(made(&world, "none"), [""; 0]);
    let active = |name: &str| {
        let status = world.get::<CronJob>("default", name).and_then(|cron| cron.status).unwrap_or_default();
        status.active.unwrap_or_default().len()
    };
    assert_eq!((active("many"), active("one"), active("newest")), (2, 1, 1));
    // Once it is over, the next one comes.
    world.edit::<Job>("default", &first[0], |job| {
        job["status"]["conditions"] = json!([{"type": "Complete", "status": "True"}]);
    });
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(active("one"), 1);
    assert!(made(&world, "one").iter().any(|name| *name != first[0]));
    let events = world.list::<Event>("default");
    assert!(events.iter().any(|event| event.reason.as_deref() == Some("SuccessfulCreate")), "{events:?}");
    let warned = events.iter().find(|event| event.type_.as_deref() == Some("Warning"));
    assert_eq!(warned, None, "a Job of its own is no surprise");
}

/// The status that a Job of three indexes ends in, when each of its pods ends as told.
async fn indexed(spec: Value, ends: [Option<i32>; 3]) -> (String, String, String) {
    let world = World::with("job-controller", Faults::default());
    world.nodes(1);
    let mut all = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3});
    all.as_object_mut().expect("a map").extend(spec.as_object().expect("a map").clone());
    world.put::<Job>(json!({"metadata": {"name": "j"}, "spec": job(all)}));
    for _ in 0..3 {
        world.pass(Duration::from_secs(60)).await;
        for pod in world.list::<Pod>("default") {
            let name = pod.metadata.name.clone().unwrap_or_default();
            let index =
                pod.metadata.annotations.unwrap_or_default()["batch.kubernetes.io/job-completion-index"].clone();
            let host = pod.spec.and_then(|spec| spec.hostname).unwrap_or_default();
            assert_eq!(host, format!("j-{index}"), "the name that others find it by");
            let running = pod.status.and_then(|status| status.phase).as_deref() == Some("Running");
            let end = ends[index.parse::<usize>().expect("an index")];
            let Some(code) = end.filter(|_| running) else { continue };
            world.edit::<Pod>("default", &name, |pod| {
                pod["status"]["phase"] = json!(if code == 0 { "Succeeded" } else { "Failed" });
                pod["status"]["containerStatuses"] = json!([{"name": "c", "image": "", "imageID": "", "ready": false,
                    "restartCount": 0, "state": {"terminated": {"exitCode": code}}}]);
            });
        }
    }
    world.pass(Duration::from_secs(60)).await;
    let status = world.get::<Job>("default", "j").and_then(|job| job.status).unwrap_or_default();
    let last = status.conditions.unwrap_or_default().pop();
    let reason = last.map(|last| format!("{} {}", last.type_, last.reason.unwrap_or_default())).unwrap_or_default();
    (reason, status.completed_indexes.unwrap_or_default(), status.failed_indexes.unwrap_or_default())
}

#[tokio::test(start_paused = true)]
async fn indexes_succeed_and_fail_as_policies_say() {
    let fail_index = json!({"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [42]}}]});
    let success = |rule: Value| json!({"successPolicy": {"rules": [rule]}});
    for (spec, ends, expected) in [
        // Each index fails by itself; the others are done all the same.
        (
            json!({"backoffLimitPerIndex": 1, "backoffLimit": 100}),
            [Some(1), Some(0), Some(0)],
            ("Failed FailedIndexes", "1,2", "0"),
        ),
        // One attempt is enough for an index that a rule gives up.
        (
            json!({"backoffLimitPerIndex": 5, "backoffLimit": 100, "podFailurePolicy": fail_index}),
            [Some(42), Some(0), Some(0)],
            ("Failed FailedIndexes", "1,2", "0"),
        ),
        // Too many indexes failed: the others are not even begun.
        (
            json!({"parallelism": 1, "backoffLimitPerIndex": 0, "maxFailedIndexes": 0, "backoffLimit": 100}),
            [Some(1), Some(0), Some(0)],
            ("Failed MaxFailedIndexesExceeded", "", "0"),
        ),
        (
            success(json!({"succeededIndexes": "0-2"})),
            [Some(0), Some(0), Some(0)],
            ("Complete SuccessPolicy", "0-2", ""),
        ),
        (success(json!({"succeededIndexes": "1"})), [None, Some(0), None], ("Complete SuccessPolicy", "1", "")),
        (success(json!({"succeededCount": 1})), [None, None, Some(0)], ("Complete SuccessPolicy", "2", "")),
    ] {
        let (reason, completed, failed) = indexed(spec.clone(), ends).await;
        assert_eq!((reason.as_str(), completed.as_str(), failed.as_str()), expected, "{spec}");
    }
}

/// A rollout overtaken by another one is given up at once, and old sets beyond the history go.
#[tokio::test(start_paused = true)]
async fn a_deployment_rolls_over_and_forgets() {
    let world = World::with("deployment-controller,replicaset-controller", Faults::default());
    world.nodes(2);
    let mut wanted = deployment("web", 4, "v1");
    wanted["spec"]["revisionHistoryLimit"] = json!(0);
    world.put::<Deployment>(wanted);
    world.settle().await;
    let change = |image: &str, annotations: Value| {
        world.edit::<Deployment>("default", "web", |deployment| {
            deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            deployment["spec"]["template"]["metadata"]["annotations"] = annotations;
        });
    };
    change("v2", json!({"test/stuck": "yes"}));
    world.settle().await;
    let images = || -> Vec<String> {
        let pods = world.list::<Pod>("default").into_iter();
        let mut images: Vec<String> = pods.filter_map(|pod| pod.spec?.containers.into_iter().next()?.image).collect();
        images.sort();
        images
    };
    assert!(images().contains(&"v2".to_owned()) && images().contains(&"v1".to_owned()), "{:?}", images());
    change("v3", Value::Null);
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(images(), ["v3"; 4]);
    let sets = world.list::<ReplicaSet>("default");
    assert_eq!(sets.len(), 1, "nothing to go back to is kept");
}

/// Only pods that had been changed are replaced when a change is taken back.
#[tokio::test(start_paused = true)]
async fn a_daemon_set_rolls_back_without_needless_restarts() {
    let mut world = World::with("daemonset-controller", Faults::default());
    world.nodes(3);
    world.put::<DaemonSet>(json!({
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"app": "d"}}, "template": template("d", "v1"),
                 "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}},
    }));
    settle_daemons(&mut world).await;
    let change = |world: &World, image: &str, annotations: Value| {
        world.edit::<DaemonSet>("default", "d", |set| {
            set["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
            set["spec"]["template"]["metadata"]["annotations"] = annotations;
        });
    };
    let uids = |world: &World, image: &str| -> Vec<String> {
        let pods = world.list::<Pod>("default").into_iter();
        let of_image =
            pods.filter(|pod| pod.spec.as_ref().is_some_and(|spec| spec.containers[0].image.as_deref() == Some(image)));
        of_image.filter_map(|pod| pod.metadata.uid).collect()
    };
    change(&world, "v2", json!({"test/stuck": "yes"}));
    settle_daemons(&mut world).await;
    let kept = uids(&world, "v1");
    assert_eq!((kept.len(), uids(&world, "v2").len()), (2, 1), "one at a time, and that one is stuck");
    change(&world, "v1", Value::Null);
    settle_daemons(&mut world).await;
    let after = uids(&world, "v1");
    assert_eq!(after.len(), 3);
    assert!(kept.iter().all(|uid| after.contains(uid)), "{kept:?} are among {after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dependent_outlives_one_of_its_owners() {
    let world = World::start();
    let owner = |name: &str| {
        let made = world.put::<ConfigMap>(json!({"metadata": {"name": name}}));
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": made["metadata"]["uid"], "blockOwnerDeletion": true})
    };
    let owners = json!([owner("goes"), owner("stays")]);
    world.put::<Secret>(json!({"metadata": {"name": "both", "ownerReferences": owners}}));
    world.settle().await;
    world.delete::<ConfigMap>("default", "goes", "Foreground");
    world.pass(Duration::from_secs(5)).await;
    assert!(world.get::<ConfigMap>("default", "goes").is_none(), "nothing of it is left to wait for");
    let kept = world.get::<Secret>("default", "both").expect("the other owner holds it");
    assert_eq!(kept.metadata.owner_references.map(|owners| owners.len()), Some(1));
    // Three that own each other in a circle go all the same.
    let circle = ["x", "y", "z"].map(owner);
    for (name, above) in [("x", &circle[2]), ("y", &circle[0]), ("z", &circle[1])] {
        world.edit::<ConfigMap>("default", name, |map| map["metadata"]["ownerReferences"] = json!([above]));
    }
    world.settle().await;
    world.delete::<ConfigMap>("default", "x", "Foreground");
    world.pass(Duration::from_secs(10)).await;
    for name in ["x", "y", "z"] {
        assert!(world.get::<ConfigMap>("default", name).is_none(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_loses_its_pods_first() {
    let world = World::start();
    world.nodes(1);
    world.put::<Namespace>(json!({"metadata": {"name": "work"}}));
    world.settle().await;
    world.put::<ConfigMap>(json!({"metadata": {"name": "needed", "namespace": "work"}}));
    world.put::<Service>(
        json!({"metadata": {"name": "reached", "namespace": "work"}, "spec": {"ports": [{"port": 80}]}}),
    );
    let mut pod = json!({"metadata": {"name": "held", "namespace": "work", "finalizers": ["example.com/hold"]}});
    pod["spec"] = template("p", "v1")["spec"].clone();
    world.put::<Pod>(pod);
    world.settle().await;
    world.delete::<Namespace>("", "work", "Background");
    world.pass(Duration::from_secs(20)).await;
    let held = world.get::<Pod>("work", "held").expect("its finalizer holds it");
    assert!(held.metadata.deletion_timestamp.is_some());
    assert!(world.get::<ConfigMap>("work", "needed").is_some(), "what a pod may still need waits for it");
    world.edit::<Pod>("work", "held", |pod| pod["metadata"]["finalizers"] = json!([]));
    world.pass(Duration::from_secs(30)).await;
    assert!(world.get::<Namespace>("", "work").is_none());
    assert!(world.list::<Service>("work").is_empty() && world.list::<Pod>("work").is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_namespace_must_have_comes_back() {
    let world = World::start();
    world.settle().await;
    world.delete::<ConfigMap>("default", "kube-root-ca.crt", "Background");
    world.delete::<ServiceAccount>("default", "default", "Background");
    world.settle().await;
    let data = || world.get::<ConfigMap>("default", "kube-root-ca.crt").and_then(|map| map.data).unwrap_or_default();
    assert_eq!(data()["ca.crt"], "certificates");
    assert!(world.get::<ServiceAccount>("default", "default").is_some());
    world.edit::<ConfigMap>("default", "kube-root-ca.crt", |map| map["data"] = json!({"ca.crt": ""}));
    world.settle().await;
    assert_eq!(data()["ca.crt"], "certificates");
}

#[tokio::test(start_paused = true)]
async fn a_taint_ends_pods_in_their_time_and_may_be_taken_back() {
    let world = World::with("taint-eviction-controller", Faults::default());
    world.nodes(1);
    let tolerant = |name: &str, seconds: i64| {
        let mut spec = template("p", "v1")["spec"].clone();
        spec["nodeName"] = json!("n0");
        spec["tolerations"] =
            json!([{"key": "evict", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
        world.put::<Pod>(json!({"metadata": {"name": name}, "spec": spec}));
    };
    tolerant("soon", 20);
    tolerant("later", 200);
    world.settle().await;
    let taint = |taints: Value| world.edit::<Node>("", "n0", |node| node["spec"]["taints"] = taints);
    taint(json!([{"key": "evict", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]));
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(world.list::<Pod>("default").len(), 2);
    world.pass(Duration::from_secs(60)).await;
    assert!(world.get::<Pod>("default", "soon").is_none());
    assert!(world.get::<Pod>("default", "later").is_some());
    taint(json!([]));
    world.pass(Duration::from_secs(300)).await;
    assert!(world.get::<Pod>("default", "later").is_some(), "what was to come is called off");
}

#[tokio::test(start_paused = true)]
async fn endpoints_made_by_hand_are_mirrored() {
    let world = World::start();
    let spec = json!({"clusterIP": "10.96.0.10", "ipFamilies": ["IPv4"], "ports": [{"name": "http", "port": 80}]});
    world.put::<Service>(json!({"metadata": {"name": "hand"}, "spec": spec}));
    let subset =
        |ip: &str| json!([{"addresses": [{"ip": ip}], "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}]);
    world.put::<Endpoints>(json!({"metadata": {"name": "hand"}, "subsets": subset("10.1.2.3")}));
    world.settle().await;
    let addresses = |world: &World| -> Vec<String> {
        let slices = world.list::<EndpointSlice>("default");
        let endpoints = slices.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
        endpoints.flat_map(|endpoint| endpoint.addresses).collect()
    };
    assert_eq!(addresses(&world), ["10.1.2.3"]);
    world.edit::<Endpoints>("default", "hand", |endpoints| endpoints["subsets"] = subset("10.2.3.4"));
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(addresses(&world), ["10.2.3.4"]);
    world.delete::<Endpoints>("default", "hand", "Background");
    world.pass(Duration::from_secs(5)).await;
    assert!(world.list::<EndpointSlice>("default").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_service_without_pods_has_empty_endpoints_that_go_with_it() {
    let world = World::start();
    let spec = json!({"selector": {"app": "none"}, "clusterIP": "10.96.0.10", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]});
    world.put::<Service>(json!({"metadata": {"name": "lonely"}, "spec": spec}));
    world.settle().await;
    let endpoints = world.get::<Endpoints>("default", "lonely").expect("endpoints");
    assert!(endpoints.subsets.is_none_or(|subsets| subsets.is_empty()));
    assert_eq!(world.list::<EndpointSlice>("default").len(), 1);
    world.delete::<Service>("default", "lonely", "Background");
    world.pass(Duration::from_secs(10)).await;
    assert!(world.get::<Endpoints>("default", "lonely").is_none());
    assert!(world.list::<EndpointSlice>("default").is_empty());
}
