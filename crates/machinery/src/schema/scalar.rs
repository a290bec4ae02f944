//! Scalars with a meaning: their check, their canonical form, and Go's words for what is wrong with them.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde_json::Value;

use crate::quantity::Quantity;
use crate::time;

/// What becomes of a value that was looked at.
pub(super) enum Verdict {
    /// It is fine as it is.
    Keep,
    /// It is fine, and this is its canonical form.
    Replace(Value),
    /// It means "not set".
    Unset,
}

/// How fine a time is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    Seconds,
    Micros,
    /// Seconds, without saying where.
    Local,
    Days,
}

pub(super) fn quantity(value: &Value) -> Result<Verdict, String> {
    let parsed = match Quantity::from_value(value) {
        Some(parsed) => parsed.map_err(|error| error.to_string())?,
        None => return Err(crate::quantity::Error::Format.to_string()),
    };
    let canonical = parsed.to_string();
    Ok(if value.as_str() == Some(&canonical) { Verdict::Keep } else { Verdict::Replace(Value::String(canonical)) })
}

pub(super) fn bytes(text: &str) -> Result<Verdict, String> {
    let stripped: String;
    let compact = if text.contains(['\r', '\n']) {
        stripped = text.replace(['\r', '\n'], "");
        &stripped
    } else {
        text
    };
    match STANDARD.decode(compact) {
        Ok(_) if compact.len() == text.len() => Ok(Verdict::Keep),
        Ok(_) => Ok(Verdict::Replace(Value::from(compact))),
        // Bits that say nothing may be anything, and are gone when the value is written again.
        Err(base64::DecodeError::InvalidLastSymbol(..)) => match LENIENT.decode(compact) {
            Ok(decoded) => Ok(Verdict::Replace(Value::from(STANDARD.encode(decoded)))),
            Err(_) => Err(illegal(text, *b"+/")),
        },
        Err(_) => Err(illegal(text, *b"+/")),
    }
}

const TRAILING: GeneralPurposeConfig = GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true);
const LENIENT: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, TRAILING);
const LENIENT_URL: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, TRAILING);

/// Reads bytes from base64 as it stands in addresses; the error is Go's.
pub fn url_bytes(text: &str) -> Result<Vec<u8>, String> {
    LENIENT_URL.decode(text.replace(['\r', '\n'], "")).map_err(|_| illegal(text, *b"-_"))
}

/// Go's complaint about a text that is no base64: it names the first byte that cannot stand where it does, and the beginning of a group
/// of four that ends too early. `marks` are the two letters that are none.
fn illegal(text: &str, marks: [u8; 2]) -> String {
    let bytes = text.as_bytes();
    let skip = |mut at: usize| {
        while bytes.get(at).is_some_and(|byte| matches!(byte, b'\r' | b'\n')) {
            at += 1;
        }
        at
    };
    let (mut at, mut taken) = (0, 0);
    let wrong = loop {
        at = skip(at);
        match bytes.get(at) {
            None => break at - taken,
            Some(b'=') if taken < 2 => break at,
            Some(b'=') => {
                let mut next = skip(at + 1);
                if taken == 2 {
                    match bytes.get(next) {
                        None => break bytes.len(),
                        Some(b'=') => next = skip(next + 1),
                        Some(_) => break next - 1,
                    }
                }
                // Nothing may follow what fills a group up.
                break next;
            }
            Some(byte) if byte.is_ascii_alphanumeric() || marks.contains(byte) => taken = (taken + 1) % 4,
            Some(_) => break at,
        }
        at += 1;
    };
    format!("illegal base64 data at input byte {wrong}")
}

pub(super) fn timestamp(text: &str, precision: Precision) -> Result<Verdict, String> {
    let at = parse_time(text, precision)?;
    // The zero of Go's time is "not set".
    if at == jiff::civil::date(1, 1, 1).at(0, 0, 0, 0) {
        return Ok(Verdict::Unset);
    }
    let canonical = match precision {
        Precision::Seconds if text.len() == 20 => return Ok(Verdict::Keep),
        Precision::Micros if text.len() == 27 => return Ok(Verdict::Keep),
        Precision::Micros => at.strftime(time::MICROS),
        _ => at.strftime(time::SECONDS),
    };
    Ok(Verdict::Replace(Value::String(canonical.to_string())))
}

/// A text as Go's package of times quotes it: byte by byte, where it is no plain letter.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..0x80 => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\x{byte:02x}")),
        }
    }
    out.push('"');
    out
}

