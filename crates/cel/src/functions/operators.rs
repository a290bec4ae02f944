//! Operators and conversions.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::error;
use crate::eval::{Fault, Outcome};
use crate::functions::opaque::Opaque;
use crate::value::Value;

/// -1, 0 or 1.
pub fn order(ordering: Option<Ordering>) -> i64 {
    match ordering {
        Some(Ordering::Less) => -1,
        Some(Ordering::Greater) => 1,
        _ => 0,
    }
}

/// An operator or a conversion, if it is one.
pub fn call<'a>(function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    Some(match (function, args) {
        ("_==_", [a, b]) => Ok(Value::Bool(a.same(b))),
        ("_!=_", [a, b]) => Ok(Value::Bool(!a.same(b))),
        ("_<_", [a, b]) => compare(a, b, Ordering::is_lt),
        ("_<=_", [a, b]) => compare(a, b, Ordering::is_le),
        ("_>_", [a, b]) => compare(a, b, Ordering::is_gt),
        ("_>=_", [a, b]) => compare(a, b, Ordering::is_ge),
        ("!_", [Value::Bool(truth)]) => Ok(Value::Bool(!truth)),
        ("-_", [Value::Int(number)]) => whole(number.checked_neg()),
        ("-_", [Value::Double(number)]) => Ok(Value::Double(-number)),
        ("@in", [wanted, Value::List(list)]) => Ok(Value::Bool(list.items().any(|item| item.same(wanted)))),
        ("@in", [wanted, Value::Map(map)]) => Ok(Value::Bool(map.get(wanted).is_some())),
        ("_[_]", [from, key]) => index(from, key, false),
        ("_[?_]", [from, key]) => index(from, key, true),
        ("type", [value]) => Ok(Value::Type(value.type_name().into())),
        ("dyn", [value]) => Ok(value.clone()),
        ("size", [value @ (Value::String(_) | Value::Bytes(_) | Value::List(_) | Value::Map(_))]) => {
            Ok(Value::Int(value.size().try_into().unwrap_or(i64::MAX)))
        }
        ("_+_" | "_-_" | "_*_" | "_/_" | "_%_", [a, b]) => arithmetic(function, a, b),
        ("bool" | "int" | "uint" | "double" | "string" | "bytes", [value]) => convert(function, value),
        _ => return None,
    })
}

fn compare<'a>(a: &Value<'_>, b: &Value<'_>, holds: fn(Ordering) -> bool) -> Outcome<'a> {
    match (a.compare(b), a, b) {
        (Some(ordering), _, _) => Ok(Value::Bool(holds(ordering))),
        // What is not a number is neither less nor more.
        (None, Value::Double(_), Value::Double(_) | Value::Int(_) | Value::Uint(_))
        | (None, Value::Int(_) | Value::Uint(_), Value::Double(_)) => Ok(Value::Bool(false)),
        _ => Err(Fault::overload()),
    }
}

fn index<'a>(from: &Value<'a>, key: &Value<'a>, optional: bool) -> Outcome<'a> {
    if let Value::Optional(inner) = from {
        return match inner {
            None => Ok(Value::Optional(None)),
            Some(inner) => index(inner, key, true),
        };
    }
    let found = match (from, key) {
        (Value::List(list), Value::Int(at)) => match usize::try_from(*at).ok().and_then(|at| list.get(at)) {
            None if !optional => return error(format!("index out of bounds: {at}")),
            found => found,
        },
        (Value::Map(map), key) => match map.get(key) {
            None if !optional => return error(format!("no such key: {}", super::strings::show(key))),
            found => found,
        },
        _ => return Err(Fault::overload()),
    };
    if optional {
        return Ok(found.map_or(Value::Optional(None), Value::some));
    }
    found.ok_or_else(Fault::overload)
}

fn whole<'a>(number: Option<i64>) -> Outcome<'a> {
    number.map(Value::Int).ok_or_else(|| Fault::Error("integer overflow".to_owned()))
}

fn unsigned<'a>(number: Option<u64>) -> Outcome<'a> {
    number.map(Value::Uint).ok_or_else(|| Fault::Error("unsigned integer overflow".to_owned()))
}

