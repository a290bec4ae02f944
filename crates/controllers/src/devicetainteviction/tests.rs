//! Taints of devices against the tolerations of claims, and what is reported about rules.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceSlice};
use serde_json::{Value, json};

use super::plan::{Eviction, PoolId, Published, claims_of, plan, selected};
use super::status::{Counts, progress};
use crate::testing::{at, pod};

fn made<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).expect("an object"))
}

fn taint(effect: &str, second: i64) -> Value {
    json!({"key": "k", "value": "v", "effect": effect, "timeAdded": machinery::time::format(at(second))})
}

/// A slice of the pool `d/p` with one device `x`.
fn slice(name: &str, generation: i64, taints: &[Value]) -> Arc<ResourceSlice> {
    made(json!({
        "metadata": {"name": name},
        "spec": {
            "driver": "d", "pool": {"name": "p", "generation": generation, "resourceSliceCount": 1},
            "devices": [{"name": "x", "taints": taints}],
        },
    }))
}

fn rule(selector: Value, taint: Value) -> Arc<DeviceTaintRule> {
    made(json!({"metadata": {"name": "r", "uid": "rule"}, "spec": {"deviceSelector": selector, "taint": taint}}))
}

/// A claim of device `x` that the pod `a` has reserved.
fn claim(tolerations: Value) -> Arc<ResourceClaim> {
    made(json!({
        "metadata": {"name": "c", "namespace": "ns"},
        "status": {
            "allocation": {"devices": {"results": [
                {"request": "r", "driver": "d", "pool": "p", "device": "x", "tolerations": tolerations}]}},
            "reservedFor": [{"resource": "pods", "name": "a", "uid": "uid-a"}],
        },
    }))
}

fn user(name: &str) -> crate::testing::PodBuilder {
    pod(name).on("n").with(|pod| {
        let claims = serde_json::from_value(json!([{"name": "gpu", "resourceClaimName": "c"}])).expect("claims");
        pod.spec.get_or_insert_default().resource_claims = Some(claims);
    })
}

fn decide(
    pod: &Pod,
    claim: &Arc<ResourceClaim>,
    slices: &[Arc<ResourceSlice>],
    rules: &[Arc<DeviceTaintRule>],
) -> Option<Eviction> {
    let claims = claims_of(pod, |name| (name == "c").then(|| claim.clone()));
    let pool = PoolId { driver: "d".into(), pool: "p".into() };
    plan(pod, &claims, &Published::from([(pool, slices.to_vec())]), rules)
}

#[test]
fn a_pod_goes_when_its_device_is_tainted_and_nothing_tolerates_it() {
    let evicting = [taint("NoExecute", 100)];
    let forever = json!([{"operator": "Exists", "effect": "NoExecute"}]);
    let minute = json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]);
    for (tolerations, taints, expected) in [
        (json!([]), &evicting[..], Some(100)),
        (json!([]), &[taint("NoSchedule", 100)], None),
        (forever.clone(), &evicting, None),
        (minute, &evicting, Some(160)),
        (json!([{"key": "k", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}]), &evicting, Some(105)),
        (json!([{"key": "k", "value": "w", "effect": "NoExecute"}]), &evicting, Some(100)),
        (json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -7}]), &evicting, Some(100)),
        // The shorter of two holds, but one without an end beats both.
        (
            json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
                   {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}]),
            &evicting,
            Some(110),
        ),
        (
            json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}, forever[0].clone()]),
            &evicting,
            None,
        ),
        // What tolerates every effect does not say that it stands this one.
        (json!([{"operator": "Exists"}]), &evicting, Some(100)),
        (json!([]), &[taint("NoExecute", 100), taint("NoExecute", 50)], Some(50)),
        (
            json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": i64::MAX}]),
            &evicting,
            Some(i64::MAX),
        ),
    ] {
        let decided = decide(&user("a").build(), &claim(tolerations.clone()), &[slice("s", 1, taints)], &[]);
        let end = expected.map(|second| if second == i64::MAX { jiff::Timestamp::MAX } else { at(second) });
        assert_eq!(decided.map(|eviction| eviction.when), end, "{tolerations} {taints:?}");
    }
}

