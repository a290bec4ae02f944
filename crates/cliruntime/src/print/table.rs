//! Tables that the server made, and what kubectl adds to them: namespaces, kinds, labels, headers.

use serde_json::Value;

use super::golang;
use crate::discovery::Mapping;

/// What is shown besides the server's columns.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub wide: bool,
    pub no_headers: bool,
    pub namespace: bool,
    pub kind: bool,
    pub labels: bool,
    pub columns: Vec<String>,
}

/// One row with the object it is about.
#[derive(Debug, Clone)]
pub struct Row {
    pub cells: Vec<Value>,
    pub object: Value,
}

impl Row {
    /// With no more of the object than columns that kubectl adds want to know.
    pub fn slim(mut self) -> Self {
        let mut kept = serde_json::Map::new();
        if let Some(Value::Object(metadata)) = self.object.get_mut("metadata") {
            for name in ["name", "namespace", "labels"] {
                kept.extend(metadata.remove(name).map(|value| (name.to_owned(), value)));
            }
        }
        self.object = serde_json::json!({"metadata": kept});
        self
    }
}

/// The server's table, or one made from an object where the server made none.
#[derive(Debug, Clone, Default)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    pub resource_version: String,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Column {
    pub name: String,
    pub format: String,
    pub priority: i64,
}

impl Table {
    /// Reads an answer. What is no table is shown by name and age.
    pub fn from_value(answer: Value, now: jiff::Timestamp) -> Self {
        if answer.get("kind").and_then(Value::as_str) == Some("Table") {
            return Self::read(answer);
        }
        let one = [answer.clone()];
        let items = super::items(&answer).map_or(&one[..], Vec::as_slice);
        let rows = items.iter().map(|item| Row { cells: plain(item, now), object: item.clone() }).collect();
        let column =
            |name: &str, format: &str| Column { name: name.to_owned(), format: format.to_owned(), priority: 0 };
        let resource_version = machinery::value::text(&answer, "metadata.resourceVersion").to_owned();
        Self { columns: vec![column("Name", "name"), column("Age", "")], rows, resource_version }
    }

    fn read(mut answer: Value) -> Self {
        let list = |tree: &mut Value, name: &str| match tree.get_mut(name).map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let columns = list(&mut answer, "columnDefinitions")
            .iter()
            .map(|column| Column {
                name: machinery::value::text(column, "name").to_owned(),
                format: machinery::value::text(column, "format").to_owned(),
                priority: machinery::value::int(column, "priority").unwrap_or_default(),
            })
            .collect();
        let rows = list(&mut answer, "rows")
            .into_iter()
            .map(|mut row| Row {
                cells: list(&mut row, "cells"),
                object: row.get_mut("object").map(Value::take).unwrap_or_default(),
            })
            .collect();
        let resource_version = machinery::value::text(&answer, "metadata.resourceVersion").to_owned();
        Self { columns, rows, resource_version }
    }

    /// The lines, with tabs between cells.
    pub fn lines(&self, mapping: Option<&Mapping>, options: &Options) -> String {
        let mut text = String::new();
        if !options.no_headers && !self.rows.is_empty() {
            text += &self.header(options);
        }
        for row in &self.rows {
            text += &self.line(row, mapping, options);
        }
        text
    }

    fn shown(&self, options: &Options) -> impl Iterator<Item = (usize, &Column)> {
        let wide = options.wide;
        self.columns.iter().enumerate().filter(move |(_, column)| wide || column.priority == 0)
    }

    fn header(&self, options: &Options) -> String {
        let mut cells: Vec<String> = Vec::new();
        if options.namespace {
            cells.push("NAMESPACE".to_owned());
        }
        cells.extend(self.shown(options).map(|(_, column)| column.name.to_uppercase()));
        cells.extend(options.columns.iter().map(|label| label.rsplit('/').next().unwrap_or(label).to_uppercase()));
        if options.labels {
            cells.push("LABELS".to_owned());
        }
        cells.join("\t") + "\n"
    }

    fn line(&self, row: &Row, mapping: Option<&Mapping>, options: &Options) -> String {
        let mut cells: Vec<String> = Vec::new();
        if options.namespace {
            cells.push(machinery::value::text(&row.object, "metadata.namespace").to_owned());
        }
        for (at, column) in self.shown(options) {
            let text = row.cells.get(at).map(cell).unwrap_or_default();
            let named = options.kind && column.format == "name" && column.name == self.name_column();
            match mapping.filter(|_| named) {
                Some(mapping) => cells.push(format!("{}/{text}", mapping.kind_name())),
                None => cells.push(text),
            }
        }
        let labels = machinery::value::at(&row.object, "metadata.labels").and_then(Value::as_object);
        for label in &options.columns {
            let value = labels.and_then(|labels| labels.get(label)).and_then(Value::as_str);
            cells.push(value.unwrap_or_default().to_owned());
        }
        if options.labels {
            let all: Vec<String> = labels
                .into_iter()
                .flatten()
                .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                .collect();
            cells.push(if all.is_empty() { "<none>".to_owned() } else { all.join(",") });
        }
        cells.join("\t") + "\n"
    }

    /// The first column that is a name.
    fn name_column(&self) -> &str {
        self.columns.iter().find(|column| column.format == "name").map_or("", |column| &column.name)
    }
}

/// A cell: only its first line, and nothing that would move a terminal's pen.
fn cell(value: &Value) -> String {
    let whole = match value {
        Value::Null => return String::new(),
        Value::String(text) => text.clone(),
        other => golang::print(other),
    };
    let escape = |text: &str| text.replace('\x1b', "^[").replace('\r', "\\r").replace('\t', " ");
    match whole.find(['\x0c', '\n', '\r']) {
        Some(end) => escape(&whole[..end]) + "...",
        None => escape(&whole),
    }
}

fn plain(item: &Value, now: jiff::Timestamp) -> Vec<Value> {
    let name = machinery::value::text(item, "metadata.name");
    let created = machinery::time::parse(machinery::value::text(item, "metadata.creationTimestamp"));
    let age = created.map_or("<unknown>".to_owned(), |created| age(created, now));
    vec![name.into(), age.into()]
}

/// How long ago something was, as tables say it: two units at most, the rough one alone where that is enough.
pub fn age(since: jiff::Timestamp, now: jiff::Timestamp) -> String {
    machinery::duration::human(now.as_second() - since.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_get_namespaces_kinds_and_labels() {
        let answer = json!({
            "kind": "Table",
            "columnDefinitions": [
                {"name": "Name", "format": "name", "priority": 0}, {"name": "Count", "priority": 0},
                {"name": "Node", "priority": 1},
            ],
            "rows": [{
                "cells": ["a", 3, "n\nm"],
                "object": {"metadata": {"namespace": "ns", "labels": {"x/app": "web"}}},
            }],
        });
        let table = Table::from_value(answer, jiff::Timestamp::UNIX_EPOCH);
        let mapping = Mapping { kind: "Deployment".to_owned(), group: "apps".to_owned(), ..Mapping::default() };
        let all = Options {
            wide: true,
            namespace: true,
            kind: true,
            labels: true,
            columns: vec!["x/app".to_owned(), "y".to_owned()],
            no_headers: false,
        };
        assert_eq!(
            table.lines(Some(&mapping), &all),
            "NAMESPACE\tNAME\tCOUNT\tNODE\tAPP\tY\tLABELS\nns\tdeployment.apps/a\t3\tn...\tweb\t\tx/app=web\n"
        );
        assert_eq!(table.lines(None, &Options::default()), "NAME\tCOUNT\na\t3\n");
    }
}
