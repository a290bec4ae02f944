//! The present, in memory: every key's latest record, and for each revision of the history which one it replaced.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use packed::Packed;

use crate::{Error, Event, Page, Range, Record, Revision};

/// The revision of a store nobody has written to; etcd's too. The first write takes the next one.
pub(crate) const ORIGIN: Revision = 1;

/// A value in memory.
#[derive(Debug)]
pub(super) enum Held {
    Plain(Bytes),
    /// One that is long and seldom read.
    Packed(Packed),
}

impl Held {
    fn new(value: Bytes, packs: bool) -> Self {
        let packed = if packs { Packed::if_worth_it(&value) } else { None };
        packed.map_or(Self::Plain(value), Self::Packed)
    }

    fn get(&self) -> Bytes {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Packed(packed) => packed.text().into(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Plain(value) => value.len(),
            Self::Packed(packed) => packed.len(),
        }
    }
}

/// A key's latest value.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) value: Held,
    pub(super) revision: Revision,
    /// Milliseconds since 1970; 0 is never.
    pub(super) expires: u64,
}

/// A durable change on its way to memory and watchers.
#[derive(Debug, Clone)]
pub(super) struct Committed {
    pub(super) event: Arc<Event>,
    pub(super) expires: u64,
    /// What the writer wants to be known of it.
    pub(super) note: Bytes,
}

/// Everything readers ask for. It only ever holds what is durable.
#[derive(Debug)]
pub(super) struct Memory {
    live: BTreeMap<Arc<str>, Live>,
    pub(super) revision: Revision,
    /// History up to here is given up; state as of here is not.
    pub(super) compacted: Revision,
    /// Per revision after `compacted` the one it replaced, 0 for none.
    replaced: VecDeque<Revision>,
    /// Bytes of all live keys and values.
    pub(super) bytes: u64,
    /// The beginnings of keys whose values are packed.
    packed: Vec<String>,
}

impl Memory {
    /// What was found on disk. `replaced` starts right after `compacted`.
    pub(super) fn new(
        live: BTreeMap<Arc<str>, Live>,
        revision: Revision,
        compacted: Revision,
        replaced: VecDeque<Revision>,
    ) -> Self {
        let bytes = live.iter().map(|(key, live)| size(key, live.value.len())).sum();
        Self { live, revision, compacted, replaced, bytes, packed: Vec::new() }
    }

    /// Packs the values of keys with these beginnings, and those that come.
    pub(super) fn pack(&mut self, prefixes: Vec<String>) {
        for prefix in &prefixes {
            let keys = self.live.range_mut::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded));
            for (_, live) in keys.take_while(|(key, _)| key.starts_with(prefix)) {
                live.value = Held::new(live.value.get(), true);
            }
        }
        self.packed = prefixes;
    }

    pub(super) fn keys(&self) -> usize {
        self.live.len()
    }

    pub(super) fn get(&self, key: &str) -> Option<Record> {
        self.live.get_key_value(key).map(record)
    }

    /// The value of a change as it will be held, which takes a moment for one that is packed.
    pub(super) fn hold(&self, committed: &Committed) -> Option<Held> {
        let value = committed.event.value.clone()?;
        let packs = self.packed.iter().any(|prefix| committed.event.key.starts_with(prefix));
        Some(Held::new(value, packs))
    }

    /// Takes in one change; revisions come in order. `held` is what [`Memory::hold`] made of it.
    pub(super) fn apply(&mut self, committed: &Committed, held: Option<Held>) {
        let event = &committed.event;
        self.revision = event.revision;
        self.replaced.push_back(event.previous.as_ref().map_or(0, |p| p.revision));
        if let Some(previous) = &event.previous {
            self.bytes -= size(&previous.key, previous.value.len());
        }
        match held {
            Some(value) => {
                self.bytes += size(&event.key, value.len());
                let live = Live { value, revision: event.revision, expires: committed.expires };
                // The key of an update stays the one in the map: all records of a key share it.
                self.live.insert(Arc::clone(&event.key), live);
            }
            None => {
                self.live.remove(&event.key);
            }
        }
    }

    /// Gives up history up to `revision`.
    pub(super) fn compact(&mut self, revision: Revision) {
        let gone = revision.saturating_sub(self.compacted).min(self.replaced.len() as u64);
        self.replaced.drain(..gone as usize);
        self.replaced.shrink_to(self.replaced.len() * 2);
        self.compacted = self.compacted.max(revision);
    }

    /// The records of `range` as of now.
    pub(super) fn range(&self, range: &Range) -> Page {
        let mut keys = self.from(&range.prefix, range.after.as_deref());
        let limit = if range.limit == 0 { usize::MAX } else { range.limit };
        let records = keys.by_ref().take(limit).map(record).collect();
        Page { records, revision: self.revision, remaining: keys.count() as u64 }
    }

    /// Every record under a prefix.
    pub(super) fn under(&self, prefix: &str) -> impl Iterator<Item = Record> {
        self.from(prefix, None).map(record)
    }

    fn from(&self, prefix: &str, after: Option<&str>) -> impl Iterator<Item = (&Arc<str>, &Live)> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.live.range::<str, _>((start, Bound::Unbounded)).take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Up to `limit` pairs of key and revision from the key after `after` on: for whoever walks all keys in steps.
    pub(super) fn step(&self, after: Option<&str>, limit: usize) -> Vec<(Arc<str>, Revision)> {
        self.from("", after).take(limit).map(|(key, live)| (Arc::clone(key), live.revision)).collect()
    }

    /// Keys that expire, with when and with the revision that said so.
    pub(super) fn expiring(&self) -> impl Iterator<Item = (u64, Arc<str>, Revision)> {
        let expiring = self.live.iter().filter(|(_, live)| live.expires != 0);
        expiring.map(|(key, live)| (live.expires, Arc::clone(key), live.revision))
    }

    /// Every record, with when it expires (0 is never).
    pub(super) fn all(&self) -> impl Iterator<Item = (Record, u64)> {
        self.live.iter().map(|entry| (record(entry), entry.1.expires))
    }

    /// Revisions at or before `compacted` that revisions after it replaced.
    pub(super) fn replaced(&self) -> Vec<Revision> {
        self.replaced.iter().copied().filter(|r| *r != 0 && *r <= self.compacted).collect()
    }

    /// Is everything after `after` still there?
    pub(super) fn check_history(&self, after: Revision) -> Result<(), Error> {
        // Nothing came before the origin, so nothing is missing there.
        let gone = after < self.compacted && self.compacted > ORIGIN;
        if gone { Err(Error::Compacted { oldest: self.compacted }) } else { Ok(()) }
    }
}

fn record((key, live): (&Arc<str>, &Live)) -> Record {
    Record { key: Arc::clone(key), value: live.value.get(), revision: live.revision }
}

fn size(key: &str, value: usize) -> u64 {
    (key.len() + value) as u64
}
