//! Moments as users write them: a revision, a time, or how long ago.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use machinery::{duration, time};

/// When.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    Now,
    Revision(u64),
    Time(Timestamp),
}

impl Moment {
    pub(super) fn parse(text: &str, now: Timestamp) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no moment: give a revision, a time such as 2027-01-31T12:00:00Z, or how long ago, such as 10m or 7d"
            )
        };
        if text == "now" {
            return Ok(Self::Now);
        }
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            return text.parse().ok().filter(|revision| *revision > 0).map(Self::Revision).ok_or_else(wrong);
        }
        if let Some(time) = time::parse(text) {
            return Ok(Self::Time(time));
        }
        let ago = span(text).and_then(|ago| SignedDuration::try_from(ago).ok()).ok_or_else(wrong)?;
        now.checked_sub(ago).map(Self::Time).map_err(|_| wrong())
    }
}

/// A duration as Go writes them, or with days before.
pub fn span(text: &str) -> Option<Duration> {
    let (days, rest) = match text.split_once('d') {
        Some((days, rest)) => (days.parse::<u32>().ok()?, rest),
        None => (0, text),
    };
    let rest = if rest.is_empty() && days > 0 { Duration::ZERO } else { duration::parse(rest)? };
    Duration::from_secs(u64::from(days) * 86_400).checked_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_revisions_times_and_how_long_ago() {
        let now: Timestamp = "2027-01-31T12:00:00Z".parse().expect("a time");
        let at = |text: &str| Moment::parse(text, now);
        let time = |text: &str| Ok(Moment::Time(text.parse().expect("a time")));
        assert_eq!(at("now"), Ok(Moment::Now));
        assert_eq!(at("4711"), Ok(Moment::Revision(4711)));
        assert_eq!(at("2027-01-31T11:00:00Z"), time("2027-01-31T11:00:00Z"));
        assert_eq!(at("2027-01-31T11:00:00.5+01:00"), time("2027-01-31T10:00:00.5Z"));
        assert_eq!(at("10m"), time("2027-01-31T11:50:00Z"));
        assert_eq!(at("1h30m"), time("2027-01-31T10:30:00Z"));
        assert_eq!(at("7d"), time("2027-01-24T12:00:00Z"));
        assert_eq!(at("1d12h"), time("2027-01-30T00:00:00Z"));
        for wrong in ["", "0", "yesterday", "-5m", "10x", "d", "-1d", "1d-1h", "99999999999999999999", "99999999d"] {
            assert!(at(wrong).is_err_and(|why| why.contains("is no moment")), "{wrong:?}");
        }
    }
}
