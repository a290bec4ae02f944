//! What upstream says about kinds of this group.

use machinery::Value;
use rules::flow_control::{flow_schemas, priority_levels};
use serde_json::json;

use crate::flowcontrol::flow_schema::FlowSchemas;
use crate::flowcontrol::priority_level_configuration::PriorityLevels;
use crate::strategy::Strategy;

fn check(strategy: &dyn Strategy, object: &Value, expected: &[&str]) {
    let found: Vec<String> =
        strategy.validate(object).iter().map(|error| format!("{}: {}", error.path, error.detail)).collect();
    assert_eq!(found, expected, "{object}");
}

#[test]
fn what_is_mandatory_stays_as_it_is() {
    let named = |objects: Vec<Value>, name: &str| {
        objects.into_iter().find(|object| object["metadata"]["name"] == name).expect("is mandatory")
    };
    let mut schema = named(flow_schemas(), "catch-all");
    check(&FlowSchemas, &schema, &[]);
    schema["spec"]["matchingPrecedence"] = json!(9000);
    check(&FlowSchemas, &schema, &["spec: spec of 'catch-all' must equal the fixed value"]);
    let mut level = named(priority_levels(), "catch-all");
    check(&PriorityLevels, &level, &[]);
    level["spec"]["limited"]["nominalConcurrencyShares"] = json!(6);
    check(&PriorityLevels, &level, &["spec: spec of 'catch-all' must equal the fixed value"]);
    // How much is lent is for the administrator to say.
    let mut exempt = named(priority_levels(), "exempt");
    exempt["spec"]["exempt"]["lendablePercent"] = json!(50);
    check(&PriorityLevels, &exempt, &[]);
}
