//! JSON, as strictly and as leniently as Go reads it.
//!
//! `serde_json` does the reading. It knows neither keys given twice nor Go's messages, so keys are watched while the tree
//! is built, and a document that fails is scanned a second time, for the message alone.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::{Decoded, Limits, MAX_DUPLICATES, Path, numbers};
use crate::status::ApiError;

pub fn decode(bytes: &[u8], limits: Limits) -> Result<Decoded, ApiError> {
    let decoded = decode_clamped(bytes, limits)?;
    if decoded.rounded {
        numbers::in_range(bytes).map_err(ApiError::bad_request)?;
    }
    Ok(decoded)
}

/// As [`decode`], with the largest float in the place of numbers that no float holds.
pub fn decode_clamped(bytes: &[u8], limits: Limits) -> Result<Decoded, ApiError> {
    let mut watch = Watch { duplicates: Vec::new(), depth: limits.depth, too_deep: None, rounded: false };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    deserializer.disable_recursion_limit();
    let read = Node { watch: &mut watch, path: Path::Root, depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    match read {
        Ok(value) => Ok(Decoded { value, duplicates: watch.duplicates, rounded: watch.rounded }),
        Err(error) => {
            if let Some(opening) = watch.too_deep {
                return Err(ApiError::bad_request(format!("invalid character '{opening}' exceeded max depth")));
            }
            if let Some(message) = syntax_error(bytes) {
                return Err(ApiError::bad_request(message));
            }
            match lenient_text(bytes).or_else(|| numbers::clamped(bytes)) {
                Some(text) => decode_clamped(text.as_bytes(), limits),
                None => Err(ApiError::bad_request(format!("json: {error}"))),
            }
        }
    }
}

/// Reads what one of our own encoders wrote, into whatever type. Its depth was checked when it came in.
pub(crate) fn decode_own<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    deserializer.disable_recursion_limit();
    let value = T::deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

struct Watch {
    duplicates: Vec<String>,
    depth: usize,
    too_deep: Option<char>,
    rounded: bool,
}

impl Watch {
    fn twice(&mut self, path: Path<'_>) {
        if self.duplicates.len() < MAX_DUPLICATES {
            let complaint = format!("duplicate field {:?}", path.to_string());
            if !self.duplicates.contains(&complaint) {
                self.duplicates.push(complaint);
            }
        }
    }
}

/// A value to be read, and where it stands.
struct Node<'a> {
    watch: &'a mut Watch,
    path: Path<'a>,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Node<'_> {
    fn enter<E: serde::de::Error>(&mut self, opening: char) -> Result<usize, E> {
        if self.depth >= self.watch.depth {
            self.watch.too_deep = Some(opening);
            return Err(E::custom("exceeded max depth"));
        }
        Ok(self.depth + 1)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.watch.rounded = true;
        // To Go `-0` is an integer; a `-0.0` in the place of one is refused by its text.
        if value == 0.0 && value.is_sign_negative() {
            return Ok(Value::from(0));
        }
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number without a value"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Value, A::Error> {
        let depth = self.enter('[')?;
        let mut items = Vec::new();
        loop {
            let path = Path::Index(&self.path, items.len());
            match seq.next_element_seed(Node { watch: self.watch, path, depth })? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        let depth = self.enter('{')?;
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = Path::Key(&self.path, &key);
            let value = map.next_value_seed(Node { watch: self.watch, path, depth })?;
            match fields.entry(key) {
                Entry::Vacant(vacant) => drop(vacant.insert(value)),
                Entry::Occupied(mut occupied) => {
                    self.watch.twice(Path::Key(&self.path, occupied.key()));
                    occupied.insert(value);
                }
            }
        }
        Ok(Value::Object(fields))
    }
}

/// A document that is fine by Go and not by us, made fine: bytes that are no UTF-8 and halves of surrogate pairs become
/// the replacement character. `None` if there is nothing of the kind in it.
fn lenient_text(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut changed = matches!(text, Cow::Owned(_));
    let mut out = String::with_capacity(text.len());
    let mut rest: &str = &text;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        out.push_str(before);
        let unit = |text: &str| {
            let digits = text.strip_prefix("\\u")?.get(..4)?;
            u32::from_str_radix(digits, 16).ok()
        };
        let taken = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                out.push('\u{fffd}');
                changed = true;
                rest = &escape[6..];
                continue;
            }
            // The escaped character goes along, so that an escaped backslash starts nothing.
            _ => 1 + escape[1..].chars().next().map_or(0, char::len_utf8),
        };
        out.push_str(&escape[..taken]);
        rest = &escape[taken..];
    }
    out.push_str(rest);
    changed.then_some(out)
}

