//! Points and spans of time.

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::error;
use crate::eval::Outcome;
use crate::value::Value;

/// A function of time, if it is one.
pub fn call<'a>(function: &str, args: &[Value<'a>]) -> Option<Outcome<'a>> {
    Some(match (function, args) {
        ("duration", [Value::Duration(_)]) | ("timestamp", [Value::Timestamp(_)]) => Ok(args[0].clone()),
        ("duration", [Value::String(text)]) => match machinery::duration::parse_nanos(text) {
            Ok(nanos) => Ok(Value::Duration(SignedDuration::from_nanos(nanos))),
            Err(_) => error("type conversion error from 'string' to 'google.protobuf.Duration'"),
        },
        ("duration", [Value::Int(nanos)]) => Ok(Value::Duration(SignedDuration::from_nanos(*nanos))),
        ("timestamp", [Value::String(text)]) => match machinery::time::parse(text) {
            Some(at) => Ok(Value::Timestamp(at)),
            None => error("type conversion error from 'string' to 'google.protobuf.Timestamp'"),
        },
        ("timestamp", [Value::Int(seconds)]) => match Timestamp::from_second(*seconds) {
            Ok(at) => Ok(Value::Timestamp(at)),
            Err(_) => error("timestamp overflow"),
        },
        (_, [Value::Duration(span)]) => {
            let nanos = span.as_nanos();
            let value = match function {
                "getHours" => nanos / 3_600_000_000_000,
                "getMinutes" => nanos / 60_000_000_000,
                "getSeconds" => nanos / 1_000_000_000,
                "getMilliseconds" => nanos / 1_000_000,
                _ => return None,
            };
            Ok(Value::Int(i64::try_from(value).unwrap_or(i64::MAX)))
        }
        (_, [Value::Timestamp(at)]) => return part(function, *at, TimeZone::UTC),
        (_, [Value::Timestamp(at), Value::String(zone)]) => match time_zone(zone) {
            Some(zone) => return part(function, *at, zone),
            None => error(format!("unknown time zone {zone}")),
        },
        _ => return None,
    })
}

fn part<'a>(function: &str, at: Timestamp, zone: TimeZone) -> Option<Outcome<'a>> {
    let at = at.to_zoned(zone);
    let value = match function {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        "getMilliseconds" => i64::from(at.millisecond()),
        _ => return None,
    };
    Some(Ok(Value::Int(value)))
}

/// A name, or an offset such as `-02:00`.
fn time_zone(name: &str) -> Option<TimeZone> {
    if let Some((hours, minutes)) = name.split_once(':') {
        let negative = hours.starts_with('-');
        let hours: i32 = hours.trim_start_matches(['+', '-']).parse().ok()?;
        let seconds = hours * 3600 + minutes.parse::<i32>().ok()? * 60;
        let offset = jiff::tz::Offset::from_seconds(if negative { -seconds } else { seconds }).ok()?;
        return Some(TimeZone::fixed(offset));
    }
    TimeZone::get(name).ok()
}

/// In seconds, as protobuf writes them: `1.5s`.
pub fn format_duration(span: SignedDuration) -> String {
    let (seconds, nanos) = (span.as_secs(), span.subsec_nanos());
    let sign = if span.is_negative() { "-" } else { "" };
    let fraction = format!("{:09}", nanos.unsigned_abs());
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() {
        format!("{sign}{}s", seconds.unsigned_abs())
    } else {
        format!("{sign}{}.{fraction}s", seconds.unsigned_abs())
    }
}

/// As RFC 3339 has it, with as much of a fraction as there is.
pub fn format_timestamp(at: Timestamp) -> String {
    at.to_string()
}
