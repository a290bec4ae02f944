//! Walks over one object: what an applied configuration owns, whether it fits its schema, and what is left of an object
//! without some of its paths.

use std::collections::BTreeSet;

use serde_json::Value;

use super::kind::{Kind, Scalar, field_element, item_element};
use super::path::Element;
use super::set::{Node, Set};
use crate::value::Object;

/// Every path that an applied configuration names.
pub(super) fn field_set(value: &Value, kind: Kind<'_>) -> Set {
    owned(value, kind).children
}

fn owned(value: &Value, kind: Kind<'_>) -> Node {
    match (kind, value) {
        (Kind::Struct(_) | Kind::Map(_) | Kind::Deduced, Value::Object(fields)) => {
            let mut node = Node::default();
            for (key, value) in fields {
                let (below, declared) = kind.child(key).unwrap_or((Kind::Opaque, None));
                let mut child = owned(value, below);
                let empty = value.is_null() || value.as_object().is_some_and(Object::is_empty);
                child.member |= empty || declared.is_none();
                node.children.push(field_element(key, declared), child);
            }
            node
        }
        (Kind::Set(_) | Kind::Keyed(_), Value::Array(items)) => {
            let mut node = Node::default();
            let elements: Vec<Element> = items.iter().filter_map(|item| item_element(kind, item).ok()).collect();
            let mut order: Vec<(&Element, &Value)> = elements.iter().zip(items).collect();
            order.sort_by_key(|(element, _)| *element);
            for group in order.chunk_by(|(a, _), (b, _)| a == b) {
                let mut child = match group {
                    [(_, item)] => owned(item, kind.item()),
                    _ => Node::default(),
                };
                child.member = true;
                node.children.push(group[0].0.clone(), child);
            }
            node
        }
        // Null stands for a container that is not there; whoever holds it marks it.
        (Kind::Struct(_) | Kind::Map(_) | Kind::Set(_) | Kind::Keyed(_), _) => Node::default(),
        _ => Node::leaf(),
    }
}

/// The set with every declared field on the way to a member made a member itself.
pub(super) fn with_named_fields(set: &Set, kind: Kind<'_>) -> Set {
    let mut full = Set::default();
    for entry in set.entries() {
        let (below, declared) = match &entry.element {
            Element::Field(name) => match kind.child(name) {
                Some((below, declared)) => (below, declared.is_some()),
                None => (Kind::Opaque, false),
            },
            _ => (kind.item(), false),
        };
        let children = with_named_fields(&entry.node.children, below);
        let member = entry.node.member || (declared && !children.is_empty());
        full.push(entry.element.clone(), Node { member, children });
    }
    full
}

/// The object without the members of a set. What loses all it had becomes null.
pub(super) fn remove(value: &Value, set: &Set, kind: Kind<'_>) -> Value {
    match (kind, value) {
        (Kind::Struct(_) | Kind::Map(_) | Kind::Deduced, Value::Object(fields)) => {
            let mut kept = Object::new();
            for (key, value) in fields {
                let (below, declared) = kind.child(key).unwrap_or((Kind::Opaque, None));
                match set.get(&field_element(key, declared)) {
                    Some(node) if node.member => {}
                    Some(node) => {
                        kept.insert(key.clone(), remove(value, &node.children, below));
                    }
                    None => {
                        kept.insert(key.clone(), value.clone());
                    }
                }
            }
            if kept.is_empty() { Value::Null } else { Value::Object(kept) }
        }
        (Kind::Set(_) | Kind::Keyed(_), Value::Array(items)) => {
            let mut kept = Vec::with_capacity(items.len());
            for item in items {
                match item_element(kind, item).ok().and_then(|element| set.get(&element)) {
                    Some(node) if node.member => {}
                    Some(node) => kept.push(remove(item, &node.children, kind.item())),
                    None => kept.push(item.clone()),
                }
            }
            if kept.is_empty() { Value::Null } else { Value::Array(kept) }
        }
        (Kind::Scalar(_) | Kind::Opaque, value) => value.clone(),
        _ => Value::Null,
    }
}

/// Whether a value is of its kind, as far as upstream can tell who owns what in it: items that are given twice are fine.
pub(super) fn fits(value: &Value, kind: Kind<'_>) -> bool {
    let mut errors = Vec::new();
    check(value, kind, Twice::Allowed, &mut String::new(), &mut errors);
    errors.is_empty()
}

