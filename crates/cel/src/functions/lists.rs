//! Lists and sets.

use std::cmp::Ordering;

use super::error;
use crate::eval::{Fault, Outcome};
use crate::value::{List, Value};

/// The most that `lists.range` makes.
const MAX_RANGE: i64 = 1_000_000;

/// A function of lists, if it is one.
pub fn call<'a>(function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    if function == "size"
        && let [Value::Bytes(_) | Value::List(_) | Value::Map(_)] = args
    {
        return Some(Ok(Value::Int(args[0].size().try_into().unwrap_or(i64::MAX))));
    }
    if let ("lists.range", [Value::Int(count)]) = (function, args) {
        return Some(match *count {
            count if count > MAX_RANGE => Err(Fault::Cost),
            count => Ok(Value::list((0..count).map(Value::Int).collect())),
        });
    }
    let Some(Value::List(own)) = args.first() else { return None };
    Some(match (function, &args[1..]) {
        ("sets.contains", [Value::List(other)]) => Ok(Value::Bool(holds_all(own, other))),
        ("sets.equivalent", [Value::List(other)]) => Ok(Value::Bool(holds_all(own, other) && holds_all(other, own))),
        ("sets.intersects", [Value::List(other)]) => Ok(Value::Bool(other.items().any(|item| holds(own, &item)))),
        ("isSorted", []) => pairs(own, |ordering| ordering.is_le()),
        ("sum", []) => sum(own),
        ("min", []) => extreme(own, "min", Ordering::Less),
        ("max", []) => extreme(own, "max", Ordering::Greater),
        ("indexOf", [wanted]) => Ok(place(own.items().position(|item| item.same(wanted)))),
        ("lastIndexOf", [wanted]) => {
            let all: Vec<Value<'a>> = own.items().collect();
            Ok(place(all.iter().rposition(|item| item.same(wanted))))
        }
        ("first", []) => Ok(own.get(0).map_or(Value::Optional(None), Value::some)),
        ("last", []) => {
            Ok(own.len().checked_sub(1).and_then(|at| own.get(at)).map_or(Value::Optional(None), Value::some))
        }
        ("optional.unwrap" | "unwrapOpt", []) => unwrap(own),
        ("reverse", []) => Ok(Value::list(own.items().rev().collect())),
        ("distinct", []) => {
            let mut kept: Vec<Value<'a>> = Vec::new();
            for item in own.items() {
                if !kept.iter().any(|known| known.same(&item)) {
                    kept.push(item);
                }
            }
            Ok(Value::list(kept))
        }
        ("sort", []) => {
            let mut all: Vec<Value<'a>> = own.items().collect();
            if all.windows(2).any(|pair| pair[0].compare(&pair[1]).is_none()) {
                return Some(error("list elements must be comparable"));
            }
            all.sort_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal));
            Ok(Value::list(all))
        }
        ("slice", [Value::Int(from), Value::Int(to)]) => slice(own, *from, *to),
        ("flatten", []) => Ok(Value::list(flatten(own, 1))),
        ("flatten", [Value::Int(depth)]) if *depth < 0 => error("level must be non-negative"),
        ("flatten", [Value::Int(depth)]) => Ok(Value::list(flatten(own, (*depth).min(64)))),
        _ => return None,
    })
}

/// The values of those that have one.
fn unwrap<'a>(own: &List<'a>) -> Outcome<'a> {
    let mut values = Vec::new();
    for item in own.items() {
        match item {
            Value::Optional(Some(inner)) => values.push((*inner).clone()),
            Value::Optional(None) => {}
            _ => return Err(Fault::overload()),
        }
    }
    Ok(Value::list(values))
}

fn holds(list: &List<'_>, wanted: &Value<'_>) -> bool {
    list.items().any(|item| item.same(wanted))
}

fn holds_all(list: &List<'_>, other: &List<'_>) -> bool {
    other.items().all(|item| holds(list, &item))
}

fn place<'a>(at: Option<usize>) -> Value<'a> {
    Value::Int(at.map_or(-1, |at| at.try_into().unwrap_or(i64::MAX)))
}

fn pairs<'a>(own: &List<'_>, fits: fn(Ordering) -> bool) -> Outcome<'a> {
    let all: Vec<Value<'_>> = own.items().collect();
    for pair in all.windows(2) {
        match pair[0].compare(&pair[1]) {
            Some(ordering) if fits(ordering) => {}
            Some(_) => return Ok(Value::Bool(false)),
            None => return Err(Fault::overload()),
        }
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(own: &List<'a>) -> Outcome<'a> {
    let mut items = own.items();
    let Some(mut total) = items.next() else { return Ok(Value::Int(0)) };
    for item in items {
        total = super::operators::call("_+_", &[total, item]).unwrap_or_else(|| Err(Fault::overload()))?;
    }
    Ok(total)
}

fn extreme<'a>(own: &List<'a>, name: &str, wanted: Ordering) -> Outcome<'a> {
    let mut items = own.items();
    let Some(mut best) = items.next() else { return error(format!("{name} called on empty list")) };
    for item in items {
        match item.compare(&best) {
            Some(ordering) if ordering == wanted => best = item,
            Some(_) => {}
            None => return Err(Fault::overload()),
        }
    }
    Ok(best)
}

fn slice<'a>(own: &List<'a>, from: i64, to: i64) -> Outcome<'a> {
    let (Ok(start), Ok(end)) = (usize::try_from(from), usize::try_from(to)) else {
        return error(format!("cannot slice({from}, {to}), negative indexes not supported"));
    };
    if start > end {
        return error(format!("cannot slice({from}, {to}), start index must be less than or equal to end index"));
    }
    if end > own.len() {
        return error(format!("cannot slice({from}, {to}), list is length {}", own.len()));
    }
    Ok(Value::list(own.items().skip(start).take(end - start).collect()))
}

fn flatten<'a>(own: &List<'a>, depth: i64) -> Vec<Value<'a>> {
    let mut flat = Vec::new();
    for item in own.items() {
        match item {
            Value::List(inner) if depth > 0 => flat.extend(flatten(&inner, depth - 1)),
            other => flat.push(other),
        }
    }
    flat
}
