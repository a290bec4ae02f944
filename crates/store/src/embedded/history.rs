//! The past, out of the files: events after a revision, and state as of a revision. Blocking; callers move it off the
//! async threads.
//!
//! Segments may be rewritten while they are read. So the rule is: read, then ask whether history is still promised from
//! where the reading began. If it is, whatever was read is whole; if not, the answer is [`Error::Compacted`].

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::Shared;
use super::log::Old;
use crate::{Error, Event, Page, Range, Record, Revision};

/// Events in one reading of history.
const EVENTS: usize = 512;
/// Bytes of values in one reading of history, give or take one.
const EVENT_BYTES: usize = 2 << 20;

/// Some events of the past.
pub(super) struct Past {
    pub(super) events: Vec<Event>,
    /// Everything up to here has been looked at.
    pub(super) reached: Revision,
}

/// The next events under `prefix` after `after`, no further than `upto`.
pub(super) fn events(shared: &Shared, prefix: &str, after: Revision, upto: Revision) -> Result<Past, Error> {
    shared.memory.read().check_history(after)?;
    let (mut found, mut bytes, mut reached) = (Vec::new(), 0, after);
    let whole = shared.log.visit(after, upto, |entry| {
        reached = entry.revision;
        if entry.key().is_some_and(|key| key.starts_with(prefix)) {
            let old = Old::copy(entry);
            bytes += old.as_ref().and_then(|o| o.value.as_ref()).map_or(0, |v| v.len());
            found.extend(old);
        }
        if found.len() < EVENTS && bytes < EVENT_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let mut wanted: Vec<_> = found.iter().map(|old| old.previous).filter(|r| *r != 0).collect();
    wanted.sort_unstable();
    let previous = shared.log.find(&wanted)?;
    let memory = shared.memory.read();
    memory.check_history(after)?;
    let lost = || Error::Damaged(format!("the log has a hole after revision {after}; restore the store from a backup"));
    if !whole {
        return Err(lost());
    }
    let events = found.into_iter().map(|old| {
        let previous = match old.previous {
            0 => None,
            revision => Some(previous.get(&revision).and_then(record).ok_or_else(lost)?),
        };
        // The latest value of a key exists once, however it is reached.
        let (key, value) = match memory.get(&old.key) {
            Some(live) if live.revision == old.revision => (live.key, Some(live.value)),
            _ => (old.key, old.value),
        };
        Ok(Event { key, revision: old.revision, value, previous, write: None })
    });
    let events = events.collect::<Result<_, Error>>()?;
    Ok(Past { events, reached })
}

/// All events under `prefix` after `after` up to `until`, if they are at most `limit`.
pub(super) fn between(
    shared: &Shared,
    prefix: &str,
    after: Revision,
    until: Revision,
    limit: usize,
) -> Result<Vec<Event>, Error> {
    {
        let memory = shared.memory.read();
        memory.check_history(after)?;
        if until > memory.revision {
            return Err(Error::Future { requested: until, current: memory.revision });
        }
    }
    let mut all: Vec<Event> = Vec::new();
    if let Some(recent) = shared.hub.recent(after, until) {
        all.extend(recent.iter().filter(|e| e.key.starts_with(prefix)).map(|e| Event::clone(e)));
    } else {
        let mut reached = after;
        while reached < until && all.len() <= limit {
            let past = events(shared, prefix, reached, until)?;
            reached = past.reached;
            all.extend(past.events);
        }
    }
    if all.len() > limit { Err(Error::TooLarge) } else { Ok(all) }
}

/// The records of `range` as of revision `at`: the present, with what changed since undone.
pub(super) fn range(shared: &Shared, range: &Range, at: Revision) -> Result<Page, Error> {
    let (mut records, now) = {
        let memory = shared.memory.read();
        if at > memory.revision {
            return Err(Error::Future { requested: at, current: memory.revision });
        }
        memory.check_history(at)?;
        let records: BTreeMap<Arc<str>, Record> =
            memory.under(&range.prefix).map(|r| (Arc::clone(&r.key), r)).collect();
        (records, memory.revision)
    };
    let matches = |key: &str| key.starts_with(&range.prefix);
    let mut undone: HashSet<Arc<str>> = HashSet::new();
    if let Some(recent) = shared.hub.recent(at, now) {
        for event in recent.iter().filter(|e| matches(&e.key)) {
            // Only the first change after `at` knows what was there at the time.
            if undone.insert(Arc::clone(&event.key)) {
                records.remove(&event.key);
                records.extend(event.previous.clone().map(|p| (Arc::clone(&p.key), p)));
            }
        }
    } else {
        let mut wanted = Vec::new();
        let whole = shared.log.visit(at, now, |entry| {
            if let Some(key) = entry.key().filter(|key| matches(key) && !undone.contains(*key)) {
                records.remove(key);
                undone.insert(Arc::from(key));
                wanted.extend((entry.previous != 0).then_some(entry.previous));
            }
            ControlFlow::Continue(())
        })?;
        wanted.sort_unstable();
        let found = shared.log.find(&wanted)?;
        shared.memory.read().check_history(at)?;
        if !whole || found.len() < wanted.len() {
            let what = format!("the log has a hole after revision {at}; restore the store from a backup");
            return Err(Error::Damaged(what));
        }
        records.extend(found.values().filter_map(record).map(|r| (Arc::clone(&r.key), r)));
    }
    let after = range.after.as_deref();
    let mut rest = records.into_values().filter(|r| after.is_none_or(|after| &*r.key > after));
    let limit = if range.limit == 0 { usize::MAX } else { range.limit };
    let records = rest.by_ref().take(limit).collect();
    Ok(Page { records, revision: at, remaining: rest.count() as u64 })
}

fn record(old: &Old) -> Option<Record> {
    let value = old.value.clone()?;
    Some(Record { key: Arc::clone(&old.key), value, revision: old.revision })
}