/// Whether a list may have several items of one key.
#[derive(Clone, Copy, PartialEq)]
enum Twice {
    Allowed,
    Refused,
}

/// What is wrong with an applied configuration, as upstream prints it; nothing if all is well.
pub(super) fn validate(value: &Value, kind: Kind<'_>) -> Result<(), String> {
    let mut errors = Vec::new();
    check(value, kind, Twice::Refused, &mut String::new(), &mut errors);
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        many => Err(format!("errors:\n  {}", many.join("\n  "))),
    }
}

fn complain(path: &str, what: &str, errors: &mut Vec<String>) {
    errors.push(if path.is_empty() { what.to_owned() } else { format!("{path}: {what}") });
}

fn check(value: &Value, kind: Kind<'_>, twice: Twice, path: &mut String, errors: &mut Vec<String>) {
    if value.is_null() {
        return;
    }
    let length = path.len();
    match kind {
        Kind::Scalar(scalar) => {
            let wrong = match scalar {
                Scalar::Text if !value.is_string() => Some(format!("expected string, got {}", go_struct(value))),
                Scalar::Number if !value.is_number() => {
                    Some(format!("expected numeric (int or float), got {}", super::super::patch::go_type(value)))
                }
                Scalar::Flag if !value.is_boolean() => Some(format!("expected boolean, got {}", go_value(value))),
                Scalar::Any if value.is_object() || value.is_array() => {
                    Some(format!("expected any scalar, got {}", go_value(value)))
                }
                _ => None,
            };
            if let Some(wrong) = wrong {
                complain(path, &wrong, errors);
            }
        }
        Kind::Opaque | Kind::Deduced => {}
        Kind::Struct(_) | Kind::AtomicStruct(_) | Kind::Map(_) | Kind::AtomicMap(_) => {
            let Value::Object(fields) = value else {
                return complain(path, &format!("expected map, got {}", go_value(value)), errors);
            };
            for (key, value) in fields {
                path.push('.');
                path.push_str(key);
                match kind.child(key) {
                    Some((below, _)) => check(value, below, twice, path, errors),
                    None => complain(path, "field not declared in schema", errors),
                }
                path.truncate(length);
            }
        }
        Kind::AtomicList(_) | Kind::Set(_) | Kind::Keyed(_) => {
            let Value::Array(items) = value else {
                return complain(path, &format!("expected list, got {}", go_value(value)), errors);
            };
            let mut seen: BTreeSet<Element> = BTreeSet::new();
            for (at, item) in items.iter().enumerate() {
                let element = match kind {
                    Kind::AtomicList(_) => Element::Index(at as i64),
                    _ => match item_element(kind, item) {
                        Ok(element) => element,
                        Err(error) => return complain(path, &format!("element {at}: {error}"), errors),
                    },
                };
                let shown = element.to_string();
                if !matches!(kind, Kind::AtomicList(_)) && !seen.insert(element) && twice == Twice::Refused {
                    complain(path, &format!("duplicate entries for key {shown}"), errors);
                }
                path.push_str(&shown);
                check(item, kind.item(), twice, path, errors);
                path.truncate(length);
            }
        }
    }
}

/// How Go shows a value it did not expect.
fn go_value(value: &Value) -> String {
    format!("&{{{}}}", super::super::patch::go_print(value))
}

/// How Go shows it where it shows the types too.
fn go_struct(value: &Value) -> String {
    fn syntax(value: &Value) -> String {
        match value {
            Value::Null => "interface {}(nil)".to_owned(),
            Value::Array(items) => {
                format!("[]interface {{}}{{{}}}", items.iter().map(syntax).collect::<Vec<_>>().join(", "))
            }
            Value::Object(fields) => {
                let fields: Vec<_> = fields.iter().map(|(key, value)| format!("{key:?}:{}", syntax(value))).collect();
                format!("map[string]interface {{}}{{{}}}", fields.join(", "))
            }
            Value::Number(number) => super::super::patch::go_number(number),
            scalar => scalar.to_string(),
        }
    }
    format!("&value.valueUnstructured{{Value:{}}}", syntax(value))
}
