//! Cron schedules: five fields, names, ranges, steps and the `@` words, read as the library reads them that upstream uses, and refused in
//! its words. The API server judges by it, the controller acts on it.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

/// How far ahead is looked: a schedule that never comes (31 February) ends the search.
const YEARS: i16 = 5;

/// A field of a schedule: its bounds and, for months and days of the week, names.
struct Bounds {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

const FIELDS: [Bounds; 5] = [
    Bounds { low: 0, high: 59, names: &[] },
    Bounds { low: 0, high: 23, names: &[] },
    Bounds { low: 1, high: 31, names: &[] },
    Bounds { low: 1, high: 12, names: &MONTHS },
    Bounds { low: 0, high: 6, names: &DAYS },
];

/// When something is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    times: Times,
    /// `TZ=`, which counts before any other time zone.
    zone: Option<TimeZone>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Times {
    /// `@every 90s`: whole seconds, at least one.
    Every(SignedDuration),
    /// Minutes, hours, days of the month, months and days of the week.
    Fields([Field; 5]),
}

/// The numbers that a field names, as bits, and whether it leaves the day open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Field {
    bits: u64,
    open: bool,
}

impl Field {
    fn has(self, number: i8) -> bool {
        self.bits & (1 << number) != 0
    }
}

impl Schedule {
    /// Reads a schedule; the error says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".to_owned());
        }
        let (mut rest, mut zone) = (text, None);
        if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
            let (named, after) = text.split_once(' ').unwrap_or((text, ""));
            let name = named.split_once('=').map_or("", |(_, name)| name);
            let found = TimeZone::get(name);
            zone = Some(found.map_err(|_| format!("provided bad location {name}: unknown time zone {name}"))?);
            rest = after.trim();
        }
        let times = if rest.starts_with('@') { descriptor(rest)? } else { fields(rest)? };
        Ok(Self { times, zone })
    }

    /// The first time after this one. A zone that the schedule names counts before the one given.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let [minutes, hours, days, months, weekdays] = match &self.times {
            Times::Every(delay) => {
                return Timestamp::from_second(after.as_second()).ok()?.checked_add(*delay).ok();
            }
            Times::Fields(fields) => *fields,
        };
        let zone = self.zone.as_ref().unwrap_or(zone);
        let start = after.to_zoned(zone.clone()).datetime();
        let is_due = |date: Date| {
            let day = days.has(date.day());
            let weekday = weekdays.has(date.weekday().to_sunday_zero_offset());
            // If both are restricted, either is enough.
            let due = if days.open || weekdays.open { day && weekday } else { day || weekday };
            months.has(date.month()) && due
        };
        let mut date = start.date();
        let mut first = (start.hour(), start.minute());
        let last_year = date.year() + YEARS;
        while date.year() <= last_year {
            if is_due(date) {
                for (hour, minute) in times(hours, minutes, first) {
                    let due = DateTime::from_parts(date, jiff::civil::time(hour, minute, 0, 0));
                    // A time that a change of clocks skips is not due that day.
                    let Ok(zoned) = zone.to_ambiguous_zoned(due).compatible() else { continue };
                    if zoned.datetime() == due && zoned.timestamp() > after {
                        return Some(zoned.timestamp());
                    }
                }
            }
            date = date.checked_add(1.day()).ok()?;
            first = (0, 0);
        }
        None
    }
}

/// Hours and minutes of a day, from a time on.
fn times(hours: Field, minutes: Field, from: (i8, i8)) -> impl Iterator<Item = (i8, i8)> {
    let hours = (from.0..24).filter(move |hour| hours.has(*hour));
    hours.flat_map(move |hour| {
        let minutes = (0..60_i8).filter(move |minute| minutes.has(*minute));
        minutes.filter(move |minute| hour > from.0 || *minute >= from.1).map(move |minute| (hour, minute))
    })
}

fn fields(text: &str) -> Result<Times, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", words.len(), words.join(" ")));
    }
    let mut fields = [Field::default(); 5];
    for ((field, word), bounds) in fields.iter_mut().zip(words).zip(&FIELDS) {
        for part in word.split(',').filter(|part| !part.is_empty()) {
            let more = range(part, bounds)?;
            *field = Field { bits: field.bits | more.bits, open: field.open || more.open };
        }
    }
    Ok(Times::Fields(fields))
}

fn descriptor(text: &str) -> Result<Times, String> {
    let same = match text {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => {
            let every = text.strip_prefix("@every ").ok_or_else(|| format!("unrecognized descriptor: {text}"))?;
            let nanos = machinery::duration::parse_nanos(every)
                .map_err(|why| format!("failed to parse duration {text}: {why}"))?;
            let seconds = SignedDuration::from_nanos(nanos).as_secs().max(1);
            return Ok(Times::Every(SignedDuration::from_secs(seconds)));
        }
    };
    fields(same)
}

