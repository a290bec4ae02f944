//! Questions about the past: what a key or a range of keys held at a revision, what changed, and which revision was when.
//!
//! Tables may be joined or given up while they are read, and the log may be compacted. So a reading begins with a [`View`], whose tables stay
//! readable, and begins again if the log has lost what it wanted since.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use super::Tables;
use super::block::{Place, filter};
use super::table::{Table, Values};
use crate::embedded::Shared;
use crate::embedded::memory::ORIGIN;
use crate::{Change, Changes, Error, Kept, Page, Range, Record, Revision};

/// How often a reading begins again because compaction overtook it.
const AGAIN: usize = 4;

/// The past as of one moment.
struct View {
    tables: Tables,
    compacted: Revision,
    /// The first revision whose state can be read.
    oldest: Revision,
    revision: Revision,
}

impl View {
    fn of(shared: &Shared) -> Self {
        loop {
            let tables = shared.archive.tables();
            let (compacted, revision) = {
                let memory = shared.memory.read();
                (memory.compacted, memory.revision)
            };
            let floor = shared.archive.floor.load(Ordering::Acquire);
            if tables.last().is_some_and(|table| table.foot.last < compacted) {
                // The log has given up what has got a table since. Or it did not wait for one, and these are about to go.
                if shared.archive.reached().is_some_and(|reached| reached >= compacted) {
                    continue;
                }
                return Self { tables: Tables::default(), compacted, oldest: compacted, revision };
            }
            let first = tables.first().map_or(compacted, |table| table.foot.after.min(compacted));
            return Self { tables, compacted, oldest: first.max(floor), revision };
        }
    }

    /// Can the state at this revision be told?
    fn check(&self, at: Revision) -> Result<(), Error> {
        if at > self.revision {
            return Err(Error::Future { requested: at, current: self.revision });
        }
        let gone = at < self.oldest && self.oldest > ORIGIN;
        if gone { Err(Error::Compacted { oldest: self.oldest }) } else { Ok(()) }
    }

    /// The tables with changes after `after`, and from where on the log has to be read.
    fn tables_after(&self, after: Revision) -> (&[Arc<Table>], Revision) {
        // What the log has, it has all of; tables that begin later are of no use then.
        let (Some(first), Some(last)) = (self.tables.first(), self.tables.last()) else { return (&[], after) };
        if after < first.foot.after && after >= self.compacted {
            return (&[], after);
        }
        let from = self.tables.partition_point(|table| table.foot.last <= after);
        (&self.tables[from..], after.max(last.foot.last))
    }
}

/// Tries until compaction was not faster.
fn again<T>(mut attempt: impl FnMut() -> Result<Option<T>, Error>) -> Result<T, Error> {
    for _ in 0..AGAIN {
        if let Some(answer) = attempt()? {
            return Ok(answer);
        }
    }
    Err(Error::Damaged("the log has a hole; restore the store from a backup".to_owned()))
}

/// What a key held at a revision.
pub(in crate::embedded) fn get(shared: &Shared, key: &str, at: Revision) -> Result<Option<Record>, Error> {
    again(|| get_once(shared, key, at))
}

