//! CBOR (RFC 8949), as upstream writes and reads it: text is written as byte strings, keys are sorted by their bytes, numbers
//! take the shortest form. A tree of JSON needs no schema to cross over: bytes are base64 text on both sides, unless a tag
//! says that they are raw, and then they become base64 here.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::{Map, Number, Value};

use super::Limits;
use crate::status::ApiError;

/// What every document starts with: the tag that says "this is CBOR".
pub const MAGIC: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// Why bytes are no document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// They end too early.
    #[error("unexpected EOF")]
    Truncated,
    /// Something follows the document.
    #[error("cbor: {0} bytes of extraneous data starting at index {1}")]
    Trailing(usize, usize),
    /// They break the grammar.
    #[error("cbor: invalid additional information {0} for type {1}")]
    Malformed(u8, &'static str),
    #[error("cbor: exceeded max nested level {0}")]
    TooDeep(usize),
    /// A key given twice.
    #[error("cbor: found duplicate map key at map element index {0}")]
    DuplicateKey(usize),
    /// A key that is no text.
    #[error("cbor: cannot unmarshal {0} into Go value of type string")]
    Key(&'static str),
    /// Text that is not UTF-8.
    #[error("cbor: invalid UTF-8 string")]
    Utf8,
    /// A number that is no `int64`.
    #[error("cbor: cannot unmarshal {0} into Go value of type int64 ({1} overflows Go's int64)")]
    Number(&'static str, i128),
    /// What has no place in JSON.
    #[error("cbor: cannot unmarshal {0} into Go value of type interface {{}}")]
    Unsupported(&'static str),
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        ApiError::bad_request(error.to_string())
    }
}

pub fn encode(value: &Value) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    put(&mut out, value);
    out
}

/// Writes an event of a watch. The object in it is a document of its own, as upstream writes it.
pub fn event(name: &str, object: &Value) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    head(&mut out, MAP, 2);
    put_text(&mut out, "type");
    put_text(&mut out, name);
    put_text(&mut out, "object");
    out.extend_from_slice(&MAGIC);
    put(&mut out, object);
    out
}

/// Reads one document. Keys given twice are an error and no mere complaint.
pub fn decode(bytes: &[u8], limits: Limits) -> Result<Value, Error> {
    let mut reader = Reader { bytes, at: 0, depth: limits.depth };
    let value = reader.value(0)?;
    match bytes.len() - reader.at {
        0 => Ok(value),
        left => Err(Error::Trailing(left, reader.at)),
    }
}

const UNSIGNED: u8 = 0;
const NEGATIVE: u8 = 1;
const BYTES: u8 = 2;
const TEXT: u8 = 3;
const ARRAY: u8 = 4;
const MAP: u8 = 5;
const TAG: u8 = 6;

