//! What upstream says about StatefulSets.

use machinery::Value;
use serde_json::json;

use crate::strategy;
use crate::testing::{change, create, said};

#[test]
fn the_claims_of_a_set_stay_and_are_not_judged_again() {
    let set = |size: Value| {
        let pods = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let claims =
            json!([{"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": size}}]);
        let mut set = json!({"metadata": {"name": "s"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}}, "template": pods, "volumeClaimTemplates": claims,
        }});
        strategy("apps", "StatefulSet").default(&mut set);
        set
    };
    let old = set(json!({"requests": {"storage": "1Gi"}}));
    let changed = said("apps", "StatefulSet", set(json!({})), Some(&old));
    assert!(
        changed.len() == 1 && changed[0].starts_with("spec.volumeClaimTemplates: Invalid value: [{\"name\":\"d\","),
        "{changed:?}"
    );
}

fn stateful(spec: Value) -> Value {
    let mut set = json!({"metadata": {"name": "s"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    set["spec"].as_object_mut().expect("an object").extend(spec.as_object().expect("an object").clone());
    set
}

#[test]
fn a_stateful_set_is_left_with_the_strategy_it_names() {
    let strategy = strategy("apps", "StatefulSet");
    let rolling = |given: Value| {
        let mut set = stateful(json!({"updateStrategy": given}));
        strategy.default(&mut set);
        set["spec"]["updateStrategy"]["rollingUpdate"].take()
    };
    assert_eq!(rolling(json!({})), json!({"partition": 0, "maxUnavailable": 1}));
    assert_eq!(rolling(json!({"type": "RollingUpdate"})), Value::Null);
    assert_eq!(
        rolling(json!({"type": "RollingUpdate", "rollingUpdate": {}})),
        json!({"partition": 0, "maxUnavailable": 1})
    );
    let odd = stateful(json!({"revisionHistoryLimit": -1}));
    assert_eq!(
        strategy.warnings(&odd, None),
        ["spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"]
    );
    let claim = json!({"metadata": {"name": "d"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100m"}}}});
    let claims = stateful(json!({"volumeClaimTemplates": [claim.clone(), claim]}));
    create("apps", "StatefulSet", claims.clone(), &[]);
    let path = "spec.volumeClaimTemplates[0].resources.requests[storage]";
    assert!(strategy.warnings(&claims, None)[0].starts_with(path), "{:?}", strategy.warnings(&claims, None));
    let mut old = stateful(json!({"serviceName": "a"}));
    strategy.default(&mut old);
    change(
        "apps",
        "StatefulSet",
        old,
        stateful(json!({"serviceName": "A_b"})),
        &["spec.serviceName: Invalid value: \"A_b\": field is immutable"],
    );
}
