//! What is wrong with a value, told in the words of upstream's validator (kube-openapi), which scripts and people know.
//!
//! The checks of one place come in a fixed order: type, combinations, string, format, number, list, enumeration, object. Where one of several
//! schemas should have held, the errors of the one that came closest are shown; how close is counted by the checks that passed, and so that
//! count is upstream's too.
//!
//! *Ratcheting*: on update, what is equal to what was there before is not wrong, wherever the old value can be told: fields by name, items of a
//! list of type `map` by their keys.

mod number;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use machinery::Value;
use machinery::status::FieldError;

use crate::correlate::{OldItems, same};
use crate::schema::{Combined, Limits};
use crate::{Additional, Schema, Types};

/// Where upstream says that a value stands.
const IN: &str = "in body";

impl Schema {
    /// What is wrong with an object; `old` is what it replaces.
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let found = check(self, object, old, "");
        let mut told = HashSet::new();
        found.errors.into_iter().filter(|(message, _)| told.insert(message.clone())).map(|(_, error)| error).collect()
    }
}

/// The errors of a place with the texts by which upstream tells them apart, and the count of checks that it passed.
#[derive(Default)]
struct Found {
    errors: Vec<(String, FieldError)>,
    matches: usize,
}

impl Found {
    fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    fn merge(&mut self, other: Self) {
        self.errors.extend(other.errors);
        self.matches += other.matches;
    }

    fn add(&mut self, message: String, error: FieldError) {
        self.errors.push((message, error));
    }

    /// A value that breaks a limit.
    fn invalid(&mut self, path: &str, value: impl Into<Value>, words: &str) {
        let message = format!("{path} {IN} {words}");
        self.add(message.clone(), FieldError::invalid(place(path), value, message));
    }

    fn wrong_type(&mut self, path: &str, wanted: &str, is: &str) {
        let message = format!("{path} {IN} must be of type {wanted}: {}", machinery::status::go_quote(is));
        self.add(message.clone(), FieldError::type_invalid(place(path), is, message));
    }

    /// What no field is to blame for: upstream shows no place.
    fn general(&mut self, message: String) {
        self.add(message.clone(), FieldError::invalid("<nil>", "", message));
    }
}

/// Upstream's validator puts a dot before fields of the root in some places; its errors do not show it, and have a word for the root.
fn place(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path.strip_prefix('.').unwrap_or(path) }
}

/// The JSON type of a value, and the format that upstream takes it to have.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
    }
}

/// What is wrong with a place, unless it was so before.
fn check(schema: &Schema, value: &Value, old: Option<&Value>, path: &str) -> Found {
    let mut found = check_place(schema, value, old, path);
    if !found.is_valid() && old.is_some_and(|old| same(schema, value, old)) {
        found.errors.clear();
    }
    found
}

/// What is wrong with a place whatever it was before; the old value excuses only what is below it.
fn check_place(schema: &Schema, value: &Value, old: Option<&Value>, path: &str) -> Found {
    let mut found = Found::default();
    if value.is_null() {
        found.merge(check_null(schema, path));
        found.merge(check_enum(schema, value, path));
    } else {
        if !schema.types.is_any() || has_format(schema) {
            found.merge(check_type(schema, value, path));
            found.matches += 1;
        }
        found.merge(check_combined(schema, value, old, path));
        found.matches += 1;
        match value {
            Value::String(text) => {
                found.merge(check_string(schema, text, path));
                found.matches += 1 + usize::from(has_format(schema));
            }
            Value::Number(number) => {
                found.merge(number::check(schema, number, path));
                found.matches += 1;
            }
            Value::Array(items) => {
                found.merge(check_list(schema, items, old, path));
                found.matches += 1;
            }
            _ => {}
        }
        found.merge(check_enum(schema, value, path));
        found.matches += 1;
        if let Value::Object(fields) = value {
            found.merge(check_object(schema, fields, old, path));
            found.matches += 1;
        }
        found.matches += 1;
    }
    found
}

fn limits(schema: &Schema) -> Option<&Limits> {
    schema.limits.as_deref()
}

fn has_format(schema: &Schema) -> bool {
    limits(schema).is_some_and(|limits| limits.format.is_some())
}

