//! Strategic merge patches as kustomize applies them. Objects merge field by field, null removes a field, `$patch` replaces or deletes; lists
//! merge by keys where the schema has some, what the patch brings first, and are replaced where it has none.

use machinery::Value;
use machinery::value::{Object, text};

use crate::Error;
use crate::schema::{Node, Schemas};

const DIRECTIVE: &str = "$patch";

enum Directive {
    Merge,
    Replace,
    Delete,
}

/// The object with the patch in it; `None` if the patch deletes it.
pub fn merge(object: Value, patch: Value, schemas: &Schemas) -> Result<Option<Value>, Error> {
    let schema = [&object, &patch].into_iter().find_map(|of| schemas.of(text(of, "apiVersion"), text(of, "kind")));
    walk(Some(object), Some(patch), schema)
}

fn is_missing(value: Option<&Value>) -> bool {
    value.is_none_or(Value::is_null)
}

fn walk(object: Option<Value>, patch: Option<Value>, schema: Option<Node<'_>>) -> Result<Option<Value>, Error> {
    let first = [object.as_ref(), patch.as_ref()].into_iter().flatten().find(|value| !value.is_null());
    let same_kind =
        |other: Option<&Value>, fits: fn(&Value) -> bool| other.is_none_or(|other| other.is_null() || fits(other));
    let (fits, expected): (fn(&Value) -> bool, &str) = match first {
        None | Some(Value::Object(_)) => (Value::is_object, "MappingNode"),
        Some(Value::Array(_)) => (Value::is_array, "SequenceNode"),
        Some(_) => (|value| !value.is_object() && !value.is_array(), "ScalarNode"),
    };
    if let Some(wrong) = [object.as_ref(), patch.as_ref()].into_iter().find(|value| !same_kind(*value, fits)).flatten()
    {
        let was = match wrong {
            Value::Object(_) => "MappingNode",
            Value::Array(_) => "SequenceNode",
            _ => "ScalarNode",
        };
        let shown = machinery::codec::yaml::encode(wrong);
        return Err(Error::new(format!("wrong node kind: expected {expected} but got {was}: node contents:\n{shown}")));
    }
    match expected {
        "MappingNode" => maps(object, patch, schema),
        "SequenceNode" => lists(object, patch, schema),
        _ => Ok(patch.or(object).filter(|value| !value.is_null())),
    }
}

fn maps(object: Option<Value>, mut patch: Option<Value>, schema: Option<Node<'_>>) -> Result<Option<Value>, Error> {
    if is_missing(object.as_ref()) {
        // A null that nobody speaks of stays.
        let Some(mut patch) = patch else { return Ok(object) };
        if patch.is_null() || matches!(directive(&mut patch)?, Directive::Delete) {
            return Ok(None);
        }
        // What is new is merged with itself: directives in it are obeyed, and nulls are dropped.
        return fields(patch.clone(), Some(patch), schema).map(Some);
    }
    if patch.as_ref().is_some_and(Value::is_null) {
        return Ok(None);
    }
    let wanted = patch.as_mut().map_or(Ok(Directive::Merge), directive)?;
    match (wanted, object, patch) {
        (Directive::Delete, ..) => Ok(None),
        (Directive::Replace, _, Some(patch)) => fields(patch.clone(), Some(patch), schema).map(Some),
        (_, Some(object), patch) => fields(object, patch, schema).map(Some),
        (_, None, _) => Ok(None),
    }
}

fn fields(object: Value, patch: Option<Value>, schema: Option<Node<'_>>) -> Result<Value, Error> {
    let (Value::Object(mut own), patch) = (object, patch) else { return Ok(Value::Object(Object::new())) };
    let mut theirs = match patch {
        Some(Value::Object(theirs)) => theirs,
        _ => Object::new(),
    };
    let mut names: Vec<String> = own.keys().chain(theirs.keys()).cloned().collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let child = schema.and_then(|schema| schema.child(&name));
        match walk(own.remove(&name), theirs.remove(&name), child)? {
            Some(merged) => {
                own.insert(name, merged);
            }
            None => {
                own.remove(&name);
            }
        }
    }
    Ok(Value::Object(own))
}

/// What a patch says about the object that it is for. The directive is taken out.
fn directive(patch: &mut Value) -> Result<Directive, Error> {
    let wanted = match patch {
        Value::Object(fields) => fields.remove(DIRECTIVE),
        Value::Array(items) => {
            let alone = |item: &Value| {
                item.as_object().is_some_and(|fields| fields.len() == 1 && fields.contains_key(DIRECTIVE))
            };
            items.iter().position(alone).map(|at| items.remove(at)[DIRECTIVE].take())
        }
        _ => None,
    };
    match wanted.as_ref().map(|wanted| wanted.as_str().unwrap_or_default()) {
        None | Some("merge") => Ok(Directive::Merge),
        Some("replace") => Ok(Directive::Replace),
        Some("delete") => Ok(Directive::Delete),
        Some(other) => Err(Error::new(format!("unknown patch strategy '{other}'"))),
    }
}

