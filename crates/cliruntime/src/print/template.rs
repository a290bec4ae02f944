//! Go templates, with the functions that kubectl adds.

use std::sync::Arc;

use base64::Engine as _;
use gotmpl::{MissingKey, TemplateError};
use serde_json::Value;

use super::{golang, json};
use crate::error::{Failure, Outcome};

/// How much of a template Go repeats in a message.
const MOST_SHOWN: usize = 20;

/// What comes before the name of the function that failed.
const CALLING: &str = "calling ";

pub struct Template {
    template: gotmpl::Template,
    raw: String,
    /// Whether the object was made here, and so has the order of Go's structs.
    typed: bool,
}

impl Template {
    pub fn new(text: &str, allow_missing: bool) -> Outcome<Self> {
        let missing = if allow_missing { MissingKey::Invalid } else { MissingKey::Error };
        let template = gotmpl::Template::new("output")
            .missing_key(missing)
            .func("index", index)
            .func("exists", |arguments| Ok(gotmpl::Value::Bool(exists(arguments))))
            .func("base64decode", |arguments| {
                let text = arguments.first().map(ToString::to_string).unwrap_or_default();
                let bytes = base64::engine::general_purpose::STANDARD.decode(text.trim());
                let bytes = bytes.map_err(|error| {
                    TemplateError::Exec(format!("{CALLING}base64decode: base64 decode failed: {error}"))
                })?;
                Ok(gotmpl::Value::String(String::from_utf8_lossy(&bytes).into()))
            })
            .parse(text)
            .map_err(|error| {
                Failure::Message(format!("error parsing template {text}, {}\n", parse_words(&error.to_string())))
            })?;
        Ok(Self { template, raw: text.to_owned(), typed: false })
    }

    pub fn typed(mut self, typed: bool) -> Self {
        self.typed = typed;
        self
    }

    /// The text of an object, or what is told besides the failure, to find out what is wrong with the template.
    pub fn print(&self, object: &Value) -> Result<String, (String, Failure)> {
        self.template.execute_to_string(&convert(object)).map_err(|error| {
            let why = error.to_string();
            if let Some(function) = why.split("undefined function: ").nth(1) {
                let line = self.line_of(function);
                let words = format!("template: output:{line}: function {function:?} not defined");
                return (String::new(), Failure::Message(format!("error parsing template {}, {words}\n", self.raw)));
            }
            let why = self.located(&why).unwrap_or(why);
            let template = machinery::status::go_quote(&self.raw);
            (self.debugging(object, &why), Failure::Message(format!("error executing template {template}: {why}")))
        })
    }

    /// What went wrong with a field or a function, told with its place as Go tells it.
    fn located(&self, why: &str) -> Option<String> {
        if let Some(key) = why.split("map has no entry for key: ").nth(1) {
            let at = self.place_of_field(key)?;
            return Some(format!("{at}: map has no entry for key {key:?}"));
        }
        if let Some((field, _)) = why.split("can't evaluate field ").nth(1).and_then(|rest| rest.split_once(' ')) {
            // All that a template sees came out of a map, of whose values Go knows no more.
            return Some(format!(
                "{}: can't evaluate field {field} in type interface {{}}",
                self.place_of_field(field)?
            ));
        }
        let (function, why) = why.split(CALLING).nth(1)?.split_once(": ")?;
        Some(format!("{}: error calling {function}: {why}", self.place_of_call(function)?))
    }

    /// The first chain of fields with this one. Go says of several where the second is.
    fn place_of_field(&self, field: &str) -> Option<String> {
        let is_of_chain = |letter: char| letter.is_alphanumeric() || matches!(letter, '.' | '_' | '$');
        let mut from = 0;
        while let Some(begin) = self.raw[from..].find(is_of_chain).map(|found| from + found) {
            let end = self.raw[begin..].find(|letter| !is_of_chain(letter)).map_or(self.raw.len(), |end| begin + end);
            let chain = &self.raw[begin..end];
            if chain.split('.').skip(1).any(|one| one == field) {
                let second = chain[1..].find('.').map_or(begin, |second| begin + 1 + second);
                return Some(self.place(second, chain));
            }
            from = end;
        }
        None
    }

