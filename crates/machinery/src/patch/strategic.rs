//! Strategic merge patch: lists merge by the keys that the table of facts names, and directives in the patch say the rest.
//!
//! | directive | where | what it does |
//! |---|---|---|
//! | `$patch: replace` | in an object, or in an element of a merging list | takes the patch as it is, nothing is merged |
//! | `$patch: delete` | the same | empties the object, or removes the element with the same merge key |
//! | `$deleteFromPrimitiveList/x: [..]` | beside `x` | removes scalars from the list `x` |
//! | `$setElementOrder/x: [..]` | beside `x` | gives the order of the merged list `x` |
//! | `$retainKeys: [..]` | in an object | removes every field that it does not name |

mod leftover;
mod places;

pub use leftover::leftover;

use std::collections::HashSet;

use facts::{Field, Opaque, Schema, Type};
use serde_json::Value;

use super::{PatchError, go_print, go_type, json_type};
use crate::value::Object;
use places::{Places, Seen};

const PATCH: &str = "$patch";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";
const RETAIN_KEYS: &str = "$retainKeys";

/// Merges the patch into the document, an object of this type.
pub fn apply(doc: &mut Value, patch: Value, of: &Type) -> Result<(), PatchError> {
    let patch = match patch {
        Value::Object(patch) => patch,
        Value::Null => return Ok(()),
        other => {
            let what = json_type(&other);
            return Err(malformed(format!(
                "json: cannot unmarshal {what} into Go value of type map[string]interface {{}}"
            )));
        }
    };
    merge_object(crate::value::as_object_mut(doc), patch, Shape::Struct(of))
}

/// What is known about the object at hand.
#[derive(Clone, Copy)]
enum Shape<'a> {
    /// It has the fields of a type.
    Struct(&'a Type),
    /// It is a map. Its values may be set, but upstream looks nothing up in one, so nothing in it merges.
    Map,
    /// It is a struct that reads its JSON itself, of this name; upstream finds no field in it.
    Opaque(&'static str),
}

impl<'a> Shape<'a> {
    fn of(schema: Option<&'a Schema>) -> Self {
        match schema {
            Some(Schema::Map(_)) => Shape::Map,
            Some(Schema::Any(opaque)) => Shape::Opaque(match opaque {
                Opaque::RawExtension => "RawExtension",
                Opaque::FieldsV1 => "FieldsV1",
                Opaque::Patch => "Patch",
                Opaque::SchemaOrArray => "JSONSchemaPropsOrArray",
                Opaque::SchemaOrBool => "JSONSchemaPropsOrBool",
                Opaque::SchemaOrStrings => "JSONSchemaPropsOrStringArray",
                Opaque::Json | Opaque::Preserved => "JSON",
            }),
            Some(schema) => schema.object().map_or(Shape::Map, Shape::Struct),
            None => Shape::Map,
        }
    }

    /// The schema below a key, and the field that carries the strategy for it.
    fn lookup(self, key: &str) -> Result<(Option<&'a Schema>, Option<&'a Field>), PatchError> {
        match self {
            Shape::Opaque(name) => Err(no_field(name, key)),
            Shape::Map => Err(malformed("merging an object in json but data type is not struct, instead is: map")),
            Shape::Struct(of) => match of.field(key) {
                Some(field) => Ok((Some(&field.schema), Some(field))),
                None if of.preserve_unknown => Ok((None, None)),
                None => Err(no_field(of.short_name(), key)),
            },
        }
    }
}

/// How a list under some key merges.
struct ListRules<'a> {
    items: Shape<'a>,
    merge: bool,
    key: &'a str,
}

impl<'a> ListRules<'a> {
    fn of(shape: Shape<'a>, key: &str) -> Result<Self, PatchError> {
        let (schema, field) = shape.lookup(key)?;
        Ok(Self {
            items: Shape::of(schema.and_then(Schema::list).map(|list| &list.items)),
            merge: field.is_some_and(|field| field.patch_strategy.merge),
            key: field.and_then(|field| field.patch_merge_key.as_deref()).unwrap_or_default(),
        })
    }
}

fn malformed(message: impl Into<String>) -> PatchError {
    PatchError::Malformed(message.into())
}

fn no_field(of: &str, key: &str) -> PatchError {
    malformed(format!("unable to find api field in struct {of} for the json field {key:?}"))
}

