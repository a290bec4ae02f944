//! The numbers of a budget.

use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use super::plan::{Expected, Observed, Plan, Scale, expected, needs_scale, plan, status};
use crate::testing::{at, pod};

fn budget(spec: Value) -> PodDisruptionBudget {
    serde_json::from_value(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b", "generation": 4}, "spec": spec})).expect("a budget")
}

#[test]
fn what_is_expected() {
    for (spec, scale, count, healthy) in [
        (json!({"minAvailable": 2}), false, 5, 2),
        (json!({"minAvailable": "50%"}), true, 5, 3),
        (json!({"maxUnavailable": 1}), true, 5, 4),
        (json!({"maxUnavailable": "30%"}), true, 10, 7),
        (json!({"maxUnavailable": 9}), true, 5, 0),
    ] {
        let budget = budget(spec.clone());
        assert_eq!(needs_scale(&budget), scale, "{spec}");
        assert_eq!(expected(&budget, count), Expected { count, healthy }, "{spec}");
    }
}

#[test]
fn healthy_pods_beyond_the_desired_may_go() {
    let pods =
        [pod("a").ready().build(), pod("b").ready().build(), pod("c").build(), pod("d").ready().deleting().build()];
    let mut budget = budget(json!({"minAvailable": 1}));
    let (found, again) = status(&budget, &pods, Expected { count: 4, healthy: 1 }, at(0));
    assert_eq!((found.current_healthy, found.disruptions_allowed, again), (Some(2), Some(1), None));
    assert_eq!(
        found.conditions.as_ref().map(|conditions| conditions[0].reason.clone()),
        Some("SufficientPods".to_owned())
    );
    // An eviction that was accepted and not carried out yet counts as if it were.
    budget.status = Some(found);
    let accepted = json!({"a": "1970-01-01T00:00:00Z"});
    budget.status.as_mut().expect("a status").disrupted_pods = serde_json::from_value(accepted).expect("a map");
    let (found, again) = status(&budget, &pods, Expected { count: 4, healthy: 1 }, at(60));
    assert_eq!((found.current_healthy, found.disruptions_allowed), (Some(1), Some(0)));
    assert_eq!(again.map(|left| left.as_secs()), Some(60));
    let (found, _) = status(&budget, &pods, Expected { count: 4, healthy: 1 }, at(121));
    assert_eq!((found.current_healthy, found.disrupted_pods), (Some(2), None), "it never happened");
}

#[test]
fn a_turn_says_what_it_does_not_know() {
    let percent = std::sync::Arc::new(budget(json!({"minAvailable": "50%", "selector": {}})));
    let observe = |pods: Vec<_>, scale| Observed { budget: percent.clone(), pods, scale };
    let reasons = |plan: &Plan| plan.events.iter().map(|(_, reason, _)| *reason).collect::<Vec<_>>();
    let known = |unmanaged| Ok(Scale { replicas: 4, unmanaged });
    let failed = plan(&observe(Vec::new(), Err("no scale".to_owned())), at(0));
    assert_eq!(reasons(&failed), ["NoPods", "CalculateExpectedPodCountFailed"]);
    assert_eq!(failed.status.disruptions_allowed, Some(0));
    let ready = || pod("a").ready().build();
    assert_eq!(reasons(&plan(&observe(vec![ready()], known(true)), at(0))), ["UnmanagedPods"]);
    let stale = pod("b").ready().with(|pod| {
        let conditions =
            json!([{"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]);
        let conditions: Vec<_> = serde_json::from_value(conditions).expect("conditions");
        pod.status.get_or_insert_default().conditions.get_or_insert_default().extend(conditions);
    });
    let pods = vec![ready(), stale.build()];
    let early = plan(&observe(pods.clone(), known(false)), at(100));
    assert_eq!((early.clear.len(), early.again.map(|again| again.as_secs())), (0, Some(20)));
    assert_eq!(plan(&observe(pods, known(false)), at(120)).clear.len(), 1);
}
