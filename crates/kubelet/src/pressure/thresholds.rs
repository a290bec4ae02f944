//! When the node is short of something: thresholds as an administrator writes them, and a tracker that says from one look
//! to the next which of them are met, for how long, and which conditions the node has for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use machinery::quantity::{Format, Quantity};

/// A condition of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    Memory,
    Disk,
    /// Too few process numbers.
    Pid,
}

impl Condition {
    /// Its name in the node's status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "MemoryPressure",
            Self::Disk => "DiskPressure",
            Self::Pid => "PIDPressure",
        }
    }
}

/// What is looked at. The order is that in which shortages are relieved: memory first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// Memory of the machine.
    Memory,
    /// Memory of all pods together.
    AllocatableMemory,
    /// Bytes of the disk that pods write to.
    NodeFs,
    NodeFsInodes,
    /// Bytes of the disk that images are on.
    ImageFs,
    ImageFsInodes,
    Pid,
}

impl Signal {
    const ALL: [Self; 7] = [
        Self::Memory,
        Self::AllocatableMemory,
        Self::NodeFs,
        Self::NodeFsInodes,
        Self::ImageFs,
        Self::ImageFsInodes,
        Self::Pid,
    ];

    /// Its name in a configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory.available",
            Self::AllocatableMemory => "allocatableMemory.available",
            Self::NodeFs => "nodefs.available",
            Self::NodeFsInodes => "nodefs.inodesFree",
            Self::ImageFs => "imagefs.available",
            Self::ImageFsInodes => "imagefs.inodesFree",
            Self::Pid => "pid.available",
        }
    }

    /// The resource, as messages name it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Memory | Self::AllocatableMemory => "memory",
            Self::NodeFs | Self::ImageFs => "ephemeral-storage",
            Self::NodeFsInodes | Self::ImageFsInodes => "inodes",
            Self::Pid => "pids",
        }
    }

    /// The condition of the node it leads to.
    pub fn condition(self) -> Condition {
        match self {
            Self::Memory | Self::AllocatableMemory => Condition::Memory,
            Self::Pid => Condition::Pid,
            _ => Condition::Disk,
        }
    }

    /// An amount of it, as messages write it.
    pub fn amount(self, value: i64) -> String {
        let counted = matches!(self, Self::NodeFsInodes | Self::ImageFsInodes | Self::Pid);
        Quantity::new(value, if counted { Format::DecimalSi } else { Format::BinarySi }).to_string()
    }

    fn parse(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|signal| signal.as_str() == name);
        found.ok_or_else(|| Error::Signal(name.to_owned()))
    }
}

/// Why thresholds cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// There is no such signal.
    #[error("unsupported eviction signal {0}")]
    Signal(String),
    /// A share of the whole that is none.
    #[error("eviction percentage threshold {signal} must be {bound}: {text}")]
    Share {
        signal: &'static str,
        /// What it must be.
        bound: &'static str,
        text: String,
    },
    /// An amount that is none.
    #[error("eviction threshold {signal} must be positive: {text}")]
    Amount { signal: &'static str, text: String },
    /// A soft threshold does not say for how long it may be crossed.
    #[error("grace period must be specified for the soft eviction threshold {0}")]
    NoGrace(&'static str),
    /// A time that is none.
    #[error("invalid eviction grace period specified: {0}, must be a positive value")]
    Grace(String),
}

/// An amount, or a share of all there is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    Amount(i64),
    /// Of all there is, from 0 to 1.
    Share(f64),
}

impl Value {
    /// In the signal's unit.
    pub fn of(self, capacity: i64) -> i64 {
        match self {
            Self::Amount(amount) => amount,
            Self::Share(share) => (capacity as f64 * share) as i64,
        }
    }

