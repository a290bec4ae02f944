//! Tables that the server made, and what kubectl adds to them: namespaces, kinds, labels, headers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::golang;
use crate::discovery::Mapping;
use crate::error::Outcome;

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

impl Options {
    /// The same, with or without namespaces.
    pub fn of(&self, namespace: bool) -> Self {
        Self { namespace, ..self.clone() }
    }
}

/// One row with the object it is about.
#[derive(Debug, Clone)]
pub struct Row {
    pub cells: Vec<Value>,
    pub object: Value,
}

/// The server's table, or one made from an object where the server made none.
#[derive(Debug, Clone, Default)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// Lines that were made of rows already: of thousands of rows no more is kept than is shown.
    pub lines: String,
}

/// A `Table`, with no more of its objects than columns that kubectl adds want to know.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Slim {
    kind: String,
    #[serde(default)]
    column_definitions: Vec<Column>,
    rows: Option<Vec<SlimRow>>,
    #[serde(default)]
    metadata: ListMeta,
}

#[derive(Deserialize)]
struct SlimRow {
    #[serde(default)]
    cells: Vec<Value>,
    object: Option<SlimObject>,
}

#[derive(Deserialize)]
struct SlimObject {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Deserialize, Serialize, Default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    labels: Option<serde_json::Map<String, Value>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ListMeta {
    r#continue: String,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default)]
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
        Self { columns: vec![column("Name", "name"), column("Age", "")], rows, ..Self::default() }
    }

    /// Reads one chunk of an answer, with as little of each object as is shown. Also where the next chunk begins.
    pub fn slim(answer: &[u8], now: jiff::Timestamp) -> Outcome<(Self, String)> {
        let Some(Slim { kind: _, column_definitions: columns, rows, metadata }) =
            serde_json::from_slice::<Slim>(answer).ok().filter(|table| table.kind == "Table")
        else {
            let answer: Value = crate::api::decode(answer)?;
            let next = machinery::value::text(&answer, "metadata.continue").to_owned();
            return Ok((Self::from_value(answer, now), next));
        };
        let object = |object: Option<SlimObject>| match object {
            Some(object) => serde_json::json!({"metadata": object.metadata}),
            None => Value::Null,
        };
        let rows = rows.unwrap_or_default().into_iter();
        let rows = rows.map(|row| Row { cells: row.cells, object: object(row.object) }).collect();
        Ok((Self { columns, rows, ..Self::default() }, metadata.r#continue))
    }

    /// Makes lines of the rows, and forgets them.
    pub fn shrink(&mut self, mapping: &Mapping, options: &Options) {
        let rows = std::mem::take(&mut self.rows);
        for row in &rows {
            self.lines += &self.line(row, Some(mapping), options);
        }
    }

    /// More of the same table.
    pub fn extend(&mut self, other: Self) {
        if self.columns.is_empty() {
            self.columns = other.columns;
        }
        self.rows.extend(other.rows);
        self.lines += &other.lines;
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
        Self { columns, rows, ..Self::default() }
    }

    /// The lines, with tabs between cells.
    pub fn lines(&self, mapping: Option<&Mapping>, options: &Options) -> String {
        let mut text = String::new();
        let is_empty = self.rows.is_empty() && self.lines.is_empty();
        if !options.no_headers && !is_empty {
            text += &self.header(options);
        }
        text += &self.lines;
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

    #[test]
    fn a_chunk_that_is_made_lines_of_shows_the_same() {
        let answer = json!({
            "kind": "Table", "metadata": {"continue": "more"},
            "columnDefinitions": [{"name": "Name", "type": "string", "format": "name", "priority": 0}],
            "rows": [
                {"cells": ["a"], "object": {"kind": "PartialObjectMetadata", "metadata": {"namespace": "n", "labels": {"k": "v"}, "managedFields": [{}]}}},
                {"cells": ["b"], "object": null},
            ],
        });
        let mapping = Mapping { kind: "Pod".to_owned(), ..Mapping::default() };
        let options = Options { namespace: true, kind: true, labels: true, ..Options::default() };
        let now = jiff::Timestamp::UNIX_EPOCH;
        let whole = Table::from_value(answer.clone(), now).lines(Some(&mapping), &options);
        assert_eq!(whole, "NAMESPACE\tNAME\tLABELS\nn\tpod/a\tk=v\n\tpod/b\t<none>\n");
        let (mut slim, next) = Table::slim(answer.to_string().as_bytes(), now).expect("a table");
        assert_eq!(next, "more");
        assert_eq!(slim.lines(Some(&mapping), &options), whole);
        slim.shrink(&mapping, &options);
        assert!(slim.rows.is_empty());
        assert_eq!(slim.lines(Some(&mapping), &options), whole);
        // A later chunk need not say again what its columns are.
        let more = json!({"kind": "Table", "columnDefinitions": null, "rows": [{"cells": ["c"]}]});
        slim.extend(Table::slim(more.to_string().as_bytes(), now).expect("a table").0);
        slim.shrink(&mapping, &options);
        assert_eq!(slim.lines(Some(&mapping), &options), format!("{whole}\tpod/c\t<none>\n"));
        // A server that makes no tables answers with the objects.
        let list = json!({"kind": "PodList", "items": [{"metadata": {"name": "x"}}], "metadata": {"continue": "c"}});
        let (plain, next) = Table::slim(list.to_string().as_bytes(), now).expect("a table");
        assert_eq!((plain.rows.len(), next.as_str()), (1, "c"));
    }
}
