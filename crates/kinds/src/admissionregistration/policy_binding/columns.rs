//! What a table shows of Bindings of admission policies.

use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer, own, text};
use crate::wording::selector::go_selector;

pub static TABLE: Printer = Printer::new(
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
        // Whether the kind has namespaces is not known here.
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}
