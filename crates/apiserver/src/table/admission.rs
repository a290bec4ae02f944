//! admissionregistration.k8s.io.

use jiff::Timestamp;
use machinery::{Value, value};
use serde_json::json;

use super::cells::{age, is_set, name};
use super::{AGE, Column, NAME, Printer, integer, own, text};

/// The printer of a kind of admission registration.
pub fn printer(kind: &str) -> Option<&'static Printer> {
    Some(match kind {
        "MutatingAdmissionPolicy" => &MUTATING_POLICY,
        "MutatingAdmissionPolicyBinding" | "ValidatingAdmissionPolicyBinding" => &BINDING,
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => &WEBHOOKS,
        "ValidatingAdmissionPolicy" => &VALIDATING_POLICY,
        _ => return None,
    })
}

const PARAM_KIND: Column = text("ParamKind", own("The kind of the objects that parameterize the policy."));

static WEBHOOKS: Printer =
    Printer::new(&[NAME, integer("Webhooks", own("How many webhooks the configuration has.")), AGE], |object, now| {
        vec![name(object), json!(value::list(object, "webhooks").len()), age(object, now)]
    });

static VALIDATING_POLICY: Printer = Printer::new(
    &[NAME, integer("Validations", own("How many rules the policy has.")), PARAM_KIND, AGE],
    |object, now| policy(object, "spec.validations", now),
);

static MUTATING_POLICY: Printer = Printer::new(
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

static BINDING: Printer = Printer::new(
    &[
        NAME,
        text("PolicyName", own("The policy that is bound.")),
        text("ParamRef", own("The objects that parameterize it.")),
        AGE,
    ],
    |object, now| {
        vec![name(object), json!(value::text(object, "spec.policyName")), json!(parameters(object)), age(object, now)]
    },
);

fn parameters(object: &Value) -> String {
    let Some(reference) = value::at(object, "spec.paramRef").filter(|reference| reference.is_object()) else {
        return "<unset>".to_owned();
    };
    match (value::text(reference, "namespace"), value::text(reference, "name")) {
        ("", "") | (_, "") => match value::at(reference, "selector").filter(|selector| selector.is_object()) {
            Some(selector) => go_selector(selector),
            None => "<unset>".to_owned(),
        },
        // Whether the kind has namespaces cannot be told from here.
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// A label selector as Go prints the struct.
fn go_selector(selector: &Value) -> String {
    let mut labels: Vec<String> = value::at(selector, "matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, label)| format!("{key}: {},", label.as_str().unwrap_or_default()))
        .collect();
    labels.sort_unstable();
    let expressions = value::list(selector, "matchExpressions").iter().map(|expression| {
        let values = value::list(expression, "values").iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
        let (key, operator) = (value::text(expression, "key"), value::text(expression, "operator"));
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.concat(),
        expressions.collect::<String>()
    )
}
