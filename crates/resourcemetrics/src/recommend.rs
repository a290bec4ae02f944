//! What containers should ask for, from what was seen of them. Pure.
//!
//! Containers of one workload are one: its pods come and go, and what one of them needs the next one needs. A request is a percentile of all
//! readings with a margin: high for memory, of which too little ends a container, lower for CPU, of which too little only slows it down.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

const MEBIBYTE: u64 = 1 << 20;
/// Billionths of a core in a thousandth.
const MILLI: u64 = 1_000_000;

/// A container of a workload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Whose {
    pub namespace: String,
    /// Kind and name, as `Deployment/web`.
    pub workload: String,
    pub container: String,
}

/// What a container of one of its pods used at a moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    #[serde(flatten)]
    pub whose: Whose,
    pub pod: String,
    pub time: Timestamp,
    /// Billionths of a core.
    pub cpu: u64,
    /// Bytes.
    pub memory: u64,
}

/// How careful to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Care {
    /// So many of a hundred readings are below what is recommended.
    pub cpu_percentile: u8,
    pub memory_percentile: u8,
    /// So much is added, in hundredths.
    pub margin: u8,
}

/// What a container should ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    pub whose: Whose,
    pub readings: usize,
    /// Thousandths of a core.
    pub cpu: u64,
    /// Mebibytes.
    pub memory: u64,
}

/// Adds readings to those that are kept: none twice, and none older than that.
pub fn keep(kept: &mut Vec<Reading>, new: Vec<Reading>, now: Timestamp, age: SignedDuration) {
    let same = |a: &Reading, b: &Reading| (&a.pod, a.time, &a.whose) == (&b.pod, b.time, &b.whose);
    kept.extend(new);
    kept.retain(|reading| now.duration_since(reading.time) <= age);
    kept.sort_by(|a, b| (&a.whose, &a.pod, a.time).cmp(&(&b.whose, &b.pod, b.time)));
    kept.dedup_by(|a, b| same(a, b));
}

/// What each container should ask for, by name.
pub fn advise(readings: &[Reading], care: Care) -> Vec<Advice> {
    let mut by: BTreeMap<&Whose, Vec<&Reading>> = BTreeMap::new();
    for reading in readings {
        by.entry(&reading.whose).or_default().push(reading);
    }
    let advice = by.into_iter().map(|(whose, of_it)| {
        let amount = |percentile: u8, used: fn(&Reading) -> u64| {
            let mut all: Vec<u64> = of_it.iter().map(|reading| used(reading)).collect();
            all.sort_unstable();
            all[rank(percentile, all.len())].saturating_mul(100 + u64::from(care.margin)) / 100
        };
        Advice {
            whose: whose.clone(),
            readings: of_it.len(),
            cpu: amount(care.cpu_percentile, |reading| reading.cpu).div_ceil(MILLI).max(1),
            memory: amount(care.memory_percentile, |reading| reading.memory).div_ceil(MEBIBYTE).max(1),
        }
    });
    advice.collect()
}

/// Which of so many sorted readings is the first that so many of a hundred do not exceed.
fn rank(percentile: u8, count: usize) -> usize {
    (usize::from(percentile.min(100)) * count).div_ceil(100).max(1) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARE: Care = Care { cpu_percentile: 90, memory_percentile: 100, margin: 10 };

    fn reading(container: &str, second: i64, cpu_milli: u64, mebibytes: u64) -> Reading {
        Reading {
            whose: Whose { namespace: "n".into(), workload: "Deployment/web".into(), container: container.into() },
            pod: "web-1".into(),
            time: Timestamp::from_second(second).unwrap(),
            cpu: cpu_milli * MILLI,
            memory: mebibytes * MEBIBYTE,
        }
    }

    #[test]
    fn a_peak_of_cpu_is_not_asked_for_and_one_of_memory_is() {
        let mut readings: Vec<Reading> = (0..10).map(|n| reading("c", n, 100, 50)).collect();
        readings.push(reading("c", 10, 2_000, 500));
        readings.push(reading("idle", 0, 0, 0));
        let advice = advise(&readings, CARE);
        let shown: Vec<(&str, usize, u64, u64)> =
            advice.iter().map(|a| (a.whose.container.as_str(), a.readings, a.cpu, a.memory)).collect();
        assert_eq!(shown, [("c", 11, 110, 550), ("idle", 1, 1, 1)]);
        assert!(advise(&[], CARE).is_empty());
    }

    #[test]
    fn ranks_are_those_of_the_first_reading_that_enough_do_not_exceed() {
        for (percentile, count, want) in [(0, 5, 0), (50, 4, 1), (90, 10, 8), (91, 10, 9), (100, 7, 6), (100, 1, 0)] {
            assert_eq!(rank(percentile, count), want, "{percentile} of {count}");
        }
    }

    #[test]
    fn what_is_old_or_known_is_not_kept() {
        let mut kept = vec![reading("c", 0, 1, 1), reading("c", 100, 2, 2)];
        let new = vec![reading("c", 100, 2, 2), reading("c", 115, 3, 3)];
        keep(&mut kept, new, Timestamp::from_second(120).unwrap(), SignedDuration::from_secs(60));
        let times: Vec<i64> = kept.iter().map(|reading| reading.time.as_second()).collect();
        assert_eq!(times, [100, 115]);
    }
}
