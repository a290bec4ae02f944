//! What a scalar means in YAML 1.1, and what it means to kustomize.

use granit_parser::{ScalarStyle, Tag};
use serde_json::Value;

use crate::codec::numbers::of_float;

const CORE: &str = "tag:yaml.org,2002:";

/// What words mean that are not quoted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// As in YAML 1.1.
    OfOld,
    /// Only `true` and `false` are truths, and dates are times.
    Core,
}

pub(super) fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, words: Words) -> Result<Value, String> {
    let tag = tag.map(|tag| (tag.handle(), tag.suffix()));
    match tag {
        Some((CORE, "str")) | Some(("!", "")) => Ok(Value::from(text)),
        Some((CORE, "binary")) => Ok(Value::from(text)),
        Some((CORE, wanted @ ("int" | "float" | "bool" | "null"))) => {
            let value = plain(text)?;
            let fits = match wanted {
                "int" => value.is_i64() || value.is_u64(),
                "float" => value.is_number(),
                "bool" => value.is_boolean(),
                _ => value.is_null(),
            };
            if fits { Ok(value) } else { Err(format!("cannot decode !!str `{text}` as a !!{wanted}")) }
        }
        _ if style == ScalarStyle::Plain && words == Words::Core => core(text),
        _ if style == ScalarStyle::Plain => plain(text),
        _ => Ok(Value::from(text)),
    }
}

/// What an unquoted scalar means to kustomize.
fn core(text: &str) -> Result<Value, String> {
    match plain(text)? {
        Value::Bool(_) if !["true", "false"].contains(&text.to_lowercase().as_str()) => Ok(Value::from(text)),
        Value::String(word) => Ok(Value::String(date(&word).unwrap_or(word))),
        other => Ok(other),
    }
}

/// A date, or a date and a time of day without a zone, as the time that it is in JSON.
fn date(text: &str) -> Option<String> {
    let (date, time) = text.split_once(' ').map_or((text, None), |(date, time)| (date, Some(time)));
    let parts: Vec<&str> = date.split('-').collect();
    let number = |part: &str, most: usize| {
        let fits = (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
        part.parse::<i8>().ok().filter(|_| fits)
    };
    let [year, month, day] = parts[..] else { return None };
    let year: i16 = year.parse().ok().filter(|_| year.len() == 4)?;
    let date = jiff::civil::Date::new(year, number(month, 2)?, number(day, 2)?).ok()?;
    let Some(time) = time else { return Some(format!("{date}T00:00:00Z")) };
    let mut parts = time.splitn(3, ':');
    let (hour, minute) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let second = parts.next()?;
    let whole = second.split_once('.').map_or(second, |(whole, _)| whole);
    let fraction = second[whole.len()..].trim_end_matches('0').trim_end_matches('.');
    let time = jiff::civil::Time::new(hour, minute, number(whole, 2)?, 0).ok()?;
    Some(format!("{date}T{time}{fraction}Z"))
}

/// What an unquoted scalar means in YAML 1.1.
pub(super) fn plain(text: &str) -> Result<Value, String> {
    match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Ok(Value::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Ok(Value::Bool(false));
        }
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        ".nan" | ".NaN" | ".NAN" => return Err("json: unsupported value: NaN".to_owned()),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => {
            return Err("json: unsupported value: +Inf".to_owned());
        }
        "-.inf" | "-.Inf" | "-.INF" => return Err("json: unsupported value: -Inf".to_owned()),
        _ => {}
    }
    let first = text.as_bytes()[0];
    if !(first.is_ascii_digit() || matches!(first, b'+' | b'-' | b'.')) {
        return Ok(Value::from(text));
    }
    let digits = text.replace('_', "");
    if first != b'.'
        && let Some(number) = integer(&digits)
    {
        return Ok(number);
    }
    let float = if first == b'.' { text } else { &digits };
    if (first == b'.' || is_float(float))
        && let Ok(number) = float.parse::<f64>()
        && number.is_finite()
    {
        return Ok(of_float(number));
    }
    Ok(Value::from(text))
}

/// Decimal, `0x` hexadecimal, `0b` binary, and octal with or without its `o`.
fn integer(text: &str) -> Option<Value> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, &lower[..]),
    };
    if !digits.bytes().next()?.is_ascii_alphanumeric() {
        return None;
    }
    let number = i128::from_str_radix(digits, radix).ok()?;
    let number = if negative { -number } else { number };
    i64::try_from(number).map(Value::from).or_else(|_| u64::try_from(number).map(Value::from)).ok()
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (number, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = match number.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(number),
    };
    number && exponent.is_none_or(|exponent| digits(exponent.strip_prefix(['-', '+']).unwrap_or(exponent)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn words_of_old_are_texts_to_kustomize() {
        for (text, value) in [
            ("yes", json!("yes")),
            ("off", json!("off")),
            ("n", json!("n")),
            ("True", json!(true)),
            ("0777", json!(511)),
            ("1e3", json!(1000)),
            ("1e", json!("1e")),
            ("~", json!(null)),
            ("2020-01-02", json!("2020-01-02T00:00:00Z")),
            ("2020-1-2 3:4:5.50", json!("2020-01-02T03:04:05.5Z")),
            ("2020-01-02T03:04:05Z", json!("2020-01-02T03:04:05Z")),
            ("2020-13-02", json!("2020-13-02")),
            ("2020-01", json!("2020-01")),
        ] {
            assert_eq!(core(text), Ok(value), "{text}");
        }
    }
}
