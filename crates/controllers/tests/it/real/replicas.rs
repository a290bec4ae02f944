//! Sets of replicas that others write to while their controller does.

use k8s_openapi::api::apps::v1::ReplicaSet;
use serde_json::json;

use super::Rig;

/// How often somebody labels a set while its status is written: about every second time the label comes in between.
const ROUNDS: i32 = 30;

#[tokio::test(flavor = "multi_thread")]
async fn a_status_leaves_what_others_wrote_meanwhile() {
    let rig = Rig::start().await;
    let template =
        json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "img"}]}});
    rig.create::<ReplicaSet>(json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }))
    .await;
    let _running = rig.run("replicaset-controller");
    for round in 1..=ROUNDS {
        rig.patch::<ReplicaSet>("default", "web", json!({"spec": {"replicas": round % 2}})).await;
        rig.patch::<ReplicaSet>("default", "web", json!({"metadata": {"labels": {"round": round.to_string()}}})).await;
        let settled = rig
            .until::<ReplicaSet>("default", "web", "its status is of this round", |set| {
                let status = set.status.as_ref();
                status.is_some_and(|status| status.replicas == round % 2)
                    && status.and_then(|status| status.observed_generation) == set.metadata.generation
            })
            .await;
        let label = settled.metadata.labels.as_ref().and_then(|labels| labels.get("round"));
        assert_eq!(label, Some(&round.to_string()), "the label that was written while the controller worked");
    }
}
