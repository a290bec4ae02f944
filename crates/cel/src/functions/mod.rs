//! The functions that expressions may call: one file per library. A call pays first, by upstream's factors, then computes.

pub mod authz;
pub mod formats;
pub mod lists;
pub mod net;
pub mod opaque;
pub mod operators;
pub mod semver;
pub mod strings;
pub mod time;
pub mod url;

use std::sync::Arc;

use machinery::quantity::{Format, Quantity};

use crate::eval::{Fault, Outcome};
use crate::scope::Scope;
use crate::value::Value;
use opaque::Opaque;

/// A text costs a tenth of its length to walk.
const WALK: f64 = 0.1;
/// A pattern costs a quarter of its length, per step over the text.
const PATTERN: f64 = 0.25;
/// A question to the authorizers: an expression can afford two.
const CHECK_COST: u64 = 350_000;
/// The pattern of a named format is taken to be this long.
const FORMAT_PATTERN: u64 = 256;

fn walk(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// What a call costs before it is made.
fn cost(function: &str, args: &[Value<'_>]) -> u64 {
    let size = |at: usize| args.get(at).map_or(0, Value::size);
    match function {
        "check" => CHECK_COST,
        "_+_" if matches!(args.first(), Some(Value::String(_) | Value::Bytes(_))) => {
            walk(size(0) + size(1), WALK).max(1)
        }
        "_+_" if matches!(args.first(), Some(Value::List(_))) => 1 + (size(0) + size(1)) / 8,
        "_==_" | "_!=_" => walk(depth_size(args).min(1 << 32), WALK).max(1),
        "@in" | "isSorted" | "sum" | "max" | "min" | "sort" | "slice" | "first" | "last" | "flatten" => {
            1 + size(0).max(size(1))
        }
        "distinct" | "sets.contains" | "sets.equivalent" | "sets.intersects" => {
            1 + size(0).max(1) * if function == "distinct" { size(0) } else { size(1) }
        }
        "indexOf" | "lastIndexOf" | "contains" => 1 + walk(size(0), WALK) * walk(size(1), WALK).max(1),
        "startsWith" | "endsWith" => walk(size(1), WALK).max(1),
        "matches" | "find" | "findAll" => walk(size(0) + 1, WALK) * walk(size(1), PATTERN).max(1),
        "validate" => walk(size(1) + 1, WALK) * walk(FORMAT_PATTERN, PATTERN),
        "replace" | "split" | "join" | "ip.isCanonical" => {
            1 + walk(size(0), 2.0 * WALK) + walk(joined(args), 2.0 * WALK)
        }
        "fieldSelector" | "labelSelector" => 10 + walk(size(1), WALK) + walk(size(1), 0.5) * 50,
        "lists.range" => match args.first() {
            Some(Value::Int(count)) => u64::try_from(*count).unwrap_or(0) + 10,
            _ => 10,
        },
        "format" => 1 + walk(size(0), WALK) + walk(joined(args), WALK),
        "url"
        | "isURL"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "reverse"
        | "jsonpatch.escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "ip"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver"
        | "string"
        | "bytes"
        | "int"
        | "uint"
        | "double"
        | "timestamp"
        | "duration"
        | "strings.quote" => walk(size(0), WALK).max(1),
        _ => 1,
    }
}

/// The characters of everything in a list that is joined or formatted.
fn joined(args: &[Value<'_>]) -> u64 {
    let of = |value: &Value<'_>| match value {
        Value::List(list) => list.items().map(|item| depth_size(&[item])).sum(),
        _ => 0,
    };
    args.iter().map(of).sum()
}

/// Everything that a comparison may have to look at.
fn depth_size(args: &[Value<'_>]) -> u64 {
    args.iter()
        .map(|value| match value {
            Value::List(list) => list.items().map(|item| 1 + depth_size(&[item])).sum(),
            Value::Map(map) => {
                map.entries().iter().map(|(key, item)| 1 + key.size() + depth_size(std::slice::from_ref(item))).sum()
            }
            other => other.size(),
        })
        .min_by(|a: &u64, b| a.cmp(b))
        .unwrap_or(0)
}

/// Calls a function; the target of a method is the first argument.
pub fn call<'a>(scope: &Scope<'a>, function: &str, method: bool, args: &[Value<'a>]) -> Outcome<'a> {
    scope.spend(cost(function, args))?;
    if !method && let Some(outcome) = operators::call(function, args) {
        return outcome;
    }
    let libraries = [
        strings::call,
        lists::call,
        time::call,
        net::call,
        url::call,
        semver::call,
        formats::call,
        quantities,
        optionals,
    ];
    for library in libraries {
        if let Some(outcome) = library(function, args) {
            return outcome;
        }
    }
    authz::call(scope, function, args).unwrap_or_else(|| Err(Fault::overload()))
}

fn error<'a>(why: impl Into<String>) -> Outcome<'a> {
    Err(Fault::Error(why.into()))
}

fn quantities<'a>(function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    let made = |quantity: Quantity| Ok(Value::Opaque(Opaque::Quantity(Arc::new(quantity))));
    if let [Value::String(text)] = args {
        return match function {
            "quantity" => Some(text.parse::<Quantity>().map_or_else(|why| error(why.to_string()), made)),
            "isQuantity" => Some(Ok(Value::Bool(text.parse::<Quantity>().is_ok()))),
            _ => None,
        };
    }
    let Some(Value::Opaque(Opaque::Quantity(own))) = args.first() else { return None };
    let other = match args.get(1) {
        Some(Value::Opaque(Opaque::Quantity(other))) => Some((**other).clone()),
        Some(Value::Int(number)) if matches!(function, "add" | "sub") => {
            Some(Quantity::new(*number, Format::DecimalSi))
        }
        Some(_) => return None,
        None => None,
    };
    let whole = own.scaled_value(-9) % 1_000_000_000 == 0;
    Some(match (function, other) {
        ("sign", None) => Ok(Value::Int(own.signum().into())),
        ("isInteger", None) => Ok(Value::Bool(whole || own.as_f64().fract() == 0.0)),
        ("asInteger", None) if own.as_f64().fract() == 0.0 => Ok(Value::Int(own.value())),
        ("asInteger", None) => error("cannot convert value to integer"),
        ("asApproximateFloat", None) => Ok(Value::Double(own.as_f64())),
        ("isGreaterThan", Some(other)) => Ok(Value::Bool(**own > other)),
        ("isLessThan", Some(other)) => Ok(Value::Bool(**own < other)),
        ("compareTo", Some(other)) => Ok(Value::Int(operators::order((**own).partial_cmp(&other)))),
        ("add", Some(other)) => {
            let mut sum = (**own).clone();
            sum.add(&other);
            made(sum)
        }
        ("sub", Some(other)) => {
            let mut difference = (**own).clone();
            difference.sub(&other);
            made(difference)
        }
        _ => return None,
    })
}

fn optionals<'a>(function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    Some(match (function, args) {
        ("optional.of", [value]) => Ok(Value::some(value.clone())),
        ("optional.none", []) => Ok(Value::Optional(None)),
        ("optional.ofNonZeroValue", [value]) => {
            let zero = match value {
                Value::Null | Value::Bool(false) | Value::Int(0) | Value::Uint(0) | Value::Optional(None) => true,
                Value::Double(number) => *number == 0.0,
                Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_) => value.size() == 0,
                _ => false,
            };
            Ok(if zero { Value::Optional(None) } else { Value::some(value.clone()) })
        }
        ("hasValue", [Value::Optional(inner)]) => Ok(Value::Bool(inner.is_some())),
        ("value", [Value::Optional(Some(inner))]) => Ok((**inner).clone()),
        ("value", [Value::Optional(None)]) => error("optional.none() dereference"),
        _ => return None,
    })
}