fn bad_order() -> PatchError {
    malformed("invalid patch format of setElementOrder list")
}

fn bad_retain_keys() -> PatchError {
    malformed("invalid patch format of retainKeys")
}

fn no_merge_key(item: &Object, key: &str) -> PatchError {
    malformed(format!("map: {} does not contain declared merge key: {key}", go_print(&Value::Object(item.clone()))))
}

/// Go is asked for a text here, and shows what else it is given as a mistake.
fn unknown_directive(directive: &Value, map: &Value) -> PatchError {
    let shown = match directive {
        Value::String(text) => text.clone(),
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Array(_) | Value::Object(_) => go_print(directive),
        scalar => format!("%!s({}={})", go_type(scalar), go_print(scalar)),
    };
    malformed(format!("unknown patch type: {shown} in map: {}", go_print(map)))
}

fn bad_type(expected: &str, actual: &Value) -> PatchError {
    malformed(format!("expected a {expected}, but received a {}", go_type(actual)))
}

fn merge_object(original: &mut Object, mut patch: Object, shape: Shape<'_>) -> Result<(), PatchError> {
    if let Some(directive) = patch.get(PATCH) {
        match directive.as_str() {
            Some("replace") => {
                patch.remove(PATCH);
                *original = patch;
            }
            Some("delete") => original.clear(),
            _ => {
                return Err(unknown_directive(directive, &Value::Object(patch.clone())));
            }
        }
        return Ok(());
    }
    retain_keys(original, &mut patch)?;
    merge_ordered_lists(original, &mut patch, shape)?;
    for (key, change) in patch {
        match key.strip_prefix(DELETE_FROM) {
            Some(rest) => {
                let key = rest.strip_prefix('/').ok_or_else(|| malformed("invalid patch format of primitive list"))?;
                delete_from_list(original, key, change, shape)?;
            }
            None => merge_field(original, key, change, shape)?,
        }
    }
    Ok(())
}

fn merge_field(original: &mut Object, key: String, change: Value, shape: Shape<'_>) -> Result<(), PatchError> {
    let Some(current) = original.get_mut(&key) else {
        if !change.is_null()
            && let Some(change) = plain(change, true)
        {
            original.insert(key, change);
        }
        return Ok(());
    };
    match (current, change) {
        (_, Value::Null) => {
            original.remove(&key);
        }
        (Value::Object(current), Value::Object(change)) => {
            let (schema, field) = shape.lookup(&key)?;
            if field.is_some_and(|field| field.patch_strategy.replace) {
                *current = change;
            } else {
                merge_object(current, change, Shape::of(schema))?;
            }
        }
        (Value::Array(current), Value::Array(change)) => {
            let rules = ListRules::of(shape, &key)?;
            *current = merge_list(std::mem::take(current), change, &rules)?;
        }
        (current, change) => match plain(change, true) {
            Some(change) => *current = change,
            None => {
                original.remove(&key);
            }
        },
    }
    Ok(())
}

/// A part of the patch that has nothing to be merged with: without directives and, if asked, without nulls. `None` if it
/// is a directive itself.
fn plain(mut value: Value, drop_nulls: bool) -> Option<Value> {
    match &mut value {
        Value::Object(fields) => {
            if fields.contains_key(PATCH) {
                return None;
            }
            let old = std::mem::take(fields);
            let kept = old.into_iter().filter(|(_, field)| !(drop_nulls && field.is_null()));
            fields.extend(kept.filter_map(|(key, field)| Some((key, plain(field, drop_nulls)?))));
        }
        Value::Array(items) => {
            let old = std::mem::take(items);
            items.extend(old.into_iter().filter_map(|item| plain(item, drop_nulls)));
        }
        _ => {}
    }
    Some(value)
}

/// Clears what `$retainKeys` does not name. The patch itself may set nothing else either.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(keys) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let keys = keys.as_array().ok_or_else(bad_retain_keys)?;
    let names: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let named = |key: &str| names.contains(key);
    let stray = patch.iter().any(|(key, value)| {
        !value.is_null() && !key.starts_with(DELETE_FROM) && !key.starts_with(SET_ORDER) && !named(key)
    });
    if stray {
        return Err(bad_retain_keys());
    }
    original.retain(|key, _| named(key));
    Ok(())
}