    /// `100Mi` or `10%`; nothing for a share that can never be crossed.
    fn parse(signal: Signal, text: &str) -> Result<Option<Self>, Error> {
        if text == "0%" || text == "100%" {
            return Ok(None);
        }
        if let Some(number) = text.strip_suffix('%') {
            let wrong = |bound| Error::Share { signal: signal.as_str(), bound, text: text.to_owned() };
            let share = number.parse::<f64>().map_err(|_| wrong(">= 0%"))? / 100.0;
            return match share {
                share if share < 0.0 => Err(wrong(">= 0%")),
                share if share > 1.0 => Err(wrong("<= 100%")),
                share => Ok(Some(Self::Share(share))),
            };
        }
        let wrong = || Error::Amount { signal: signal.as_str(), text: text.to_owned() };
        let amount = text.parse::<Quantity>().map_err(|_| wrong())?.value();
        if amount <= 0 { Err(wrong()) } else { Ok(Some(Self::Amount(amount))) }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    pub signal: Signal,
    /// Less than this is too little.
    pub value: Value,
    /// For how long it may be crossed; a hard threshold never may.
    pub grace: Duration,
    /// How much more than the threshold is wanted back once it was crossed.
    pub reclaim: Option<Value>,
}

impl Threshold {
    /// Whether it may not be crossed at all.
    pub fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }

    fn met(&self, seen: &Observation, and_reclaim: bool) -> bool {
        let more = self.reclaim.filter(|_| and_reclaim).map_or(0, |value| value.of(seen.capacity));
        seen.available < self.value.of(seen.capacity).saturating_add(more)
    }
}

/// Settings by signal, as in a configuration file.
pub type Settings = BTreeMap<String, String>;

/// Thresholds from an administrator's settings.
pub fn parse(
    hard: &Settings,
    soft: &Settings,
    soft_grace: &Settings,
    reclaim: &Settings,
) -> Result<Vec<Threshold>, Error> {
    let mut all = Vec::new();
    for (name, text) in hard {
        let signal = Signal::parse(name)?;
        if let Some(value) = Value::parse(signal, text)? {
            all.push(Threshold { signal, value, grace: Duration::ZERO, reclaim: None });
            // Pods together may not take what the machine itself may not be short of.
            if signal == Signal::Memory {
                all.push(Threshold { signal: Signal::AllocatableMemory, value, grace: Duration::ZERO, reclaim: None });
            }
        }
    }
    for (name, text) in soft {
        let signal = Signal::parse(name)?;
        let Some(value) = Value::parse(signal, text)? else { continue };
        let grace = soft_grace.get(name).ok_or(Error::NoGrace(signal.as_str()))?;
        let grace = machinery::duration::parse(grace).ok_or_else(|| Error::Grace(grace.clone()))?;
        all.push(Threshold { signal, value, grace, reclaim: None });
    }
    for (name, text) in reclaim {
        let signal = Signal::parse(name)?;
        let value = Value::parse(signal, text)?;
        all.iter_mut().filter(|threshold| threshold.signal == signal).for_each(|threshold| threshold.reclaim = value);
    }
    all.sort_by_key(|threshold| threshold.signal);
    Ok(all)
}

/// What there is of something, and what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    pub available: i64,
    pub capacity: i64,
}

/// What was seen, as far as it can be seen.
pub type Observations = BTreeMap<Signal, Observation>;

/// Remembers from one look to the next.
#[derive(Debug, Default)]
pub struct Tracker {
    /// Since when each threshold is crossed, by its place.
    since: BTreeMap<usize, Duration>,
    /// When each condition was seen last.
    seen: BTreeMap<Condition, Duration>,
    /// The thresholds that something was done about, until enough is back.
    acted_on: BTreeSet<usize>,
}

