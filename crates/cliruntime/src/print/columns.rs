//! `-o custom-columns`: a header and a path for each column.

use serde_json::Value;

use super::jsonpath::{JsonPath, relaxed};
use super::tabs::Tabs;
use super::{golang, items};
use crate::error::{Failure, Outcome};

pub struct Columns {
    columns: Vec<(String, JsonPath)>,
    headers: bool,
    tabs: Tabs,
}

impl Columns {
    /// From `NAME:.metadata.name,…`.
    pub fn parse(spec: &str, no_headers: bool) -> Outcome<Self> {
        if spec.is_empty() {
            return Err(Failure::message("custom-columns format specified but no custom columns given"));
        }
        let mut columns = Vec::new();
        for part in spec.split(',') {
            let Some((header, path)) = part.split_once(':') else {
                return Err(Failure::Message(format!(
                    "unexpected custom-columns spec: {part}, expected <header>:<json-path-expr>"
                )));
            };
            columns.push((header.to_owned(), column(path)?));
        }
        Ok(Self { columns, headers: !no_headers, tabs: Tabs::remembering() })
    }

    /// From a file with a line of headers and one of paths.
    pub fn from_file(text: &str, no_headers: bool) -> Outcome<Self> {
        let words = |line: Option<&str>| -> Vec<String> {
            line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
        };
        let missing = |line: &str| {
            Failure::Message(format!(
                "invalid template, missing {line} line. Expected format is one line of space separated headers, one line of space separated column specs."
            ))
        };
        let mut lines = text.lines();
        let headers = words(Some(lines.next().ok_or_else(|| missing("header"))?));
        let paths = words(Some(lines.next().ok_or_else(|| missing("spec"))?));
        if headers.len() != paths.len() {
            return Err(Failure::Message(format!(
                "number of headers ({}) and field specifications ({}) don't match",
                headers.len(),
                paths.len()
            )));
        }
        let columns: Outcome<Vec<_>> =
            headers.into_iter().zip(&paths).map(|(header, path)| Ok((header, column(path)?))).collect();
        Ok(Self { columns: columns?, headers: !no_headers, tabs: Tabs::remembering() })
    }

    pub fn print(&mut self, object: &Value) -> Outcome<String> {
        let mut text = String::new();
        if std::mem::take(&mut self.headers) {
            text += &self.columns.iter().map(|(header, _)| header.as_str()).collect::<Vec<_>>().join("\t");
            text.push('\n');
        }
        let one = std::slice::from_ref(object);
        for item in items(object).map_or(one, Vec::as_slice) {
            let cells: Outcome<Vec<String>> = self.columns.iter().map(|(_, path)| cell(path, item)).collect();
            text += &cells?.join("\t");
            text.push('\n');
        }
        Ok(self.tabs.align(&text))
    }
}

fn column(path: &str) -> Outcome<JsonPath> {
    relaxed(path).and_then(|path| JsonPath::parse(&path)).map_err(Failure::Message)
}

fn cell(path: &JsonPath, item: &Value) -> Outcome<String> {
    let found: Vec<String> = match path.find(item) {
        Ok(found) => found.iter().flatten().map(|value| golang::print(value)).collect(),
        Err(why) => return Err(Failure::Message(why)),
    };
    let text = if found.is_empty() { "<none>".to_owned() } else { found.join(",") };
    Ok(text.replace('\x1b', "^[").replace('\r', "\\r"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_headed_once_and_say_what_is_missing() {
        let mut columns = Columns::parse("NAME:.metadata.name,N:.n,L:l[*]", false).expect("columns");
        let list = json!({"kind": "List", "items": [{"metadata": {"name": "a"}, "l": [1, 2]}, {"metadata": {"name": "b"}, "n": 1}]});
        assert_eq!(
            columns.print(&list).expect("text"),
            "NAME   N        L\na      <none>   1,2\nb      1        <none>\n"
        );
        assert_eq!(columns.print(&json!({"n": null})).expect("text"), "<none>   <nil>    <none>\n");
    }

    #[test]
    fn mistakes_are_refused() {
        assert!(Columns::parse("", false).is_err());
        assert!(Columns::parse("NAME", false).is_err());
        assert!(Columns::from_file("A B\n.a\n", false).is_err());
        assert!(Columns::from_file("A  B\n.a .b\n", true).is_ok());
        for (text, missing) in [("", "header"), ("A\n", "spec")] {
            let said = Columns::from_file(text, false).err().expect("refused").bare();
            assert!(said.starts_with(&format!("invalid template, missing {missing} line.")), "{said}");
        }
    }
}
