//! What a table shows of MutatingAdmissionPolicies and ValidatingAdmissionPolicies.

use jiff::Timestamp;
use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, is_set, name};
use crate::table::{AGE, Column, NAME, Printer, integer, own, text};

const PARAM_KIND: Column = text("ParamKind", own("The kind of the objects that parameterize the policy."));

pub static VALIDATING_POLICY: Printer = Printer::new(
    &[NAME, integer("Validations", own("How many rules the policy has.")), PARAM_KIND, AGE],
    |object, now| policy(object, "spec.validations", now),
);

pub static MUTATING_POLICY: Printer = Printer::new(
    &[NAME, integer("Mutations", own("How many mutations the policy has.")), PARAM_KIND, AGE],
    |object, now| policy(object, "spec.mutations", now),
);

fn policy(object: &Value, rules: &str, now: Timestamp) -> Vec<Value> {
    let kind = if is_set(object, "spec.paramKind") {
        format!("{}/{}", value::text(object, "spec.paramKind.apiVersion"), value::text(object, "spec.paramKind.kind"))
    } else {
        "<unset>".to_owned()
    };
    vec![name(object), json!(value::list(object, rules).len()), json!(kind), age(object, now)]
}
