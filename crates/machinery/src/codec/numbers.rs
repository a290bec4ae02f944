//! Numbers of a JSON text as they are written there. A tree holds 64 bits of each; a quantity has no such bounds, and Go's messages show
//! the number as it was sent.
//!
//! The text has been read before: whatever is no JSON is not looked for here.

use serde_json::{Number, Value};

/// What a text consists of, as far as the places of numbers are concerned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// `{` or `[`.
    Open {
        object: bool,
    },
    Close,
    Comma,
    /// A string, with its quotes.
    Text(&'a [u8]),
    /// A number that has more to it than digits, or more digits than fit into 64 bits.
    Number(&'a str),
    /// Any other scalar.
    Other,
}

pub(crate) fn tokens(bytes: &[u8]) -> impl Iterator<Item = (usize, Token<'_>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while bytes.get(at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b':')) {
            at += 1;
        }
        let start = at;
        let token = match bytes.get(at)? {
            open @ (b'{' | b'[') => Token::Open { object: *open == b'{' },
            b'}' | b']' => Token::Close,
            b',' => Token::Comma,
            b'"' => {
                at += 1;
                while let Some(byte) = bytes.get(at).filter(|byte| **byte != b'"') {
                    at += if *byte == b'\\' { 2 } else { 1 };
                }
                Token::Text(bytes.get(start..=at).unwrap_or_default())
            }
            _ => {
                let ends = |byte: &u8| matches!(byte, b',' | b']' | b'}' | b' ' | b'\t' | b'\r' | b'\n');
                let length = bytes[start..].iter().position(ends).unwrap_or(bytes.len() - start);
                at += length.saturating_sub(1);
                scalar(&bytes[start..start + length])
            }
        };
        at += 1;
        Some((start, token))
    })
}

fn scalar(bytes: &[u8]) -> Token<'_> {
    let starts = bytes.first().is_some_and(|first| *first == b'-' || first.is_ascii_digit());
    let rounded = || bytes.len() > 18 || bytes.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'));
    match std::str::from_utf8(bytes) {
        Ok(text) if starts && rounded() => Token::Number(text),
        _ => Token::Other,
    }
}

/// Whether no float holds this number.
pub(crate) fn is_out_of_range(number: &str) -> bool {
    number.parse::<f64>().is_ok_and(f64::is_infinite)
}

/// What Go says of a number that is to be a float and cannot.
pub fn in_range(bytes: &[u8]) -> Result<(), String> {
    let odd = tokens(bytes).find_map(|(_, token)| match token {
        Token::Number(number) if is_out_of_range(number) => Some(number),
        _ => None,
    });
    odd.map_or(Ok(()), |number| Err(format!("json: cannot unmarshal number {number} into Go value of type float64")))
}

/// The text with the largest float in the place of what is larger; `None` if nothing is.
pub(crate) fn clamped(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut clamped = String::new();
    let mut done = 0;
    for (at, token) in tokens(bytes) {
        let Token::Number(number) = token else { continue };
        if is_out_of_range(number) {
            clamped.push_str(&text[done..at]);
            clamped.push_str(if number.starts_with('-') {
                "-1.7976931348623157e308"
            } else {
                "1.7976931348623157e308"
            });
            done = at + number.len();
        }
    }
    (done > 0).then(|| clamped + &text[done..])
}

/// A number as Go's encoder writes it: floats without an exponent up to twenty-one digits.
pub fn go_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    match float.abs() {
        0.0 => "0".to_owned(),
        1e-6..1e21 => float.to_string(),
        _ => {
            let text = format!("{float:e}");
            let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let sign = if exponent.starts_with('-') { "" } else { "+" };
            format!("{digits}e{sign}{exponent}")
        }
    }
}

/// A float as it comes out of Go's JSON again: whole numbers are integers, as far as they have the digits of one.
pub fn of_float(number: f64) -> Value {
    let Some(float) = Number::from_f64(number) else { return Value::Null };
    let text = go_text(&float);
    let whole = text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from));
    Value::Number(whole.unwrap_or(float))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_where_they_stand() {
        let text = br#"{"a\"1.5": [1, 1.50, "2.5", -1e1000], "b":12345678901234567890,"c":true}"#;
        let found: Vec<&str> = tokens(text)
            .filter_map(|(_, token)| if let Token::Number(number) = token { Some(number) } else { None })
            .collect();
        assert_eq!(found, ["1.50", "-1e1000", "12345678901234567890"]);
    }

    #[test]
    fn what_no_float_holds_is_refused_or_clamped() {
        let text = r#"{"a": 1e1000, "b": [-1E1000]}"#;
        let refused = "json: cannot unmarshal number 1e1000 into Go value of type float64";
        assert_eq!(in_range(text.as_bytes()), Err(refused.to_owned()));
        assert_eq!(in_range(b"[1e300, 1e-1000]"), Ok(()));
        let clamped = clamped(text.as_bytes()).expect("two are too large");
        assert_eq!(clamped, r#"{"a": 1.7976931348623157e308, "b": [-1.7976931348623157e308]}"#);
        assert_eq!(super::clamped(b"[1]"), None);
    }

    #[test]
    fn floats_are_written_as_go_writes_them() {
        for (float, text) in [
            (1.5, "1.5"),
            (1e20, "100000000000000000000"),
            (18_446_744_073_709_551_616.0, "18446744073709552000"),
            (1e21, "1e+21"),
            (-1.234_567_890_123_456_8e29, "-1.2345678901234568e+29"),
            (1e-11, "1e-11"),
            (0.000_001, "0.000001"),
        ] {
            assert_eq!(go_text(&Number::from_f64(float).expect("a number")), text);
        }
        assert_eq!(go_text(&Number::from(u64::MAX)), u64::MAX.to_string());
    }
}
