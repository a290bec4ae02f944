//! The document that a JSON patch or a merge patch makes, as upstream's messages show it.
//!
//! Upstream patches text. What a patch did not have to look into stays as it was written: the fields of the object in the order of
//! Go's structs, values of the patch in the client's own. What it looked into is written anew, with sorted keys. So the text
//! says where the patch has been, and only a second walk over texts can tell it. It is taken for messages alone, after the
//! patch has been applied: whatever it asks for is known to be there.

use std::collections::BTreeMap;

use facts::{Opaque, Schema, Type};
use serde_json::Value;
use serde_json::value::RawValue;

use super::pieces::Pieces;
use crate::codec::json::html_safe;

/// The object with a JSON patch applied. `None` if the texts cannot be read, which only trees beyond every limit cannot.
pub fn json(object: &Value, of: Option<&Type>, patch: &str) -> Option<String> {
    let mut root = Node::of(in_order(object, of)).opened();
    let operations: Option<Vec<BTreeMap<String, Box<RawValue>>>> = serde_json::from_str(patch).ok()?;
    for operation in operations.unwrap_or_default() {
        root.step(&operation)?;
    }
    Some(html_safe(&root.text()))
}

/// The object with a merge patch applied, and nothing else to say about a patch that is no object.
pub fn merge(object: &Value, of: Option<&Type>, patch: &str) -> Option<String> {
    let mut root = Node::of(in_order(object, of)).opened();
    match Node::of(patch.to_owned()).opened() {
        Node::Object(changes) => merge_fields(root.fields()?, changes),
        mut other => {
            other.prune();
            root = other;
        }
    }
    Some(html_safe(&root.text()))
}

/// A part of a document: text for as long as nobody looks into it.
enum Node {
    Text(String),
    Object(BTreeMap<String, Node>),
    List(Pieces<Node>),
}

impl Node {
    fn of(text: String) -> Self {
        Self::Text(text)
    }

    fn is_null(&self) -> bool {
        matches!(self, Self::Text(text) if text.trim() == "null")
    }

    /// The same with its own keys or items apart; scalars stay what they are.
    fn opened(self) -> Self {
        let Self::Text(text) = self else { return self };
        let node = |raw: Box<RawValue>| Self::of(raw.get().to_owned());
        match text.trim_start().as_bytes().first() {
            Some(b'{') => match serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(&text) {
                Ok(fields) => Self::Object(fields.into_iter().map(|(key, raw)| (key, node(raw))).collect()),
                Err(_) => Self::Text(text),
            },
            Some(b'[') => match serde_json::from_str::<Vec<Box<RawValue>>>(&text) {
                Ok(items) => Self::List(items.into_iter().map(node).collect()),
                Err(_) => Self::Text(text),
            },
            _ => Self::Text(text),
        }
    }

    fn open(&mut self) -> &mut Self {
        let closed = std::mem::replace(self, Self::Text(String::new()));
        *self = closed.opened();
        self
    }

    fn fields(&mut self) -> Option<&mut BTreeMap<String, Node>> {
        match self.open() {
            Self::Object(fields) => Some(fields),
            _ => None,
        }
    }

    /// Takes out every null that is a field, which opens all of it.
    fn prune(&mut self) {
        match self.open() {
            Self::Object(fields) => {
                fields.retain(|_, field| !field.is_null());
                fields.values_mut().for_each(Self::prune);
            }
            Self::List(items) => items.iter_mut().filter(|item| !item.is_null()).for_each(Self::prune),
            Self::Text(_) => {}
        }
    }

    /// Opens all that a comparison with an equal value opens.
    fn open_all(&mut self) {
        match self.open() {
            Self::Object(fields) => fields.values_mut().for_each(Self::open_all),
            Self::List(items) => items.iter_mut().for_each(Self::open_all),
            Self::Text(_) => {}
        }
    }

    fn step(&mut self, operation: &BTreeMap<String, Box<RawValue>>) -> Option<()> {
        let text = |name: &str| serde_json::from_str::<String>(operation.get(name)?.get()).ok();
        let value = || Self::of(operation.get("value").map_or("null", |raw| raw.get()).to_owned());
        let path = text("path")?;
        match text("op")?.as_str() {
            "add" => self.find(&path)?.add(value()),
            "remove" => self.find(&path)?.remove().map(drop),
            "replace" if path.is_empty() => {
                *self = value().opened();
                Some(())
            }
            "replace" => self.find(&path)?.set(value()),
            "move" => {
                let moved = self.find(&text("from")?)?.remove()?;
                self.find(&path)?.add(moved)
            }
            "copy" => {
                // The way to the copy is opened before the copy is made.
                self.find(&path)?;
                let copied = self.find(&text("from")?)?.get().map_or_else(|| "null".to_owned(), |found| found.text());
                self.find(&path)?.add(Self::of(copied))
            }
            "test" => {
                if path.is_empty() {
                    self.open_all();
                } else if let Some(found) = self.find(&path)?.get() {
                    found.open_all();
                }
                Some(())
            }
            _ => None,
        }
    }

