//! Paths of replacements and variables: `spec.containers.[name=web].image`, `data.0`, `items.*.name`.

use machinery::Value;
use machinery::value::Object;
use regex::Regex;

use crate::Error;
use crate::fields::split;

/// The steps of a path. What is in brackets is one step, dots and all.
pub fn steps(path: &str) -> Vec<String> {
    let mut steps = Vec::new();
    let mut parts = split(path, '.').into_iter();
    while let Some(mut part) = parts.next() {
        if part.starts_with('[') && !part.ends_with(']') {
            for more in parts.by_ref() {
                part = format!("{part}.{more}");
                if part.ends_with(']') {
                    break;
                }
            }
            if !part.contains('=') {
                part = part.trim_matches(['[', ']']).to_owned();
            }
        }
        steps.push(part);
    }
    steps
}

/// What a step means.
enum Step<'a> {
    Index(usize),
    Every,
    /// Elements whose field has a value; without a field, elements that are the value.
    Where(&'a str, &'a str),
    Field(&'a str),
}

impl<'a> Step<'a> {
    fn of(text: &'a str) -> Self {
        if let Ok(index) = text.parse() {
            return Self::Index(index);
        }
        if text == "*" {
            return Self::Every;
        }
        match text.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).and_then(|inner| inner.split_once('=')) {
            Some((field, wanted)) => Self::Where(field, wanted),
            None => Self::Field(text),
        }
    }
}

pub fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The one value at a path.
pub fn lookup<'a>(value: &'a Value, steps: &[String]) -> Option<&'a Value> {
    steps.iter().try_fold(value, |value, step| match Step::of(step) {
        Step::Index(index) => value.get(index),
        Step::Every => value.get("*"),
        Step::Where(field, wanted) => value.as_array()?.iter().find(|item| {
            let found = if field.is_empty() { Some(*item) } else { item.get(field) };
            found.is_some_and(|found| plain(found) == wanted)
        }),
        Step::Field(name) => value.get(name),
    })
}

/// Calls `set` with every value that a path leads to, and says how many there were. With `create` the path is made where it is
/// absent: it ends with a copy of that value's emptiness.
pub fn each(
    value: &mut Value,
    steps: &[String],
    create: Option<&Value>,
    set: &mut dyn FnMut(&mut Value) -> Result<(), Error>,
) -> Result<usize, Error> {
    let Some((step, rest)) = steps.split_first() else {
        set(value)?;
        return Ok(1);
    };
    match Step::of(step) {
        Step::Index(index) => {
            let Value::Array(items) = value else { return Err(wrong("SequenceNode", value)) };
            if let Some(made) = create.filter(|_| items.len() == index) {
                items.push(empty(rest, made));
            }
            let count = items.len();
            let item = items
                .get_mut(index)
                .ok_or_else(|| Error::new(format!("index {index} specified but only {count} elements found")))?;
            each(item, rest, create, set)
        }
        Step::Every => {
            let Value::Array(items) = value else { return Err(wrong("SequenceNode", value)) };
            items.iter_mut().try_fold(0, |count, item| Ok(count + each(item, rest, create, set)?))
        }
        Step::Where(field, wanted) => {
            let Value::Array(items) = value else { return Err(wrong("SequenceNode", value)) };
            let found = matching(items, field, wanted, rest, create, set)?;
            if found > 0 || create.is_none() {
                return Ok(found);
            }
            let text = Value::String(wanted.to_owned());
            items.push(if field.is_empty() {
                text
            } else {
                Value::Object(Object::from_iter([(field.to_owned(), text)]))
            });
            matching(items, field, wanted, rest, create, set)
        }
        Step::Field(name) => match value {
            Value::Object(fields) => {
                if let Some(made) = create.filter(|_| !fields.contains_key(name)) {
                    fields.insert(name.to_owned(), empty(rest, made));
                }
                fields.get_mut(name).map_or(Ok(0), |field| each(field, rest, create, set))
            }
            other => Err(wrong("MappingNode", other)),
        },
    }
}

fn matching(
    items: &mut [Value],
    field: &str,
    wanted: &str,
    rest: &[String],
    create: Option<&Value>,
    set: &mut dyn FnMut(&mut Value) -> Result<(), Error>,
) -> Result<usize, Error> {
    let pattern = Regex::new(wanted).map_err(|error| Error::new(error.to_string()))?;
    let mut count = 0;
    for item in items {
        let found = if field.is_empty() { Some(&*item) } else { item.get(field) };
        if found.is_some_and(|found| pattern.is_match(&plain(found))) {
            count += if field.is_empty() { each(item, &[], create, set)? } else { each(item, rest, create, set)? };
        }
    }
    Ok(count)
}

/// What is made for a step: a list where the next one asks for elements, an object where it names a field.
fn empty(rest: &[String], end: &Value) -> Value {
    match rest.first().map(|step| Step::of(step)) {
        None => match end {
            Value::Object(_) => Value::Object(Object::new()),
            Value::Array(_) => Value::Array(Vec::new()),
            _ => Value::Null,
        },
        Some(Step::Field(_)) => Value::Object(Object::new()),
        Some(_) => Value::Array(Vec::new()),
    }
}

fn wrong(expected: &str, was: &Value) -> Error {
    let kind = match was {
        Value::Object(_) => "MappingNode",
        Value::Array(_) => "SequenceNode",
        _ => "ScalarNode",
    };
    let shown = machinery::codec::yaml::encode(was);
    Error::new(format!("wrong Node Kind for  expected: {expected} was {kind}: value: {{{}}}", shown.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_keep_dots_together() {
        assert_eq!(steps("a.b.c"), ["a", "b", "c"]);
        assert_eq!(steps("metadata.annotations.[a.b/c]"), ["metadata", "annotations", "a.b/c"]);
        assert_eq!(steps("spec.[name=x.y].image"), ["spec", "[name=x.y]", "image"]);
        assert_eq!(steps("data.a\\.b"), ["data", "a.b"]);
    }
}
