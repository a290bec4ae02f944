//! The text of an explanation. Pure.

use machinery::value::text;
use serde_json::Value;

use super::is_of;
use crate::discovery::Mapping;

/// What is known while a schema is walked.
struct Walk<'a> {
    document: &'a Value,
    recursive: bool,
    depth: usize,
}

/// The schemas that were entered on the way: a schema that holds itself is not entered again.
type History<'a> = Vec<&'a str>;

/// What is known of a field. A path that leads nowhere is told after the head of the text, as upstream tells it.
pub fn explain(
    document: &Value,
    mapping: &Mapping,
    fields: &[String],
    recursive: bool,
    depth: usize,
) -> Result<String, (String, String)> {
    let mut out = String::new();
    if !mapping.group.is_empty() {
        out += &format!("GROUP:      {}\n", mapping.group);
    }
    out += &format!("KIND:       {}\nVERSION:    {}\n\n", mapping.kind, mapping.version);
    let schemas = machinery::value::at(document, "components.schemas").and_then(Value::as_object);
    let Some(schema) = schemas.and_then(|schemas| schemas.values().find(|schema| is_of(schema, mapping))) else {
        let (group, kind, version) = (&mapping.group, &mapping.kind, &mapping.version);
        return Err((out, format!("GVK map[group:{group} kind:{kind} version:{version}] not found in OpenAPI schema")));
    };
    let walk = Walk { document, recursive, depth };
    let shown = walk.output(schema, fields, &Vec::new());
    if shown.is_empty() {
        return Err((out, format!("field \"{}\" does not exist", fields.last().map_or("", String::as_str))));
    }
    Ok(out + &shown + "\n")
}

impl<'a> Walk<'a> {
    fn resolve(&self, schema: &'a Value) -> (&'a str, &'a Value) {
        let reference = schema.get("$ref").and_then(Value::as_str).unwrap_or_default();
        let name = reference.rsplit('/').next().unwrap_or_default();
        let found =
            self.document.get("components").and_then(|parts| parts.get("schemas")).and_then(|all| all.get(name));
        (reference, found.filter(|_| !reference.is_empty()).unwrap_or(schema))
    }

    /// Follows the path, and shows what it leads to; nothing where it leads nowhere.
    fn output(&self, schema: &'a Value, path: &[String], history: &History<'a>) -> String {
        let (reference, resolved) = self.resolve(schema);
        let Some((first, rest)) = path.split_first() else { return self.whole(resolved) };
        if !reference.is_empty() && history.contains(&reference) {
            return String::new();
        }
        let mut deeper = history.clone();
        deeper.push(reference);
        if let Some(property) = resolved.get("properties").and_then(|properties| properties.get(first)) {
            let mut out = String::new();
            if rest.is_empty() {
                out += &format!("FIELD: {first} <{}>\n{}\n\n", self.type_of(property), choices(property, true, 0));
            }
            return out + &self.output(property, rest, &Vec::new());
        }
        if let Some(items) = resolved.get("items") {
            return self.output(items, path, &deeper);
        }
        if let Some(values) = resolved.get("additionalProperties").filter(|values| values.is_object()) {
            return self.output(values, path, &deeper);
        }
        let mut parts = machinery::value::list(resolved, "allOf").iter();
        parts.find_map(|part| Some(self.output(part, path, &deeper)).filter(|out| !out.is_empty())).unwrap_or_default()
    }

    fn whole(&self, schema: &'a Value) -> String {
        let mut description = String::new();
        self.description(schema, &mut description, 0);
        let description = if description.is_empty() { "<empty>" } else { &description };
        let mut out = format!("DESCRIPTION:\n{}\n", indent(&wrap(description, 76), 4));
        if let Some(docs) = schema.get("externalDocs") {
            out += &format!("\n{}", external(docs, 0));
        }
        let mut fields = String::new();
        self.fields(schema, 1, &Vec::new(), &mut fields);
        if !fields.is_empty() {
            out += &format!("FIELDS:\n{fields}");
        }
        out
    }

    /// The descriptions of a schema and of what it is made of.
    fn description(&self, schema: &'a Value, out: &mut String, level: usize) {
        let (_, schema) = self.resolve(schema);
        if level > 32 {
            return;
        }
        if !text(schema, "description").is_empty() {
            out.push_str(text(schema, "description"));
            out.push('\n');
        }
        for part in machinery::value::list(schema, "allOf") {
            self.description(part, out, level + 1);
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(inner) = schema.get(inner).filter(|inner| inner.is_object()) {
                self.description(inner, out, level + 1);
            }
        }
    }

    fn fields(&self, schema: &'a Value, level: usize, history: &History<'a>, out: &mut String) {
        let (reference, resolved) = self.resolve(schema);
        if !reference.is_empty() && history.contains(&reference) {
            return;
        }
        let mut deeper = history.clone();
        deeper.push(reference);
        for (name, field) in resolved.get("properties").and_then(Value::as_object).into_iter().flatten() {
            self.field(resolved, name, field, level, out);
            if self.recursive && (self.depth == 0 || level < self.depth) {
                self.fields(field, level + 1, &deeper, out);
            }
        }
        for part in machinery::value::list(resolved, "allOf") {
            self.fields(part, level, &deeper, out);
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(inner) = resolved.get(inner).filter(|inner| inner.is_object()) {
                self.fields(inner, level, &deeper, out);
            }
        }
    }

