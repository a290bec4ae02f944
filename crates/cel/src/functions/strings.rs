//! Texts: searching, cutting, replacing, patterns, formatting.

use std::sync::{Arc, LazyLock, Mutex};

use regex::Regex;

use super::error;
use crate::eval::{Fault, Outcome};
use crate::functions::opaque::Opaque;
use crate::value::Value;

/// The least recently used first.
type Patterns = Vec<(String, Arc<Regex>)>;

/// Patterns that were compiled; policies use the same ones over and over.
static PATTERNS: LazyLock<Mutex<Patterns>> = LazyLock::new(Mutex::default);
const MAX_PATTERNS: usize = 128;

fn pattern(text: &str) -> Result<Arc<Regex>, Fault> {
    let mut known = PATTERNS.lock().expect("nobody panics while compiling");
    if let Some(at) = known.iter().position(|(pattern, _)| pattern == text) {
        // The least recently used is forgotten first.
        let found = known.remove(at);
        let regex = found.1.clone();
        known.push(found);
        return Ok(regex);
    }
    let regex = Arc::new(crate::regexp::compile(text).map_err(Fault::Error)?);
    if known.len() >= MAX_PATTERNS {
        known.remove(0);
    }
    known.push((text.to_owned(), regex.clone()));
    Ok(regex)
}

/// A value as text, as conversions and formats write it.
pub fn show(value: &Value<'_>) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        Value::Double(number) => double(*number),
        Value::String(text) => text.to_string(),
        Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Timestamp(at) => super::time::format_timestamp(*at),
        Value::Duration(span) => super::time::format_duration(*span),
        Value::Type(name) => name.to_string(),
        Value::List(list) => format!("[{}]", list.items().map(|item| show(&item)).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let mut entries: Vec<String> =
                map.entries().iter().map(|(key, value)| format!("{}: {}", show(key), show(value))).collect();
            entries.sort();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Optional(None) => "optional.none()".to_owned(),
        Value::Optional(Some(inner)) => format!("optional({})", show(inner)),
        Value::Opaque(Opaque::Ip(ip)) => ip.to_string(),
        Value::Opaque(Opaque::Cidr(net)) => net.to_string(),
        Value::Opaque(Opaque::Quantity(quantity)) => quantity.to_string(),
        Value::Opaque(opaque) => opaque.type_name().to_owned(),
    }
}

/// As Go writes the shortest form of a number.
fn double(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let size = number.abs();
    if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{number:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    number.to_string()
}

/// A function of texts, if it is one.
pub fn call<'a>(function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    if let (Some(Value::List(list)), "join") = (args.first(), function) {
        let between = args.get(1).and_then(Value::as_str).unwrap_or_default();
        let mut parts = Vec::with_capacity(list.len());
        for item in list.items() {
            match item {
                Value::String(text) => parts.push(text.into_owned()),
                _ => return Some(Err(Fault::overload())),
            }
        }
        return Some(Ok(Value::from(parts.join(between))));
    }
    let Some(Value::String(own)) = args.first() else { return None };
    Some(match (function, &args[1..]) {
        ("contains", [Value::String(part)]) => Ok(Value::Bool(own.contains(&**part))),
        ("startsWith", [Value::String(part)]) => Ok(Value::Bool(own.starts_with(&**part))),
        ("endsWith", [Value::String(part)]) => Ok(Value::Bool(own.ends_with(&**part))),
        ("matches", [Value::String(text)]) => pattern(text).map(|regex| Value::Bool(regex.is_match(own))),
        ("find", [Value::String(text)]) => {
            pattern(text).map(|regex| Value::from(regex.find(own).map_or("", |found| found.as_str()).to_owned()))
        }
        ("findAll", [Value::String(text)]) => find_all(own, text, -1),
        ("findAll", [Value::String(text), Value::Int(most)]) => find_all(own, text, *most),
        ("charAt", [Value::Int(at)]) => char_at(own, *at),
        ("indexOf", [Value::String(part)]) => index_of(own, part, 0),
        ("indexOf", [Value::String(part), Value::Int(from)]) => index_of(own, part, *from),
        ("lastIndexOf", [Value::String(part)]) => last_index_of(own, part, None),
        ("lastIndexOf", [Value::String(part), Value::Int(from)]) => last_index_of(own, part, Some(*from)),
        ("lowerAscii", []) => Ok(Value::from(own.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Value::from(own.to_ascii_uppercase())),
        ("trim", []) => Ok(Value::from(own.trim().to_owned())),
        ("replace", [Value::String(old), Value::String(new)]) => replace(own, old, new, -1),
        ("replace", [Value::String(old), Value::String(new), Value::Int(most)]) => replace(own, old, new, *most),
        ("split", [Value::String(at)]) => Ok(split(own, at, -1)),
        ("split", [Value::String(at), Value::Int(most)]) => Ok(split(own, at, *most)),
        ("substring", [Value::Int(from)]) => substring(own, *from, None),
        ("substring", [Value::Int(from), Value::Int(to)]) => substring(own, *from, Some(*to)),
        ("strings.quote", []) => Ok(Value::from(quote(own))),
        ("jsonpatch.escapeKey", []) => Ok(Value::from(own.replace('~', "~0").replace('/', "~1"))),
        ("format", [Value::List(list)]) => format(own, &list.items().collect::<Vec<_>>()),
        ("size", []) => Ok(Value::Int(args[0].size().try_into().unwrap_or(i64::MAX))),
        _ => return None,
    })
}

