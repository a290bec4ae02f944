//! Kinds without a describer of their own, custom ones above all: every field, its name made into a title.

use machinery::Value;

use crate::Read;
use crate::label::title;
use crate::read;
use crate::show::{Scene, annotations, labels, plain};
use crate::writer::{Writer, put};

/// What is shown at the top, or never.
const SKIPPED: [&str; 5] =
    [".metadata.managedFields", ".metadata.name", ".metadata.namespace", ".metadata.labels", ".metadata.annotations"];

pub fn reads(object: &Value, show_events: bool) -> Vec<Read> {
    read::only_events(object, show_events)
}

pub fn text(scene: &Scene<'_>, out: &mut Writer) {
    scene.name(out);
    scene.namespace(out);
    labels(out, "", "Labels", scene.at("metadata.labels"));
    annotations(out, "Annotations", scene.at("metadata.annotations"));
    fields(out, 0, scene.object, "");
    scene.events(out);
}

/// The fields of an object in the order of their names.
fn fields(out: &mut Writer, level: usize, object: &Value, path: &str) {
    let Some(map) = object.as_object() else { return };
    let mut names: Vec<&String> = map.keys().collect();
    names.sort_unstable();
    for name in names {
        let path = format!("{path}.{name}");
        if SKIPPED.contains(&&*path) {
            continue;
        }
        match &map[name] {
            inner @ Value::Object(_) => {
                put!(out, level, "{}:\n", title(name));
                fields(out, level + 1, inner, &path);
            }
            Value::Array(items) => {
                put!(out, level, "{}:\n", title(name));
                for item in items {
                    match item {
                        Value::Object(_) => fields(out, level + 1, item, &path),
                        other => put!(out, level + 1, "{}\n", plain(other)),
                    }
                }
            }
            other => out.field(level, &title(name), plain(other)),
        }
    }
}