fn check_null(schema: &Schema, path: &str) -> Found {
    let mut found = Found { matches: 1, ..Found::default() };
    if !schema.types.is_any() && !schema.nullable {
        found.matches = 0;
        found.wrong_type(path, &schema.types.listed(), "null");
    }
    found
}

fn check_type(schema: &Schema, value: &Value, path: &str) -> Found {
    let (mut found, types) = (Found::default(), schema.types);
    let (kind, own_format) = type_of(value);
    let format = limits(schema).and_then(|limits| limits.format.as_ref()).map(|format| format.name.as_str());
    let whole = value.as_f64().is_some_and(|number| number == number.trunc() && number.abs() < 9_007_199_254_740_992.0);
    let fits = types.listed().split(',').any(|name| name == kind)
        || (kind == "number" && whole && types.has(Types::INTEGER))
        || (kind == "integer" && types.has(Types::NUMBER));
    let textual = matches!(value, Value::String(_) | Value::Array(_));
    if let Some(format) = format
        && !textual
        && !fits
        && own_format != format
    {
        found.wrong_type(path, format, own_format);
        return found;
    }
    let numeric = types.has(Types::NUMBER) || types.has(Types::INTEGER);
    // A text with a format is the business of the format.
    if fits || (format.is_some() && !numeric && textual) {
        found.matches += 1;
    } else {
        found.wrong_type(path, &types.listed(), kind);
    }
    found
}

fn check_combined(schema: &Schema, value: &Value, old: Option<&Value>, path: &str) -> Found {
    let mut found = Found { matches: 1, ..Found::default() };
    let Some(Combined { all_of, any_of, one_of, not }) = schema.combined.as_deref() else { return found };
    let quoted = machinery::status::go_quote(path);
    let closest = |best: Option<Found>, result: Found| match best {
        Some(best) if result.matches <= best.matches => Some(best),
        _ => Some(result),
    };
    if !any_of.is_empty() {
        let (mut best, mut held) = (None, None);
        for one in any_of {
            let result = check_place(one, value, old, path);
            if result.is_valid() {
                held = Some(result);
                break;
            }
            best = closest(best, result);
        }
        if held.is_none() {
            found.general(format!("{quoted} must validate at least one schema (anyOf)"));
        }
        found.merge(held.or(best).unwrap_or_default());
    }
    if !one_of.is_empty() {
        let (mut best, mut held, mut count) = (None, None, 0);
        for one in one_of {
            let result = check_place(one, value, old, path);
            if result.is_valid() {
                count += 1;
                best = None;
                held = held.or(Some(result));
            } else if count == 0 {
                best = closest(best, result);
            }
        }
        match count {
            1 => found.merge(held.unwrap_or_default()),
            _ => {
                let many = if count == 0 {
                    "Found none valid".to_owned()
                } else {
                    format!("Found {count} valid alternatives")
                };
                found.general(format!("{quoted} must validate one and only one schema (oneOf). {many}"));
                found.merge(best.unwrap_or_default());
            }
        }
    }
    if !all_of.is_empty() {
        let mut count = 0;
        for one in all_of {
            let result = check_place(one, value, old, path);
            count += usize::from(result.is_valid());
            found.merge(result);
        }
        if count != all_of.len() {
            let none = if count == 0 { ". None validated" } else { "" };
            found.general(format!("{quoted} must validate all the schemas (allOf){none}"));
        }
    }
    if let Some(not) = not
        && check_place(not, value, old, path).is_valid()
    {
        found.general(format!("{quoted} must not validate the schema (not)"));
    }
    found
}

fn check_string(schema: &Schema, text: &str, path: &str) -> Found {
    let mut found = Found::default();
    let Some(limits) = limits(schema) else { return found };
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    if let Some(most) = limits.max_length.filter(|most| length > *most) {
        let message = format!("{path} {IN} should be at most {most} chars long");
        found.add(message, FieldError::too_long(place(path), usize::try_from(most).unwrap_or(0)));
    } else if let Some(least) = limits.min_length.filter(|least| length < *least) {
        found.invalid(path, text, &format!("should be at least {least} chars long"));
    } else if let Some(pattern) = &limits.pattern {
        match &pattern.compiled {
            Ok(compiled) if compiled.is_match(text) => {}
            Ok(_) => found.invalid(path, text, &format!("should match '{}'", pattern.text)),
            Err(why) => {
                found.invalid(path, text, &format!("should match '{}, but pattern is invalid: {why}'", pattern.text))
            }
        }
    }
    if let Some(format) = limits.format.as_ref().filter(|format| !format.fits(text)) {
        found.wrong_type(path, &format.name, text);
    }
    found
}