/// Reads a time, in UTC, as Go's layout says, complaining about the first part that does not fit.
pub(crate) fn parse_time(text: &str, precision: Precision) -> Result<DateTime, String> {
    let layout = match precision {
        Precision::Seconds => "2006-01-02T15:04:05Z07:00",
        Precision::Micros => "2006-01-02T15:04:05.000000Z07:00",
        Precision::Local => "2006-01-02T15:04:05",
        Precision::Days => "2006-01-02",
    };
    let shown = quoted(text);
    let wrong = |rest: &str, part: &str| {
        format!("parsing time {shown} as {layout:?}: cannot parse {} as {part:?}", quoted(rest))
    };
    let range = |part: &str| format!("parsing time {shown}: {part} out of range");
    let mut rest = text;
    let mut numbers = [0i32; 6];
    let parts = ["2006", "-01", "-02", "T15", ":04", ":05"];
    let parts = if precision == Precision::Days { &parts[..3] } else { &parts[..] };
    for (number, part) in numbers.iter_mut().zip(parts) {
        let digits = part.trim_start_matches(|letter: char| !letter.is_ascii_digit());
        let mark = &part[..part.len() - digits.len()];
        let after = rest.strip_prefix(mark).ok_or_else(|| wrong(rest, mark))?;
        *number = after
            .get(..digits.len())
            .filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| wrong(after, digits))?;
        rest = &after[digits.len()..];
    }
    let [year, month, day, hour, minute, second] = numbers;
    for (number, most, least, name) in [
        (month, 12, 1, "month"),
        (day, 31, 1, "day"),
        (hour, 23, 0, "hour"),
        (minute, 59, 0, "minute"),
        (second, 59, 0, "second"),
    ] {
        if number < least || number > most {
            return Err(range(name));
        }
    }
    let mut nanos = 0i32;
    let fraction = rest.strip_prefix(['.', ',']).filter(|_| precision != Precision::Days);
    let digits = fraction.map_or(0, |rest| rest.bytes().take_while(u8::is_ascii_digit).count());
    if precision == Precision::Micros && digits < 6 {
        return Err(wrong(rest, ".000000"));
    }
    if let Some(after) = fraction.filter(|_| digits > 0) {
        let taken = if precision == Precision::Micros { 6 } else { digits };
        for place in 0..9 {
            let digit = after.as_bytes().get(place).filter(|_| place < taken).map_or(0, |byte| i32::from(byte - b'0'));
            nanos = nanos * 10 + digit;
        }
        rest = &after[taken..];
    }
    let (length, offset) = match precision {
        Precision::Local | Precision::Days => (0, 0),
        Precision::Seconds | Precision::Micros => {
            let length = if rest.starts_with('Z') { 1 } else { 6 };
            (length, rest.get(..length).and_then(offset).ok_or_else(|| wrong(rest, "Z07:00"))?)
        }
    };
    if rest.len() > length {
        return Err(format!("parsing time {shown}: extra text: {}", quoted(&rest[length..])));
    }
    let civil = DateTime::new(year as i16, month as i8, day as i8, hour as i8, minute as i8, second as i8, nanos)
        .map_err(|_| range("day"))?;
    // A year of five digits could be written, and never read again.
    civil
        .checked_sub(SignedDuration::from_secs(i64::from(offset)))
        .ok()
        .filter(|utc| utc.year() >= 0)
        .ok_or_else(|| range("year"))
}

