//! Who uses what.

use informer::Key;
use serde_json::json;

use super::plan::uses_claims;
use crate::common::storage::claims_of;
use crate::testing::pod;

#[test]
fn a_pod_uses_the_claims_it_names_and_those_made_for_it() {
    let user = pod("a").with(|pod| {
        let volumes = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "mine"}},
            {"name": "scratch", "ephemeral": {}},
            {"name": "plain", "emptyDir": {}},
        ]);
        pod.spec.get_or_insert_default().volumes = serde_json::from_value(volumes).expect("volumes");
    });
    assert_eq!(claims_of(&user.build()), [Key::new("ns", "mine"), Key::new("ns", "a-scratch")]);
}

#[test]
fn only_pods_with_a_node_that_have_not_ended_use_anything() {
    for (pod, expected) in [
        (pod("a"), false),
        (pod("a").on("n"), true),
        (pod("a").on("n").ready().deleting(), true),
        (pod("a").on("n").phase("Succeeded"), false),
    ] {
        assert_eq!(uses_claims(&pod.build()), expected);
    }
}