/// `*`, `5`, `1-5`, each with an optional `/step`.
fn range(text: &str, bounds: &Bounds) -> Result<Field, String> {
    let parts: Vec<&str> = text.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let single = ends.len() == 1;
    let any = matches!(ends[0], "*" | "?");
    let (start, mut end) = if any {
        (bounds.low, bounds.high)
    } else {
        let start = number(ends[0], bounds.names, bounds.low)?;
        match ends.len() {
            1 => (start, start),
            2 => (start, number(ends[1], bounds.names, bounds.low)?),
            _ => return Err(format!("too many hyphens: {text}")),
        }
    };
    let step = match parts.len() {
        1 => 1,
        2 => {
            let step = number(parts[1], &[], 0)?;
            // A step from a single start goes on to the end.
            if single {
                end = bounds.high;
            }
            step
        }
        _ => return Err(format!("too many slashes: {text}")),
    };
    if start < bounds.low {
        return Err(format!("beginning of range ({start}) below minimum ({}): {text}", bounds.low));
    }
    if end > bounds.high {
        return Err(format!("end of range ({end}) above maximum ({}): {text}", bounds.high));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let step_by = usize::try_from(step).unwrap_or(usize::MAX);
    let bits = (start..=end).step_by(step_by).fold(0, |bits, number| bits | 1 << number);
    // With a step, `*` is a restriction like any other.
    Ok(Field { bits, open: any && step == 1 })
}

fn number(text: &str, names: &[&str], first: u32) -> Result<u32, String> {
    let lower = text.to_lowercase();
    if let Some((number, _)) = (first..).zip(names).find(|(_, name)| **name == lower) {
        return Ok(number);
    }
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        // What is beyond is out of every range.
        Ok(number) => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        Err(_) => Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schedule: &str, after: &str, expected: &[&str]) {
        let parsed = Schedule::parse(schedule).expect("a schedule");
        let mut at: Timestamp = after.parse().expect("a time");
        for expected in expected {
            at = parsed.next(at, &TimeZone::UTC).expect("a next time");
            assert_eq!(at.to_string(), *expected, "{schedule}");
        }
    }

    #[test]
    fn schedules_name_their_times() {
        check("*/15 * * * *", "2026-01-01T00:07:00Z", &["2026-01-01T00:15:00Z", "2026-01-01T00:30:00Z"]);
        check("0 9-17/4 * * MON-FRI", "2026-01-02T17:00:00Z", &["2026-01-05T09:00:00Z", "2026-01-05T13:00:00Z"]);
        check("0 0 29 2 *", "2026-01-01T00:00:00Z", &["2028-02-29T00:00:00Z"]);
        check("@hourly", "2026-01-01T00:00:00Z", &["2026-01-01T01:00:00Z"]);
        check("5 0 * jan,dec *", "2026-02-01T00:00:00Z", &["2026-12-01T00:05:00Z"]);
        check("30 4 * * 0", "2026-01-01T00:00:00Z", &["2026-01-04T04:30:00Z"]);
        check("0 0 1/15 * ?", "2026-01-02T00:00:00Z", &["2026-01-16T00:00:00Z", "2026-01-31T00:00:00Z"]);
    }

    #[test]
    fn of_two_restrictions_of_the_day_either_is_enough() {
        let thirteenth = ["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z"];
        check("0 0 13 * 5", "2026-01-01T00:00:00Z", &thirteenth);
        // A star with a step restricts: every tenth day, and Fridays.
        check(
            "0 0 */10 * 5",
            "2026-01-01T00:00:00Z",
            &["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-11T00:00:00Z"],
        );
        check("0 0 * * 5", "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"]);
    }

    #[test]
    fn intervals_are_whole_seconds() {
        check("@every 1m30s", "2026-01-01T00:00:00.5Z", &["2026-01-01T00:01:30Z", "2026-01-01T00:03:00Z"]);
        check("@every 1500ms", "2026-01-01T00:00:00Z", &["2026-01-01T00:00:01Z"]);
        check("@every 10ms", "2026-01-01T00:00:00Z", &["2026-01-01T00:00:01Z"]);
    }

    #[test]
    fn a_zone_in_the_schedule_counts_first() {
        check("TZ=Asia/Tokyo 0 9 * * *", "2026-01-01T00:00:00Z", &["2026-01-02T00:00:00Z"]);
        check("CRON_TZ=Asia/Tokyo @daily", "2026-01-01T00:00:00Z", &["2026-01-01T15:00:00Z"]);
    }

    #[test]
    fn a_time_that_never_comes_ends_the_search() {
        let schedule = Schedule::parse("0 0 31 2 *").expect("a schedule");
        assert_eq!(schedule.next(Timestamp::UNIX_EPOCH, &TimeZone::UTC), None);
    }

    #[test]
    fn what_is_no_schedule_is_refused_in_upstreams_words() {
        for good in ["* * * * *", "*/5 1-3 1,15 jan-MAR Mon", "@daily", "@every 1h30m", "0 0 ? * 6", "1,,2 * * * *"] {
            assert!(Schedule::parse(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", "empty spec string"),
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("30 4 * * 7", "end of range (7) above maximum (6): 7"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("@never", "unrecognized descriptor: @never"),
            ("@every 5", "failed to parse duration @every 5: time: missing unit in duration \"5\""),
            ("TZ=Nowhere/City * * * * *", "provided bad location Nowhere/City: unknown time zone Nowhere/City"),
        ] {
            assert_eq!(Schedule::parse(bad), Err(why.to_owned()), "{bad}");
        }
    }
}