/// Merges every list that has its order in the patch, and takes both out of the patch.
fn merge_ordered_lists(original: &mut Object, patch: &mut Object, shape: Shape<'_>) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            Some(other) => return Err(bad_type("[]interface {}", &other)),
            None => continue,
        };
        let key = directive[SET_ORDER.len()..].strip_prefix('/').ok_or_else(bad_order)?;
        let current = match original.get_mut(key) {
            None => None,
            Some(Value::Array(items)) => Some(std::mem::take(items)),
            Some(other) => return Err(bad_type("[]interface {}", other)),
        };
        let change = match patch.remove(key) {
            None => None,
            Some(Value::Array(items)) => Some(items),
            Some(other) => return Err(bad_type("[]interface {}", &other)),
        };
        let rules = ListRules::of(shape, key)?;
        check_order(change.as_deref().unwrap_or_default(), &order, rules.key)?;
        let server_order = current.clone().unwrap_or_default();
        let merged = match (current, change) {
            (None, None) => continue,
            (Some(current), None) => current,
            (None, Some(change)) => change.into_iter().filter_map(|item| plain(item, false)).collect(),
            (Some(current), Some(change)) if rules.merge => merge_list(current, change, &rules)?,
            (Some(_), Some(change)) => change,
        };
        let ordered = in_order(merged, &order, &server_order, rules.key)?;
        original.insert(key.to_owned(), Value::Array(ordered));
    }
    Ok(())
}

/// The elements of the patch must stand in the given order, and all of them in it.
fn check_order(change: &[Value], order: &[Value], key: &str) -> Result<(), PatchError> {
    if change.is_empty() || order.is_empty() {
        return Ok(());
    }
    if !key.is_empty() {
        for item in change.iter().chain(order).filter(|item| item.get(PATCH).is_none()) {
            let fields = item.as_object().ok_or_else(|| bad_type("map[string]interface {}", item))?;
            if !fields.contains_key(key) {
                return Err(no_merge_key(fields, key));
            }
        }
    }
    let mut rest = order.iter();
    for item in change.iter().filter(|item| item.get(PATCH).is_none()) {
        if !rest.any(|candidate| same(candidate, item, key)) {
            let (change, order) = (Value::from(change), Value::from(order));
            return Err(malformed(format!(
                "The order in patch list:\n{}\n doesn't match {SET_ORDER} list:\n{}\n",
                go_print(&change),
                go_print(&order)
            )));
        }
    }
    Ok(())
}

/// Whether two elements are the same one: by merge key if there is one, else by value.
fn same(a: &Value, b: &Value, key: &str) -> bool {
    if key.is_empty() { a == b } else { a.get(key).is_some() && a.get(key) == b.get(key) }
}

