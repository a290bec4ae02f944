//! What evictions and requests for them show alike.

use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{condition, first, is_set, number};

pub fn target(object: &Value) -> [Value; 2] {
    if is_set(object, "spec.target.pod") {
        [json!(value::text(object, "spec.target.pod.name")), json!("Pod")]
    } else {
        [json!("<unset>"), json!("<unset>")]
    }
}

pub fn status(object: &Value) -> String {
    let met = |kind: &str| condition(object, kind).filter(|condition| value::text(condition, "status") == "True");
    let shown =
        |condition: &Value| format!("{} ({})", value::text(condition, "type"), value::text(condition, "reason"));
    if let Some(condition) = met("TargetEvicted").or_else(|| met("Failed")) {
        return shown(condition);
    }
    if number(object, "status.observedGeneration") > 0 { "Progressing" } else { "Pending" }.to_owned()
}

pub fn requesters(object: &Value) -> String {
    let all = value::list(object, "status.requesters");
    let mut still: Vec<String> = all
        .iter()
        .filter(|requester| value::text(requester, "intent") != "Withdrawn")
        .map(|requester| value::text(requester, "name").to_owned())
        .collect();
    still.sort_unstable();
    match (all.is_empty(), still.is_empty()) {
        (true, _) => "<none>".to_owned(),
        (false, true) => "<withdrawn>".to_owned(),
        (false, false) => first(&still, 1),
    }
}
