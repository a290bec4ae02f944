//! Making tables: out of the log, and out of smaller tables; and which of them to give up.

use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use rustc_hash::FxHashMap;

use super::block::{Change, Place};
use super::table::{Entry, Reader, Table, Writer};
use super::{Archive, Keep, settle};
use crate::embedded::Shared;
use crate::embedded::frame;
use crate::embedded::log::Log;
use crate::{Error, Revision};

/// So many neighbours of about one size become one table.
const JOINED: usize = 8;
/// By their age at most so many tables go for each that comes: a clock that jumps ahead for a moment does not take all of the past with it.
const BY_AGE: usize = 2;

/// Takes what is in the log only into tables, joins small ones, and gives up what is too old or too much.
pub(in crate::embedded) fn turn(shared: &Shared) -> Result<(), Error> {
    let archive = &shared.archive;
    if !archive.keep.any() {
        return Ok(());
    }
    let done = take_in(shared);
    archive.failing.store(done.is_err(), Ordering::Release);
    done?;
    while let Some(run) = joinable(&sizes(archive), archive.keep.unit) {
        if shared.closing() {
            return Ok(());
        }
        let parts = archive.tables()[run].to_vec();
        // While both are there they count both.
        let more: u64 = parts.iter().map(|part| part.foot.bytes).sum();
        archive.drop_oldest(excess(&feet(archive), &archive.keep, 0, more));
        if parts.iter().all(|part| archive.tables().iter().any(|table| Arc::ptr_eq(table, part))) {
            archive.put(join(&archive.dir, &parts)?);
        }
    }
    Ok(())
}

fn take_in(shared: &Shared) -> Result<(), Error> {
    let archive = &shared.archive;
    while archive.pending.load(Ordering::Acquire) >= archive.keep.unit && !shared.closing() {
        let (compacted, upto) = {
            let memory = shared.memory.read();
            (memory.compacted, memory.revision)
        };
        let mut after = archive.reached().unwrap_or(compacted);
        if after < compacted {
            // The log did not wait, because it was told to forget or because tables could not be written.
            archive.drop_oldest(usize::MAX);
            after = compacted;
        }
        if after >= upto {
            archive.pending.store(0, Ordering::Release);
            return Ok(());
        }
        let before = archive.pending.load(Ordering::Acquire);
        let Some(table) = build(&shared.log, &archive.dir, after, upto, archive.keep.unit)? else { continue };
        if table.foot.last == upto {
            // What came meanwhile is still pending.
            archive.pending.fetch_sub(before, Ordering::AcqRel);
        }
        archive.put(table);
        let now = (shared.log.clock)();
        archive.drop_oldest(excess(&feet(archive), &archive.keep, now, 0));
    }
    Ok(())
}

/// A change out of the log.
struct Taken {
    key: Arc<str>,
    revision: Revision,
    previous: Revision,
    time: u64,
    note: Bytes,
    value: Option<Bytes>,
}