fn delete_from_list(original: &mut Object, key: &str, change: Value, shape: Shape<'_>) -> Result<(), PatchError> {
    match (original.get_mut(key), change) {
        (Some(_), Value::Null) => {
            original.remove(key);
        }
        (Some(Value::Array(current)), Value::Array(change)) => {
            let rules = ListRules::of(shape, key)?;
            // Upstream knows how to delete scalars. With objects it goes on as if it had to merge them.
            match check_elements(current, &change)? {
                Elements::None => {}
                Elements::Scalars => {
                    let unwanted = Seen::of(&change);
                    current.retain(|item| !unwanted.has(item));
                }
                Elements::Objects => {
                    *current = merge_list(std::mem::take(current), change, &ListRules { merge: true, ..rules })?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Elements {
    None,
    Scalars,
    Objects,
}

/// Elements of lists that merge are all scalars of one type or all objects.
fn check_elements(current: &[Value], change: &[Value]) -> Result<Elements, PatchError> {
    let mut elements = current.iter().chain(change);
    let Some(first) = elements.next() else { return Ok(Elements::None) };
    if first.is_array() {
        return Err(PatchError::Inapplicable("lists of lists are not supported".to_owned()));
    }
    if first.is_null() || elements.any(|other| go_type(other) != go_type(first)) {
        let shown = Value::from(vec![Value::from(current), Value::from(change)]);
        return Err(malformed(format!("list element types are not identical: {}", go_print(&shown))));
    }
    Ok(if first.is_object() { Elements::Objects } else { Elements::Scalars })
}

fn merge_list(current: Vec<Value>, change: Vec<Value>, rules: &ListRules<'_>) -> Result<Vec<Value>, PatchError> {
    if !rules.merge {
        return Ok(change);
    }
    let mut server_order = current.clone();
    let (merged, order) = match check_elements(&current, &change)? {
        Elements::None => return Ok(current),
        Elements::Scalars => {
            let mut seen = Seen::default();
            let merged = current.iter().chain(&change).filter(|item| seen.add(item)).cloned().collect();
            (merged, change)
        }
        Elements::Objects if rules.key.is_empty() => {
            return Err(malformed("cannot merge lists without merge key for struct"));
        }
        Elements::Objects => {
            let (mut merged, change) = apply_directives(current, change, rules.key)?;
            server_order.clone_from(&merged);
            let order = change.clone();
            merge_items(&mut merged, change, rules)?;
            (merged, order)
        }
    };
    in_order(merged, &order, &server_order, rules.key)
}

/// Carries out the elements that are directives; what is left of the patch are elements to merge.
fn apply_directives(
    mut current: Vec<Value>,
    change: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), PatchError> {
    let (directives, rest): (Vec<Value>, Vec<Value>) = change.into_iter().partition(|item| item.get(PATCH).is_some());
    let mut replace = false;
    let mut deleted = Seen::default();
    for item in &directives {
        let directive = &item[PATCH];
        match directive.as_str() {
            Some("delete") => {
                let fields = item.as_object().ok_or_else(|| bad_type("map[string]interface {}", item))?;
                deleted.add(fields.get(key).ok_or_else(|| no_merge_key(fields, key))?);
            }
            Some("replace") => replace = true,
            Some("merge") => return Err(malformed("merging lists cannot yet be specified in the patch")),
            _ => {
                return Err(unknown_directive(directive, item));
            }
        }
    }
    current.retain(|candidate| !candidate.get(key).is_some_and(|identity| deleted.has(identity)));
    Ok(if replace { (rest, Vec::new()) } else { (current, rest) })
}

fn merge_items(merged: &mut Vec<Value>, change: Vec<Value>, rules: &ListRules<'_>) -> Result<(), PatchError> {
    let mut targets = Places::of(merged, rules.key).targets(merged.len(), &change).into_iter();
    for item in change {
        let Value::Object(fields) = item else { return Err(bad_type("map[string]interface {}", &item)) };
        let Some(target) = targets.next() else { return Err(no_merge_key(&fields, rules.key)) };
        match merged.get_mut(target) {
            Some(Value::Object(found)) => merge_object(found, fields, rules.items)?,
            _ => merged.push(Value::Object(fields)),
        }
    }
    Ok(())
}

/// The merged list with the elements of the patch in the patch's order, and between them those that only the server has,
/// in the server's order, each before the first element of the patch that it preceded there.
fn in_order(merged: Vec<Value>, order: &[Value], server: &[Value], key: &str) -> Result<Vec<Value>, PatchError> {
    if !key.is_empty() {
        for item in merged.iter().chain(order) {
            let fields = item.as_object().ok_or_else(|| bad_type("map[string]interface {}", item))?;
            if !fields.contains_key(key) {
                return Err(no_merge_key(fields, key));
            }
        }
    }
    let (in_patch, on_server) = (Places::of(order, key), Places::of(server, key));
    let (mut patched, mut others) = (Vec::new(), Vec::new());
    for item in merged {
        match in_patch.find(&item) {
            Some(at) => patched.push((at, item)),
            None => others.push((on_server.find(&item), item)),
        }
    }
    patched.sort_by_key(|(at, _)| *at);
    // What the server has never seen has no place among the others: it stays where it is, and they are sorted on either side of it.
    for known in others.split_mut(|(at, _)| at.is_none()) {
        known.sort_by_key(|(at, _)| *at);
    }
    let mut ordered = Vec::with_capacity(patched.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, item) in patched {
        let here = on_server.find(&item);
        while let Some((_, other)) = others.next_if(|(at, _)| at.is_some() && here.is_some() && *at < here) {
            ordered.push(other);
        }
        ordered.push(item);
    }
    ordered.extend(others.map(|(_, other)| other));
    Ok(ordered)
}

#[cfg(test)]
mod tests;
