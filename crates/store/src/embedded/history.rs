//! Events of the last minutes, out of the log. Blocking; callers move it off the async threads. What is older is in the archive.
//!
//! Segments may be rewritten while they are read. So the rule is: read, then ask whether history is still promised from
//! where the reading began. If it is, whatever was read is whole; if not, the answer is [`Error::Compacted`].

use std::ops::ControlFlow;
use std::sync::Arc;

use super::Shared;
use super::log::Old;
use crate::{Error, Event, Record, Revision};

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
    let whole = shared.log.visit(after, upto, |entry, _| {
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

fn record(old: &Old) -> Option<Record> {
    let value = old.value.clone()?;
    Some(Record { key: Arc::clone(&old.key), value, revision: old.revision })
}
