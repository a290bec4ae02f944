//! Walks a value by a template.

use std::cmp::Ordering;

use serde_json::Value;

use super::{Found, Node, Operator, Slice};

pub(super) fn run<'a>(nodes: &[Node], root: Found<'a>, allow_missing: bool) -> Result<Vec<Vec<Found<'a>>>, String> {
    let mut all = Vec::new();
    for node in nodes {
        match node {
            Node::Range(over, body) => {
                for one in list(over, vec![root.clone()], allow_missing)? {
                    all.extend(run(body, one, allow_missing)?);
                }
            }
            node => all.push(walk(node, vec![root.clone()], allow_missing)?),
        }
    }
    Ok(all)
}

type Values<'a> = Vec<Found<'a>>;

fn list<'a>(nodes: &[Node], mut values: Values<'a>, allow_missing: bool) -> Result<Values<'a>, String> {
    for node in nodes {
        values = walk(node, values, allow_missing)?;
    }
    Ok(values)
}

fn walk<'a>(node: &Node, values: Values<'a>, allow_missing: bool) -> Result<Values<'a>, String> {
    match node {
        Node::Text(text) => Ok(vec![Found::Owned(Value::from(text.clone()))]),
        Node::Int(number) => Ok(vec![Found::Owned(Value::from(*number))]),
        Node::Float(number) => Ok(vec![Found::Owned(Value::from(*number))]),
        Node::Bool(flag) => Ok(vec![Found::Owned(Value::from(*flag))]),
        Node::List(nodes) => list(nodes, values, allow_missing),
        Node::Field(name) => field(name, &values, allow_missing),
        Node::Wildcard => Ok(values.iter().flat_map(children).collect()),
        Node::Recursive => Ok(recursive(&values)),
        Node::Union(lists) => {
            let mut all = Vec::new();
            for nodes in lists {
                all.extend(list(nodes, values.clone(), allow_missing)?);
            }
            Ok(all)
        }
        Node::Index(slice) => index(*slice, &values),
        Node::Filter(filter) => {
            let (left, operator, right) = &**filter;
            let mut kept = Vec::new();
            for value in &values {
                if value.is_null() {
                    continue;
                }
                if !value.is_array() {
                    return Err(format!(
                        "{} is not array or slice and cannot be filtered",
                        super::golang::print(value)
                    ));
                }
                for child in children(value) {
                    if matches(&child, left, *operator, right, allow_missing)? {
                        kept.push(child);
                    }
                }
            }
            Ok(kept)
        }
        Node::Range(..) => Err("a range cannot stand inside of a path".to_owned()),
    }
}

fn children<'a>(value: &Found<'a>) -> Values<'a> {
    match value {
        Found::Borrowed(Value::Array(items)) => items.iter().map(Found::Borrowed).collect(),
        Found::Borrowed(Value::Object(fields)) => fields.values().map(Found::Borrowed).collect(),
        Found::Owned(Value::Array(items)) => items.iter().cloned().map(Found::Owned).collect(),
        Found::Owned(Value::Object(fields)) => fields.values().cloned().map(Found::Owned).collect(),
        _ => Vec::new(),
    }
}

fn field<'a>(name: &str, values: &Values<'a>, allow_missing: bool) -> Result<Values<'a>, String> {
    if values.is_empty() {
        return Ok(Vec::new());
    }
    let found: Values<'a> = values
        .iter()
        .filter_map(|value| match value {
            Found::Borrowed(value) => value.get(name).map(Found::Borrowed),
            Found::Owned(value) => value.get(name).cloned().map(Found::Owned),
        })
        .collect();
    if found.is_empty() && !allow_missing {
        return Err(format!("{name} is not found"));
    }
    Ok(found)
}

/// Everything that holds something, from the outside in.
fn recursive<'a>(values: &Values<'a>) -> Values<'a> {
    let mut all = Vec::new();
    for value in values {
        let inner = children(value);
        if !inner.is_empty() {
            all.push(value.clone());
            all.extend(recursive(&inner));
        }
    }
    all
}

fn index<'a>(slice: Slice, values: &Values<'a>) -> Result<Values<'a>, String> {
    let mut all = Vec::new();
    for value in values {
        if value.is_null() {
            continue;
        }
        if !value.is_array() {
            return Err(format!("{} is not array or slice", super::golang::type_name(value)));
        }
        let items = children(value);
        let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
        let mut from = slice.from.unwrap_or_default();
        from += if from < 0 { length } else { 0 };
        let mut to = slice.to.unwrap_or(length);
        to += if to < 0 || (to == 0 && slice.single) { length } else { 0 };
        if from == to {
            continue;
        }
        let outside = |index: i64| format!("array index out of bounds: index {index}, length {length}");
        if from >= length || from < 0 {
            return Err(outside(from));
        }
        if to > length || to < 0 {
            return Err(outside(to - 1));
        }
        if from > to {
            return Err(format!("starting index {from} is greater than ending index {to}"));
        }
        let step = match slice.step {
            None => 1,
            Some(step) if step > 0 => usize::try_from(step).unwrap_or(usize::MAX),
            Some(_) => return Err("step must be > 0".to_owned()),
        };
        let (from, to) = (usize::try_from(from).unwrap_or_default(), usize::try_from(to).unwrap_or_default());
        all.extend(items[from..to].iter().step_by(step).cloned());
    }
    Ok(all)
}

fn matches(
    child: &Found<'_>,
    left: &[Node],
    operator: Operator,
    right: &[Node],
    allow_missing: bool,
) -> Result<bool, String> {
    let lefts = list(left, vec![child.clone()], allow_missing || operator == Operator::Exists)?;
    if operator == Operator::Exists {
        return Ok(!lefts.is_empty());
    }
    let rights = list(right, vec![child.clone()], allow_missing)?;
    let (left, right) = match (&lefts[..], &rights[..]) {
        ([], _) | (_, []) => return Ok(false),
        ([left], [right]) => (left, right),
        _ => return Err("can only compare one element at a time".to_owned()),
    };
    let order = compare(left, right)?;
    Ok(match operator {
        Operator::Exists => true,
        Operator::Equal => order == Ordering::Equal,
        Operator::NotEqual => order != Ordering::Equal,
        Operator::Less => order == Ordering::Less,
        Operator::LessOrEqual => order != Ordering::Greater,
        Operator::Greater => order == Ordering::Greater,
        Operator::GreaterOrEqual => order != Ordering::Less,
    })
}

fn compare(left: &Value, right: &Value) -> Result<Ordering, String> {
    const ODD: &str = "incompatible types for comparison";
    match (left, right) {
        (Value::String(left), Value::String(right)) => Ok(left.cmp(right)),
        (Value::Bool(left), Value::Bool(right)) => Ok(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
            (Some(left), Some(right)) => Ok(left.cmp(&right)),
            (None, None) => left.as_f64().partial_cmp(&right.as_f64()).ok_or_else(|| ODD.to_owned()),
            _ => Err(ODD.to_owned()),
        },
        _ => Err(ODD.to_owned()),
    }
}
