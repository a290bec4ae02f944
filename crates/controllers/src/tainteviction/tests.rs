//! Tolerations against taints.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::plan::{Plan, plan};
use crate::testing::{at, pod};

fn taint(key: &str) -> Taint {
    Taint { key: key.into(), effect: "NoExecute".into(), time_added: Some(Time(at(0))), ..Taint::default() }
}

fn toleration(key: &str, seconds: Option<i64>) -> Toleration {
    Toleration {
        key: Some(key.into()),
        operator: Some("Exists".into()),
        toleration_seconds: seconds,
        ..Toleration::default()
    }
}

#[test]
fn a_pod_stays_as_long_as_it_tolerates_every_taint() {
    for (tolerations, taints, expected) in [
        (vec![], vec![taint("a")], Plan::Evict(at(0))),
        (vec![toleration("a", None)], vec![taint("a")], Plan::Keep),
        (vec![toleration("a", None)], vec![taint("a"), taint("b")], Plan::Evict(at(0))),
        (vec![toleration("a", Some(300))], vec![taint("a")], Plan::EvictIn(Duration::from_secs(200))),
        (
            vec![toleration("a", Some(300)), toleration("b", Some(150))],
            vec![taint("a"), taint("b")],
            Plan::EvictIn(Duration::from_secs(50)),
        ),
        // Of several that cover a taint, the first counts.
        (
            vec![toleration("a", Some(300)), toleration("", Some(150))],
            vec![taint("a")],
            Plan::EvictIn(Duration::from_secs(200)),
        ),
        (vec![toleration("a", Some(60))], vec![taint("a")], Plan::Evict(at(60))),
        (vec![toleration("a", Some(-1))], vec![taint("a")], Plan::Evict(at(0))),
    ] {
        let pod = pod("p").with(|pod| pod.spec.get_or_insert_default().tolerations = Some(tolerations.clone())).build();
        assert_eq!(plan(&pod, &taints, at(100)), expected, "{tolerations:?}");
    }
}
