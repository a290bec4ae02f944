//! The text of an explanation by the server's OpenAPI v2 document, as `-o plaintext-openapiv2` shows it. Pure.

use machinery::status::go_quote;
use machinery::value::text;
use serde_json::Value;

use super::is_of;
use crate::discovery::Mapping;

/// How many letters a line has.
const WIDTH: usize = 80;
const DESCRIPTION_INDENT: usize = 5;
const FIELD_INDENT: usize = 3;

/// What a schema is, as far as an explanation tells it.
enum Shape<'a> {
    Reference(&'a str),
    Kind(&'a serde_json::Map<String, Value>),
    Map(&'a Value),
    Array(&'a Value),
    Primitive(&'a str),
    Arbitrary,
}

fn shape(schema: &Value) -> Shape<'_> {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        return Shape::Reference(reference.rsplit('/').next().unwrap_or_default());
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    match (text(schema, "type"), properties) {
        ("" | "object", Some(properties)) => Shape::Kind(properties),
        ("", None) => Shape::Arbitrary,
        ("object", None) => Shape::Map(schema.get("additionalProperties").unwrap_or(&Value::Null)),
        ("array", _) => Shape::Array(schema.get("items").unwrap_or(&Value::Null)),
        (kind, _) => Shape::Primitive(kind),
    }
}

/// What is known of a field of a kind.
pub fn explain(
    document: &Value,
    mapping: &Mapping,
    fields: &[String],
    recursive: bool,
    depth: usize,
) -> Result<String, String> {
    let definitions = document.get("definitions").and_then(Value::as_object);
    let Some(schema) = definitions.and_then(|all| all.values().find(|schema| is_of(schema, mapping))) else {
        let named = format!("{}/{}, Kind={}", mapping.group, mapping.version, mapping.kind);
        return Err(format!("couldn't find resource for {}", go_quote(&named)));
    };
    let walk = Walk { document, recursive, depth };
    let found = walk.find(schema, fields)?;
    let head = format!("KIND:     {}\nVERSION:  {}\n\n", mapping.kind, mapping.api_version());
    Ok(head + &walk.model(fields.last().map_or("", String::as_str), found))
}

struct Walk<'a> {
    document: &'a Value,
    recursive: bool,
    depth: usize,
}

impl<'a> Walk<'a> {
    fn definition(&self, name: &str) -> &'a Value {
        self.document.get("definitions").and_then(|all| all.get(name)).unwrap_or(&Value::Null)
    }

    /// Follows the path of fields. One that goes on behind a plain value ends there.
    fn find(&self, schema: &'a Value, path: &[String]) -> Result<&'a Value, String> {
        match (shape(schema), path) {
            (Shape::Primitive(_) | Shape::Arbitrary, _) | (_, []) => Ok(schema),
            (Shape::Reference(name), path) => self.find(self.definition(name), path),
            (Shape::Map(inner) | Shape::Array(inner), path) => self.find(inner, path),
            (Shape::Kind(properties), [first, rest @ ..]) => match properties.get(first) {
                Some(property) => self.find(property, rest),
                None => Err(format!("field {} does not exist", go_quote(first))),
            },
        }
    }

    /// What the last field of the path is, with the descriptions of all that it is made of.
    fn model(&self, name: &str, schema: &'a Value) -> String {
        let (mut schema, mut descriptions, mut kind) = (schema, Vec::new(), String::new());
        loop {
            descriptions.push(text(schema, "description"));
            let is = shape(schema);
            // A reference has the type of what it refers to.
            if kind.is_empty() && !matches!(is, Shape::Reference(_)) {
                kind = self.type_of(schema);
            }
            schema = match is {
                Shape::Reference(name) => self.definition(name),
                Shape::Map(inner) | Shape::Array(inner) => inner,
                Shape::Kind(properties) => {
                    let resource =
                        if name.is_empty() { String::new() } else { format!("RESOURCE: {name} <{kind}>\n\n") };
                    let mut fields = String::new();
                    if self.recursive {
                        self.below(schema, 1, FIELD_INDENT, &mut Vec::new(), &mut fields);
                    } else {
                        self.fields(schema, properties, &mut fields);
                    }
                    return format!("{resource}{}\nFIELDS:\n{fields}", described(&descriptions));
                }
                Shape::Primitive(_) => {
                    return format!("FIELD:    {name} <{kind}>\n\n{}", described(&descriptions));
                }
                Shape::Arbitrary => return described(&descriptions),
            };
        }
    }

    fn fields(&self, of: &Value, properties: &'a serde_json::Map<String, Value>, out: &mut String) {
        for (name, field) in properties {
            let required = machinery::value::list(of, "required").iter().any(|known| known == name);
            let required = if required { " -required-" } else { "" };
            *out += &format!("{}{name}\t<{}>{required}\n", " ".repeat(FIELD_INDENT), self.type_of(field));
            lines(text(field, "description"), FIELD_INDENT + 2, out);
            out.push('\n');
        }
    }

    /// The fields of fields. What holds itself is not entered again.
    fn below(&self, schema: &'a Value, level: usize, indent: usize, entered: &mut Vec<&'a str>, out: &mut String) {
        match shape(schema) {
            Shape::Kind(properties) => {
                for (name, field) in properties {
                    *out += &format!("{}{name}\t<{}>\n", " ".repeat(indent), self.type_of(field));
                    if self.depth == 0 || level < self.depth {
                        self.below(field, level + 1, indent + FIELD_INDENT, entered, out);
                    }
                }
            }
            Shape::Map(inner) | Shape::Array(inner) => self.below(inner, level, indent, entered, out),
            Shape::Reference(name) if !entered.contains(&name) => {
                entered.push(name);
                self.below(self.definition(name), level, indent, entered, out);
                entered.pop();
            }
            Shape::Reference(_) | Shape::Primitive(_) | Shape::Arbitrary => {}
        }
    }

    /// A short word for what a value is: `string`, `[]Object`, `map[string]string`.
    fn type_of(&self, schema: &'a Value) -> String {
        match shape(schema) {
            Shape::Reference(name) => self.type_of(self.definition(name)),
            Shape::Kind(_) => "Object".to_owned(),
            Shape::Map(inner) => format!("map[string]{}", self.type_of(inner)),
            Shape::Array(inner) => format!("[]{}", self.type_of(inner)),
            Shape::Primitive(kind) => kind.to_owned(),
            Shape::Arbitrary => String::new(),
        }
    }
}

fn described(descriptions: &[&str]) -> String {
    let mut out = "DESCRIPTION:\n".to_owned();
    if descriptions.iter().all(|text| text.is_empty()) {
        lines("<empty>", DESCRIPTION_INDENT, &mut out);
    }
    for (at, text) in descriptions.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
        out += if at > 0 { "\n" } else { "" };
        lines(text, DESCRIPTION_INDENT, &mut out);
    }
    out
}

fn lines(text: &str, indent: usize, out: &mut String) {
    for line in wrapped(text, WIDTH - indent) {
        if !line.is_empty() {
            *out += &format!("{}{line}", " ".repeat(indent));
        }
        out.push('\n');
    }
}

/// Whether a line begins a list.
fn is_item(line: &str) -> bool {
    let rest = line.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let rest = match line.strip_prefix(['-', '*']) {
        Some(rest) => rest,
        None if rest.len() < line.len() => rest.strip_prefix('.').unwrap_or(rest),
        None => return false,
    };
    rest.starts_with(|letter: char| letter.is_ascii_whitespace())
}

/// Text in lines of at most so many bytes. Lines are joined, but code, lists, empty lines and what ends in a colon stay.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut done, mut line): (Vec<String>, String) = (Vec::new(), String::new());
    let flush = |line: &mut String, done: &mut Vec<String>| {
        if !line.is_empty() {
            done.push(std::mem::take(line));
        }
    };
    // Only a word that did not begin its line ends it by a colon: so upstream has it.
    let mut ends_in_colon = false;
    for source in text.split('\n') {
        let is_empty = source.trim().is_empty();
        if source.starts_with("    ") || (is_empty && !done.is_empty()) {
            flush(&mut line, &mut done);
            ends_in_colon = false;
            done.push(if is_empty && !source.starts_with("    ") { String::new() } else { source.to_owned() });
            continue;
        }
        if ends_in_colon || is_empty || is_item(source.trim()) {
            flush(&mut line, &mut done);
            ends_in_colon = false;
        }
        for word in source.split_whitespace() {
            let is_full = !line.is_empty() && line.len() + 1 + word.len() > width;
            if is_full {
                flush(&mut line, &mut done);
            } else if !line.is_empty() {
                line.push(' ');
            }
            line += word;
            ends_in_colon = !is_full && word.ends_with(':');
        }
    }
    flush(&mut line, &mut done);
    done
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        json!({"definitions": {
            "x.Thing": {
                "description": "A thing.", "type": "object", "required": ["mode"],
                "x-kubernetes-group-version-kind": [{"group": "g", "version": "v1", "kind": "Thing"}],
                "properties": {
                    "mode": {"type": "string", "description": "The mode."},
                    "parts": {"type": "array", "description": "Its parts.", "items": {"$ref": "#/definitions/x.Part"}},
                    "any": {"description": "Anything."},
                    "words": {"type": "object", "additionalProperties": {"type": "string"}},
                },
            },
            "x.Part": {"description": "A part.", "type": "object", "properties": {"part": {"$ref": "#/definitions/x.Part"}}},
        }})
    }

    fn said(path: &[&str], recursive: bool, depth: usize) -> Result<String, String> {
        let mapping =
            Mapping { group: "g".to_owned(), version: "v1".to_owned(), kind: "Thing".to_owned(), ..Mapping::default() };
        let fields: Vec<String> = path.iter().map(|field| (*field).to_owned()).collect();
        explain(&document(), &mapping, &fields, recursive, depth)
    }

    #[test]
    fn a_kind_is_told_with_its_fields() {
        assert_eq!(
            said(&[], false, 0).expect("text"),
            "KIND:     Thing\nVERSION:  g/v1\n\nDESCRIPTION:\n     A thing.\n\nFIELDS:\n   any\t<>\n     Anything.\n\n   mode\t<string> -required-\n     The mode.\n\n   parts\t<[]Object>\n     Its parts.\n\n   words\t<map[string]string>\n\n"
        );
        assert!(
            said(&[], true, 0).expect("text").ends_with(
                "FIELDS:\n   any\t<>\n   mode\t<string>\n   parts\t<[]Object>\n      part\t<Object>\n   words\t<map[string]string>\n"
            )
        );
        assert!(said(&[], true, 1).expect("text").contains("   parts\t<[]Object>\n   words"));
    }

    #[test]
    fn a_field_is_told_with_what_it_is_made_of() {
        for (path, expected) in [
            (&["mode"][..], "FIELD:    mode <string>\n\nDESCRIPTION:\n     The mode.\n"),
            (
                &["parts"],
                "RESOURCE: parts <[]Object>\n\nDESCRIPTION:\n     Its parts.\n\n     A part.\n\nFIELDS:\n   part\t<Object>\n\n",
            ),
            (&["words"], "FIELD:    words <map[string]string>\n\nDESCRIPTION:\n     <empty>\n"),
            (&["any"], "DESCRIPTION:\n     Anything.\n"),
            (&["mode", "deeper"], "FIELD:    deeper <string>\n\nDESCRIPTION:\n     The mode.\n"),
        ] {
            let text = said(path, false, 0).expect("text");
            assert_eq!(text.split_once("\n\n").expect("a head").1, expected, "{path:?}");
        }
        assert_eq!(said(&["parts", "no"], false, 0), Err("field \"no\" does not exist".to_owned()));
    }

    #[test]
    fn lines_are_joined_and_broken() {
        for (text, expected) in [
            ("one\ntwo three", &["one two", "three"][..]),
            ("a:\nb", &["a:", "b"]),
            ("a\n- b\nc", &["a", "- b c"]),
            ("a\n\nb", &["a", "b"]),
            ("aaaa bbbb:\nc", &["aaaa", "bbbb: c"]),
            ("aaaaaaaa\nb\n\nc\n    code x", &["aaaaaaaa", "b", "", "c", "    code x"]),
        ] {
            assert_eq!(wrapped(text, 8), expected, "{text}");
        }
    }
}