fn find_all<'a>(own: &str, text: &str, most: i64) -> Outcome<'a> {
    let regex = pattern(text)?;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    Ok(Value::list(regex.find_iter(own).take(most).map(|found| Value::from(found.as_str().to_owned())).collect()))
}

fn char_at<'a>(own: &str, at: i64) -> Outcome<'a> {
    let size = own.chars().count();
    match usize::try_from(at) {
        Ok(at) if at < size => Ok(Value::from(own.chars().nth(at).map(String::from).unwrap_or_default())),
        Ok(at) if at == size => Ok(Value::from(String::new())),
        _ => error(format!("index out of range: {at}")),
    }
}

/// Positions are of characters, not of bytes.
fn position(own: &str, byte: Option<usize>) -> Value<'static> {
    Value::Int(byte.map_or(-1, |byte| own[..byte].chars().count().try_into().unwrap_or(i64::MAX)))
}

fn byte_of(own: &str, at: i64) -> Result<usize, Fault> {
    let out = || Fault::Error(format!("index out of range: {at}"));
    let at = usize::try_from(at).map_err(|_| out())?;
    let ends = own.char_indices().map(|(byte, _)| byte).chain([own.len()]);
    ends.into_iter().nth(at).ok_or_else(out)
}

fn index_of<'a>(own: &str, part: &str, from: i64) -> Outcome<'a> {
    let start = byte_of(own, from)?;
    Ok(position(own, own[start..].find(part).map(|byte| byte + start)))
}

fn last_index_of<'a>(own: &str, part: &str, from: Option<i64>) -> Outcome<'a> {
    let last = match from {
        None => own.len(),
        Some(from) => byte_of(own, from)?,
    };
    let found = own.char_indices().map(|(byte, _)| byte).chain([own.len()]).rev();
    Ok(position(own, found.filter(|byte| *byte <= last).find(|byte| own[*byte..].starts_with(part))))
}

fn replace<'a>(own: &str, old: &str, new: &str, most: i64) -> Outcome<'a> {
    // What a replacement makes may be much longer than what is paid for.
    let longest = own.len().saturating_add(1).saturating_mul(new.len().max(1));
    if longest > 1 << 26 {
        return Err(Fault::Cost);
    }
    Ok(Value::from(match usize::try_from(most) {
        Ok(most) => own.replacen(old, new, most),
        Err(_) => own.replace(old, new),
    }))
}

