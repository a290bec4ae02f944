//! Tables: objects as the rows that `kubectl get` prints, with upstream's columns.
//!
//! Every kind that has columns of its own has a [`Printer`] in its folder: the columns as data, and one pure
//! function from an object to its cells. Upstream's server computes the ages in the cells, so the functions get the
//! time. All other kinds have a name and the time of their creation.

pub(crate) mod cells;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ::apiextensions::Version;
use jiff::Timestamp;
use machinery::object::Object;
use machinery::query::Query;
use machinery::{Value, value};
use serde_json::json;

use crate::place;
use crate::table::cells::{age, name};

#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// What it is called.
    pub name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    pub kind: &'static str,
    /// `name` for columns that hold names, otherwise empty.
    pub format: &'static str,
    /// 0 is always shown, 1 only with `-o wide`.
    pub priority: u8,
    /// What it is for.
    pub words: Words,
}

/// Where the description of a column comes from.
#[derive(Debug, Clone, Copy)]
pub enum Words {
    /// The description of this field of this type of the API.
    Field(&'static str, &'static str),
    /// It has words of its own.
    Own(&'static str),
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The name of the object, which most tables begin with.
pub const NAME: Column = Column { format: "name", ..text("Name", Words::Field(META, "name")) };

/// How long ago the object was made, which most tables end with.
pub const AGE: Column = text("Age", Words::Field(META, "creationTimestamp"));

/// When the object was made, in tables that leave the counting to the client.
pub const CREATED: Column = Column { kind: "date", ..text("Created At", Words::Field(META, "creationTimestamp")) };

/// A column of text.
pub const fn text(name: &'static str, words: Words) -> Column {
    Column { name, kind: "string", format: "", priority: 0, words }
}

/// A column of numbers.
pub const fn integer(name: &'static str, words: Words) -> Column {
    Column { kind: "integer", ..text(name, words) }
}

/// A column of truths.
pub const fn boolean(name: &'static str, words: Words) -> Column {
    Column { kind: "boolean", ..text(name, words) }
}

/// The description of a field of a type, named as OpenAPI names it.
pub const fn of(type_name: &'static str, field: &'static str) -> Words {
    Words::Field(type_name, field)
}

/// A description of our own.
pub const fn own(words: &'static str) -> Words {
    Words::Own(words)
}

impl Column {
    /// Shown with `-o wide` only.
    pub const fn wide(self) -> Self {
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
pub struct Printer {
    /// What the rows have.
    pub columns: &'static [Column],
    /// The cells of an object at a time.
    pub cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// What a row says about its object besides the cells.
    pub conditions: fn(&Value) -> Option<Value>,
    /// What a list does to its rows as a whole, given objects and cells.
    pub list: fn(&mut [(Value, Vec<Value>)]),
}

impl Printer {
    /// From the columns, and the cells of one object.
    pub const fn new(columns: &'static [Column], cells: fn(&Value, Timestamp) -> Vec<Value>) -> Self {
        Self { columns, cells, conditions: |_| None, list: |_| () }
    }
}

/// A kind without columns of its own.
pub static PLAIN: Printer = Printer::new(&[NAME, CREATED], |object, _| {
    vec![cells::name(object), json!(value::text(object, "metadata.creationTimestamp"))]
});

/// The names of containers, in tables of what makes pods.
pub const CONTAINERS: Column = text("Containers", own("The names of the template's containers."));

pub const IMAGES: Column = text("Images", own("The images of the template's containers."));
/// A kind of which nothing is shown but its name and its age.
pub static NAME_AND_AGE: Printer = Printer::new(&[NAME, AGE], |object, now| vec![name(object), age(object, now)]);

/// The table of a kind.
#[derive(Debug, Clone)]
pub struct Tables {
    printer: &'static Printer,
    /// A custom resource has the columns that its definition asks for instead.
    custom: Option<Arc<Version>>,
    /// Brings an object into the version that its printer reads.
    normalize: Option<fn(&mut Value)>,
    /// Whether the objects are a list, or one that was asked for by its name.
    list: bool,
}

impl Tables {
    pub fn of(object: &Object) -> Self {
        let (api_version, kind) = object.type_meta();
        Self { list: false, ..Self::named(&api_version, &kind) }
    }

    /// For a list of a kind.
    pub fn named(api_version: &str, kind: &str) -> Self {
        let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
        let Some(row) = crate::kind(group, kind) else {
            return Self { printer: &PLAIN, custom: None, normalize: None, list: true };
        };
        // What tables show is read from the version that is stored.
        let stored = facts::kind(group, version, kind).map(|facts| place::storage_version(facts).api_version());
        let conversion = stored.and_then(|stored| row.conversion(api_version, &stored));
        let normalize = conversion.map(|conversion| conversion.convert);
        Self { printer: row.printer(), custom: None, normalize, list: true }
    }

    /// For a version of a custom resource.
    pub fn custom(version: Arc<Version>) -> Self {
        Self { printer: &PLAIN, custom: Some(version), normalize: None, list: false }
    }

    /// A Table of these objects. `includeObject` says how much of each goes along.
    pub fn table(&self, objects: &[Arc<Object>], query: &Query, metadata: &Value, now: Timestamp) -> Value {
        let mut table = self.rows(objects, query, metadata, now);
        table["columnDefinitions"] = match &self.custom {
            None => self.printer.columns.iter().map(Column::definition).collect(),
            Some(version) => {
                let own = version.columns.iter().map(|column| column.definition.clone());
                std::iter::once(NAME.definition()).chain(own).collect()
            }
        };
        table
    }

    /// As [`Tables::table`], for a client that has the columns already.
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
        json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": Value::Null, "rows": rows})
    }

    fn cells(&self, tree: &Value, now: Timestamp) -> Vec<Value> {
        if let Some(version) = &self.custom {
            let age = |time: &str| match machinery::time::parse_clamped(time) {
                Some(then) => cells::between(then, now),
                None => "<invalid>".to_owned(),
            };
            let own = version.columns.iter().map(|column| column.cell(tree, age));
            return std::iter::once(cells::name(tree)).chain(own).collect();
        }
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
