//! `--overrides`: what a user changes of an object before it is made.

use serde_json::Value;

use crate::command::Invocation;
use crate::error::{Failure, Outcome};

/// Changes an object as `--overrides` and `--override-type` say.
pub fn apply(invocation: &Invocation, object: &mut Value) -> Outcome {
    let Some(text) = invocation.flags.given("overrides") else { return Ok(()) };
    let odd = || Failure::message("Invalid JSON Patch");
    let patch: Value = serde_json::from_str(text).map_err(|_| odd())?;
    match invocation.flags.text("override-type") {
        "json" => machinery::patch::json::apply(object, &patch).map_err(|error| Failure::Message(error.to_string())),
        "strategic" => strategic(object, patch),
        "merge" | "" => {
            machinery::patch::merge::apply(object, patch);
            let found = match object {
                Value::Object(_) | Value::Null => return Ok(()),
                Value::Array(_) => "array",
                Value::String(_) => "string",
                Value::Number(_) => "number",
                Value::Bool(_) => "bool",
            };
            Err(Failure::Message(format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
            )))
        }
        other => Err(Failure::Message(format!("invalid override type: {other}"))),
    }
}

fn strategic(object: &mut Value, patch: Value) -> Outcome {
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    match facts::type_of(group, version, &kind) {
        Some(of) => machinery::patch::strategic::apply(object, patch, of.def())
            .map_err(|error| Failure::Message(error.to_string())),
        None => {
            machinery::patch::merge::apply(object, patch);
            Ok(())
        }
    }
}
