//! Events, in the form of the core group.

pub mod columns;
pub mod convert;
#[cfg(test)]
mod tests;

use machinery::object::Field;
use machinery::status::FieldError;
use machinery::{Value, value};

use crate::checks::{At, Errors, IMMUTABLE};
use crate::strategy::{FieldName, Flags, Strategy};

const MOST_INSTANCE: usize = 128;
const MOST_ACTION: usize = 128;
const MOST_REASON: usize = 128;
const MOST_NOTE: usize = 1024;

pub struct Events;

impl Strategy for Events {
    fn flags(&self) -> Flags {
        Flags { expires: true, creates_on_update: true, ..Flags::USUAL }
    }

    fn field_names(&self, group: &str) -> Option<FieldName> {
        // The newer group has its own names for the fields that are stored.
        (!group.is_empty()).then_some(convert::field_label)
    }

    fn judges_finalizers(&self, group: &str) -> bool {
        !group.is_empty()
    }

    fn fields(&self) -> &'static [Field] {
        const {
            &[
                Field::text("involvedObject.kind"),
                Field::text("involvedObject.namespace"),
                Field::text("involvedObject.name"),
                Field::text("involvedObject.uid"),
                Field::text("involvedObject.apiVersion"),
                Field::text("involvedObject.resourceVersion"),
                Field::text("involvedObject.fieldPath"),
                Field::text("reason"),
                Field::text("reportingComponent"),
                Field::text_found_at("source", &["source.component", "reportingComponent"]),
                Field::text("type"),
            ]
        }
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
        errors.into_vec()
    }

    fn validate_update(&self, new: &Value, _old: &Value) -> Vec<FieldError> {
        self.validate(new)
    }

    fn validate_version(&self, api_version: &str, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = Errors::new();
        let controller = if api_version == "v1" { "reportingComponent" } else { "reportingController" };
        if !value::text(new, "eventTime").is_empty() {
            newer(&At::root(new), controller, &mut errors);
        }
        if api_version == "events.k8s.io/v1" {
            match old {
                None => strict(&At::root(new), &mut errors),
                Some(old) => frozen(&At::root(new), &At::root(old), &mut errors),
            }
        }
        errors.into_vec()
    }
}

/// A new event of the newer group says everything in the newer way.
fn strict(event: &At<'_, '_>, errors: &mut Errors) {
    series(event, errors);
    errors.required_text(&event.at("eventTime"));
    let kind = event.at("type");
    if !matches!(kind.text(), "Normal" | "Warning") {
        errors.invalid_value(&kind, "", format!("has invalid value: {}", kind.text()));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        let old = event.at(field);
        let set = match field {
            "count" => old.int().unwrap_or(0) != 0,
            "source" => !old.text_at("component").is_empty() || !old.text_at("host").is_empty(),
            _ => old.is_set(),
        };
        if set {
            errors.invalid_value(&old, "", "needs to be unset");
        }
    }
}

/// Only the series of an event goes on.
fn frozen(new: &At<'_, '_>, old: &At<'_, '_>, errors: &mut Errors) {
    if new.at("series").value() != old.at("series").value() {
        series(new, errors);
    }
    for (shown, field) in [
        ("involvedObject", "involvedObject"),
        ("reason", "reason"),
        ("message", "message"),
        ("source", "source"),
        ("firstTimestamp", "firstTimestamp"),
        ("lastTimestamp", "lastTimestamp"),
        ("count", "count"),
        ("reason", "reason"),
        ("type", "type"),
        ("eventTime", "eventTime"),
        ("action", "action"),
        ("related", "related"),
        ("reportingController", "reportingComponent"),
        ("reportingInstance", "reportingInstance"),
    ] {
        let (now, then) = (new.named(shown, field), old.named(shown, field));
        let text = matches!(then.value(), Value::String(_)) && field != "eventTime";
        match now.is_set() || !text {
            true => errors.immutable(&now, &then),
            // Text that is not there is empty.
            false => errors.invalid_text(&now, IMMUTABLE),
        }
    }
}

fn series(event: &At<'_, '_>, errors: &mut Errors) {
    let series = event.at("series");
    if !series.is_set() {
        return;
    }
    let count = series.at("count");
    if count.int().unwrap_or(0) < 2 {
        errors.invalid_value(&count, "", "should be at least 2");
    }
    errors.required_text(&series.at("lastObservedTime"));
}

/// What events have since they say when they happened.
fn newer(event: &At<'_, '_>, controller: &str, errors: &mut Errors) {
    let controller = event.named(controller, "reportingComponent");
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