fn head(out: &mut Vec<u8>, major: u8, argument: u64) {
    let major = major << 5;
    match argument {
        0..24 => out.push(major | argument as u8),
        24..=0xff => out.extend([major | 24, argument as u8]),
        0x100..=0xffff => {
            out.push(major | 25);
            out.extend((argument as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(major | 26);
            out.extend((argument as u32).to_be_bytes());
        }
        _ => {
            out.push(major | 27);
            out.extend(argument.to_be_bytes());
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    head(out, BYTES, text.len() as u64);
    out.extend(text.as_bytes());
}

fn put(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.push(0xf6),
        Value::Bool(flag) => out.push(if *flag { 0xf5 } else { 0xf4 }),
        Value::Number(number) => put_number(out, number),
        Value::String(text) => put_text(out, text),
        Value::Array(items) => {
            head(out, ARRAY, items.len() as u64);
            items.iter().for_each(|item| put(out, item));
        }
        Value::Object(fields) => {
            head(out, MAP, fields.len() as u64);
            // The length comes first in the encoding of a key, so it does in the order of keys.
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_by(|(a, _), (b, _)| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
            for (key, value) in sorted {
                put_text(out, key);
                put(out, value);
            }
        }
    }
}

fn put_number(out: &mut Vec<u8>, number: &Number) {
    if let Some(number) = number.as_u64() {
        head(out, UNSIGNED, number);
    } else if let Some(number) = number.as_i64() {
        head(out, NEGATIVE, !(number as u64));
    } else if let Some(number) = number.as_f64() {
        put_float(out, number);
    }
}

/// The shortest of the three forms that keeps the value.
fn put_float(out: &mut Vec<u8>, number: f64) {
    let single = number as f32;
    if f64::from(single) != number {
        out.push(0xfb);
        out.extend(number.to_bits().to_be_bytes());
    } else if let Some(half) = to_half(single) {
        out.push(0xf9);
        out.extend(half.to_be_bytes());
    } else {
        out.push(0xfa);
        out.extend(single.to_bits().to_be_bytes());
    }
}

/// The half-precision form of a number, if it has one.
fn to_half(number: f32) -> Option<u16> {
    let bits = number.to_bits();
    let sign = (bits >> 16) as u16 & 0x8000;
    let exponent = (bits >> 23 & 0xff) as i32 - 127;
    let mantissa = bits & 0x7f_ffff;
    let half = match exponent {
        -127 if mantissa == 0 => sign,
        -14..=15 if mantissa.trailing_zeros() >= 13 => sign | ((exponent + 15) as u16) << 10 | (mantissa >> 13) as u16,
        -24..=-15 => {
            let (full, shift) = (mantissa | 0x80_0000, (-exponent - 1) as u32);
            if full.trailing_zeros() < shift {
                return None;
            }
            sign | (full >> shift) as u16
        }
        _ => return None,
    };
    Some(half)
}

fn from_half(half: u16) -> f64 {
    let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(half >> 10 & 0x1f), f64::from(half & 0x3ff));
    match exponent {
        0 => sign * mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        _ => sign * (mantissa + 1024.0) * 2f64.powi(exponent - 25),
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
}

/// The first byte of an item taken apart, with its argument; no argument is an indefinite length.
struct Head {
    major: u8,
    info: u8,
    argument: Option<u64>,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or(Error::Truncated)?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn head(&mut self) -> Result<Head, Error> {
        let first = self.take(1)?[0];
        let (major, info) = (first >> 5, first & 0x1f);
        let argument = match info {
            0..24 => Some(u64::from(info)),
            24..28 => {
                let bytes = self.take(1 << (info - 24))?;
                Some(bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
            }
            31 if matches!(major, BYTES | TEXT | ARRAY | MAP | 7) => None,
            _ => return Err(Error::Malformed(info, name(major))),
        };
        Ok(Head { major, info, argument })
    }

    /// Whether the next byte ends an item of indefinite length; if so, takes it.
    fn ended(&mut self) -> Result<bool, Error> {
        let ended = *self.bytes.get(self.at).ok_or(Error::Truncated)? == 0xff;
        self.at += usize::from(ended);
        Ok(ended)
    }

    fn value(&mut self, depth: usize) -> Result<Value, Error> {
        if depth > self.depth {
            return Err(Error::TooDeep(self.depth));
        }
        let head = self.head()?;
        match head.major {
            UNSIGNED => match head.argument.map(i64::try_from) {
                Some(Ok(number)) => Ok(Value::from(number)),
                _ => Err(Error::Number("positive integer", i128::from(head.argument.unwrap_or_default()))),
            },
            NEGATIVE => match head.argument.map(i64::try_from) {
                Some(Ok(number)) => Ok(Value::from(!number)),
                _ => Err(Error::Number("negative integer", !i128::from(head.argument.unwrap_or_default()))),
            },
            BYTES | TEXT => Ok(Value::String(text(self.string(&head)?)?)),
            ARRAY => {
                let mut items = Vec::new();
                let mut left = head.argument;
                while self.more(&mut left)? {
                    items.push(self.value(depth + 1)?);
                }
                Ok(Value::Array(items))
            }
            MAP => self.map(&head, depth),
            TAG => self.tagged(head.argument.unwrap_or_default(), depth),
            _ => self.simple(&head),
        }
    }

    /// Whether a container has another item, of a known number or up to its end.
    fn more(&mut self, left: &mut Option<u64>) -> Result<bool, Error> {
        match left {
            None => Ok(!self.ended()?),
            Some(0) => Ok(false),
            Some(left) => {
                *left -= 1;
                Ok(true)
            }
        }
    }

    fn map(&mut self, head: &Head, depth: usize) -> Result<Value, Error> {
        let mut fields = Map::new();
        let mut left = head.argument;
        let mut index = 0;
        while self.more(&mut left)? {
            let head = self.head()?;
            if !matches!(head.major, BYTES | TEXT) {
                return Err(Error::Key(name(head.major)));
            }
            let key = text(self.string(&head)?)?;
            let value = self.value(depth + 1)?;
            if fields.insert(key, value).is_some() {
                return Err(Error::DuplicateKey(index));
            }
            index += 1;
        }
        Ok(Value::Object(fields))
    }

    /// The bytes of a string, in one piece or in many.
    fn string(&mut self, head: &Head) -> Result<Vec<u8>, Error> {
        let Some(length) = head.argument else {
            let mut whole = Vec::new();
            while !self.ended()? {
                let piece = self.head()?;
                match piece.argument {
                    Some(length) if piece.major == head.major => {
                        whole.extend(self.take(usize::try_from(length).map_err(|_| Error::Truncated)?)?);
                    }
                    _ => return Err(Error::Malformed(piece.info, name(piece.major))),
                }
            }
            return Ok(whole);
        };
        Ok(self.take(usize::try_from(length).map_err(|_| Error::Truncated)?)?.to_vec())
    }

    fn tagged(&mut self, tag: u64, depth: usize) -> Result<Value, Error> {
        match tag {
            // Bytes that JSON shows as base64 (for URLs, plain) or as hexadecimal digits.
            21..=23 => {
                let start = self.at;
                let head = self.head()?;
                if head.major != BYTES {
                    self.at = start;
                    return self.value(depth + 1);
                }
                let bytes = self.string(&head)?;
                Ok(Value::String(match tag {
                    21 => URL_SAFE_NO_PAD.encode(bytes),
                    22 => STANDARD.encode(bytes),
                    _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
                }))
            }
            // Seconds since the epoch.
            1 => {
                let seconds = self.value(depth + 1)?;
                let at = match seconds.as_i64() {
                    Some(seconds) => Timestamp::from_second(seconds).ok(),
                    None => seconds.as_f64().and_then(|s| Timestamp::from_nanosecond((s * 1e9) as i128).ok()),
                };
                at.map(|at| Value::String(at.to_string())).ok_or(Error::Unsupported("time"))
            }
            2 | 3 => Err(Error::Unsupported("bignum")),
            _ => self.value(depth + 1),
        }
    }

    fn simple(&mut self, head: &Head) -> Result<Value, Error> {
        let bits = head.argument.unwrap_or_default();
        let float = match head.info {
            20 => return Ok(Value::Bool(false)),
            21 => return Ok(Value::Bool(true)),
            22 => return Ok(Value::Null),
            25 => from_half(bits as u16),
            26 => f64::from(f32::from_bits(bits as u32)),
            27 => f64::from_bits(bits),
            _ => return Err(Error::Unsupported("simple value")),
        };
        Number::from_f64(float).map(Value::Number).ok_or(Error::Unsupported("NaN or infinity"))
    }
}

fn text(bytes: Vec<u8>) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|_| Error::Utf8)
}

fn name(major: u8) -> &'static str {
    match major {
        UNSIGNED => "positive integer",
        NEGATIVE => "negative integer",
        BYTES => "byte string",
        TEXT => "UTF-8 text string",
        ARRAY => "array",
        MAP => "map",
        TAG => "tag",
        _ => "primitives",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn read(bytes: &[u8]) -> Result<Value, Error> {
        decode(bytes, Limits::default())
    }

    #[test]
    fn an_event_holds_a_document() {
        let written = event("ADDED", &json!({"a": 1}));
        assert_eq!(hex(&written), "d9d9f7a24474797065454144444544466f626a656374d9d9f7a1416101");
        assert_eq!(read(&written), Ok(json!({"type": "ADDED", "object": {"a": 1}})));
    }

    #[test]
    fn values_take_their_shortest_form() {
        for (value, bytes) in [
            (json!(0), "00"),
            (json!(24), "1818"),
            (json!(1000), "1903e8"),
            (json!(-1), "20"),
            (json!(-1000), "3903e7"),
            (json!(i64::MIN), "3b7fffffffffffffff"),
            (json!(0.0), "f90000"),
            (json!(-0.0), "f98000"),
            (json!(1.5), "f93e00"),
            (json!(65504.0), "f97bff"),
            (json!(5.960464477539063e-8), "f90001"),
            (json!(0.00006103515625), "f90400"),
            (json!(100000.0), "fa47c35000"),
            (json!(1.1), "fb3ff199999999999a"),
            (json!("a"), "4161"),
            (json!([null, true, false]), "83f6f5f4"),
            (json!({"bb": 1, "a": 2}), "a241610242626201"),
        ] {
            let encoded = encode(&value);
            assert_eq!(hex(&encoded[3..]), bytes, "{value}");
            assert_eq!(read(&encoded), Ok(value));
        }
    }

    #[test]
    fn other_writers_are_understood() {
        for (bytes, value) in [
            (&b"\x61a"[..], json!("a")),
            (b"\x5f\x41a\x41b\xff", json!("ab")),
            (b"\x9f\x01\x02\xff", json!([1, 2])),
            (b"\xbf\x61a\x01\xff", json!({"a": 1})),
            (b"\xd6\x43abc", json!("YWJj")),
            (b"\xd5\x42\xff\xff", json!("__8")),
            (b"\xd7\x42\xff\x00", json!("ff00")),
            (b"\xc1\x00", json!("1970-01-01T00:00:00Z")),
            (b"\xc0\x741970-01-01T00:00:00Z", json!("1970-01-01T00:00:00Z")),
            (b"\xd9\x12\x34\x05", json!(5)),
            (b"\x18\x01", json!(1)),
        ] {
            assert_eq!(read(bytes), Ok(value), "{}", hex(bytes));
        }
    }

    #[test]
    fn what_is_no_document_is_refused() {
        for (bytes, error) in [
            (&b""[..], Error::Truncated),
            (b"\x42a", Error::Truncated),
            (b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff", Error::Truncated),
            (b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff", Error::Truncated),
            (b"\x00\x00", Error::Trailing(1, 1)),
            (b"\x1c", Error::Malformed(28, "positive integer")),
            (b"\xa2\x41a\x01\x61a\x02", Error::DuplicateKey(1)),
            (b"\xa1\x01\x02", Error::Key("positive integer")),
            (b"\x61\xff", Error::Utf8),
            (b"\x1b\xff\xff\xff\xff\xff\xff\xff\xff", Error::Number("positive integer", i128::from(u64::MAX))),
            (b"\xc2\x41a", Error::Unsupported("bignum")),
            (b"\xf7", Error::Unsupported("simple value")),
            (b"\xf9\x7e\x00", Error::Unsupported("NaN or infinity")),
            (b"\xff", Error::Unsupported("simple value")),
        ] {
            assert_eq!(read(bytes), Err(error), "{}", hex(bytes));
        }
        assert_eq!(read(&[0x81; 10_000]), Err(Error::TooDeep(512)));
        assert_eq!(read(&[0xc7; 10_000]), Err(Error::TooDeep(512)));
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_filter("finite", |float| float.is_finite()).prop_map(Value::from),
            any::<f32>()
                .prop_filter("finite", |float| float.is_finite())
                .prop_map(|float| Value::from(f64::from(float))),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,30}", inner, 0..4).prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_written_reads_back(value in tree()) {
            prop_assert_eq!(read(&encode(&value)), Ok(value));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = read(&bytes);
        }
    }
}