#[test]
fn only_who_uses_the_device_goes_and_only_what_is_current_counts() {
    let tainted = [slice("s", 1, &[taint("NoExecute", 100)])];
    let own = claim(json!([]));
    assert!(decide(&user("a").build(), &own, &tainted, &[]).is_some());
    assert!(decide(&user("b").build(), &own, &tainted, &[]).is_none(), "the claim is not reserved for it");
    let unbound = user("a").with(|pod| pod.spec.get_or_insert_default().node_name = None).build();
    assert!(decide(&unbound, &own, &tainted, &[]).is_none(), "nothing runs yet");
    let newer = [tainted[0].clone(), slice("s2", 2, &[])];
    assert!(decide(&user("a").build(), &own, &newer, &[]).is_none(), "the driver published the pool anew");
    let generated = user("a").with(|pod| {
        let claims = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
        pod.spec.get_or_insert_default().resource_claims = Some(serde_json::from_value(claims).expect("claims"));
        let statuses = json!([{"name": "gpu", "resourceClaimName": "c"}]);
        pod.status.get_or_insert_default().resource_claim_statuses =
            Some(serde_json::from_value(statuses).expect("statuses"));
    });
    assert!(decide(&generated.build(), &own, &tainted, &[]).is_none(), "the claim was not made for it");
}

#[test]
fn a_rule_taints_the_devices_that_it_selects() {
    let (own, clean) = (claim(json!([])), [slice("s", 1, &[])]);
    let evicting = || taint("NoExecute", 100);
    for (selector, expected) in [
        (json!(null), false),
        (json!({}), true),
        (json!({"driver": "d"}), true),
        (json!({"driver": "other"}), false),
        (json!({"driver": "d", "pool": "p", "device": "x"}), true),
        (json!({"driver": "d", "pool": "p", "device": "y"}), false),
    ] {
        let decided = decide(&user("a").build(), &own, &clean, &[rule(selector.clone(), evicting())]);
        assert_eq!(decided.is_some(), expected, "{selector}");
        let rules: Vec<String> =
            decided.iter().flat_map(Eviction::rules).map(|(name, uid)| format!("{name} {uid}")).collect();
        assert_eq!(rules, if expected { vec!["r rule".to_owned()] } else { Vec::new() });
        let devices = selected(&rule(selector.clone(), evicting()), &clean, std::slice::from_ref(&own));
        assert_eq!(devices, if expected { (1, 1) } else { (0, 0) }, "{selector}");
    }
    // A device that its driver no longer publishes may still be in use.
    assert!(decide(&user("a").build(), &own, &[], &[rule(json!({}), evicting())]).is_some());
    assert!(decide(&user("a").build(), &own, &clean, &[rule(json!({}), taint("None", 100))]).is_none());
    let both =
        decide(&user("a").build(), &own, &[slice("s", 1, &[taint("NoExecute", 50)])], &[rule(json!({}), evicting())]);
    let both = both.expect("two reasons");
    assert_eq!((both.when, both.causes.len()), (at(50), 2));
}

#[test]
fn a_rule_is_told_what_it_does_in_the_words_of_upstream() {
    let check = |effect: &str, counts: Counts, expected: (&str, &str, &str)| {
        let progress = progress(effect, &counts);
        assert_eq!((progress.status, progress.reason, progress.message.as_str()), expected);
    };
    let none = Counts::default();
    check("NoExecute", none, ("False", "NotStarted", ""));
    check(
        "NoExecute",
        Counts { evicted: 1, ..none },
        ("False", "Completed", "1 pod evicted since starting the controller."),
    );
    let one = Counts { pods: 1, namespaces: 1, ..none };
    check("NoExecute", one, ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace."));
    let some = Counts { pods: 3, namespaces: 2, evicted: 2, ..none };
    let message = "3 pods need to be evicted in 2 different namespaces. 2 pods evicted since starting the controller.";
    check("NoExecute", some, ("True", "PodsPendingEviction", message));
    check("NoSchedule", none, ("False", "OtherEffect", "Eviction only happens for the NoExecute effect."));
    let message = "1 published device selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.";
    check("None", Counts { published: 1, allocated: 2, ..one }, ("False", "NoEffect", message));
}