    /// The first call of a function, with its arguments.
    fn place_of_call(&self, function: &str) -> Option<String> {
        let ends = |rest: &str| rest.starts_with([' ', '}', '|', ')']);
        let (at, _) = self.raw.match_indices(function).find(|(at, _)| ends(&self.raw[at + function.len()..]))?;
        let call = self.raw[at..].split(['|', '}', ')']).next()?.trim_end();
        Some(self.place(at, call))
    }

    fn place(&self, at: usize, node: &str) -> String {
        let line = self.raw[..at].matches('\n').count() + 1;
        let column = at - self.raw[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let shown: String = node.chars().take(MOST_SHOWN).collect();
        let dots = if node.chars().count() > MOST_SHOWN { "..." } else { "" };
        format!("template: output:{line}:{column}: executing \"output\" at <{shown}{dots}>")
    }

    /// Where a function is called first.
    fn line_of(&self, function: &str) -> usize {
        let at = self.raw.find(function).unwrap_or_default();
        self.raw[..at].matches('\n').count() + 1
    }

    fn debugging(&self, object: &Value, why: &str) -> String {
        let raw = if self.typed { json::compact_of_kind(object) } else { object.to_string() };
        format!(
            "Error executing template: {why}. Printing more information for debugging the template:\n\ttemplate was:\n\t\t{}\n\traw data was:\n\t\t{raw}\n\tobject given to template engine was:\n\t\t{}\n\n",
            self.raw,
            golang::print(object)
        )
    }
}

/// Go names the line of a mistake, not its column.
fn parse_words(error: &str) -> String {
    let place = error.strip_prefix("template: output:").and_then(|rest| rest.split_once(':'));
    match place.and_then(|(line, rest)| Some((line, rest.split_once(": ")?))) {
        Some((line, (column, why))) if column.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("template: output:{line}: {why}")
        }
        _ => error.to_owned(),
    }
}

/// What keys and indexes lead to; without any it is the thing itself.
fn index(arguments: &[gotmpl::Value]) -> gotmpl::Result<gotmpl::Value> {
    use gotmpl::Value::{Int, List, Map, Nil, String};
    let wrong = |why: std::string::String| Err(TemplateError::Exec(format!("{CALLING}index: {why}")));
    let Some((first, steps)) = arguments.split_first() else {
        return wrong("wrong number of args for index: want at least 1 got 0".to_owned());
    };
    let mut at = first.clone();
    for step in steps {
        at = match (&at, step) {
            (Map(fields), String(key)) => fields.get(key).cloned().unwrap_or(Nil),
            (List(items), Int(number)) => match usize::try_from(*number).ok().and_then(|number| items.get(number)) {
                Some(item) => item.clone(),
                None => return wrong(format!("index out of range: {number}")),
            },
            (Nil, _) => return wrong("index of untyped nil".to_owned()),
            (Map(_) | List(_), step) => {
                return wrong(format!("cannot index slice/array with type {}", step.type_name()));
            }
            (other, _) => return wrong(format!("can't index item of type {}", other.type_name())),
        };
    }
    Ok(at)
}

/// Whether a path of keys and indexes leads to something.
fn exists(arguments: &[gotmpl::Value]) -> bool {
    let Some((first, steps)) = arguments.split_first() else { return false };
    let mut at = first.clone();
    for step in steps {
        let next = match (&at, step) {
            (gotmpl::Value::Map(fields), gotmpl::Value::String(key)) => fields.get(key).cloned(),
            (gotmpl::Value::List(items), gotmpl::Value::Int(index)) => {
                usize::try_from(*index).ok().and_then(|index| items.get(index)).cloned()
            }
            _ => None,
        };
        match next {
            Some(next) => at = next,
            None => return false,
        }
    }
    true
}

