//! Writes YAML that every reader of either version takes for the same tree: whatever YAML 1.1 would mistake for something
//! else is quoted.

use serde_json::Value;

use super::plain;
use crate::value::Object;

/// Writes one document, in blocks, indented by two, lists flush with their keys.
pub fn encode(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(fields) if !fields.is_empty() => put_fields(&mut out, fields, 0),
        Value::Array(items) if !items.is_empty() => put_items(&mut out, items, 0),
        scalar => {
            put_scalar(&mut out, scalar, 0);
            out.push('\n');
        }
    }
    out
}

fn indent(out: &mut String, level: usize) {
    out.extend(std::iter::repeat_n("  ", level));
}

/// The fields of an object, the first one where the pen is, the others on lines of their own.
fn put_fields(out: &mut String, fields: &Object, level: usize) {
    for (at, (key, value)) in fields.iter().enumerate() {
        if at > 0 {
            indent(out, level);
        }
        put_text(out, key, None);
        out.push(':');
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                out.push('\n');
                indent(out, level + 1);
                put_fields(out, fields, level + 1);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                indent(out, level);
                put_items(out, items, level);
            }
            scalar => {
                out.push(' ');
                put_scalar(out, scalar, level + 1);
                out.push('\n');
            }
        }
    }
}

fn put_items(out: &mut String, items: &[Value], level: usize) {
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            indent(out, level);
        }
        out.push_str("- ");
        match item {
            Value::Object(fields) if !fields.is_empty() => put_fields(out, fields, level + 1),
            Value::Array(items) if !items.is_empty() => put_items(out, items, level + 1),
            scalar => {
                put_scalar(out, scalar, level + 1);
                out.push('\n');
            }
        }
    }
}

fn put_scalar(out: &mut String, value: &Value, level: usize) {
    match value {
        Value::String(text) => put_text(out, text, Some(level)),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
        other => out.push_str(&other.to_string()),
    }
}

/// Text in the plainest style that keeps its meaning. Where a level is given, lines may be kept as a block.
fn put_text(out: &mut String, text: &str, level: Option<usize>) {
    if let Some(level) = level.filter(|_| is_block(text)) {
        let body = text.trim_end_matches('\n');
        out.push_str(match text.len() - body.len() {
            0 => "|-",
            1 => "|",
            _ => "|+",
        });
        for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
            out.push('\n');
            if !line.is_empty() {
                indent(out, level);
                out.push_str(line);
            }
        }
    } else if !is_text(text) || !text.chars().all(is_plain_letter) {
        put_quoted(out, text);
    } else if is_plain(text) {
        out.push_str(text);
    } else {
        out.push('\'');
        out.push_str(&text.replace('\'', "''"));
        out.push('\'');
    }
}

/// A string of JSON is a quoted scalar of YAML, once what is not printable is escaped too.
fn put_quoted(out: &mut String, text: &str) {
    for letter in Value::from(text).to_string().chars() {
        if is_plain_letter(letter) {
            out.push(letter);
        } else {
            out.push_str(&format!("\\U{:08x}", u32::from(letter)));
        }
    }
}

/// Whether an unquoted reader would take it for text.
fn is_text(text: &str) -> bool {
    !text.is_empty()
        && matches!(plain(text), Ok(Value::String(_)))
        && !matches!(text, "<<" | "=")
        && !looks_like_a_number(text)
}

/// Numbers to some reader: with a bare exponent (`1e3`), or to the base of 60 (`1:30`).
fn looks_like_a_number(text: &str) -> bool {
    text.parse::<f64>().is_ok()
        || (text.contains(':')
            && text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.' | b'-' | b'+' | b'_')))
}

fn is_plain_letter(letter: char) -> bool {
    letter == ' '
        || !(letter.is_control() || letter.is_whitespace() || matches!(letter, '\u{feff}' | '\u{fffe}' | '\u{ffff}'))
}

/// Whether text can stand without quotes.
fn is_plain(text: &str) -> bool {
    let mut letters = text.chars();
    let (first, second) = (letters.next().unwrap_or(' '), letters.next());
    let starts = match first {
        '-' | '?' | ':' => second.is_some_and(|letter| letter != ' '),
        ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' | ' ' => false,
        _ => true,
    };
    starts
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("---")
        && !text.starts_with("...")
}

/// Whether text has lines that a block can keep as they are.
fn is_block(text: &str) -> bool {
    let safe = |line: &str| !line.ends_with(' ') && line.chars().all(is_plain_letter);
    text.contains('\n') && !text.starts_with([' ', '\n']) && !text.ends_with("\n\n") && text.split('\n').all(safe)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::codec::{Limits, yaml};

    #[test]
    fn trees_are_written_in_blocks() {
        let tree = json!({
            "apiVersion": "v1",
            "data": {"a": "x\ny\n", "b": "x\ny", "c": " x\ny", "on": "yes", "s": "a: b", "t": "it's #1", "u": "#1"},
            "empty": {"l": [], "m": {}, "n": null, "s": ""},
            "list": [{"a": 1, "b": [true, "5", 1.5]}, [[1], []], "1e3", "12:30"],
        });
        assert_eq!(
            encode(&tree),
            "apiVersion: v1\ndata:\n  a: |\n    x\n    y\n  b: |-\n    x\n    y\n  c: \" x\\ny\"\n  \"on\": \"yes\"\n  s: 'a: b'\n  t: 'it''s #1'\n  u: '#1'\nempty:\n  l: []\n  m: {}\n  \"n\": null\n  s: \"\"\nlist:\n- a: 1\n  b:\n  - true\n  - \"5\"\n  - 1.5\n- - - 1\n  - []\n- \"1e3\"\n- \"12:30\"\n"
        );
        assert_eq!(encode(&json!("x")), "x\n");
        assert_eq!(encode(&json!({})), "{}\n");
    }

    fn tree() -> impl Strategy<Value = Value> {
        let text = prop_oneof![
            "[-a-c:#'\"|>&*!%@`{}\\[\\],?~<=.0-9 \n]{0,10}".boxed(),
            ".{0,8}".boxed(),
            prop::sample::select(vec![
                "yes", "null", "0777", "1e3", "~", "-", "---", "a\n\n", "\n", "x \ny", "\u{85}", "1_0"
            ])
            .prop_map(str::to_owned)
            .boxed(),
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            text.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(text.clone(), inner, 0..4).prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_written_reads_back(value in tree()) {
            let written = encode(&value);
            let read = yaml::decode(written.as_bytes(), Limits::default()).map(|decoded| decoded.value);
            prop_assert_eq!(read, Ok(value), "{}", written);
        }
    }
}
