//! JSON as kubectl prints it: indented by four, with what HTML would mistake escaped, keys in Go's order where a kind is known.

use machinery::codec::json::html_safe;
use serde_json::{Map, Value};

/// With keys in the order of the alphabet, as what came from a server is printed.
pub fn indented(value: &Value) -> String {
    let mut out = String::new();
    put(&mut out, value, 0, &|fields| fields.keys().collect(), None);
    out
}

/// With keys in the order of a list; what is not in it comes last.
pub fn ordered(value: &Value, order: &[&str]) -> String {
    let place = |key: &&String| order.iter().position(|known| known == key).unwrap_or(order.len());
    let mut out = String::new();
    let sorted: &Keys<'_> = &|fields| {
        let mut keys: Vec<&String> = fields.keys().collect();
        keys.sort_by_key(place);
        keys
    };
    put(&mut out, value, 0, sorted, None);
    out
}

/// With keys as Go's struct of the kind has them, as what kubectl made itself is printed.
pub fn of_kind(value: &Value) -> String {
    let mut out = String::new();
    put(&mut out, value, 0, &|fields| fields.keys().collect(), type_of(value));
    out
}

/// The same on one line.
pub fn compact_of_kind(value: &Value) -> String {
    // Newlines within texts are escaped: those that are left are between fields.
    let lines: Vec<String> = of_kind(value).lines().map(|line| field(line.trim_start())).collect();
    lines.concat()
}

/// A line of a field without the blank behind its colon.
fn field(line: &str) -> String {
    let mut escaped = false;
    let end = line.char_indices().skip(1).find(|(_, letter)| {
        let ends = *letter == '"' && !escaped;
        escaped = *letter == '\\' && !escaped;
        ends
    });
    match end {
        Some((at, _)) if line.starts_with('"') && line[at + 1..].starts_with(": ") => {
            format!("{}:{}", &line[..=at], &line[at + 3..])
        }
        _ => line.to_owned(),
    }
}

type Keys<'k> = dyn for<'a> Fn(&'a Map<String, Value>) -> Vec<&'a String> + 'k;

fn put(out: &mut String, value: &Value, level: usize, keys: &Keys<'_>, of: Option<&facts::Type>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            let mut sorted = keys(fields);
            in_go_order(&mut sorted, of, level);
            out.push_str("{\n");
            for (at, key) in sorted.iter().enumerate() {
                indent(out, level + 1);
                out.push_str(&html_safe(&Value::from(key.as_str()).to_string()));
                out.push_str(": ");
                put(out, &fields[*key], level + 1, keys, inner(of, key));
                out.push_str(if at + 1 < sorted.len() { ",\n" } else { "\n" });
            }
            indent(out, level);
            out.push('}');
        }
        Value::Array(items) if !items.is_empty() => {
            out.push_str("[\n");
            for (at, item) in items.iter().enumerate() {
                indent(out, level + 1);
                put(out, item, level + 1, keys, of);
                out.push_str(if at + 1 < items.len() { ",\n" } else { "\n" });
            }
            indent(out, level);
            out.push(']');
        }
        scalar => out.push_str(&html_safe(&scalar.to_string())),
    }
}

/// The type of an object, where its kind is known.
pub(super) fn type_of(value: &Value) -> Option<&'static facts::Type> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    facts::type_of(group, version, text("kind")).map(|of| of.def())
}

/// Sorts the fields of a type as Go's struct has them.
pub(super) fn in_go_order(keys: &mut [&String], of: Option<&facts::Type>, level: usize) {
    let Some(of) = of else { return };
    let order = facts::go_order(of);
    keys.sort_by_key(|key| match key.as_str() {
        // Go's structs begin with the inlined TypeMeta, whose kind comes first.
        "kind" if level == 0 => 0,
        "apiVersion" if level == 0 => 1,
        key => 2 + order.iter().position(|field| field.name == key).unwrap_or(order.len()),
    });
}

/// The type of what is in a field of a type.
pub(super) fn inner<'a>(of: Option<&'a facts::Type>, key: &str) -> Option<&'a facts::Type> {
    of.and_then(|of| of.field(key)).and_then(|field| shape(&field.schema))
}

/// The type of what is in a field, or of the elements of its list.
fn shape(schema: &facts::Schema) -> Option<&facts::Type> {
    schema.object().or_else(|| schema.list().and_then(|list| list.items.object()))
}

fn indent(out: &mut String, level: usize) {
    out.extend(std::iter::repeat_n("    ", level));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_kubectl_made_has_the_order_of_go() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"b": "<"}},
            "spec": {"containers": [{"image": "i", "name": "n"}]}, "status": {},
        });
        let text = of_kind(&pod);
        let place = |word: &str| text.find(word).unwrap_or_else(|| panic!("{word} in {text}"));
        assert!(
            place("\"kind\"") < place("\"apiVersion\"") && place("\"apiVersion\"") < place("\"metadata\""),
            "{text}"
        );
        assert!(place("\"name\": \"n\"") < place("\"image\""), "{text}");
        assert!(text.contains("\\u003c") && text.contains("\"status\": {}"), "{text}");
        assert!(
            compact_of_kind(&pod).starts_with("{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"a\"")
        );
        assert!(indented(&pod).starts_with("{\n    \"apiVersion\""));
    }
}
