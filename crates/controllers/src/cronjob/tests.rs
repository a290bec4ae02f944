//! Schedules against the calendar.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::schedule::Schedule;

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
    check(
        "0 0 13 * 5",
        "2026-01-01T00:00:00Z",
        &["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z", "2026-01-13T00:00:00Z"],
    );
    check("@hourly", "2026-01-01T00:00:00Z", &["2026-01-01T01:00:00Z"]);
    check("@every 1m30s", "2026-01-01T00:00:00Z", &["2026-01-01T00:01:30Z"]);
    check("30 4 * * 7", "2026-01-01T00:00:00Z", &["2026-01-04T04:30:00Z"]);
    check("5 0 * jan,dec *", "2026-02-01T00:00:00Z", &["2026-12-01T00:05:00Z"]);
}

#[test]
fn what_is_no_schedule_is_refused() {
    for text in ["", "* * * *", "60 * * * *", "* * 0 * *", "a * * * *", "*/0 * * * *", "@sometimes", "5-1 * * * *"] {
        assert!(Schedule::parse(text).is_err(), "{text}");
    }
}

#[test]
fn a_time_that_never_comes_ends_the_search() {
    let schedule = Schedule::parse("0 0 31 2 *").expect("a schedule");
    assert_eq!(schedule.next(Timestamp::UNIX_EPOCH, &TimeZone::UTC), None);
}