    /// The place that a pointer leads to, with everything on the way there opened.
    fn find(&mut self, path: &str) -> Option<Place<'_>> {
        let (parents, key) = path.split_once('/')?.1.rsplit_once('/').map_or_else(
            || (None, path.split_once('/').map_or("", |(_, key)| key)),
            |(parents, key)| (Some(parents), key),
        );
        let mut at = self.open();
        for part in parents.into_iter().flat_map(|parents| parents.split('/')) {
            at = Place { parent: at, key: super::json::unescape(part).into_owned() }.get()?.open();
        }
        Some(Place { parent: at, key: super::json::unescape(key).into_owned() })
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Text(text) => compact(text, out),
            Self::Object(fields) => {
                out.push('{');
                for (at, (key, value)) in fields.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    compact(&Value::from(key.as_str()).to_string(), out);
                    out.push(':');
                    value.write(out);
                }
                out.push('}');
            }
            Self::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
        }
    }
}

/// A key of an open object, or a position in an open list.
struct Place<'a> {
    parent: &'a mut Node,
    key: String,
}

impl<'a> Place<'a> {
    /// A position below `end`; negative ones count from there.
    fn position(&self, end: usize) -> Option<usize> {
        let at: i64 = self.key.parse().ok()?;
        usize::try_from(if at < 0 { at + end as i64 } else { at }).ok()
    }

    fn get(self) -> Option<&'a mut Node> {
        let at = match &*self.parent {
            Node::List(items) => self.position(items.len())?,
            _ => 0,
        };
        match self.parent {
            Node::Object(fields) => fields.get_mut(&self.key),
            Node::List(items) => items.get_mut(at),
            Node::Text(_) => None,
        }
    }

    /// Puts a value in the place of another; in an object there need not be one.
    fn set(self, value: Node) -> Option<()> {
        if let Node::Object(fields) = self.parent {
            fields.insert(self.key, value);
        } else {
            *self.get()? = value;
        }
        Some(())
    }

    fn add(self, value: Node) -> Option<()> {
        let at = match &*self.parent {
            Node::List(items) if self.key == "-" => items.len(),
            Node::List(items) => self.position(items.len() + 1)?,
            _ => 0,
        };
        match self.parent {
            Node::Object(fields) => drop(fields.insert(self.key, value)),
            Node::List(items) => items.insert(at, value),
            Node::Text(_) => return None,
        }
        Some(())
    }

    fn remove(self) -> Option<Node> {
        let at = match &*self.parent {
            Node::List(items) => self.position(items.len())?,
            _ => 0,
        };
        match self.parent {
            Node::Object(fields) => fields.remove(&self.key),
            Node::List(items) => Some(items.remove(at)),
            Node::Text(_) => None,
        }
    }
}

fn merge_fields(fields: &mut BTreeMap<String, Node>, changes: BTreeMap<String, Node>) {
    for (key, mut change) in changes {
        if change.is_null() {
            fields.remove(&key);
            continue;
        }
        match fields.get_mut(&key).filter(|field| !field.is_null()) {
            None => {
                change.prune();
                fields.insert(key, change);
            }
            Some(field) => match (field.fields(), change.opened()) {
                (Some(below), Node::Object(changes)) => merge_fields(below, changes),
                (Some(_), whole) => *field = whole,
                (None, mut whole) => {
                    whole.prune();
                    *field = whole;
                }
            },
        }
    }
}

/// Text as Go passes it on: without the space between its tokens.
fn compact(text: &str, out: &mut String) {
    let (mut quoted, mut escaped) = (false, false);
    for letter in text.chars() {
        if quoted || !matches!(letter, ' ' | '\n' | '\r' | '\t') {
            out.push(letter);
        }
        quoted ^= letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
    }
}

/// An object as Go writes it.
fn in_order(object: &Value, of: Option<&Type>) -> String {
    let mut text = String::new();
    match (object, of) {
        (Value::Object(fields), Some(of)) => write_fields(fields, of, &mut text),
        _ => text.push_str(&object.to_string()),
    }
    text
}

fn write_fields(fields: &crate::value::Object, of: &Type, out: &mut String) {
    let mut separator = '{';
    let known = facts::go_order(of).into_iter().filter_map(|field| {
        let (key, value) = fields.get_key_value(&*field.name)?;
        Some((key, value, Some(&field.schema)))
    });
    let others = fields.iter().filter(|(key, _)| of.field(key).is_none()).map(|(key, value)| (key, value, None));
    for (key, value, schema) in known.chain(others) {
        out.push(separator);
        separator = ',';
        out.push_str(&Value::from(key.as_str()).to_string());
        out.push(':');
        write_value(value, schema, out);
    }
    out.push_str(if separator == '{' { "{}" } else { "}" });
}

/// The type of the schemas that are in schemas.
const JSON_SCHEMA: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

