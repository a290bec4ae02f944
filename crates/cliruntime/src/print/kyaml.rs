//! KYAML: YAML in braces, with every text quoted, that no reader mistakes.

use serde_json::Value;

use super::json;

/// One document, with its separator; keys are in the order of the alphabet, as what came from a server is printed.
pub fn document(value: &Value) -> String {
    whole(value, None)
}

/// The same with keys as Go's struct of the kind has them, as what kubectl made itself is printed.
pub fn of_kind(value: &Value) -> String {
    whole(value, json::type_of(value))
}

fn whole(value: &Value, of: Option<&facts::Type>) -> String {
    let mut out = "---\n".to_owned();
    put(&mut out, value, 0, of);
    out.push('\n');
    out
}

fn put(out: &mut String, value: &Value, level: usize, of: Option<&facts::Type>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let mut keys: Vec<&String> = fields.keys().collect();
            json::in_go_order(&mut keys, of, level);
            out.push_str("{\n");
            for key in keys {
                indent(out, level + 1);
                out.push_str(&key_text(key));
                out.push_str(": ");
                put(out, &fields[key], level + 1, json::inner(of, key));
                out.push_str(",\n");
            }
            indent(out, level);
            out.push('}');
        }
        Value::Array(items) if !items.is_empty() => put_items(out, items, level, of),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        Value::String(text) => put_text(out, text, level),
        scalar => out.push_str(&scalar.to_string()),
    }
}

/// Objects in a list share their brackets' lines; other items stand on lines of their own.
fn put_items(out: &mut String, items: &[Value], level: usize, of: Option<&facts::Type>) {
    let cuddle = items.iter().all(|item| item.is_object());
    out.push('[');
    if cuddle {
        for (at, item) in items.iter().enumerate() {
            out.push_str(if at > 0 { ", " } else { "" });
            put(out, item, level, of);
        }
    } else {
        out.push('\n');
        for item in items {
            indent(out, level + 1);
            put(out, item, level + 1, of);
            out.push_str(",\n");
        }
        indent(out, level);
    }
    out.push(']');
}

/// Every text is quoted. One with several lines is folded at their ends, so that it stays readable; what a line begins with stands
/// one further in, because a blank at its beginning has to be marked.
fn put_text(out: &mut String, text: &str, level: usize) {
    let folded = text.contains('\n');
    let mut begins = folded;
    out.push_str(if folded { "\"\\\n" } else { "\"" });
    for letter in text.chars() {
        if begins {
            indent(out, level + 1);
            out.push(if letter.is_whitespace() && letter != '\n' { '\\' } else { ' ' });
        }
        begins = letter == '\n';
        put_letter(out, letter);
    }
    if folded {
        out.push_str(if begins { "" } else { "\\\n" });
        indent(out, level + 1);
    }
    out.push('"');
}

fn put_letter(out: &mut String, letter: char) {
    match letter {
        '\n' => out.push_str("\\n\\\n"),
        '"' | '\\' => out.extend(['\\', letter]),
        '\t' => out.push(letter),
        '\0' => out.push_str("\\0"),
        '\x07' => out.push_str("\\a"),
        '\x08' => out.push_str("\\b"),
        '\x0b' => out.push_str("\\v"),
        '\x0c' => out.push_str("\\f"),
        '\r' => out.push_str("\\r"),
        '\x1b' => out.push_str("\\e"),
        '\u{85}' => out.push_str("\\N"),
        '\u{a0}' => out.push_str("\\_"),
        '\u{2028}' => out.push_str("\\L"),
        '\u{2029}' => out.push_str("\\P"),
        other if other.is_ascii_control() => out.push_str(&format!("\\x{:02x}", u32::from(other))),
        other if other.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(other))),
        other => out.push(other),
    }
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
        let pod = json!({"kind": "Pod", "a": {"no": 1, "b.c/d": "x"}, "l": [{"m": "m"}, {"m": "o"}], "s": ["a"], "e": [], "o": [{}]});
        let expected = "---\n{\n  a: {\n    b.c/d: \"x\",\n    \"no\": 1,\n  },\n  e: [],\n  kind: \"Pod\",\n  l: [{\n    m: \"m\",\n  }, {\n    m: \"o\",\n  }],\n  o: [{}],\n  s: [\n    \"a\",\n  ],\n}\n";
        assert_eq!(document(&pod), expected);
    }

    #[test]
    fn what_kubectl_made_has_the_order_of_go() {
        let map = json!({"apiVersion": "v1", "data": {"b": "1", "a": "2"}, "kind": "ConfigMap", "metadata": {"name": "m", "labels": {}}});
        let expected = "---\n{\n  kind: \"ConfigMap\",\n  apiVersion: \"v1\",\n  metadata: {\n    name: \"m\",\n    labels: {},\n  },\n  data: {\n    a: \"2\",\n    b: \"1\",\n  },\n}\n";
        assert_eq!(of_kind(&map), expected);
    }

    #[test]
    fn lines_of_a_text_are_folded() {
        let check = |text: &str, expected: &str| {
            assert_eq!(document(&json!({"t": text})), format!("---\n{{\n  t: {expected},\n}}\n"), "{text:?}");
        };
        check("a\nb\n", "\"\\\n     a\\n\\\n     b\\n\\\n    \"");
        check("a\n  b", "\"\\\n     a\\n\\\n    \\  b\\\n    \"");
        // Only a real end of a line is one.
        check("{\"a\":\"b\\nc\"}", "\"{\\\"a\\\":\\\"b\\\\nc\\\"}\"");
    }
}
