//! Objects as nobody would write them and the API server stores them: their controllers go on with all others.

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::ServiceCIDR;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use serde_json::{Value, json};

use crate::api::Faults;
use crate::world::World;

/// Brings an object into the form in which the API server keeps it.
fn keep<K: client::Kind>(object: &mut Value) {
    let of = facts::type_of(K::GROUP, K::VERSION, K::KIND).expect("a built-in kind").def();
    machinery::schema::conform(object, of).expect("values of the right types");
    machinery::schema::complete(object, of);
}

fn labelled(name: &str, app: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": app}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

#[tokio::test(start_paused = true)]
async fn a_budget_with_a_pod_disrupted_at_no_time_keeps_no_other_budget_waiting() {
    let world = World::with("disruption-controller", Faults::default());
    let budget = |name: &str| json!({"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}});
    world.put::<Pod>(labelled("disrupted", "odd"));
    world.put::<PodDisruptionBudget>(budget("odd"));
    world.settle().await;
    world.edit::<PodDisruptionBudget>("default", "odd", |budget| {
        budget["status"]["disruptedPods"] =
            json!({"disrupted": null, "gone": "0001-01-01T00:00:00Z", "late": "9999-12-31T23:59:59Z"});
    });
    world.settle().await;
    world.put::<Pod>(labelled("calm", "next"));
    world.put::<PodDisruptionBudget>(budget("next"));
    world.settle().await;
    let status = |name: &str| {
        let budget = world.get::<PodDisruptionBudget>("default", name).expect("the budget is there");
        budget.status.expect("it was observed")
    };
    assert_eq!((status("next").observed_generation, status("next").expected_pods), (Some(1), Some(1)));
    assert_eq!((status("odd").observed_generation, status("odd").expected_pods), (Some(1), Some(1)));
    assert!(status("odd").disrupted_pods.is_none_or(|pods| pods.is_empty()), "year 1 is long ago");
}

#[tokio::test(start_paused = true)]
async fn a_range_with_a_condition_of_nothing_keeps_no_other_range_waiting() {
    let world = World::with("service-cidr-controller", Faults::default());
    for (name, range, condition) in [
        ("null", "10.50.0.0/16", Value::Null),
        ("timeless", "10.51.0.0/16", json!({"type": "Ready", "status": "True", "lastTransitionTime": null})),
        ("nameless", "10.52.0.0/16", json!({"lastTransitionTime": null})),
    ] {
        world.put::<ServiceCIDR>(json!({"metadata": {"name": name}, "spec": {"cidrs": [range]}}));
        world.edit::<ServiceCIDR>("", name, |range| {
            range["status"] = json!({"conditions": [condition]});
            keep::<ServiceCIDR>(range);
        });
    }
    world.settle().await;
    world.put::<ServiceCIDR>(json!({"metadata": {"name": "next"}, "spec": {"cidrs": ["10.53.0.0/16"]}}));
    world.settle().await;
    for name in ["next", "null", "timeless", "nameless"] {
        let range = world.get::<ServiceCIDR>("", name).expect("the range is there");
        let conditions = range.status.unwrap_or_default().conditions.unwrap_or_default();
        assert!(conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_with_a_condition_of_no_time_keeps_no_other_service_waiting() {
    let world = World::with("endpointslice-controller", Faults::default());
    let service =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": 80}]}});
    world.put::<Service>(service("odd"));
    world.settle().await;
    world.edit::<Service>("default", "odd", |service| {
        service["status"] = json!({"conditions": [{"type": "T", "status": "True", "lastTransitionTime": null}, null]});
    });
    world.settle().await;
    world.put::<Service>(service("next"));
    world.settle().await;
    let slices = world.list::<EndpointSlice>("default");
    assert!(slices.iter().any(|slice| slice.metadata.generate_name.as_deref() == Some("next-")), "{slices:?}");
}
