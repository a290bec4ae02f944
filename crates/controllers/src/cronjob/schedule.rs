//! Cron schedules: five fields, names, ranges, steps and the `@` words, as upstream's parser reads them.

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// How far ahead is looked: a schedule that never comes (31 February) ends the search.
const YEARS: i16 = 5;

/// When something is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    any_day: bool,
    any_weekday: bool,
    /// `@every 90s`.
    every: Option<i64>,
}

const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Schedule {
    /// Reads a schedule; the error says what is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(word) = text.strip_prefix('@') {
            return Self::word(word).ok_or_else(|| format!("unrecognized descriptor: @{word}"));
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else {
            return Err(format!("expected exactly 5 fields, found {}: {fields:?}", fields.len()));
        };
        let star = |field: &str| field.starts_with(['*', '?']);
        let mut week = bits(weekdays, 0, 7, &WEEKDAYS, 0)?;
        // Both 0 and 7 are Sunday.
        if week & (1 << 7) != 0 {
            week = (week | 1) & !(1 << 7);
        }
        Ok(Self {
            minutes: bits(minutes, 0, 59, &[], 0)?,
            hours: bits(hours, 0, 23, &[], 0)?,
            days: bits(days, 1, 31, &[], 0)?,
            months: bits(months, 1, 12, &MONTHS, 1)?,
            weekdays: week,
            any_day: star(days),
            any_weekday: star(weekdays),
            every: None,
        })
    }

    fn word(word: &str) -> Option<Self> {
        if let Some(duration) = word.strip_prefix("every ") {
            let seconds = seconds(duration.trim())?.max(1);
            let never = Self {
                minutes: 0,
                hours: 0,
                days: 0,
                months: 0,
                weekdays: 0,
                any_day: true,
                any_weekday: true,
                every: None,
            };
            return Some(Self { every: Some(seconds), ..never });
        }
        let fields = match word {
            "yearly" | "annually" => "0 0 1 1 *",
            "monthly" => "0 0 1 * *",
            "weekly" => "0 0 * * 0",
            "daily" | "midnight" => "0 0 * * *",
            "hourly" => "0 * * * *",
            _ => return None,
        };
        Self::parse(fields).ok()
    }

    /// The first time after this one.
    pub(super) fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if let Some(every) = self.every {
            return Timestamp::from_second(after.as_second().saturating_add(every)).ok();
        }
        let start = after.to_zoned(zone.clone()).datetime();
        let mut date = start.date();
        let mut first = (start.hour(), start.minute());
        let last_year = date.year() + YEARS;
        let mut today = true;
        while date.year() <= last_year {
            if self.has_date(date) {
                for (hour, minute) in self.times(if today { first } else { (0, -1) }) {
                    let due = DateTime::from_parts(date, jiff::civil::time(hour, minute, 0, 0));
                    // A time that a change of clocks skips is not due that day.
                    let Ok(zoned) = zone.to_ambiguous_zoned(due).compatible() else { continue };
                    if zoned.datetime() == due && zoned.timestamp() > after {
                        return Some(zoned.timestamp());
                    }
                }
            }
            date = date.checked_add(1.day()).ok()?;
            (today, first) = (false, (0, -1));
        }
        None
    }

    fn has_date(&self, date: Date) -> bool {
        let month = self.months & (1 << date.month()) != 0;
        let day = self.days & (1 << date.day()) != 0;
        let weekday = self.weekdays & (1 << date.weekday().to_sunday_zero_offset()) != 0;
        // If both are restricted, either is enough.
        let due = if self.any_day || self.any_weekday { day && weekday } else { day || weekday };
        month && due
    }

    /// Hours and minutes of a day, from a time on.
    fn times(&self, from: (i8, i8)) -> impl Iterator<Item = (i8, i8)> + '_ {
        let hours = (0..24_i8).filter(move |hour| self.hours & (1 << hour) != 0 && *hour >= from.0);
        hours.flat_map(move |hour| {
            let minutes = (0..60_i8).filter(move |minute| self.minutes & (1 << minute) != 0);
            minutes.filter(move |minute| hour > from.0 || *minute >= from.1).map(move |minute| (hour, minute))
        })
    }
}

/// The numbers that a field names, as bits.
fn bits(field: &str, low: u32, high: u32, names: &[&str], first: u32) -> Result<u64, String> {
    let number = |text: &str| -> Result<u32, String> {
        let lower = text.to_lowercase();
        if let Some(at) = names.iter().position(|name| *name == lower) {
            return Ok(first + u32::try_from(at).unwrap_or_default());
        }
        text.parse().map_err(|_| format!("failed to parse int from {text}"))
    };
    let mut all = 0;
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(number(step)?)),
            None => (part, None),
        };
        let (from, to) = if range == "*" || range == "?" {
            (low, high.min(if high == 7 { 6 } else { high }))
        } else if let Some((from, to)) = range.split_once('-') {
            (number(from)?, number(to)?)
        } else {
            let from = number(range)?;
            // `3/15` is from 3 to the end.
            (from, if step.is_some() { high } else { from })
        };
        let step = step.unwrap_or(1);
        if from < low || to > high || from > to || step == 0 {
            return Err(format!("out of range: {part}"));
        }
        let mut at = from;
        while at <= to {
            all |= 1 << at;
            at += step;
        }
    }
    Ok(all)
}

/// `1h30m10s` in seconds.
fn seconds(text: &str) -> Option<i64> {
    let (mut total, mut number) = (0_i64, String::new());
    for char in text.chars() {
        if char.is_ascii_digit() {
            number.push(char);
            continue;
        }
        let unit = match char {
            'h' => 3600,
            'm' => 60,
            's' => 1,
            _ => return None,
        };
        total = total.checked_add(number.parse::<i64>().ok()?.checked_mul(unit)?)?;
        number.clear();
    }
    (number.is_empty() && total > 0).then_some(total)
}
