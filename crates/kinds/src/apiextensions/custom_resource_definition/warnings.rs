//! What is allowed in a definition, and its author should hear of all the same.

use std::collections::BTreeSet;

use machinery::status::go_quote;
use machinery::{Value, value};

use super::schema::visit;
use crate::checks::At;

/// The warnings about a definition; what was so before is not said again.
pub fn about(new: &Value, old: Option<&Value>) -> Vec<String> {
    let known = old.map(formats).unwrap_or_default();
    let fresh = formats(new).into_iter().filter(|format| !known.contains(format));
    let mut warnings: Vec<String> = fresh.map(|format| format!("unrecognized format {}", go_quote(&format))).collect();
    let known = old.map(sets).unwrap_or_default();
    warnings.extend(sets(new).into_iter().filter(|warning| !known.contains(warning)));
    warnings
}

/// Visits the schemas that upstream has: one that all versions have alike it has once.
fn schemas(definition: &Value, mut look: impl FnMut(&At<'_, '_>)) {
    let versions = value::list(definition, "spec.versions");
    let same = versions.windows(2).all(|pair| pair[0]["schema"] == pair[1]["schema"]);
    for version in versions.iter().take(if same { 1 } else { versions.len() }) {
        visit(&At::root(version).at("schema.openAPIV3Schema"), &mut look);
    }
}

/// The formats that nobody checks, as often as they are used.
fn formats(definition: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    schemas(definition, |schema| {
        let format = schema.text_at("format");
        if !format.is_empty() && !::apiextensions::is_known_format(format, schema.text_at("type")) {
            unknown.push(format.to_owned());
        }
    });
    unknown
}

/// The kinds of items that are in sets, but should not be.
fn sets(definition: &Value) -> BTreeSet<String> {
    let mut warnings = BTreeSet::new();
    schemas(definition, |schema| {
        let items = schema.text_at("items.type");
        if schema.text_at("x-kubernetes-list-type") == "set" && matches!(items, "object" | "array") {
            warnings.insert(format!("x-kubernetes-list-type: set for items of type {items:?} is not supported by server-side apply or CEL validation rules"));
        }
    });
    warnings
}
