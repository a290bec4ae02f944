//! Processor use per second, from two readings of a counter.
//!
//! Nothing runs between requests: the rate is that since the reading before, which whoever asks regularly finds exact.

use std::collections::HashMap;

use jiff::Timestamp;
use parking_lot::Mutex;

/// Readings closer together than this say more about the clock than about the load.
const CLOSEST: i128 = 1_000_000_000;

#[derive(Debug, Clone, Copy)]
struct Reading {
    time: Timestamp,
    total: u64,
    rate: Option<u64>,
}

/// The last reading of every counter.
#[derive(Debug, Default)]
pub struct Rates {
    readings: Mutex<HashMap<String, Reading>>,
}

impl Rates {
    /// Notes a reading of nanoseconds used; says how many per second there were since the one before.
    pub fn note(&self, key: &str, time: Timestamp, total: u64) -> Option<u64> {
        let mut readings = self.readings.lock();
        let before = readings.get(key).copied();
        let mut reading = Reading { time, total, rate: None };
        if let Some(before) = before {
            let passed = time.as_nanosecond() - before.time.as_nanosecond();
            if passed < CLOSEST {
                return before.rate;
            }
            // A counter that went back belongs to another life.
            let used = total.checked_sub(before.total);
            reading.rate = used.and_then(|used| u64::try_from(i128::from(used) * 1_000_000_000 / passed).ok());
        }
        readings.insert(key.to_owned(), reading);
        reading.rate
    }

    /// Forgets counters that were not read since this time.
    pub fn forget_before(&self, time: Timestamp) {
        self.readings.lock().retain(|_, reading| reading.time >= time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_needs_two_readings_with_time_between() {
        let rates = Rates::default();
        let at = |millis: i64| Timestamp::from_millisecond(millis).unwrap();
        let table = [
            ("a", 0, 0, None),
            ("a", 500, 7, None),
            ("a", 2000, 4_000_000_000, Some(2_000_000_000)),
            ("a", 2100, 4_100_000_000, Some(2_000_000_000)),
            ("b", 2100, 5, None),
            ("a", 4000, 5, None),
            ("a", 6000, 5, Some(0)),
        ];
        for (key, millis, total, rate) in table {
            assert_eq!(rates.note(key, at(millis), total), rate, "{key} at {millis}");
        }
        rates.forget_before(at(6000));
        assert_eq!(rates.readings.lock().len(), 1);
    }
}