/// What Go's scanner would say about a document that is not JSON; `None` if it is.
fn syntax_error(bytes: &[u8]) -> Option<String> {
    Scanner { bytes, at: 0 }.scan().err()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    AfterField,
    AfterItem,
    Nothing,
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn scan(&mut self) -> Result<(), String> {
        // One entry per open object (true) or list (false).
        let mut open: Vec<bool> = Vec::new();
        let mut next = Next::Value;
        loop {
            while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
                self.at += 1;
            }
            let Some(byte) = self.peek() else {
                return if next == Next::Nothing { Ok(()) } else { Err(END.to_owned()) };
            };
            let after = |open: &[bool]| match open.last() {
                None => Next::Nothing,
                Some(true) => Next::AfterField,
                Some(false) => Next::AfterItem,
            };
            next = match (next, byte) {
                (Next::ValueOrEnd, b']')
                | (Next::AfterItem, b']')
                | (Next::KeyOrEnd, b'}')
                | (Next::AfterField, b'}') => {
                    open.pop();
                    self.at += 1;
                    after(&open)
                }
                (Next::Value | Next::ValueOrEnd, b'{') => {
                    open.push(true);
                    self.at += 1;
                    Next::KeyOrEnd
                }
                (Next::Value | Next::ValueOrEnd, b'[') => {
                    open.push(false);
                    self.at += 1;
                    Next::ValueOrEnd
                }
                (Next::Value | Next::ValueOrEnd, _) => {
                    self.scalar(byte)?;
                    after(&open)
                }
                (Next::Key | Next::KeyOrEnd, b'"') => {
                    self.string()?;
                    Next::Colon
                }
                (Next::Key | Next::KeyOrEnd, _) => {
                    return Err(self.invalid(0, "looking for beginning of object key string"));
                }
                (Next::Colon, b':') => {
                    self.at += 1;
                    Next::Value
                }
                (Next::Colon, _) => return Err(self.invalid(0, "after object key")),
                (Next::AfterField, b',') => {
                    self.at += 1;
                    Next::Key
                }
                (Next::AfterField, _) => return Err(self.invalid(0, "after object key:value pair")),
                (Next::AfterItem, b',') => {
                    self.at += 1;
                    Next::Value
                }
                (Next::AfterItem, _) => return Err(self.invalid(0, "after array element")),
                (Next::Nothing, _) => return Err(self.invalid(0, "after top-level value")),
            };
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self) -> Result<u8, String> {
        let byte = self.peek().ok_or(END)?;
        self.at += 1;
        Ok(byte)
    }

    fn scalar(&mut self, first: u8) -> Result<(), String> {
        match first {
            b'"' => self.string(),
            b't' => self.literal("true"),
            b'f' => self.literal("false"),
            b'n' => self.literal("null"),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(self.invalid(0, "looking for beginning of value")),
        }
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.at += 1;
        for expected in literal.bytes().skip(1) {
            let byte = self.take()?;
            if byte != expected {
                return Err(self.invalid(1, &format!("in literal {literal} (expecting '{}')", char::from(expected))));
            }
        }
        Ok(())
    }

    fn string(&mut self) -> Result<(), String> {
        self.at += 1;
        loop {
            match self.take()? {
                b'"' => return Ok(()),
                b'\\' => match self.take()? {
                    b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => {}
                    b'u' => {
                        for _ in 0..4 {
                            let byte = self.take()?;
                            if !byte.is_ascii_hexdigit() {
                                return Err(self.invalid(1, "in \\u hexadecimal character escape"));
                            }
                        }
                    }
                    _ => return Err(self.invalid(1, "in string escape code")),
                },
                0..0x20 => return Err(self.invalid(1, "in string literal")),
                _ => {}
            }
        }
    }

    fn number(&mut self) -> Result<(), String> {
        let digits = |scanner: &mut Self, context: &str| {
            let byte = scanner.take()?;
            if !byte.is_ascii_digit() {
                return Err(scanner.invalid(1, context));
            }
            while scanner.peek().is_some_and(|byte| byte.is_ascii_digit()) {
                scanner.at += 1;
            }
            Ok(())
        };
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            digits(self, "in numeric literal")?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            digits(self, "after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            digits(self, "in exponent of numeric literal")?;
        }
        Ok(())
    }

    /// What Go says of the character that was read `back` bytes ago, or is about to be.
    fn invalid(&self, back: usize, context: &str) -> String {
        let rest = &self.bytes[self.at - back..];
        let first = rest.first().copied().unwrap_or_default();
        if first.is_ascii() {
            return invalid(first, context);
        }
        let length = rest.len().min(4);
        let letter =
            (1..=length).find_map(|end| std::str::from_utf8(&rest[..end]).ok()).and_then(|text| text.chars().next());
        let shown = match letter {
            None => format!("\\x{first:02x}"),
            Some(letter) if letter.is_control() || matches!(letter, '\u{feff}' | '\u{a0}' | '\u{ad}') => {
                format!("\\u{:04x}", u32::from(letter))
            }
            Some(letter) => letter.to_string(),
        };
        format!("invalid character '{shown}' {context}")
    }
}

