//! Timestamps as Kubernetes writes them. The clock itself is injected by whoever has one.
//!
//! Objects may carry any time of the years 0 to 9999. A `Timestamp` ends a day earlier, so that every one can be shown in
//! every time zone; what is beyond is for us as late (or as early) as can be.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use crate::schema::scalar::{Precision, parse_time};

pub(crate) const SECONDS: &str = "%Y-%m-%dT%H:%M:%SZ";
pub(crate) const MICROS: &str = "%Y-%m-%dT%H:%M:%S.%6fZ";

/// `metav1.Time`: RFC 3339 in UTC, whole seconds.
pub fn format(at: Timestamp) -> String {
    at.strftime(SECONDS).to_string()
}

/// `metav1.MicroTime`: RFC 3339 in UTC with exactly six decimals.
pub fn format_micro(at: Timestamp) -> String {
    at.strftime(MICROS).to_string()
}

/// Reads either form, with any offset. `None` also for what a `Timestamp` cannot be.
pub fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// As [`parse`], and the nearest that can be for what is beyond.
pub fn parse_clamped(text: &str) -> Option<Timestamp> {
    let beyond = || {
        let at = utc(text)?;
        Some(if at < EPOCH { Timestamp::MIN } else { Timestamp::MAX })
    };
    parse(text).or_else(beyond)
}

/// As expressions of custom resources read a time: with an offset, or without one in UTC. Nothing at all is the beginning of time; the error is Go's.
pub fn parse_loosely(text: &str) -> Result<Timestamp, String> {
    if text.is_empty() {
        return Ok(Timestamp::UNIX_EPOCH);
    }
    let read = parse_time(text, Precision::Seconds).or_else(|_| parse_time(text, Precision::Local));
    read.map(in_range)
}

/// A day, as its first moment; the error is Go's.
pub fn parse_day(text: &str) -> Result<Timestamp, String> {
    parse_time(text, Precision::Days).map(in_range)
}

/// A time in UTC, or the nearest that can be.
fn in_range(at: DateTime) -> Timestamp {
    let beyond = if at < EPOCH { Timestamp::MIN } else { Timestamp::MAX };
    at.to_zoned(TimeZone::UTC).map_or(beyond, |at| at.timestamp())
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// Seconds since 1970 and nanoseconds, as messages have them.
pub(crate) fn to_unix(text: &str) -> Option<(i64, i32)> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Some((at.as_second(), at.subsec_nanosecond()));
    }
    let since = utc(text)?.duration_since(EPOCH);
    Some((since.as_secs(), since.subsec_nanos()))
}

/// The other way round, in one of the two forms. `None` for a time that has no such form.
pub(crate) fn from_unix(seconds: i64, nanos: i32, form: &str) -> Option<String> {
    let since = SignedDuration::from_secs(seconds).checked_add(SignedDuration::from_nanos(i64::from(nanos)))?;
    let at = EPOCH.checked_add(since).ok().filter(|at| at.year() >= 0)?;
    Some(at.strftime(form).to_string())
}

/// A time in UTC, also of the last day.
fn utc(text: &str) -> Option<DateTime> {
    let (civil, offset) = match text.strip_suffix('Z') {
        Some(civil) => (civil, "+00:00"),
        None => text.split_at_checked(text.len().checked_sub(6)?)?,
    };
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let seconds = hours.parse::<u8>().map(i64::from).ok()? * 3600 + minutes.parse::<u8>().map(i64::from).ok()? * 60;
    let offset = SignedDuration::from_secs(if offset.starts_with('-') { -seconds } else { seconds });
    let civil = Some(civil).filter(|civil| civil.contains('T'))?.parse::<DateTime>().ok()?;
    Some(civil.checked_sub(offset).unwrap_or(civil))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds_and_micro_times_have_six_decimals() {
        let at = parse("2026-02-03T04:05:06.789+01:00").expect("a timestamp");
        assert_eq!(format(at), "2026-02-03T03:05:06Z");
        assert_eq!(format_micro(at), "2026-02-03T03:05:06.789000Z");
    }

    #[test]
    fn the_last_day_is_as_late_as_can_be() {
        for (text, expect) in [
            ("9999-12-31T23:59:59Z", Some(Timestamp::MAX)),
            ("9999-12-31T23:59:59.999999Z", Some(Timestamp::MAX)),
            ("9999-12-31T23:59:59-05:00", Some(Timestamp::MAX)),
            ("9999-12-31", None),
            ("9999-12-32T00:00:00Z", None),
            ("never", None),
            ("", None),
        ] {
            assert_eq!(parse_clamped(text), expect, "{text}");
        }
    }

    #[test]
    fn every_time_of_an_object_can_be_in_a_message() {
        for text in ["0000-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "2026-02-03T04:05:06Z", "9999-12-31T23:59:59Z"] {
            let (seconds, nanos) = to_unix(text).expect("a time");
            assert_eq!(from_unix(seconds, nanos, SECONDS).as_deref(), Some(text));
        }
        let (seconds, nanos) = to_unix("1969-12-31T23:59:59.000007Z").expect("a time");
        assert_eq!(from_unix(seconds, nanos, MICROS).as_deref(), Some("1969-12-31T23:59:59.000007Z"));
        assert_eq!(from_unix(253_402_300_799, 0, SECONDS).as_deref(), Some("9999-12-31T23:59:59Z"));
        assert_eq!(from_unix(253_402_300_800, 0, SECONDS), None);
        assert_eq!(from_unix(i64::MAX, i32::MAX, SECONDS), None);
        assert_eq!(from_unix(i64::MIN, i32::MIN, SECONDS), None);
    }
}