    fn field(&self, of: &Value, name: &str, field: &'a Value, level: usize, out: &mut String) {
        let amount = level * 2;
        let required = machinery::value::list(of, "required").iter().any(|known| known == name);
        *out += &format!("{}\t<{}>", indent(name, amount), self.type_of(field));
        *out += if required { " -required-" } else { "" };
        *out += &choices(field, false, amount);
        out.push('\n');
        if self.recursive {
            return;
        }
        let description =
            Some(text(field, "description")).filter(|text| !text.is_empty()).unwrap_or("<no description>");
        *out += &format!("{}\n", indent(&wrap(description, 78 - amount), amount + 2));
        if let Some(docs) = field.get("externalDocs") {
            *out += &format!("\n{}", external(docs, amount + 2));
        }
        out.push('\n');
    }

    /// A short word for what a value is: `string`, `[]Container`, `map[string]string`.
    fn type_of(&self, schema: &'a Value) -> String {
        if let Some(items) = schema.get("items") {
            return format!("[]{}", self.type_of(items));
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| values.is_object()) {
            return format!("map[string]{}", self.type_of(values));
        }
        if let (None, [one]) = (schema.get("properties"), machinery::value::list(schema, "allOf")) {
            return self.type_of(one);
        }
        let (reference, resolved) = self.resolve(schema);
        let kind = text(resolved, "type");
        if !reference.is_empty() && (std::ptr::eq(resolved, schema) || kind.is_empty() || kind == "object") {
            let name = reference.rsplit(['/', '.']).next().unwrap_or_default();
            return if name.is_empty() { "Object".to_owned() } else { name.to_owned() };
        }
        match kind {
            "" | "object" => "Object".to_owned(),
            kind => kind.to_owned(),
        }
    }
}

/// The values that a field may have.
fn choices(schema: &Value, long: bool, amount: usize) -> String {
    let values = machinery::value::list(schema, "enum");
    if values.is_empty() {
        return String::new();
    }
    let mut out = if long { "ENUM:".to_owned() } else { format!("\n{}enum: ", " ".repeat(amount)) };
    for (at, value) in values.iter().enumerate() {
        if !long && at >= 4 {
            out += ", ....";
            break;
        }
        if long {
            out += "\n    ";
        } else if at > 0 {
            out += ", ";
        }
        out += &match value.as_str() {
            Some("") => "\"\"".to_owned(),
            _ => crate::print::golang::print(value),
        };
    }
    out
}

fn external(docs: &Value, amount: usize) -> String {
    let mut out = format!("{}\n", indent("EXTERNAL DOCS:", amount));
    if !text(docs, "description").is_empty() {
        out += &format!("{}\n", indent(&wrap(text(docs, "description"), 76 - amount.min(70)), amount + 4));
    }
    if !text(docs, "url").is_empty() {
        out += &format!("{}\n", indent(&format!("URL: {}", text(docs, "url")), amount + 4));
    }
    out
}

fn indent(text: &str, amount: usize) -> String {
    let pad = " ".repeat(amount);
    format!("{pad}{}", text.replace('\n', &format!("\n{pad}")))
}

/// Text in lines of at most this many letters. Lines that are there stay, and so do blanks within them.
fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    for (at, line) in text.split('\n').enumerate() {
        if at > 0 {
            out.push('\n');
        }
        let (mut column, mut rest) = (0, line);
        while !rest.is_empty() {
            let blanks = rest.len() - rest.trim_start().len();
            let word = rest[blanks..].find(char::is_whitespace).map_or(rest.len(), |end| blanks + end);
            let length = rest[..word].chars().count();
            if word == blanks {
                // Blanks at the end stay where they fit.
                out.push_str(if column + length <= width { &rest[..word] } else { "" });
            } else if column + length > width && column + blanks > 0 {
                out.push('\n');
                out.push_str(&rest[blanks..word]);
                column = rest[blanks..word].chars().count();
            } else {
                out.push_str(&rest[..word]);
                column += length;
            }
            rest = &rest[word..];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_wrapped_at_blanks() {
        for (text, expected) in [
            (
                "one two three",
                "one two
three",
            ),
            (
                "a  b

- c",
                "a  b

- c",
            ),
            (
                " longer-than-seven x",
                "
longer-than-seven
x",
            ),
            (
                "end 
", "end 
",
            ),
        ] {
            assert_eq!(wrap(text, 7), expected);
        }
    }

    #[test]
    fn fields_are_found_and_cycles_end() {
        let document = json!({"components": {"schemas": {
            "x.Thing": {
                "description": "A thing.", "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Thing"}],
                "required": ["self"],
                "properties": {
                    "mode": {"type": "string", "enum": ["", "A"], "description": "The mode."},
                    "self": {"allOf": [{"$ref": "#/components/schemas/x.Thing"}]},
                },
            },
        }}});
        let mapping = Mapping { version: "v1".to_owned(), kind: "Thing".to_owned(), ..Mapping::default() };
        let all = explain(&document, &mapping, &[], true, 0).expect("text");
        assert_eq!(
            all,
            "KIND:       Thing\nVERSION:    v1\n\nDESCRIPTION:\n    A thing.\n    \nFIELDS:\n  mode\t<string>\n  enum: \"\", A\n  self\t<Thing> -required-\n    mode\t<string>\n    enum: \"\", A\n    self\t<Thing> -required-\n\n"
        );
        let one = explain(&document, &mapping, &["mode".to_owned()], false, 0).expect("text");
        assert!(
            one.ends_with("FIELD: mode <string>\nENUM:\n    \"\"\n    A\n\nDESCRIPTION:\n    The mode.\n    \n\n"),
            "{one}"
        );
        let (head, why) = explain(&document, &mapping, &["no".to_owned()], false, 0).expect_err("no such field");
        assert_eq!(
            (head.as_str(), why.as_str()),
            ("KIND:       Thing\nVERSION:    v1\n\n", "field \"no\" does not exist")
        );
    }
}
