//! Tables: objects as the rows that `kubectl get` prints, with upstream's columns.

use std::sync::Arc;

use machinery::object::Object;
use machinery::{Value, value};
use serde_json::json;

use crate::query::Query;

/// A column.
#[derive(Debug)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// `string`, `integer`, `date`, ...
    pub kind: &'static str,
    /// `name` for the name column, otherwise empty.
    pub format: &'static str,
    /// 0 is always shown, 1 only with `-o wide`.
    pub priority: u8,
    /// For `kubectl explain` and pages.
    pub description: &'static str,
}

/// How the objects of a kind become rows.
#[derive(Debug, Clone, Copy)]
pub struct Tables {
    columns: &'static [Column],
    cells: fn(&Value) -> Vec<Value>,
}

const NAME_AND_AGE: [Column; 2] = [
    Column { name: "Name", kind: "string", format: "name", priority: 0, description: "Name must be unique within a namespace." },
    Column { name: "Created At", kind: "date", format: "", priority: 0, description: "CreationTimestamp is a timestamp representing the server time when this object was created." },
];

/// A kind without columns of its own.
const PLAIN: Tables = Tables {
    columns: &NAME_AND_AGE,
    cells: |object| {
        vec![json!(value::text(object, "metadata.name")), json!(value::text(object, "metadata.creationTimestamp"))]
    },
};

impl Tables {
    /// For objects of this object's kind.
    pub fn of(object: &Object) -> Self {
        let tree = object.to_value();
        Self::named(value::text(&tree, "apiVersion"), value::text(&tree, "kind"))
    }

    /// For a kind.
    pub fn named(_api_version: &str, _kind: &str) -> Self {
        PLAIN
    }

    /// A Table of these objects. `includeObject` says how much of each goes along.
    pub fn table(&self, objects: &[Arc<Object>], query: &Query, metadata: &Value) -> Value {
        let columns: Vec<Value> = self
            .columns
            .iter()
            .map(|column| {
                json!({
                    "name": column.name, "type": column.kind, "format": column.format,
                    "description": column.description, "priority": column.priority,
                })
            })
            .collect();
        let rows: Vec<Value> = objects
            .iter()
            .map(|object| {
                let mut tree = object.to_value();
                let cells = (self.cells)(&tree);
                let mut row = json!({"cells": cells});
                match query.get("includeObject") {
                    "None" => {}
                    "Object" => row["object"] = tree,
                    _ => {
                        let metadata = value::remove(&mut tree, "metadata");
                        row["object"] = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
                    }
                }
                row
            })
            .collect();
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": columns, "rows": rows})
    }
}