fn lists(object: Option<Value>, mut patch: Option<Value>, schema: Option<Node<'_>>) -> Result<Option<Value>, Error> {
    let Some(by) = schema.and_then(|schema| schema.merges()) else {
        return Ok(patch.or(object).filter(|value| !value.is_null()));
    };
    let mut own = match object {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    if patch.as_ref().is_some_and(Value::is_null) {
        return Ok(None);
    }
    match patch.as_mut().map_or(Ok(Directive::Merge), directive)? {
        Directive::Delete => return Ok(None),
        Directive::Replace => own.clear(),
        Directive::Merge => {}
    }
    let theirs = match patch {
        Some(Value::Array(items)) => items,
        _ => return Ok(Some(Value::Array(own))),
    };
    if by.keys.is_empty() {
        let mut union: Vec<Value> = Vec::new();
        theirs.into_iter().chain(own).for_each(|item| {
            if !union.contains(&item) {
                union.push(item)
            }
        });
        return Ok(Some(Value::Array(union)));
    }
    let element = schema.and_then(|schema| schema.element());
    keyed(own, theirs, &by.keys, element).map(|items| Some(Value::Array(items)))
}

/// The text of a key's value, by which elements are compared; absent is empty.
fn key_of(item: &Value, key: &str) -> String {
    match item.get(key) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

type Keys = Vec<String>;

/// Lists of objects. Which keys matter depends on which are used: ports of two protocols are told apart only where somebody names one.
///
/// What the patch brings comes first. The elements that were there are then put back one by one, which with several keys moves them
/// behind what is new; an element that lacks a key takes the place of all that have its others. Upstream's library does it so.
fn keyed(
    mut own: Vec<Value>,
    theirs: Vec<Value>,
    keys: &[&str],
    element: Option<Node<'_>>,
) -> Result<Vec<Value>, Error> {
    let mut wanted: Vec<Keys> = Vec::new();
    for item in theirs.iter().chain(&own) {
        let values: Keys = keys.iter().map(|key| key_of(item, key)).collect();
        if !wanted.contains(&values) {
            wanted.push(values);
        }
    }
    if keys.len() > 1 {
        unify(&mut wanted);
    }
    let used: Vec<usize> = (0..keys.len()).filter(|at| wanted.iter().any(|values| !values[*at].is_empty())).collect();
    let used = if used.is_empty() { (0..keys.len()).collect() } else { used };
    let keys: Vec<&str> = used.iter().map(|at| keys[*at]).collect();
    let mut merged: Vec<Value> = Vec::new();
    for values in &wanted {
        let values: Keys = used.iter().map(|at| values[*at].clone()).collect();
        let fits =
            |item: &Value| keys.iter().zip(&values).all(|(key, value)| value.is_empty() || key_of(item, key) == *value);
        let mine = own.iter().position(fits);
        let old = mine.map(|at| own[at].clone());
        // Upstream puts an element back that a patch wants to replace.
        let new = theirs.iter().find(|item| fits(item));
        let replaces = new.is_some_and(|new| new.get(DIRECTIVE).and_then(Value::as_str) == Some("replace"));
        let new = new.filter(|_| mine.is_none() || !replaces).cloned();
        let result = walk(old, new, element)?.filter(|value| value.as_object().is_none_or(|fields| !fields.is_empty()));
        let Some(mut result) = result else {
            put_element(&mut own, &keys, &values, None);
            continue;
        };
        for (key, value) in keys.iter().zip(&values) {
            if result.get(*key).is_none() && !value.is_empty() {
                result[*key] = Value::String(value.clone());
            }
        }
        if let Some(at) = mine {
            own[at] = result.clone();
        }
        put_element(&mut merged, &keys, &values, Some(result));
    }
    for item in own {
        let mut values = Keys::new();
        for key in &keys {
            match item.get(*key) {
                None | Some(Value::Null) => merged.push(item.clone()),
                Some(_) => values.push(key_of(&item, key)),
            }
        }
        if keys.len() > 1 {
            put_element(&mut merged, &keys, &values, None);
        }
        put_element(&mut merged, &keys, &values, Some(item));
    }
    Ok(merged)
}

/// Puts an element in the place of all that have its keys, or at the end; takes these out where there is no element. Keys without a value are
/// not looked at, but if none has one, nothing else stays.
fn put_element(items: &mut Vec<Value>, keys: &[&str], values: &[String], element: Option<Value>) {
    let mut found = false;
    let mut kept = Vec::with_capacity(items.len() + 1);
    for item in items.drain(..) {
        let Some(fields) = item.as_object().filter(|fields| !fields.is_empty()) else { continue };
        let has = |(key, value): (&&str, &String)| {
            fields.get(*key).is_some_and(|own| !own.is_null() && (value.is_empty() || key_of(&item, key) == *value))
        };
        if values.is_empty() {
            continue;
        }
        if !keys.iter().zip(values).all(has) {
            kept.push(item);
            continue;
        }
        found = true;
        kept.extend(element.clone());
    }
    if !found {
        kept.extend(element);
    }
    *items = kept;
}

/// Keys that say the same as far as both say something become one.
fn unify(wanted: &mut [Keys]) {
    for first in 0..wanted.len() {
        for second in 0..wanted.len() {
            if let Some(both) = together(&wanted[first], &wanted[second]) {
                wanted[first].clone_from(&both);
                wanted[second] = both;
            }
        }
    }
}

fn together(one: &Keys, other: &Keys) -> Option<Keys> {
    let mut common = false;
    let mut both = Keys::new();
    for (a, b) in one.iter().zip(other) {
        common |= a == b;
        if a != b && !a.is_empty() && !b.is_empty() {
            return None;
        }
        both.push(if a.is_empty() { b.clone() } else { a.clone() });
    }
    common.then_some(both)
}