fn write_value(value: &Value, schema: Option<&Schema>, out: &mut String) {
    match (value, schema) {
        (Value::Object(fields), Some(Schema::Map(map))) => {
            out.push('{');
            for (at, (key, value)) in fields.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_value(value, Some(&map.values), out);
            }
            out.push('}');
        }
        (Value::Object(fields), Some(schema)) if schema.object().is_some() => {
            write_fields(fields, schema.object().expect("just asked"), out);
        }
        (Value::Array(items), Some(Schema::Array(list))) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_value(item, Some(&list.items), out);
            }
            out.push(']');
        }
        // A schema stands alone, in a list, or gives way to something simpler.
        (Value::Object(fields), Some(Schema::Any(Opaque::SchemaOrArray | Opaque::SchemaOrBool))) => {
            match facts::type_named(JSON_SCHEMA) {
                Some(of) => write_fields(fields, of.def(), out),
                None => out.push_str(&value.to_string()),
            }
        }
        (value, _) => out.push_str(&value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service() -> (Value, &'static Type) {
        let of = facts::type_of("", "v1", "Service").expect("services").def();
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "uid": "u", "labels": {"b": "<", "a": "1"}},
            "spec": {"type": "ClusterIP", "ports": [{"port": 80, "name": "x", "protocol": "TCP"}]},
        });
        (object, of)
    }

    #[test]
    fn what_a_patch_does_not_touch_is_in_the_order_of_structs_and_the_way_it_went_is_sorted() {
        let (object, of) = service();
        let untouched = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","uid":"u","labels":{"a":"1","b":"\u003c"}},"spec":{"ports":[{"name":"x","protocol":"TCP","port":80}],"type":"ClusterIP"}}"#;
        assert_eq!(json(&object, Some(of), "[]").as_deref(), Some(untouched));
        let patch = r#"[{"op": "add", "path": "/spec/ports/0/nodePort", "value": {"z": 1, "a": [ 1e2 ]}}]"#;
        let patched = r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","uid":"u","labels":{"a":"1","b":"\u003c"}},"spec":{"ports":[{"name":"x","nodePort":{"z":1,"a":[1e2]},"port":80,"protocol":"TCP"}],"type":"ClusterIP"}}"#;
        assert_eq!(json(&object, Some(of), patch).as_deref(), Some(patched));
        let patch = r#"{"spec": {"ports": [{"port": 1, "name": null, "x": {"b": 1, "a": 2}}]}, "metadata": null}"#;
        let merged = r#"{"apiVersion":"v1","kind":"Service","spec":{"ports":[{"port":1,"x":{"a":2,"b":1}}],"type":"ClusterIP"}}"#;
        assert_eq!(merge(&object, Some(of), patch).as_deref(), Some(merged));
    }

    #[test]
    fn schemas_within_schemas_are_in_order_too() {
        let of = facts::type_of("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("definitions").def();
        let deep = json!({"properties": {}, "type": "object", "description": "d"});
        let schema = json!({"type": "array", "items": deep, "additionalProperties": deep});
        let versions = json!([{"name": "v1", "schema": {"openAPIV3Schema": schema}}]);
        let object = json!({"apiVersion": "a", "kind": "k", "spec": {"versions": versions}});
        let text = json(&object, Some(of), "[]").expect("a text");
        let deep = r#"{"description":"d","type":"object","properties":{}}"#;
        let schema = format!(r#"{{"type":"array","items":{deep},"additionalProperties":{deep}}}"#);
        assert!(text.contains(&schema), "{text}");
    }

    #[test]
    fn the_text_says_what_the_patch_makes_of_the_tree() {
        let (object, of) = service();
        for patch in [
            json!([{"op": "move", "from": "/spec/type", "path": "/spec/ports/-"}]),
            json!([{"op": "copy", "from": "/metadata/labels", "path": "/spec/ports/0"}, {"op": "remove", "path": "/spec/ports/-1"}]),
            json!([{"op": "test", "path": "/spec/ports/0", "value": {"port": 80, "name": "x", "protocol": "TCP"}}, {"op": "replace", "path": "/spec/ports/0/port", "value": null}]),
            json!([{"op": "replace", "path": "", "value": {"a": 1}}]),
            json!([{"op": "test", "path": "", "value": object}]),
            json!([{"op": "copy", "from": "/spec", "path": "/spec/ports/0/port"}]),
            json!([{"op": "replace", "path": "/spec/new", "value": []}, {"op": "test", "path": "/spec/none", "value": null}]),
        ] {
            let mut tree = object.clone();
            super::super::json::apply(&mut tree, &patch).expect("it applies");
            let text = json(&object, Some(of), &patch.to_string()).expect("a text");
            assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), tree, "{patch}");
        }
        for patch in [json!({"spec": {"ports": null, "a": {"b": null, "c": [null, {"d": null}]}}}), json!({"spec": 1})]
        {
            let mut tree = object.clone();
            super::super::merge::apply(&mut tree, patch.clone());
            let text = merge(&object, Some(of), &patch.to_string()).expect("a text");
            assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), tree, "{patch}");
        }
    }
}
