//! Durations as Go writes and reads them: `1h2m3.5s`, `250ms`, `0s`.
//!
//! Configuration files, flags, query parameters, schedules, expressions and protobuf all use this form, so there is one reader, which
//! takes what Go takes and refuses in Go's words.

use std::time::Duration;

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    // The micro sign, and the Greek letter that looks like it.
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The most nanoseconds that a negative duration has; positive ones have one less.
const MOST: u64 = 1 << 63;

/// Nanoseconds as Go prints them.
pub fn format_nanos(nanos: i64) -> String {
    let magnitude = nanos.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    let fraction = |whole: u64, rest: u64, digits: usize| {
        let text = format!("{rest:0digits$}");
        match text.trim_end_matches('0') {
            "" => format!("{whole}"),
            decimals => format!("{whole}.{decimals}"),
        }
    };
    match magnitude {
        0 => "0s".to_owned(),
        nanos if nanos < 1_000 => format!("{sign}{nanos}ns"),
        nanos if nanos < 1_000_000 => format!("{sign}{}µs", fraction(nanos / 1_000, nanos % 1_000, 3)),
        nanos if nanos < 1_000_000_000 => format!("{sign}{}ms", fraction(nanos / 1_000_000, nanos % 1_000_000, 6)),
        nanos => {
            let seconds = nanos / 1_000_000_000;
            let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
            let rest = fraction(seconds % 60, nanos % 1_000_000_000, 9);
            match (hours, minutes) {
                (0, 0) => format!("{sign}{rest}s"),
                (0, minutes) => format!("{sign}{minutes}m{rest}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{rest}s"),
            }
        }
    }
}

/// As [`format_nanos`]; what Go cannot hold is written as the longest it can.
pub fn format(duration: Duration) -> String {
    format_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

/// The nanoseconds of a duration, with its sign; the error is Go's.
pub fn parse_nanos(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let negative = text.starts_with('-');
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(invalid());
        }
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, left) = after.split_at(unit_end);
        if unit.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let Some((_, scale)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(format!("time: unknown unit {unit:?} in duration {text:?}"));
        };
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let part = whole.checked_mul(*scale).and_then(|part| part.checked_add(part_of(fraction, *scale)));
        total = part.and_then(|part| total.checked_add(part)).filter(|total| *total <= MOST).ok_or_else(invalid)?;
        rest = left;
    }
    if negative {
        return Ok(0_i64.wrapping_sub_unsigned(total));
    }
    i64::try_from(total).map_err(|_| invalid())
}

/// The nanoseconds behind the point. Go computes them in floating point; so do we, to round as it does.
fn part_of(fraction: &str, scale: u64) -> u64 {
    let (mut digits, mut tenths) = (0_u64, 1.0);
    for digit in fraction.bytes().map(|digit| u64::from(digit - b'0')) {
        match digits.checked_mul(10).and_then(|digits| digits.checked_add(digit)).filter(|digits| *digits <= MOST) {
            Some(more) => (digits, tenths) = (more, tenths * 10.0),
            None => break,
        }
    }
    (digits as f64 * (scale as f64 / tenths)) as u64
}

/// A duration that is not negative; `None` for all else.
pub fn parse(text: &str) -> Option<Duration> {
    u64::try_from(parse_nanos(text).ok()?).ok().map(Duration::from_nanos)
}

/// Seconds with two or three significant figures, in the units people think in.
pub fn human(seconds: i64) -> String {
    /// The larger unit, and the smaller one if there is any of it.
    fn two(large: i64, unit: &str, small: i64, rest: &str) -> String {
        if small == 0 { format!("{large}{unit}") } else { format!("{large}{unit}{small}{rest}") }
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let days = hours / 24;
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 2 * 365 => format!("{days}d"),
        _ if days < 8 * 365 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_and_read_as_go_does() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (250_000_000, "250ms"),
            (1_500_000_000, "1.5s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (3_723_000_000_000, "1h2m3s"),
            (-1, "-1ns"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(format_nanos(nanos), text);
            assert_eq!(parse_nanos(text), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn whatever_go_takes_is_taken() {
        for (text, nanos) in [
            ("0", 0),
            ("-0", 0),
            ("+5s", 5_000_000_000),
            ("5.s", 5_000_000_000),
            (".5s", 500_000_000),
            ("-.5s", -500_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            ("10.5s4m", 250_500_000_000),
            ("12us3μs4µs", 19_000),
            ("0.3333333333333333333h", 1_200_000_000_000),
            ("0.830103483285477580700h", 2_988_372_539_827),
        ] {
            assert_eq!(parse_nanos(text), Ok(nanos), "{text}");
        }
    }

    #[test]
    fn whatever_go_refuses_is_refused_in_its_words() {
        for (text, why) in [
            ("", "time: invalid duration \"\""),
            ("-", "time: invalid duration \"-\""),
            ("x", "time: invalid duration \"x\""),
            (".s", "time: invalid duration \".s\""),
            ("1..5s", "time: invalid duration \"1..5s\""),
            ("5", "time: missing unit in duration \"5\""),
            ("1h5", "time: missing unit in duration \"1h5\""),
            ("1d", "time: unknown unit \"d\" in duration \"1d\""),
            ("9223372036854775808ns", "time: invalid duration \"9223372036854775808ns\""),
            ("3000000h", "time: invalid duration \"3000000h\""),
        ] {
            assert_eq!(parse_nanos(text), Err(why.to_owned()), "{text}");
        }
        assert_eq!((parse("-1s"), parse("90s")), (None, Some(Duration::from_secs(90))));
    }

    #[test]
    fn durations_have_two_or_three_figures() {
        const MINUTE: i64 = 60;
        const HOUR: i64 = 60 * MINUTE;
        const DAY: i64 = 24 * HOUR;
        const YEAR: i64 = 365 * DAY;
        for (seconds, shown) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (2 * MINUTE, "2m"),
            (2 * MINUTE + 1, "2m1s"),
            (10 * MINUTE - 1, "9m59s"),
            (10 * MINUTE, "10m"),
            (3 * HOUR - 1, "179m"),
            (3 * HOUR, "3h"),
            (3 * HOUR + MINUTE, "3h1m"),
            (8 * HOUR, "8h"),
            (2 * DAY - 1, "47h"),
            (2 * DAY, "2d"),
            (2 * DAY + HOUR, "2d1h"),
            (8 * DAY, "8d"),
            (2 * YEAR - 1, "729d"),
            (2 * YEAR, "2y"),
            (2 * YEAR + DAY, "2y1d"),
            (8 * YEAR, "8y"),
            (9 * YEAR - 1, "8y"),
        ] {
            assert_eq!(human(seconds), shown, "{seconds}");
        }
    }
}
