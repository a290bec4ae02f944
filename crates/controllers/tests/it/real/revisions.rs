//! Why a template changed, as a real kubectl tells it.

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, StatefulSet};
use serde_json::{Value, json};
use testkit::objects;

use super::Rig;

fn set(kind: &str, image: &str, cause: &str) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": kind,
        "metadata": {"name": "web", "namespace": "default", "annotations": {"kubernetes.io/change-cause": cause}},
        "spec": {
            // Revisions carry the template's labels, which every selector fits; its own may have none to carry.
            "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}},
        },
    });
    if kind == "StatefulSet" {
        set["spec"]["serviceName"] = json!("web");
    }
    set
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_tells_why_the_templates_of_stateful_and_daemon_sets_changed() {
    let rig = Rig::start().await;
    let _running = rig.run("statefulset-controller,daemonset-controller");
    for (kind, resource) in [("StatefulSet", "statefulset/web"), ("DaemonSet", "daemonset/web")] {
        for (number, (image, cause)) in [("img:1", "the first"), ("img:2", "a better image")].into_iter().enumerate() {
            rig.cluster.kubectl().run_with(&["apply", "-f", "-"], &set(kind, image, cause).to_string()).await;
            objects::<ControllerRevision>(&rig.client, "default", "a revision of the template", |revisions| {
                let own = |revision: &&std::sync::Arc<ControllerRevision>| {
                    revision.metadata.owner_references.iter().flatten().any(|owner| owner.kind == kind)
                };
                revisions.iter().filter(own).count() == number + 1
            })
            .await;
        }
        let history = rig.cluster.kubectl().run(&["rollout", "history", resource]).await;
        let lines: Vec<String> =
            history.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[1..4], ["REVISION CHANGE-CAUSE", "1 the first", "2 a better image"], "{history}");
    }
    // Rolled back to, a revision is the same object: it tells what it always told.
    rig.cluster.kubectl().run(&["rollout", "undo", "statefulset/web"]).await;
    rig.until::<StatefulSet>("default", "web", "the old template", |set| {
        let status = set.status.clone().unwrap_or_default();
        let image = set.spec.template.spec.as_ref().and_then(|spec| spec.containers[0].image.as_deref());
        image == Some("img:1") && status.observed_generation == set.metadata.generation
    })
    .await;
    let history = rig.cluster.kubectl().run(&["rollout", "history", "statefulset/web"]).await;
    let lines: Vec<&str> = history.lines().skip(2).filter(|line| !line.is_empty()).collect();
    assert!(lines[0].starts_with('2') && lines[0].ends_with("a better image"), "{history}");
    assert!(lines[1].starts_with('3') && lines[1].ends_with("the first"), "{history}");
    rig.delete::<DaemonSet>("default", "web").await;
}