fn split<'a>(own: &str, at: &str, most: i64) -> Value<'a> {
    let text = |part: &str| Value::from(part.to_owned());
    let parts: Vec<Value<'a>> = match (most, at) {
        (0, _) => Vec::new(),
        (most, "") => {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let mut parts: Vec<Value<'a>> = Vec::new();
            let mut left = own;
            while let Some(character) = left.chars().next().filter(|_| parts.len() + 1 < most) {
                parts.push(text(&left[..character.len_utf8()]));
                left = &left[character.len_utf8()..];
            }
            if !left.is_empty() {
                parts.push(text(left));
            }
            parts
        }
        (most, at) if most > 0 => own.splitn(usize::try_from(most).unwrap_or(usize::MAX), at).map(text).collect(),
        (_, at) => own.split(at).map(text).collect(),
    };
    Value::list(parts)
}

fn substring<'a>(own: &str, from: i64, to: Option<i64>) -> Outcome<'a> {
    let start = byte_of(own, from)?;
    let end = match to {
        None => own.len(),
        Some(to) => byte_of(own, to)?,
    };
    if start > end {
        return error(format!("invalid substring range. start: {from}, end: {}", to.unwrap_or_default()));
    }
    Ok(Value::from(own[start..end].to_owned()))
}

fn quote(own: &str) -> String {
    let mut quoted = String::from("\"");
    for character in own.chars() {
        match character {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

/// `"%s has %d".format([a, b])`.
fn format<'a>(own: &str, args: &[Value<'_>]) -> Outcome<'a> {
    let mut out = String::new();
    let mut args = args.iter().enumerate();
    let mut rest = own.chars().peekable();
    while let Some(character) = rest.next() {
        if character != '%' {
            out.push(character);
            continue;
        }
        if rest.peek() == Some(&'%') {
            rest.next();
            out.push('%');
            continue;
        }
        let mut precision = None;
        if rest.peek() == Some(&'.') {
            rest.next();
            let mut digits = String::new();
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            precision = digits.parse::<usize>().ok().filter(|digits| *digits <= 100);
        }
        let Some(clause) = rest.next() else { return error("unexpected end of format string") };
        let Some((at, arg)) = args.next() else { return error(format!("index {} out of range", args.len())) };
        let shown = match (clause, arg) {
            ('s', value) => show(value),
            ('d', Value::Int(number)) => number.to_string(),
            ('d', Value::Uint(number)) => number.to_string(),
            ('d', Value::Double(number)) => number.trunc().to_string(),
            ('f', Value::Int(number)) => format!("{:.*}", precision.unwrap_or(6), *number as f64),
            ('f', Value::Double(number)) => format!("{number:.*}", precision.unwrap_or(6)),
            ('e', Value::Double(number)) => {
                let text = format!("{number:.*e}", precision.unwrap_or(6));
                let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (sign, digits) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
                format!("{mantissa}e{sign}{digits:0>2}")
            }
            ('b', Value::Int(number)) => format!("{number:b}"),
            ('b', Value::Uint(number)) => format!("{number:b}"),
            ('b', Value::Bool(truth)) => u8::from(*truth).to_string(),
            ('o', Value::Int(number)) => format!("{number:o}"),
            ('o', Value::Uint(number)) => format!("{number:o}"),
            ('x', Value::Int(number)) => format!("{number:x}"),
            ('x', Value::Uint(number)) => format!("{number:x}"),
            ('X', Value::Int(number)) => format!("{number:X}"),
            ('X', Value::Uint(number)) => format!("{number:X}"),
            ('x', Value::String(text)) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
            ('X', Value::String(text)) => text.bytes().map(|byte| format!("{byte:02X}")).collect(),
            ('d' | 'f' | 'e' | 'b' | 'o' | 'x' | 'X', other) => {
                return error(format!(
                    "error during formatting: could not format argument {at} of type {} with clause '{clause}'",
                    other.type_name()
                ));
            }
            _ => {
                return error(format!(
                    "could not parse formatting clause: unrecognized formatting clause \"{clause}\""
                ));
            }
        };
        out.push_str(&shown);
    }
    Ok(Value::from(out))
}