fn arithmetic<'a>(function: &str, a: &Value<'a>, b: &Value<'a>) -> Outcome<'a> {
    use Value::{Double, Duration, Int, Timestamp, Uint};
    match (function, a, b) {
        ("_+_", Int(a), Int(b)) => whole(a.checked_add(*b)),
        ("_-_", Int(a), Int(b)) => whole(a.checked_sub(*b)),
        ("_*_", Int(a), Int(b)) => whole(a.checked_mul(*b)),
        ("_/_", Int(_), Int(0)) | ("_/_", Uint(_), Uint(0)) => error("division by zero"),
        ("_%_", Int(_), Int(0)) | ("_%_", Uint(_), Uint(0)) => error("modulus by zero"),
        ("_/_", Int(a), Int(b)) => whole(a.checked_div(*b)),
        ("_%_", Int(a), Int(b)) => whole(a.checked_rem(*b)),
        ("_+_", Uint(a), Uint(b)) => unsigned(a.checked_add(*b)),
        ("_-_", Uint(a), Uint(b)) => unsigned(a.checked_sub(*b)),
        ("_*_", Uint(a), Uint(b)) => unsigned(a.checked_mul(*b)),
        ("_/_", Uint(a), Uint(b)) => unsigned(a.checked_div(*b)),
        ("_%_", Uint(a), Uint(b)) => unsigned(a.checked_rem(*b)),
        ("_+_", Double(a), Double(b)) => Ok(Double(a + b)),
        ("_-_", Double(a), Double(b)) => Ok(Double(a - b)),
        ("_*_", Double(a), Double(b)) => Ok(Double(a * b)),
        ("_/_", Double(a), Double(b)) => Ok(Double(a / b)),
        ("_+_", Value::String(a), Value::String(b)) => Ok(Value::from(format!("{a}{b}"))),
        ("_+_", Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes([&**a, &**b].concat().into())),
        ("_+_", Value::List(a), Value::List(b)) => Ok(a.join(b)),
        ("_+_", Duration(a), Duration(b)) => span(a.checked_add(*b)),
        ("_-_", Duration(a), Duration(b)) => span(a.checked_sub(*b)),
        ("_+_", Timestamp(a), Duration(b)) | ("_+_", Duration(b), Timestamp(a)) => moment(a.checked_add(*b).ok()),
        ("_-_", Timestamp(a), Duration(b)) => moment(a.checked_sub(*b).ok()),
        ("_-_", Timestamp(a), Timestamp(b)) => Ok(Duration(a.duration_since(*b))),
        _ => Err(Fault::overload()),
    }
}

fn span<'a>(span: Option<jiff::SignedDuration>) -> Outcome<'a> {
    span.map(Value::Duration).ok_or_else(|| Fault::Error("duration overflow".to_owned()))
}

fn moment<'a>(at: Option<jiff::Timestamp>) -> Outcome<'a> {
    at.map(Value::Timestamp).ok_or_else(|| Fault::Error("timestamp overflow".to_owned()))
}

fn convert<'a>(to: &str, value: &Value<'a>) -> Outcome<'a> {
    let range = || Fault::Error("range".to_owned());
    Ok(match (to, value) {
        ("bool", Value::Bool(_))
        | ("int", Value::Int(_))
        | ("uint", Value::Uint(_))
        | ("double", Value::Double(_))
        | ("string", Value::String(_))
        | ("bytes", Value::Bytes(_)) => value.clone(),
        ("bool", Value::String(text)) => match &**text {
            "true" | "TRUE" | "True" | "t" | "1" => Value::Bool(true),
            "false" | "FALSE" | "False" | "f" | "0" => Value::Bool(false),
            _ => return error("type conversion error from 'string' to 'bool'"),
        },
        ("int", Value::Uint(number)) => Value::Int(i64::try_from(*number).map_err(|_| range())?),
        ("int", Value::Double(number)) if number.is_finite() && number.abs() < 9.3e18 => Value::Int(*number as i64),
        ("int", Value::Double(_)) => return Err(range()),
        ("int", Value::String(text)) => match text.parse() {
            Ok(number) => Value::Int(number),
            Err(_) => return error("type conversion error from 'string' to 'int'"),
        },
        ("int", Value::Timestamp(at)) => Value::Int(at.as_second()),
        ("int", Value::Duration(span)) => Value::Int(i64::try_from(span.as_nanos()).map_err(|_| range())?),
        ("uint", Value::Int(number)) => Value::Uint(u64::try_from(*number).map_err(|_| range())?),
        ("uint", Value::Double(number)) if (0.0..1.8e19).contains(number) => Value::Uint(*number as u64),
        ("uint", Value::Double(_)) => return Err(range()),
        ("uint", Value::String(text)) => match text.parse() {
            Ok(number) => Value::Uint(number),
            Err(_) => return error("type conversion error from 'string' to 'uint'"),
        },
        ("double", Value::Int(number)) => Value::Double(*number as f64),
        ("double", Value::Uint(number)) => Value::Double(*number as f64),
        ("double", Value::String(text)) => match text.parse() {
            Ok(number) => Value::Double(number),
            Err(_) => return error("type conversion error from 'string' to 'double'"),
        },
        ("bytes", Value::String(text)) => Value::Bytes(text.as_bytes().into()),
        ("string", Value::Bytes(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) => Value::String(Cow::Owned(text.to_owned())),
            Err(_) => return error("invalid UTF-8 in bytes, cannot convert to string"),
        },
        (
            "string",
            Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::Timestamp(_)
            | Value::Duration(_)
            | Value::Opaque(Opaque::Ip(_) | Opaque::Cidr(_)),
        ) => Value::from(super::strings::show(value)),
        _ => return Err(Fault::overload()),
    })
}