/// A table of what the log has after `after`, about `unit` bytes of it and not beyond `upto`. Nothing if the log was compacted
/// meanwhile.
pub(super) fn build(log: &Log, dir: &Path, after: Revision, upto: Revision, unit: u64) -> Result<Option<Table>, Error> {
    let (mut taken, mut bytes) = (Vec::new(), 0);
    let whole = log.visit(after, upto, |entry, time| {
        let (Some(key), value) = (entry.key(), entry.value().map(Bytes::copy_from_slice)) else {
            return ControlFlow::Continue(());
        };
        bytes += (key.len() + value.as_ref().map_or(0, Bytes::len) + entry.note.len() + frame::ENTRY) as u64;
        let (revision, previous, note) = (entry.revision, entry.previous, Bytes::copy_from_slice(entry.note));
        taken.push(Taken { key: key.into(), revision, previous, time, note, value });
        if bytes < unit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let Some(last) = taken.last().map(|change| change.revision).filter(|_| whole) else { return Ok(None) };
    let mut values: FxHashMap<Revision, Bytes> = FxHashMap::default();
    let mut wanted: Vec<_> = taken.iter().map(|change| change.previous).filter(|r| *r != 0 && *r <= after).collect();
    wanted.sort_unstable();
    for (revision, old) in log.find(&wanted)? {
        values.extend(old.value.map(|value| (revision, value)));
    }
    if values.len() < wanted.len() {
        return Ok(None);
    }
    values.extend(taken.iter().filter_map(|change| Some((change.revision, change.value.clone()?))));
    let mut times: Vec<(Revision, u64)> = taken.iter().map(|change| (change.revision, change.time)).collect();
    times.dedup_by_key(|(_, time)| *time);
    taken.sort_unstable_by(|a, b| (&a.key, a.revision).cmp(&(&b.key, b.revision)));
    let mut writer = Writer::create(&dir.join(format!("{after:020}.tmp")), after, last)?;
    for change in &taken {
        let value = match change.previous {
            0 => &[][..],
            previous => values.get(&previous).map_or(&[][..], |value| value),
        };
        let Taken { key, revision, previous, time, note, value: new } = change;
        let (revision, previous, time, removed) = (*revision, *previous, *time, new.is_none());
        let place = Place { block: 0, offset: 0, length: 0 };
        let change = Change { key, revision, previous, time, removed, note, value: place };
        writer.push(&Entry { change, value })?;
    }
    settle(writer.finish(&times)?, dir).map(Some)
}

/// One table of several neighbours.
fn join(dir: &Path, parts: &[Arc<Table>]) -> Result<Table, Error> {
    let (first, last) = (&parts[0].foot, &parts[parts.len() - 1].foot);
    let indexes = parts.iter().map(|part| part.index()).collect::<Result<Vec<_>, _>>()?;
    let mut readers: Vec<_> = parts.iter().zip(&indexes).map(|(part, index)| Reader::of(part, index)).collect();
    let mut writer = Writer::create(&dir.join(format!("{:020}.tmp", first.after)), first.after, last.last)?;
    loop {
        // The least key; of a key that several have, the oldest part comes first.
        let mut least: Option<(usize, Box<str>)> = None;
        for (place, reader) in readers.iter_mut().enumerate() {
            if let Some(change) = reader.peek()?
                && least.as_ref().is_none_or(|(_, key)| change.key < &**key)
            {
                least = Some((place, change.key.into()));
            }
        }
        let Some((place, key)) = least else { break };
        while readers[place].peek()?.is_some_and(|change| change.key == &*key) {
            readers[place].take(&mut writer)?;
        }
    }
    let mut times = Vec::new();
    for part in parts {
        times.extend(part.times()?);
    }
    settle(writer.finish(&times)?, dir)
}

fn sizes(archive: &Archive) -> Vec<u64> {
    archive.tables().iter().map(|table| table.foot.raw).collect()
}

/// Bytes and latest time of each table.
fn feet(archive: &Archive) -> Vec<(u64, u64)> {
    archive.tables().iter().map(|table| (table.foot.bytes, table.foot.last_time)).collect()
}

/// Neighbours that are worth joining: so many of about one size, and not large yet.
fn joinable(sizes: &[u64], unit: u64) -> Option<Range<usize>> {
    let level = |size: &u64| match *size / unit.max(1) {
        ..4 => Some(0),
        4..32 => Some(1),
        _ => None,
    };
    let alike = |run: &[u64]| level(&run[0]).is_some() && run.iter().all(|size| level(size) == level(&run[0]));
    sizes.windows(JOINED).position(alike).map(|start| start..start + JOINED)
}

/// How many of the oldest tables have to go, at a time, so that there is room for some bytes more.
fn excess(tables: &[(u64, u64)], keep: &Keep, now: u64, more: u64) -> usize {
    let old = now.saturating_sub(keep.time.as_millis() as u64);
    let aged = tables.iter().take(BY_AGE).take_while(|(_, time)| *time < old).count();
    let mut total = tables.iter().map(|(bytes, _)| bytes).sum::<u64>() + more;
    let mut large = 0;
    for (bytes, _) in tables {
        if total <= keep.bytes {
            break;
        }
        total -= bytes;
        large += 1;
    }
    aged.max(large)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn neighbours_of_one_size_are_joined_until_they_are_large() {
        assert_eq!(joinable(&[1; 7], 1), None);
        assert_eq!(joinable(&[1; 8], 1), Some(0..8));
        assert_eq!(joinable(&[8, 8, 1, 1, 1, 1, 1, 1, 1, 1], 1), Some(2..10));
        assert_eq!(joinable(&[8, 8, 8, 8, 8, 8, 8, 8, 1], 1), Some(0..8));
        assert_eq!(joinable(&[64; 20], 1), None, "large ones stay");
    }

    #[test]
    fn the_past_goes_by_age_and_by_size() {
        let keep = Keep { time: Duration::from_millis(100), bytes: 50, unit: 1 };
        let tables = [(10, 100), (10, 200), (10, 300), (10, 400)];
        assert_eq!(excess(&tables, &keep, 200, 0), 0);
        assert_eq!(excess(&tables, &keep, 201, 0), 1);
        assert_eq!(excess(&tables, &keep, 1_000_000, 0), BY_AGE, "a clock that jumps does not take all of it");
        assert_eq!(excess(&tables, &keep, 0, 20), 1, "room for what is being joined");
        assert_eq!(excess(&tables, &Keep { bytes: 25, ..keep }, 0, 0), 2);
    }
}