fn check_list(schema: &Schema, items: &[Value], old: Option<&Value>, path: &str) -> Found {
    let mut found = Found { matches: 1, ..Found::default() };
    if let Some(below) = &schema.items {
        let before = OldItems::of(schema, old);
        for (index, item) in items.iter().enumerate() {
            found.merge(check(below, item, before.get(schema, item), &format!("{path}[{index}]")));
        }
    }
    let Some(limits) = limits(schema) else { return found };
    let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
    if let Some(least) = limits.min_items.filter(|least| size < *least) {
        found.invalid(path, size, &format!("should have at least {least} items"));
    }
    if let Some(most) = limits.max_items.filter(|most| size > *most) {
        let message = format!("{path} {IN} should have at most {most} items");
        found.add(message, FieldError::too_many(place(path), items.len(), usize::try_from(most).unwrap_or(0)));
    }
    if limits.unique_items {
        let mut seen = HashSet::new();
        if !items.iter().all(|item| seen.insert(item.to_string())) {
            found.invalid(path, "", "shouldn't contain duplicates");
        }
    }
    found
}

fn check_enum(schema: &Schema, value: &Value, path: &str) -> Found {
    let mut found = Found::default();
    let Some(allowed) = limits(schema).map(|limits| &limits.allowed).filter(|allowed| !allowed.is_empty()) else {
        return found;
    };
    // Numbers are compared in the form of the one that is allowed.
    let same = |one: &&Value| match (one, value) {
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Number(one), Value::Number(value)) if one.is_i64() => {
            one.as_i64() == value.as_i64().or_else(|| value.as_f64().map(|value| value as i64))
        }
        (Value::Number(one), Value::Number(value)) => one.as_f64() == value.as_f64(),
        (one, value) => **one == *value,
    };
    if allowed.iter().find(same).is_none() {
        let shown: Vec<String> =
            allowed.iter().map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned)).collect();
        let message = format!("{path} {IN} should be one of [{}]", shown.join(" "));
        found.add(message, FieldError::not_supported(place(path), value.clone(), shown.iter().map(String::as_str)));
    }
    found
}

fn check_object(schema: &Schema, fields: &machinery::value::Object, old: Option<&Value>, path: &str) -> Found {
    let mut found = Found::default();
    if let Some(limits) = limits(schema) {
        let size = i64::try_from(fields.len()).unwrap_or(i64::MAX);
        if let Some(least) = limits.min_properties.filter(|least| size < *least) {
            found.invalid(path, size, &format!("should have at least {least} properties"));
        }
        if let Some(most) = limits.max_properties.filter(|most| size > *most) {
            let message = format!("{path} {IN} should have at most {most} properties");
            found.add(message, FieldError::too_many(place(path), fields.len(), usize::try_from(most).unwrap_or(0)));
        }
    }
    let before = |name: &str| {
        // The version of an object is not part of what it says: both were converted to the same one.
        let visible = !(path.is_empty() && matches!(name, "kind" | "apiVersion"));
        old.filter(|_| visible).and_then(|old| old.get(name))
    };
    for (name, field) in fields.iter().filter(|(name, _)| schema.property(name).is_none()) {
        match &schema.additional {
            Additional::Allowed(false) => {
                let message = format!("{path}.{name} {IN} is a forbidden property");
                found.add(message.clone(), FieldError::invalid(place(path), name.as_str(), message));
            }
            Additional::Schema(below) => found.merge(check(below, field, before(name), &format!("{path}.{name}"))),
            Additional::Allowed(true) | Additional::Unsaid => {}
        }
    }
    for (name, below) in &schema.properties {
        let Some(field) = fields.get(name) else { continue };
        let at = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        found.merge(check(below, field, before(name), &at));
    }
    for name in schema.required.iter().filter(|name| !fields.contains_key(*name)) {
        let at = format!("{path}.{name}");
        found.add(format!("{at} {IN} is required"), FieldError::required(place(&at), ""));
    }
    found
}
