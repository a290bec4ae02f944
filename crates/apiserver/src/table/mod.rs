//! Tables: objects as the rows that `kubectl get` prints, with upstream's columns.
//!
//! Every kind that has columns of its own has a [`Printer`] in the file of its API group: the columns as data, and one pure
//! function from an object to its cells. Upstream's server computes the ages in the cells, so the functions are told the
//! time. All other kinds have a name and the time of their creation.

mod admission;
mod apps;
mod autoscaling;
mod batch;
mod cells;
mod certificates;
mod cluster;
mod core;
mod flowcontrol;
mod lifecycle;
mod networking;
mod node;
mod pod;
mod rbac;
mod resource;
mod scheduling;
mod service;
mod storage;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use machinery::object::Object;
use machinery::{Value, value};
use serde_json::json;

use crate::convert;
use crate::query::Query;

/// A column.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    kind: &'static str,
    /// `name` for columns that hold names, otherwise empty.
    format: &'static str,
    /// 0 is always shown, 1 only with `-o wide`.
    priority: u8,
    words: Words,
}

/// Where the description of a column comes from.
#[derive(Debug, Clone, Copy)]
enum Words {
    /// The description of this field of this type of the API.
    Field(&'static str, &'static str),
    /// It has words of its own.
    Own(&'static str),
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The name of the object, which most tables begin with.
const NAME: Column = Column { format: "name", ..text("Name", Words::Field(META, "name")) };
/// How long ago the object was made, which most tables end with.
const AGE: Column = text("Age", Words::Field(META, "creationTimestamp"));
/// When the object was made, in tables that leave the counting to the client.
const CREATED: Column = Column { kind: "date", ..text("Created At", Words::Field(META, "creationTimestamp")) };

/// A column of text.
const fn text(name: &'static str, words: Words) -> Column {
    Column { name, kind: "string", format: "", priority: 0, words }
}

/// A column of numbers.
const fn integer(name: &'static str, words: Words) -> Column {
    Column { kind: "integer", ..text(name, words) }
}

/// A column of truths.
const fn boolean(name: &'static str, words: Words) -> Column {
    Column { kind: "boolean", ..text(name, words) }
}

/// The description of a field of a type, named as OpenAPI names it.
const fn of(type_name: &'static str, field: &'static str) -> Words {
    Words::Field(type_name, field)
}

/// A description of our own.
const fn own(words: &'static str) -> Words {
    Words::Own(words)
}

impl Column {
    /// Shown with `-o wide` only.
    const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    fn description(&self) -> String {
        match self.words {
            Words::Own(words) => words.to_owned(),
            Words::Field(type_name, field) => prose::of(type_name)
                .and_then(|prose| prose.fields().find(|(name, _)| *name == field))
                .map_or_else(String::new, |(_, text)| text.into_owned()),
        }
    }

    fn definition(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format,
            "description": self.description(), "priority": self.priority,
        })
    }
}

/// How the objects of a kind become rows.
#[derive(Debug)]
struct Printer {
    columns: &'static [Column],
    /// The cells of an object at a time.
    cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// What a row says about its object besides the cells.
    conditions: fn(&Value) -> Option<Value>,
    /// What a list does to its rows as a whole, given objects and cells.
    list: fn(&mut [(Value, Vec<Value>)]),
}

impl Printer {
    const fn new(columns: &'static [Column], cells: fn(&Value, Timestamp) -> Vec<Value>) -> Self {
        Self { columns, cells, conditions: |_| None, list: |_| () }
    }
}

/// A kind without columns of its own.
static PLAIN: Printer = Printer::new(&[NAME, CREATED], |object, _| {
    vec![cells::name(object), json!(value::text(object, "metadata.creationTimestamp"))]
});

/// The table of a kind.
#[derive(Debug, Clone, Copy)]
pub struct Tables {
    printer: &'static Printer,
    /// Brings an object into the version that its printer reads.
    normalize: Option<fn(&mut Value)>,
    /// Whether the objects are a list, or one that was asked for by its name.
    list: bool,
}

impl Tables {
    /// For one object.
    pub fn of(object: &Object) -> Self {
        let (api_version, kind) = object.type_meta();
        Self { list: false, ..Self::named(&api_version, &kind) }
    }

    /// For a list of a kind.
    pub fn named(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let normalize: Option<fn(&mut Value)> = match (group, version, kind) {
            ("events.k8s.io", _, "Event") => Some(convert::events::to_core),
            ("autoscaling", "v1", "HorizontalPodAutoscaler") => Some(convert::autoscaling::v1_to_v2),
            _ => None,
        };
        Self { printer: printer(group, kind).unwrap_or(&PLAIN), normalize, list: true }
    }

    /// A Table of these objects. `includeObject` says how much of each goes along.
    pub fn table(&self, objects: &[Arc<Object>], query: &Query, metadata: &Value, now: Timestamp) -> Value {
        let mut table = self.rows(objects, query, metadata, now);
        table["columnDefinitions"] = self.printer.columns.iter().map(Column::definition).collect();
        table
    }

    /// As [`Tables::table`], for a client that was told the columns before.
    pub fn rows(&self, objects: &[Arc<Object>], query: &Query, metadata: &Value, now: Timestamp) -> Value {
        let mut rows: Vec<(Value, Vec<Value>)> = objects
            .iter()
            .map(|object| {
                let tree = object.to_value();
                let cells = self.cells(&tree, now);
                (tree, cells)
            })
            .collect();
        if self.list {
            (self.printer.list)(&mut rows);
        }
        let include = query.get("includeObject");
        let rows: Vec<Value> = rows.into_iter().map(|(tree, cells)| self.row(tree, cells, include)).collect();
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": [], "rows": rows})
    }

    fn cells(&self, tree: &Value, now: Timestamp) -> Vec<Value> {
        match self.normalize {
            None => (self.printer.cells)(tree, now),
            Some(normalize) => {
                let mut tree = tree.clone();
                normalize(&mut tree);
                (self.printer.cells)(&tree, now)
            }
        }
    }

    fn row(&self, mut tree: Value, cells: Vec<Value>, include: &str) -> Value {
        let mut row = json!({"cells": cells});
        if let Some(conditions) = (self.printer.conditions)(&tree) {
            row["conditions"] = conditions;
        }
        row["object"] = match include {
            "None" => Value::Null,
            "Object" => tree,
            _ => {
                let metadata = value::remove(&mut tree, "metadata");
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
        };
        row
    }
}

fn printer(group: &str, kind: &str) -> Option<&'static Printer> {
    match group {
        "" => core::printer(kind),
        "admissionregistration.k8s.io" => admission::printer(kind),
        "apps" => apps::printer(kind),
        "autoscaling" => autoscaling::printer(kind),
        "batch" => batch::printer(kind),
        "certificates.k8s.io" => certificates::printer(kind),
        "discovery.k8s.io" | "networking.k8s.io" => networking::printer(kind),
        "events.k8s.io" => core::printer(kind),
        "flowcontrol.apiserver.k8s.io" => flowcontrol::printer(kind),
        "lifecycle.k8s.io" => lifecycle::printer(kind),
        "rbac.authorization.k8s.io" => rbac::printer(kind),
        "resource.k8s.io" => resource::printer(kind),
        "scheduling.k8s.io" => scheduling::printer(kind),
        "storage.k8s.io" => storage::printer(kind),
        _ => cluster::printer(group, kind),
    }
}