fn get_once(shared: &Shared, key: &str, at: Revision) -> Result<Option<Option<Record>>, Error> {
    let view = View::of(shared);
    view.check(at)?;
    let (live, now) = {
        let memory = shared.memory.read();
        (memory.get(key), memory.revision)
    };
    if let Some(live) = live.filter(|live| live.revision <= at) {
        return Ok(Some(Some(live)));
    }
    let hash = filter::hash(key);
    let (tables, rest) = view.tables_after(at);
    for table in tables {
        if !table.may_hold(hash)? {
            continue;
        }
        let index = table.index()?;
        let mut found: Option<(Revision, Place)> = None;
        table.scan(&index, key, |change| {
            if change.key == key && change.revision > at {
                found = Some((change.previous, change.value));
            }
            if change.key == key && found.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        match found {
            Some((0, _)) => return Ok(Some(None)),
            Some((revision, place)) => {
                let value = Values::of(table, &index).get(place)?;
                return Ok(Some(Some(Record { key: key.into(), value, revision })));
            }
            None => {}
        }
    }
    let mut replaced = None;
    let whole = shared.log.visit(rest, now, |entry, _| {
        if entry.key() == Some(key) {
            replaced = Some(entry.previous);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    })?;
    match replaced {
        _ if !whole => Ok(None),
        // Nobody changed it since, and it is not among what there is now.
        None | Some(0) => Ok(Some(None)),
        Some(revision) => Ok(shared.log.find(&[revision])?.remove(&revision).and_then(|old| {
            let value = old.value?;
            Some(Some(Record { key: old.key, value, revision }))
        })),
    }
}

/// The records of `range` as of revision `at`: the present, with what changed since undone.
pub(in crate::embedded) fn range(shared: &Shared, range: &Range, at: Revision) -> Result<Page, Error> {
    again(|| range_once(shared, range, at))
}

fn range_once(shared: &Shared, range: &Range, at: Revision) -> Result<Option<Page>, Error> {
    let view = View::of(shared);
    view.check(at)?;
    let (records, now) = {
        let memory = shared.memory.read();
        let records = memory.under(&range.prefix).map(|r| (Arc::clone(&r.key), r)).collect();
        (records, memory.revision)
    };
    let mut undo = Undo { records, undone: HashSet::new() };
    if let Some(recent) = shared.hub.recent(at, now) {
        for event in recent.iter().filter(|event| event.key.starts_with(&range.prefix)) {
            if undo.first(&event.key) {
                undo.records.extend(event.previous.clone().map(|p| (Arc::clone(&p.key), p)));
            }
        }
        return Ok(Some(undo.page(range, at)));
    }
    let (tables, rest) = view.tables_after(at);
    for table in tables {
        undo.table(table, &range.prefix, at)?;
    }
    let mut wanted = Vec::new();
    let whole = shared.log.visit(rest, now, |entry, _| {
        let key = entry.key().filter(|key| key.starts_with(&range.prefix));
        if key.is_some_and(|key| undo.first(key)) && entry.previous != 0 {
            wanted.push(entry.previous);
        }
        ControlFlow::Continue(())
    })?;
    wanted.sort_unstable();
    let found = shared.log.find(&wanted)?;
    if !whole || found.len() < wanted.len() {
        return Ok(None);
    }
    for old in found.into_values() {
        let Some(value) = old.value else { continue };
        undo.records.insert(Arc::clone(&old.key), Record { key: old.key, value, revision: old.revision });
    }
    Ok(Some(undo.page(range, at)))
}

/// The present on its way to the past.
struct Undo {
    records: BTreeMap<Arc<str>, Record>,
    undone: HashSet<Arc<str>>,
}

impl Undo {
    /// Whether this is a key's first change after the revision: only that knows what was there at the time.
    fn first(&mut self, key: &str) -> bool {
        if self.undone.contains(key) {
            return false;
        }
        self.undone.insert(Arc::from(key));
        self.records.remove(key);
        true
    }

    fn table(&mut self, table: &Table, prefix: &str, at: Revision) -> Result<(), Error> {
        let index = table.index()?;
        let mut wanted = Vec::new();
        table.scan(&index, prefix, |change| {
            if change.revision > at && self.first(change.key) && change.previous != 0 {
                wanted.push((Arc::<str>::from(change.key), change.previous, change.value));
            }
            ControlFlow::Continue(())
        })?;
        let mut values = Values::of(table, &index);
        for (key, revision, place) in wanted {
            let value = values.get(place)?;
            self.records.insert(Arc::clone(&key), Record { key, value, revision });
        }
        Ok(())
    }

    fn page(self, range: &Range, at: Revision) -> Page {
        let after = range.after.as_deref();
        let mut rest = self.records.into_values().filter(|r| after.is_none_or(|after| &*r.key > after));
        let limit = if range.limit == 0 { usize::MAX } else { range.limit };
        let records = rest.by_ref().take(limit).collect();
        Page { records, revision: at, remaining: rest.count() as u64 }
    }
}

/// A change that was found, and where what it replaced is.
struct Found {
    key: Arc<str>,
    revision: Revision,
    previous: Revision,
    time: u64,
    removed: bool,
    note: Bytes,
    /// In which table, and where there; in the log otherwise.
    place: Option<(usize, Place)>,
}

/// Changes, newest first.
pub(in crate::embedded) fn changes(shared: &Shared, query: &Changes) -> Result<Vec<Change>, Error> {
    again(|| changes_once(shared, query))
}

fn changes_once(shared: &Shared, query: &Changes) -> Result<Option<Vec<Change>>, Error> {
    let view = View::of(shared);
    if query.upto > view.revision {
        return Err(Error::Future { requested: query.upto, current: view.revision });
    }
    let after = query.after.max(view.oldest);
    let (tables, rest) = view.tables_after(after);
    let Some(mut found) = logged(shared, query, rest)? else { return Ok(None) };
    for (place, table) in tables.iter().enumerate().rev() {
        if found.len() >= query.limit || table.foot.after >= query.upto {
            continue;
        }
        let mut here = tabled(query, table, place, after)?;
        here.sort_unstable_by_key(|change| std::cmp::Reverse(change.revision));
        found.extend(here);
    }
    found.truncate(query.limit);
    let Some(replaced) = replaced(shared, tables, &found)? else { return Ok(None) };
    let mut changes = Vec::with_capacity(found.len());
    // What a key held after a change is what its next change replaced, which came just before in this order.
    let mut since: FxHashMap<Arc<str>, Option<Bytes>> = FxHashMap::default();
    for (change, previous) in found.into_iter().zip(replaced) {
        let value = match since.remove(&change.key) {
            _ if change.removed => None,
            Some(value) => value,
            None => get(shared, &change.key, change.revision)?.map(|record| record.value),
        };
        since.insert(Arc::clone(&change.key), previous.as_ref().map(|previous| previous.value.clone()));
        let Found { key, revision, time, note, .. } = change;
        changes.push(Change { key, revision, time: Some(time), note, value, previous });
    }
    Ok(Some(changes))
}

/// The changes that are in the log only, newest first.
fn logged(shared: &Shared, query: &Changes, after: Revision) -> Result<Option<Vec<Found>>, Error> {
    let mut found = std::collections::VecDeque::new();
    let whole = shared.log.visit(after, query.upto, |entry, time| {
        if let Some(key) = entry.key().filter(|key| query.concerns(key)) {
            let (revision, previous, note) = (entry.revision, entry.previous, Bytes::copy_from_slice(entry.note));
            let removed = entry.value().is_none();
            found.push_front(Found { key: key.into(), revision, previous, time, removed, note, place: None });
            found.truncate(query.limit);
        }
        ControlFlow::Continue(())
    })?;
    Ok(whole.then(|| found.into()))
}

fn tabled(query: &Changes, table: &Table, place: usize, after: Revision) -> Result<Vec<Found>, Error> {
    let mut found = Vec::new();
    if query.exact && !table.may_hold(filter::hash(&query.prefix))? {
        return Ok(found);
    }
    table.scan(&table.index()?, &query.prefix, |change| {
        if change.revision > after && change.revision <= query.upto && query.concerns(change.key) {
            found.push(Found {
                key: change.key.into(),
                revision: change.revision,
                previous: change.previous,
                time: change.time,
                removed: change.removed,
                note: Bytes::copy_from_slice(change.note),
                place: Some((place, change.value)),
            });
        }
        ControlFlow::Continue(())
    })?;
    Ok(found)
}

/// What each of the changes replaced.
fn replaced(shared: &Shared, tables: &[Arc<Table>], found: &[Found]) -> Result<Option<Vec<Option<Record>>>, Error> {
    let logged = found.iter().filter(|change| change.place.is_none() && change.previous != 0);
    let mut wanted: Vec<_> = logged.map(|change| change.previous).collect();
    wanted.sort_unstable();
    let mut logged = shared.log.find(&wanted)?;
    if logged.len() < wanted.len() {
        return Ok(None);
    }
    let mut all: Vec<Option<Record>> = vec![None; found.len()];
    for (place, table) in tables.iter().enumerate() {
        let mut here = found.iter().enumerate().filter_map(|(at, change)| match change.place {
            Some((in_table, value)) if in_table == place && change.previous != 0 => Some((at, change, value)),
            _ => None,
        });
        let Some(first) = here.next() else { continue };
        let index = table.index()?;
        let mut values = Values::of(table, &index);
        for (at, change, place) in std::iter::once(first).chain(here) {
            let value = values.get(place)?;
            all[at] = Some(Record { key: Arc::clone(&change.key), value, revision: change.previous });
        }
    }
    for (at, change) in found.iter().enumerate().filter(|(_, change)| change.place.is_none()) {
        let old = logged.remove(&change.previous);
        all[at] = old.and_then(|old| Some(Record { key: old.key, value: old.value?, revision: old.revision }));
    }
    Ok(Some(all))
}

/// The latest revision at a time. A clock that went back does not reorder anything: a revision is no older than those before it.
pub(in crate::embedded) fn moment(shared: &Shared, time: u64) -> Result<Revision, Error> {
    again(|| {
        let view = View::of(shared);
        let (tables, rest) = view.tables_after(view.oldest);
        let mut first_after = None;
        if let Some(table) = tables.iter().find(|table| table.foot.last_time > time) {
            first_after = table.times()?.into_iter().find(|(_, at)| *at > time).map(|(revision, _)| revision);
        } else {
            let whole = shared.log.visit(rest, view.revision, |entry, at| {
                if at > time {
                    first_after = Some(entry.revision);
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            })?;
            if !whole {
                return Ok(None);
            }
        }
        match first_after {
            Some(first) if first <= view.oldest + 1 => Err(Error::Compacted { oldest: view.oldest }),
            Some(first) => Ok(Some(first - 1)),
            None => Ok(Some(view.revision)),
        }
    })
}

/// When a revision was made, if its change is kept.
pub(in crate::embedded) fn made(shared: &Shared, revision: Revision) -> Result<Option<u64>, Error> {
    again(|| {
        let view = View::of(shared);
        if revision > view.revision {
            return Err(Error::Future { requested: revision, current: view.revision });
        }
        if revision <= view.oldest {
            return Ok(Some(None));
        }
        let (tables, rest) = view.tables_after(revision - 1);
        if let Some(table) = tables.first() {
            let times = table.times()?;
            let later = times.partition_point(|(first, _)| *first <= revision);
            return Ok(Some(later.checked_sub(1).map(|at| times[at].1)));
        }
        let mut made = None;
        let whole = shared.log.visit(rest, revision, |_, at| {
            made = Some(at);
            ControlFlow::Continue(())
        })?;
        Ok(whole.then_some(made))
    })
}

/// What there is of the past.
pub(in crate::embedded) fn kept(shared: &Shared) -> Result<Kept, Error> {
    again(|| {
        let view = View::of(shared);
        let (tables, rest) = view.tables_after(view.oldest);
        let mut oldest_time = tables.first().map(|table| table.foot.first_time);
        if oldest_time.is_none() {
            let whole = shared.log.visit(rest, view.revision, |_, at| {
                oldest_time = Some(at);
                ControlFlow::Break(())
            })?;
            if !whole {
                return Ok(None);
            }
        }
        let latest_time = shared.log.latest_time();
        let bytes = shared.archive.bytes();
        Ok(Some(Kept { oldest: view.oldest, oldest_time, latest: view.revision, latest_time, bytes }))
    })
}
