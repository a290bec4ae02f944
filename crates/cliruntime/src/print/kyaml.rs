//! KYAML: YAML in braces, with every text quoted, that no reader mistakes.

use serde_json::Value;

/// One document, with its separator.
pub fn document(value: &Value) -> String {
    let mut out = "---\n".to_owned();
    put(&mut out, value, 0);
    out.push('\n');
    out
}

fn put(out: &mut String, value: &Value, level: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push_str("{\n");
            for (key, value) in fields {
                indent(out, level + 1);
                out.push_str(&key_text(key));
                out.push_str(": ");
                put(out, value, level + 1);
                out.push_str(",\n");
            }
            indent(out, level);
            out.push('}');
        }
        Value::Array(items) if !items.is_empty() => put_items(out, items, level),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        Value::String(text) => put_text(out, text, level),
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Objects in a list share their brackets' lines; other items stand on lines of their own.
fn put_items(out: &mut String, items: &[Value], level: usize) {
    let cuddle = items.iter().all(|item| matches!(item, Value::Object(fields) if !fields.is_empty()));
    out.push('[');
    if cuddle {
        for (at, item) in items.iter().enumerate() {
            out.push_str(if at > 0 { ", " } else { "" });
            put(out, item, level);
        }
    } else {
        out.push('\n');
        for item in items {
            indent(out, level + 1);
            put(out, item, level + 1);
            out.push_str(",\n");
        }
        indent(out, level);
    }
    out.push(']');
}

fn put_text(out: &mut String, text: &str, level: usize) {
    let quoted = Value::from(text).to_string();
    let lines: Vec<&str> = quoted.split_inclusive("\\n").collect();
    if lines.len() < 2 {
        return out.push_str(&quoted);
    }
    // Lines are folded with a backslash, so that they stay readable.
    let inner = quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default();
    out.push_str("\"\\\n");
    for line in inner.split_inclusive("\\n") {
        indent(out, level + 1);
        // A blank at the beginning would be taken for indentation.
        if line.starts_with([' ', '\t']) {
            out.push('\\');
        }
        out.push_str(line);
        out.push_str("\\\n");
    }
    indent(out, level + 1);
    out.push('"');
}

/// Keys are quoted only where they have to be.
fn key_text(key: &str) -> String {
    let plain = key.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.' | '/'));
    let first = key.chars().next().is_some_and(|letter| letter.is_ascii_alphabetic() || letter == '_');
    let odd = matches!(
        key.to_ascii_lowercase().as_str(),
        "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null" | "nan" | "inf"
    );
    if plain && first && !odd { key.to_owned() } else { Value::from(key).to_string() }
}

fn indent(out: &mut String, level: usize) {
    out.extend(std::iter::repeat_n("  ", level));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_in_braces() {
        let pod =
            json!({"kind": "Pod", "a": {"no": 1, "b.c/d": "x"}, "l": [{"m": "m"}, {"m": "o"}], "s": ["a"], "e": []});
        let expected = "---\n{\n  a: {\n    b.c/d: \"x\",\n    \"no\": 1,\n  },\n  e: [],\n  kind: \"Pod\",\n  l: [{\n    m: \"m\",\n  }, {\n    m: \"o\",\n  }],\n  s: [\n    \"a\",\n  ],\n}\n";
        assert_eq!(document(&pod), expected);
    }
}
