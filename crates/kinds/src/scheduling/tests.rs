//! What upstream says about kinds of this group.

use machinery::Value;
use machinery::status::FieldError;
use serde_json::json;

use crate::scheduling::pod_group::PodGroups;
use crate::scheduling::workload::Workloads;
use crate::strategy::Strategy;

fn check(found: Vec<FieldError>, expected: &[&str]) {
    assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
}

#[test]
fn a_group_has_one_policy_that_stays() {
    let group = json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}, "priority": 5}});
    check(PodGroups.validate(&group), &[]);
    let both = json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 0}, "basic": {}}}});
    check(
        PodGroups.validate(&both),
        &[
            "spec.schedulingPolicy: Invalid value: \"{basic, gang}\": must specify exactly one of: `basic`, `gang`",
            "spec.schedulingPolicy.gang.minCount: Invalid value: 0: must be greater than or equal to 1",
        ],
    );
    let mut new = group.clone();
    new["spec"]["priority"] = json!(6);
    check(PodGroups.validate_update(&new, &group), &["spec.priority: Invalid value: 6: field is immutable"]);
}

#[test]
fn templates_of_a_workload_are_one_family() {
    let template =
        |name: &str, priority: i64| json!({"name": name, "schedulingPolicy": {"basic": {}}, "priority": priority});
    let workload = |templates: Value| json!({"spec": {"podGroupTemplates": templates}});
    check(Workloads.validate(&workload(json!([template("a", 1), template("b", 1)]))), &[]);
    check(
        Workloads.validate(&workload(json!([template("a", 1), template("a", 2)]))),
        &[
            "spec.podGroupTemplates[1]: Duplicate value: \"a\"",
            "spec: Invalid value: null: detected multiple priority configurations",
        ],
    );
    let one = workload(json!([template("a", 1)]));
    check(
        Workloads.validate_update(&workload(json!([template("b", 1)])), &one),
        &[
            "spec.podGroupTemplates[0]: Forbidden: item may not be added after creation",
            "spec.podGroupTemplates[0]: Forbidden: item may not be removed after creation",
        ],
    );
}