const END: &str = "unexpected end of JSON input";

fn invalid(byte: u8, context: &str) -> String {
    let shown = match byte {
        b'\'' => "\\'".to_owned(),
        b'\\' => "\\\\".to_owned(),
        b'\x07' => "\\a".to_owned(),
        b'\x08' => "\\b".to_owned(),
        b'\x0c' => "\\f".to_owned(),
        b'\n' => "\\n".to_owned(),
        b'\r' => "\\r".to_owned(),
        b'\t' => "\\t".to_owned(),
        b'\x0b' => "\\v".to_owned(),
        0..0x20 | 0x7f => format!("\\x{byte:02x}"),
        other => char::from(other).to_string(),
    };
    format!("invalid character '{shown}' {context}")
}

/// JSON as Go writes it: safe to stand in HTML. Outside of its strings nothing could be unsafe.
pub fn html_safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => safe.push_str("\\u003c"),
            '>' => safe.push_str("\\u003e"),
            '&' => safe.push_str("\\u0026"),
            '\u{2028}' => safe.push_str("\\u2028"),
            '\u{2029}' => safe.push_str("\\u2029"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn read(text: impl AsRef<[u8]>) -> Result<Decoded, String> {
        decode(text.as_ref(), Limits::default()).map_err(|error| error.message)
    }

    #[test]
    fn documents_are_read_and_duplicates_named() {
        let decoded = read(r#"{"a": 1, "b": [{"c": 1, "c": 2, "c": 3}], "a": {"x": 1.5}}"#).expect("a document");
        assert_eq!(decoded.value, json!({"a": {"x": 1.5}, "b": [{"c": 3}]}));
        assert_eq!(decoded.duplicates, [r#"duplicate field "b[0].c""#, r#"duplicate field "a""#]);
    }

    #[test]
    fn what_is_no_json_gets_gos_words() {
        for (text, message) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("\"a", "unexpected end of JSON input"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("nul", "unexpected end of JSON input"),
            ("nope", "invalid character 'o' in literal null (expecting 'u')"),
            ("{} x", "invalid character 'x' after top-level value"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("\"\n\"", "invalid character '\\n' in string literal"),
            ("\"\\x\"", "invalid character 'x' in string escape code"),
            ("\"\\u00g0\"", "invalid character 'g' in \\u hexadecimal character escape"),
            ("kind: Pod", "invalid character 'k' looking for beginning of value"),
            ("\u{feff}{}", "invalid character '\\ufeff' looking for beginning of value"),
            ("世", "invalid character '世' looking for beginning of value"),
            ("\0", "invalid character '\\x00' looking for beginning of value"),
        ] {
            assert_eq!(read(text), Err(message.to_owned()), "{text}");
        }
    }

    #[test]
    fn nesting_is_bounded_and_odd_text_is_replaced() {
        assert_eq!(read(b"\xd9\xd9"), Err("invalid character '\\xd9' looking for beginning of value".to_owned()));
        let deep = "[".repeat(100_000);
        assert_eq!(read(deep), Err("invalid character '[' exceeded max depth".to_owned()));
        let deepest = format!("{}{}", "[".repeat(512), "]".repeat(512));
        assert!(read(deepest).is_ok());
        assert_eq!(read(b"\"a\xffb\"").expect("text").value, json!("a\u{fffd}b"));
        assert_eq!(read(r#""\ud83d\ude00 \ud83d x \\ud83d""#).expect("text").value, json!("😀 \u{fffd} x \\ud83d"));
    }

    proptest! {
        #[test]
        fn our_reader_and_gos_scanner_agree(text in "[\\[\\]{}\":,0-9a-e.tru\\\\ -]{0,24}") {
            let ours = serde_json::from_str::<Value>(&text).is_ok();
            prop_assert_eq!(ours, syntax_error(text.as_bytes()).is_none(), "{}", text);
            let _ = read(text);
        }
    }
}
