//! Events: core's and events.k8s.io's fields for the same facts.

use machinery::{Value, value};

use crate::kind::Conversion;

pub const CONVERSIONS: [Conversion; 2] = [
    Conversion { from: "events.k8s.io/v1", to: "v1", convert: to_core },
    Conversion { from: "v1", to: "events.k8s.io/v1", convert: from_core },
];

/// `(core, events.k8s.io)`.
const FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The core form of a field that selectors of events.k8s.io name.
pub fn field_label(label: &str) -> Option<String> {
    match label {
        "reason" | "type" | "metadata.name" | "metadata.namespace" => Some(label.to_owned()),
        "reportingController" => Some("reportingComponent".to_owned()),
        _ => {
            let part = label.strip_prefix("regarding.")?;
            let parts = ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];
            parts.contains(&part).then(|| format!("involvedObject.{part}"))
        }
    }
}

/// From events.k8s.io to core.
pub fn to_core(event: &mut Value) {
    for (core, events) in FIELDS {
        rename(event, events, core);
    }
    value::set_default(event, "involvedObject", Value::Object(value::Object::new()));
}

/// From core to events.k8s.io.
pub fn from_core(event: &mut Value) {
    for (core, events) in FIELDS {
        rename(event, core, events);
    }
}

fn rename(object: &mut Value, from: &str, to: &str) {
    if let Some(kept) = value::remove(object, from) {
        value::set(object, to, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn there_and_back_is_the_same_event() {
        let core = json!({"involvedObject": {"name": "p"}, "message": "m", "count": 2, "reason": "R", "reportingComponent": "k"});
        let mut event = core.clone();
        from_core(&mut event);
        assert_eq!(event["regarding"]["name"], "p");
        assert_eq!(event["note"], "m");
        assert_eq!(event["reportingController"], "k");
        to_core(&mut event);
        assert_eq!(event, core);
    }
}
