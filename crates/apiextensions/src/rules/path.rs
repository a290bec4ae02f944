//! Paths into a schema: where a rule wants its error, and which fields selectors may name.

use crate::{Additional, Schema};

/// What a path leads to: the path as it is shown, and the schema there; nothing is known below `additionalProperties: true`.
pub fn field_path<'s>(text: &str, schema: &'s Schema, brackets: bool) -> Result<(String, Option<&'s Schema>), String> {
    const END: &str = "unexpected end of JSON path";
    let (mut schema, mut rest, mut path) = (Some(schema), text, String::new());
    while let Some(token) = next(&mut rest) {
        let name = match token {
            "." => next(&mut rest).ok_or(END)?.to_owned(),
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = next(&mut rest).ok_or(END)?;
                let inner = quoted.strip_prefix('\'').and_then(|quoted| quoted.strip_suffix('\''));
                unquote(inner.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?)?
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        };
        let here = schema.ok_or("does not refer to a valid field")?;
        let named = !here.properties.is_empty();
        schema = match (&here.additional, here.property(&name)) {
            (_, Some(property)) => Some(property),
            (Additional::Schema(values), None) if !named => Some(values),
            (Additional::Allowed(_), None) if !named => None,
            _ => return Err("does not refer to a valid field".to_owned()),
        };
        match (named, path.is_empty()) {
            (true, true) => path = name,
            (true, false) => path = format!("{path}.{name}"),
            (false, _) => path = format!("{path}[{name}]"),
        }
        if token == "[" {
            match next(&mut rest).ok_or(END)? {
                "]" => {}
                other => return Err(format!("expected ] but got {other}")),
            }
        }
    }
    Ok((path, schema))
}

/// The next of `.`, `[`, `]`, a text in quotes, and what stands between these.
fn next<'t>(rest: &mut &'t str) -> Option<&'t str> {
    let text = *rest;
    let first = text.chars().next()?;
    let end = match first {
        '.' | '[' | ']' => 1,
        '\'' => {
            let bytes = text.as_bytes();
            let close = (1..bytes.len()).find(|at| bytes[*at] == b'\'' && bytes[at - 1] != b'\\');
            close.map_or(text.len(), |at| at + 1)
        }
        _ => text.find(['.', '[', ']']).unwrap_or(text.len()),
    };
    let (token, after) = text.split_at(end);
    *rest = after;
    Some(token)
}

fn unquote(text: &str) -> Result<String, String> {
    let mut name = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        name.push(match c {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('t') => '\t',
                Some('r') => '\r',
                Some('\'') => '\'',
                Some('\\') => '\\',
                _ => return Err("invalid string literal: invalid syntax".to_owned()),
            },
            c => c,
        });
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_leads_to_a_field_or_says_why_not() {
        let schema = Schema::read(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"a.b": {"type": "string"}}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
        }}));
        let schema = schema.expect("a schema");
        let check = |path: &str, expect: Result<&str, &str>| {
            let found = field_path(path, &schema, true);
            assert_eq!(found.as_ref().map(|(path, _)| path.as_str()).map_err(String::as_str), expect, "{path}");
        };
        check(".spec", Ok("spec"));
        check(".spec['a.b']", Ok("spec.a.b"));
        check(".map['k']", Ok("map[k]"));
        check(".map.k", Ok("map[k]"));
        check("spec", Err("expected [ or . but got: spec"));
        check(".", Err("unexpected end of JSON path"));
        check(".spec[0]", Err("expected single quoted string but got 0"));
        check(".spec['a.b'", Err("unexpected end of JSON path"));
        check(".other", Err("does not refer to a valid field"));
        assert_eq!(field_path(".spec['a.b']", &schema, false).err().as_deref(), Some("array notation is not allowed"));
    }
}