/// Whole numbers stay whole, as upstream's reader of JSON keeps them.
fn convert(value: &Value) -> gotmpl::Value {
    match value {
        Value::Null => gotmpl::Value::Nil,
        Value::Bool(flag) => gotmpl::Value::Bool(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => gotmpl::Value::Int(whole),
            None => gotmpl::Value::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => gotmpl::Value::String(text.as_str().into()),
        Value::Array(items) => gotmpl::Value::List(items.iter().map(convert).collect()),
        Value::Object(fields) => gotmpl::Value::Map(Arc::new(
            fields.iter().map(|(key, value)| (key.as_str().into(), convert(value))).collect(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_print_what_upstream_prints() {
        let object = json!({
            "items": [{"metadata": {"name": "a"}, "n": 3}, {"metadata": {"name": "b"}, "n": 12_345_678}],
            "data": {"k": "dmFsdWU="},
        });
        for (template, expected) in [
            ("{{range.items}}{{.metadata.name}}:{{end}}", "a:b:"),
            ("{{len .items}}", "2"),
            ("{{(index .items 0).n}}", "3"),
            ("{{(index .items 1).n}}", "12345678"),
            ("{{.missing}}", "<no value>"),
            ("{{index .data \"k\" | base64decode}}", "value"),
            ("{{if exists . \"data\" \"k\"}}yes{{end}}", "yes"),
            ("{{if exists . \"data\" \"x\"}}yes{{end}}", ""),
            ("{{range $k, $v := .data}}{{$k}}={{$v}}{{end}}", "k=dmFsdWU="),
        ] {
            let printed = Template::new(template, true).expect(template).print(&object).expect(template);
            assert_eq!(printed, expected, "{template}");
        }
        let refused = |text: &str| Template::new(text, true).err().expect(text).bare();
        assert_eq!(refused("{{.a"), "error parsing template {{.a, template: output:1: unclosed action\n");
        let (printed, failure) =
            Template::new("\n{{json .}}", true).expect("read").print(&object).expect_err("no json");
        assert_eq!(printed, "");
        assert_eq!(
            failure.bare(),
            "error parsing template \n{{json .}}, template: output:2: function \"json\" not defined\n"
        );
        let (_, failure) = Template::new("{{.missing}}", false).expect("read").print(&object).expect_err("missing");
        assert_eq!(
            failure.bare(),
            "error executing template \"{{.missing}}\": template: output:1:2: executing \"output\" at <.missing>: map has no entry for key \"missing\""
        );
        for (template, expected) in [
            (
                "{{.items.nope}}",
                "1:8: executing \"output\" at <.items.nope>: can't evaluate field nope in type interface {}",
            ),
            (
                "a\n{{range .items}}{{.metadata.name.first.second}}{{end}}",
                "2:27: executing \"output\" at <.metadata.name.first...>: can't evaluate field first in type interface {}",
            ),
            (
                "{{index .items 7}}",
                "1:2: executing \"output\" at <index .items 7>: error calling index: index out of range: 7",
            ),
        ] {
            let (_, failure) = Template::new(template, true).expect("read").print(&object).expect_err(template);
            let quoted = machinery::status::go_quote(template);
            assert_eq!(failure.bare(), format!("error executing template {quoted}: template: output:{expected}"));
        }
        let role = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}});
        let (told, _) =
            Template::new("{{.no}}", false).expect("read").typed(true).print(&role).expect_err("no such key");
        let raw = "{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"c\"},\"data\":{\"a\":\"b\"}}";
        assert!(told.contains(&format!("\traw data was:\n\t\t{raw}\n")), "{told}");
        let (printed, _) = Template::new("{{index .items 7}}", true).expect("read").print(&object).expect_err("no 7");
        assert!(
            printed.starts_with("Error executing template: ") && printed.contains("\ttemplate was:\n\t\t{{index"),
            "{printed}"
        );
    }
}