/// `Z`, or hours and minutes from it, in seconds.
fn offset(text: &str) -> Option<i32> {
    if text == "Z" {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = text[1..].split_once(':')?;
    let two = |text: &str| (text.len() == 2).then(|| text.parse::<u8>().ok()).flatten();
    let (hours, minutes) = (two(hours)?, two(minutes)?);
    (hours <= 24 && minutes < 60).then(|| sign * (i32::from(hours) * 3600 + i32::from(minutes) * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(verdict: Result<Verdict, String>) -> Result<String, String> {
        verdict.map(|verdict| match verdict {
            Verdict::Keep => "keep".to_owned(),
            Verdict::Replace(value) => value.as_str().unwrap_or_default().to_owned(),
            Verdict::Unset => "unset".to_owned(),
        })
    }

    #[test]
    fn times_are_brought_to_utc_or_refused_in_gos_words() {
        for (text, expected) in [
            ("2026-02-03T04:05:06Z", Ok("keep")),
            ("2026-02-03T04:05:06.789+01:00", Ok("2026-02-03T03:05:06Z")),
            ("0001-01-01T00:00:00Z", Ok("unset")),
            ("0001-01-01T01:00:00+01:00", Ok("unset")),
            ("0000-01-01T00:00:00Z", Ok("keep")),
            ("9999-12-31T23:59:59Z", Ok("keep")),
            ("9999-12-31T23:59:59.9+01:00", Ok("9999-12-31T22:59:59Z")),
            ("9999-12-31T23:59:59-01:00", Err("parsing time \"9999-12-31T23:59:59-01:00\": year out of range")),
            ("x", Err("parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"")),
            ("2026-02", Err("parsing time \"2026-02\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"-\"")),
            ("2026-02-03T04:05:06Z\n", Err("parsing time \"2026-02-03T04:05:06Z\\x0a\": extra text: \"\\x0a\"")),
            ("2026-02-03T04:05:06Z-y", Err("parsing time \"2026-02-03T04:05:06Z-y\": extra text: \"-y\"")),
            ("2026-13-01T00:00:00Z", Err("parsing time \"2026-13-01T00:00:00Z\": month out of range")),
            ("2026-02-30T00:00:00Z", Err("parsing time \"2026-02-30T00:00:00Z\": day out of range")),
            (
                "2026-02-03T04:05:06",
                Err(
                    "parsing time \"2026-02-03T04:05:06\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"Z07:00\"",
                ),
            ),
        ] {
            let verdict = shown(timestamp(text, Precision::Seconds));
            assert_eq!(verdict, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
        assert_eq!(shown(timestamp("2026-02-03T04:05:06.000007Z", Precision::Micros)), Ok("keep".to_owned()));
        let micro = shown(timestamp("2026-02-03T04:05:06.000007-01:00", Precision::Micros));
        assert_eq!(micro, Ok("2026-02-03T05:05:06.000007Z".to_owned()));
        assert!(shown(timestamp("2026-02-03T04:05:06Z", Precision::Micros)).is_err());
    }

    #[test]
    fn times_without_a_place_and_days_are_read_as_go_reads_them() {
        for (text, precision, expected) in [
            ("2026-02-03T04:05:06", Precision::Local, Ok("2026-02-03T04:05:06")),
            ("2026-02-03T04:05:06.5", Precision::Local, Ok("2026-02-03T04:05:06.5")),
            ("2026-02-03", Precision::Days, Ok("2026-02-03T00:00:00")),
            (
                "2026-02-03t04:05:06z",
                Precision::Local,
                Err(
                    "parsing time \"2026-02-03t04:05:06z\" as \"2006-01-02T15:04:05\": cannot parse \"t04:05:06z\" as \"T\"",
                ),
            ),
            ("2026-02-03T04:05:06X", Precision::Local, Err("parsing time \"2026-02-03T04:05:06X\": extra text: \"X\"")),
            ("2026-02-03.5", Precision::Days, Err("parsing time \"2026-02-03.5\": extra text: \".5\"")),
            ("2026-02-30", Precision::Days, Err("parsing time \"2026-02-30\": day out of range")),
            (
                "today",
                Precision::Days,
                Err("parsing time \"today\" as \"2006-01-02\": cannot parse \"today\" as \"2006\""),
            ),
        ] {
            let read = parse_time(text, precision).map(|at| at.to_string());
            assert_eq!(read, expected.map(str::to_owned).map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn bytes_are_base64() {
        assert_eq!(shown(bytes("YWJj")), Ok("keep".to_owned()));
        assert_eq!(shown(bytes("YW\nJj")), Ok("YWJj".to_owned()));
        assert_eq!(shown(bytes("e31=")), Ok("e30=".to_owned()), "bits that say nothing are dropped");
        assert_eq!(shown(bytes("Zg=\n=")), Ok("Zg==".to_owned()));
        for (text, at) in [
            ("YW*j", 2),
            ("YWJjZ", 4),
            ("e30=x", 4),
            ("Zg=", 3),
            ("Zg=x", 2),
            ("Z", 0),
            ("=", 0),
            ("e3=0", 2),
            ("ab\n%", 3),
            ("Zg==\n\nx", 6),
            ("YWJj=", 4),
        ] {
            assert_eq!(shown(bytes(text)), Err(format!("illegal base64 data at input byte {at}")), "{text:?}");
        }
        assert_eq!(url_bytes("_-8="), Ok(vec![0xff, 0xef]));
        assert_eq!(url_bytes("_-8/"), Err("illegal base64 data at input byte 3".to_owned()));
    }
}
