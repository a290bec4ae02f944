//! kubectl's own dialect of JSONPath: text with actions in braces, ranges, filters, unions, and upstream's messages.

mod eval;
mod parse;

use serde_json::Value;

use super::golang;

/// A template that was read.
#[derive(Debug)]
pub struct JsonPath {
    nodes: Vec<Node>,
    /// A path that leads nowhere gives nothing, instead of an error.
    pub allow_missing: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    Text(String),
    Field(String),
    Index(Slice),
    Filter(Box<(Vec<Node>, Operator, Vec<Node>)>),
    Int(i64),
    Float(f64),
    Bool(bool),
    Wildcard,
    Recursive,
    Union(Vec<Vec<Node>>),
    List(Vec<Node>),
    /// A loop, with what it goes over and what it repeats.
    Range(Vec<Node>, Vec<Node>),
}

/// `[from:to:step]`; `[n]` is from n to n+1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    step: Option<i64>,
    /// Whether `to` follows from `from`.
    single: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operator {
    Exists,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A value that was found, or one that stands in the template.
#[derive(Debug, Clone)]
pub enum Found<'a> {
    Borrowed(&'a Value),
    Owned(Value),
}

impl std::ops::Deref for Found<'_> {
    type Target = Value;

    fn deref(&self) -> &Value {
        match self {
            Self::Borrowed(value) => value,
            Self::Owned(value) => value,
        }
    }
}

impl JsonPath {
    pub fn parse(template: &str) -> Result<Self, String> {
        Ok(Self { nodes: parse::parse(template)?, allow_missing: true })
    }

    /// What each action finds.
    pub fn find<'a>(&self, value: &'a Value) -> Result<Vec<Vec<Found<'a>>>, String> {
        eval::run(&self.nodes, Found::Borrowed(value), self.allow_missing)
    }

    /// What it prints of a value.
    pub fn print(&self, value: &Value) -> Result<String, String> {
        let mut text = String::new();
        for results in self.find(value)? {
            let shown: Vec<String> = results.iter().map(|found| show(found)).collect();
            text += &shown.join(" ");
        }
        Ok(text)
    }

    /// The same with every result as indented JSON (`-o jsonpath-as-json`).
    pub fn print_json(&self, value: &Value) -> Result<String, String> {
        let each = |found: Vec<Found<'_>>| {
            let list = found.iter().map(|found| Value::clone(found)).collect();
            super::json::indented(&Value::Array(list)) + "\n"
        };
        Ok(self.find(value)?.into_iter().map(each).collect())
    }
}

fn show(value: &Value) -> String {
    match value {
        Value::Object(_) | Value::Array(_) => machinery::codec::json::html_safe(&value.to_string()),
        Value::Null => "null".to_owned(),
        scalar => golang::print(scalar),
    }
}

/// A path as people write it for columns and sorting: `.a.b`, `a.b`, `{a.b}` or `{.a.b}`.
pub fn relaxed(path: &str) -> Result<String, String> {
    let odd = || {
        "unexpected path string, expected a 'name1.name2' or '.name1.name2' or '{name1.name2}' or '{.name1.name2}'"
            .to_owned()
    };
    if path.is_empty() {
        return Ok(String::new());
    }
    let inner = match path.strip_prefix('{') {
        Some(rest) => rest.strip_suffix('}').ok_or_else(odd)?,
        None => path,
    };
    if inner.contains(['{', '}']) {
        return Err(odd());
    }
    Ok(format!("{{.{}}}", inner.strip_prefix('.').unwrap_or(inner)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn data() -> Value {
        json!({
            "kind": "List",
            "items": [
                {"metadata": {"name": "a", "labels": {"x": "1", "k8s.io/y": "2"}}, "n": 3, "ok": true, "f": 1.5},
                {"metadata": {"name": "b"}, "n": 5, "ok": false, "list": [1, 2, 3]},
            ],
            "none": null,
        })
    }

    #[test]
    fn templates_print_what_upstream_prints() {
        for (template, expected) in [
            ("plain", "plain"),
            ("{.kind}", "List"),
            ("{$.kind}", "List"),
            ("{['kind']}", "List"),
            ("kind={.kind}!", "kind=List!"),
            ("{.items[*].metadata.name}", "a b"),
            ("{.items[0].metadata.name}", "a"),
            ("{.items[-1].metadata.name}", "b"),
            ("{.items[0:2].metadata.name}", "a b"),
            ("{.items[1:].metadata.name}", "b"),
            ("{.items[1].list[0:3:2]}", "1 3"),
            ("{.items[0,1].n}", "3 5"),
            ("{range .items[*]}{.metadata.name}={.n}{\"\\n\"}{end}", "a=3\nb=5\n"),
            ("{range .items[*]}{.metadata.name}{end}-{.kind}", "ab-List"),
            ("{.items[?(@.n>3)].metadata.name}", "b"),
            ("{.items[?(@.n==3)].metadata.name}", "a"),
            ("{.items[?(@.metadata.name=='b')].n}", "5"),
            ("{.items[?(@.metadata.name!=\"b\")].n}", "3"),
            ("{.items[?(@.list)].metadata.name}", "b"),
            ("{.items[?(@.ok==true)].metadata.name}", "a"),
            ("{..name}", "a b"),
            ("{.items[0].metadata.labels.k8s\\.io/y}", "2"),
            ("{.items[0].metadata.labels['k8s\\.io/y']}", "2"),
            ("{.items[0].metadata['name','labels']}", "a {\"k8s.io/y\":\"2\",\"x\":\"1\"}"),
            ("{.items[0].f}", "1.5"),
            ("{.missing}", ""),
            ("{.none}", "null"),
            ("{.items[1].list}", "[1,2,3]"),
            ("{\"text\"}", "text"),
            ("{.items[*]['metadata.name','n']}", "a b 3 5"),
            ("{range .missing[*]}{.a}{end}x", "x"),
        ] {
            let printed = JsonPath::parse(template).and_then(|path| path.print(&data()));
            assert_eq!(printed.as_deref(), Ok(expected), "{template}");
        }
    }

    #[test]
    fn mistakes_are_named_as_upstream_names_them() {
        for (template, expected) in [
            ("{.a", "unclosed action"),
            ("{.a[0}", "unterminated array"),
            ("{foo}", "unrecognized identifier foo"),
            ("{.items[5].n}", "array index out of bounds: index 5, length 2"),
            ("{end}", "not in range, nothing to end"),
        ] {
            let printed = JsonPath::parse(template).and_then(|path| path.print(&data()));
            assert_eq!(printed, Err(expected.to_owned()), "{template}");
        }
        let mut strict = JsonPath::parse("{.missing}").expect("a template");
        strict.allow_missing = false;
        assert_eq!(strict.print(&data()), Err("missing is not found".to_owned()));
    }

    #[test]
    fn relaxed_paths_become_templates() {
        for path in ["a.b", ".a.b", "{a.b}", "{.a.b}"] {
            assert_eq!(relaxed(path).as_deref(), Ok("{.a.b}"), "{path}");
        }
        assert!(relaxed("{a}{b}").is_err());
    }
}