impl Tracker {
    /// Takes a look at `now`. Says which conditions the node has, and which thresholds something has to be done about, the
    /// most urgent first.
    pub fn look(
        &mut self,
        thresholds: &[Threshold],
        observations: &Observations,
        transition: Duration,
        now: Duration,
    ) -> (BTreeSet<Condition>, Vec<Threshold>) {
        let met: BTreeSet<usize> = thresholds
            .iter()
            .enumerate()
            .filter(|(place, threshold)| {
                let seen = observations.get(&threshold.signal);
                seen.is_some_and(|seen| threshold.met(seen, self.acted_on.contains(place)))
            })
            .map(|(place, _)| place)
            .collect();
        self.since.retain(|place, _| met.contains(place));
        for &place in &met {
            self.since.entry(place).or_insert(now);
            self.seen.insert(thresholds[place].signal.condition(), now);
        }
        let conditions = self.seen.iter().filter(|(_, last)| now.saturating_sub(**last) < transition || **last == now);
        let conditions = conditions.map(|(condition, _)| *condition).collect();
        self.acted_on =
            self.since.iter().filter(|(p, since)| now - **since >= thresholds[**p].grace).map(|(p, _)| *p).collect();
        (conditions, self.acted_on.iter().map(|place| thresholds[*place].clone()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    fn none() -> Settings {
        Settings::new()
    }

    #[test]
    fn settings_are_read_and_nonsense_is_named() {
        let all = parse(
            &settings(&[("nodefs.available", "10%"), ("imagefs.available", "0%")]),
            &settings(&[("memory.available", "1Gi")]),
            &settings(&[("memory.available", "1m30s")]),
            &settings(&[("nodefs.available", "500Mi")]),
        )
        .unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].value, all[0].grace), (Value::Amount(1 << 30), Duration::from_secs(90)));
        assert_eq!((all[1].value, all[1].reclaim), (Value::Share(0.1), Some(Value::Amount(500 << 20))));
        let check = |hard: &[(&str, &str)], soft: &[(&str, &str)], expect: &str| {
            let error = parse(&settings(hard), &settings(soft), &none(), &none()).unwrap_err();
            assert_eq!(error.to_string(), expect);
        };
        check(&[("disk", "1")], &[], "unsupported eviction signal disk");
        check(
            &[("nodefs.available", "101%")],
            &[],
            "eviction percentage threshold nodefs.available must be <= 100%: 101%",
        );
        check(&[("memory.available", "-1")], &[], "eviction threshold memory.available must be positive: -1");
        check(
            &[],
            &[("pid.available", "10")],
            "grace period must be specified for the soft eviction threshold pid.available",
        );
    }

    #[test]
    fn thresholds_are_acted_on_after_their_grace_and_until_enough_is_back() {
        let thresholds = [
            Threshold {
                signal: Signal::Memory,
                value: Value::Amount(100),
                grace: Duration::ZERO,
                reclaim: Some(Value::Amount(50)),
            },
            Threshold { signal: Signal::Pid, value: Value::Amount(10), grace: Duration::from_secs(30), reclaim: None },
        ];
        let seen = |memory, pid| -> Observations {
            [(Signal::Memory, memory), (Signal::Pid, pid)]
                .map(|(signal, available)| (signal, Observation { available, capacity: 1000 }))
                .into()
        };
        let mut tracker = Tracker::default();
        let mut look = |second, memory, pid| {
            let transition = Duration::from_secs(60);
            let (conditions, due) =
                tracker.look(&thresholds, &seen(memory, pid), transition, Duration::from_secs(second));
            let conditions: Vec<&str> = conditions.into_iter().map(Condition::as_str).collect();
            (conditions, due.into_iter().map(|threshold| threshold.signal).collect::<Vec<_>>())
        };
        assert_eq!(look(0, 500, 500), (vec![], vec![]));
        assert_eq!(look(10, 99, 500), (vec!["MemoryPressure"], vec![Signal::Memory]));
        // Above the threshold, but not by as much as is wanted back.
        assert_eq!(look(20, 120, 9), (vec!["MemoryPressure", "PIDPressure"], vec![Signal::Memory]));
        assert_eq!(look(30, 160, 9), (vec!["MemoryPressure", "PIDPressure"], vec![]));
        assert_eq!(look(50, 120, 9), (vec!["MemoryPressure", "PIDPressure"], vec![Signal::Pid]));
        // Conditions stay for a while after the last sight of a shortage.
        assert_eq!(look(79, 160, 500), (vec!["MemoryPressure", "PIDPressure"], vec![]));
        assert_eq!(look(100, 160, 500), (vec!["PIDPressure"], vec![]));
        assert_eq!(look(200, 160, 500), (vec![], vec![]));
    }
}
