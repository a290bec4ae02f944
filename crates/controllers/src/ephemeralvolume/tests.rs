//! Claims of ephemeral volumes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::json;

use super::plan::{Step, plan};
use crate::common::meta::MetaExt;
use crate::testing::{PodBuilder, pod};

fn with_volumes(pod: PodBuilder) -> PodBuilder {
    pod.with(|pod| {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"accessModes": ["ReadWriteOnce"]}});
        let volumes = json!([
            {"name": "plain", "emptyDir": {}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}},
        ]);
        pod.spec.get_or_insert_default().volumes = serde_json::from_value(volumes).expect("volumes");
    })
}

#[test]
fn a_claim_is_made_for_a_pod_that_runs_and_for_no_other() {
    let own = with_volumes(pod("a")).build();
    let steps = plan(&own, |_| None);
    let [(volume, Step::Create(claim))] = &steps[..] else { panic!("one claim: {steps:?}") };
    assert_eq!((volume.as_str(), claim.metadata.name()), ("scratch", "a-scratch"));
    assert_eq!(claim.metadata.controller().map(|owner| owner.uid.as_str()), Some("uid-a"));
    assert_eq!(claim.metadata.label("a"), Some("b"));
    let made: Arc<PersistentVolumeClaim> = Arc::new(PersistentVolumeClaim::clone(claim));
    assert_eq!(plan(&own, |_| Some(made.clone())), [], "it is there");
    let other = plan(&with_volumes(pod("a")).with(|pod| pod.metadata.uid = Some("later".into())).build(), |_| {
        Some(made.clone())
    });
    let refusal = "PVC ns/a-scratch was not created for pod ns/a (pod is not owner)".to_owned();
    assert_eq!(other, [("scratch".to_owned(), Step::Refuse(refusal))]);
    assert_eq!(plan(&with_volumes(pod("a")).phase("Succeeded").build(), |_| None), []);
}
