//! Events, in the form of the core group.

use machinery::status::FieldError;
use machinery::{Value, value};

use super::super::strategy::Strategy;
use super::common::{At, Errors};

const MOST_INSTANCE: usize = 128;
const MOST_ACTION: usize = 128;
const MOST_REASON: usize = 128;
const MOST_NOTE: usize = 1024;

/// Events.
pub struct Events;

impl Strategy for Events {
    fn fields(&self) -> &'static [&'static str] {
        &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ]
    }

    fn creates_on_update(&self) -> bool {
        true
    }

    fn validate(&self, event: &Value) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let root = At::root(event);
        let namespace = root.at("involvedObject.namespace");
        let own = root.text_at("metadata.namespace");
        let about = namespace.text();
        let is_new = !value::text(event, "eventTime").is_empty();
        let mismatch = match (is_new, about.is_empty()) {
            (false, true) => !matches!(own, "" | "default"),
            (false, false) => own != about,
            (true, true) => !matches!(own, "default" | "kube-system"),
            (true, false) => false,
        };
        if mismatch {
            errors.invalid_text(&namespace, "does not match event.namespace");
        }
        if is_new {
            newer(&root, &mut errors);
        }
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }
}

/// What events have since they say when they happened.
fn newer(event: &At<'_, '_>, errors: &mut Errors) {
    let controller = event.at("reportingComponent");
    errors.required_text(&controller);
    errors.label_name(&controller);
    for (field, most) in [("reportingInstance", MOST_INSTANCE), ("action", MOST_ACTION), ("reason", MOST_REASON)] {
        let text = event.at(field);
        errors.required_text(&text);
        if text.text().len() > most {
            errors.invalid_value(&text, "", format!("can have at most {most} characters"));
        }
    }
    let note = event.at("message");
    if note.text().len() > MOST_NOTE {
        errors.invalid_value(&note, "", format!("can have at most {MOST_NOTE} characters"));
    }
}
