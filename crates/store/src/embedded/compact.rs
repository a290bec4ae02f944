//! Keeping the directory bounded: which history to give up, which segments to rewrite, and the rewriting itself.
//!
//! Giving up history is an entry in the log and changes what readers may ask for. Rewriting follows in a thread of its
//! own, off the writer's way: a run of neighbouring segments becomes one, with only the records that the state at the
//! compacted revision or the history after it still need, and takes the place of the first by a rename.
//!
//! A tombstone may go as soon as no older record of its key is left on disk. Therefore runs are rewritten oldest first, and a
//! segment is left alone only when nothing in it is garbage.

use std::fs::{self, File};
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use parking_lot::Mutex;

use super::Shared;
use super::archive;
use super::disk::{Disk, Os, private_file, sync_directory};
use super::frame::{Builder, Change, Entry, Stamp};
use super::log::{self, Log};
use super::segment::{Extent, Head, Segment, failed};
use crate::{Error, Revision};

/// Keys looked at under one lock.
const STEP: usize = 1024;
/// Bytes a rewrite hands to the disk between two syncs, so that the writer's own syncs never queue behind much.
const SLICE: usize = 1 << 20;
/// Segments smaller than a quarter of the usual size count as small; so many neighbours of them are worth joining.
const SMALL_RUN: usize = 8;

/// How much history to keep.
#[derive(Debug, Clone)]
pub(super) struct Policy {
    /// Nothing younger is given up, unless `bytes` says so.
    pub(super) time: Duration,
    /// So many of the latest revisions are never given up.
    pub(super) revisions: u64,
    /// History may not take more than this, however young.
    pub(super) bytes: u64,
}

/// A finished segment, as the policy and the plan see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Finished {
    last: Revision,
    time: u64,
    bytes: u64,
    records: u64,
}

/// Up to where history may go now, if anywhere new. Called when a segment is finished, so it needs no timer.
pub(super) fn due(log: &Log, policy: &Policy, now: u64) -> Option<Revision> {
    let finished: Vec<_> = finished(log, Revision::MAX).into_iter().map(|(f, _)| f).collect();
    choose(&finished, policy, now)
}

fn choose(segments: &[Finished], policy: &Policy, now: u64) -> Option<Revision> {
    let newest = segments.last()?.last;
    let old = now.saturating_sub(policy.time.as_millis() as u64);
    let mut younger_bytes = 0;
    let mut chosen = None;
    for segment in segments.iter().rev() {
        if segment.time <= old || younger_bytes > policy.bytes {
            chosen = Some(segment.last);
            break;
        }
        younger_bytes += segment.bytes;
    }
    let limit = newest.saturating_sub(policy.revisions);
    chosen.map(|revision| revision.min(limit)).filter(|revision| *revision > 0)
}

/// The sealed segments that end at or before `upto`, oldest first.
fn finished(log: &Log, upto: Revision) -> Vec<(Finished, Arc<Segment>)> {
    let segments = log.segments.read();
    let each = segments.values().map(|segment| {
        let e = segment.extent.lock();
        let finished = Finished { last: e.last, time: e.time, bytes: e.end, records: e.records };
        (e.sealed, finished, Arc::clone(segment))
    });
    each.take_while(|(sealed, f, _)| *sealed && f.last <= upto).map(|(_, f, s)| (f, s)).collect()
}

/// Waits to be woken, looks whether rewriting is worth it, and does it.
pub(super) fn run(shared: &Shared, woken: &Receiver<()>, segment_bytes: u64) {
    while woken.recv().is_ok() {
        if let Err(error) = archive::turn(shared) {
            tracing::error!(%error, "history could not be written; it is tried again later");
        }
        if let Err(error) = rewrite(shared, segment_bytes) {
            // Nothing is lost by it but space: the segments that were to be rewritten are still in place.
            tracing::error!(%error, "store compaction failed; it is tried again after the next segment");
        }
    }
}

fn rewrite(shared: &Shared, segment_bytes: u64) -> Result<(), Error> {
    let compacted = shared.memory.read().compacted;
    let segments = finished(&shared.log, compacted);
    if segments.is_empty() {
        return Ok(());
    }
    let needed = needed(shared, compacted);
    // If more was given up meanwhile, what that needed no longer may be missing above: the new heads must say so.
    let promised = shared.memory.read().compacted;
    let mut usage = Vec::with_capacity(segments.len());
    for (finished, segment) in &segments {
        let from = needed.partition_point(|r| *r < segment.head.first);
        let to = needed.partition_point(|r| *r <= finished.last);
        usage.push(Usage { bytes: finished.bytes, records: finished.records, needed: (to - from) as u64 });
    }
    for run in plan(&usage, segment_bytes) {
        if shared.closing() {
            return Ok(());
        }
        let run: Vec<_> = segments[run].iter().map(|(_, segment)| Arc::clone(segment)).collect();
        replace(&shared.log, &run, &needed, promised)?;
    }
    Ok(())
}

/// The revisions at or before `compacted` that must stay, ascending: those still live, and those replaced since.
fn needed(shared: &Shared, compacted: Revision) -> Vec<Revision> {
    let mut needed = Vec::new();
    let mut after: Option<Arc<str>> = None;
    loop {
        let step = shared.memory.read().step(after.as_deref(), STEP);
        let Some((last, _)) = step.last() else { break };
        after = Some(Arc::clone(last));
        needed.extend(step.iter().map(|(_, revision)| *revision).filter(|revision| *revision <= compacted));
    }
    // Asked last: a record that was replaced while the keys were walked is found here.
    needed.extend(shared.memory.read().replaced());
    needed.sort_unstable();
    needed.dedup();
    needed
}

/// How much of a segment is still of use.
#[derive(Debug, Clone, Copy)]
struct Usage {
    bytes: u64,
    records: u64,
    needed: u64,
}

impl Usage {
    fn live_bytes(&self) -> u64 {
        (self.bytes * self.needed).checked_div(self.records).unwrap_or(0)
    }
}

/// Runs of neighbouring segments to rewrite, each into one. None while garbage is less than what is alive.
fn plan(segments: &[Usage], segment_bytes: u64) -> Vec<Range<usize>> {
    let live: u64 = segments.iter().map(Usage::live_bytes).sum();
    let garbage = segments.iter().map(|s| s.bytes).sum::<u64>() - live;
    let is_small = |s: &Usage| s.bytes < segment_bytes / 4;
    let small = segments.windows(SMALL_RUN).any(|run| run.iter().all(is_small));
    if garbage < live.max(segment_bytes) && !small {
        return Vec::new();
    }
    let mut runs: Vec<Range<usize>> = Vec::new();
    let mut filled = 0;
    for (i, segment) in segments.iter().enumerate() {
        if segment.needed == segment.records && !is_small(segment) {
            continue;
        }
        match runs.last_mut() {
            Some(run) if run.end == i && filled + segment.live_bytes() <= segment_bytes => {
                run.end = i + 1;
                filled += segment.live_bytes();
            }
            _ => {
                runs.push(i..i + 1);
                filled = segment.live_bytes();
            }
        }
    }
    // A single clean segment would come out as it went in.
    runs.retain(|run| run.len() > 1 || segments[run.start].needed < segments[run.start].records);
    runs
}

/// Writes one segment with the needed records of `run`, and puts it in their place.
fn replace(log: &Log, run: &[Arc<Segment>], needed: &[Revision], compacted: Revision) -> Result<(), Error> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(()) };
    let (last_revision, time) = {
        let extent = last.extent.lock();
        (extent.last, extent.time)
    };
    // The salt stays, as it is part of the name that this takes over.
    let head = Head { compacted, last: Some(last_revision), ..first.head };
    let path = first.path.with_extension("tmp");
    let file = private_file().create(true).truncate(true).open(&path);
    let mut out = Output::new(file.map_err(|e| failed(&path, &e))?, &head, time);
    let mut wanted = needed.iter().copied().peekable();
    for segment in run {
        let mut result = Ok(());
        let _ = segment.visit(segment.head.first, |entry, _| {
            while wanted.next_if(|w| *w < entry.revision).is_some() {}
            if matches!(entry.change, Change::Put { .. }) && wanted.next_if_eq(&entry.revision).is_some() {
                // Who wrote it is in the archive by now.
                result = out.push(&Entry { note: b"", ..entry });
            }
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        result.map_err(|e| failed(&path, &e))?;
    }
    out.flush(true).map_err(|e| failed(&path, &e))?;
    fs::rename(&path, &first.path).and_then(|()| sync_directory(&log.dir)).map_err(|e| failed(&path, &e))?;
    let new = Arc::new(Segment { path: first.path.clone(), file: out.file, head, extent: Mutex::new(out.extent) });
    {
        let mut segments = log.segments.write();
        run.iter().for_each(|old| drop(segments.remove(&old.head.first)));
        segments.insert(new.head.first, new);
    }
    for old in &run[1..] {
        fs::remove_file(&old.path).map_err(|e| failed(&old.path, &e))?;
    }
    Ok(())
}

/// A segment being written from beginning to end.
struct Output {
    file: File,
    extent: Extent,
    builder: Builder,
    stamp: Stamp,
}

impl Output {
    fn new(file: File, head: &Head, time: u64) -> Self {
        let mut builder = Builder::default();
        builder.bytes.extend_from_slice(&head.encode());
        let extent = Extent::upto(head.last.unwrap_or(head.first - 1));
        Self { file, extent, builder, stamp: Stamp { salt: head.salt, base: 0, time } }
    }

    fn push(&mut self, entry: &Entry<'_>) -> io::Result<()> {
        self.builder.push(entry, &self.stamp);
        self.extent.records += 1;
        if self.builder.bytes.len() >= SLICE { self.flush(false) } else { Ok(()) }
    }

    fn flush(&mut self, seal: bool) -> io::Result<()> {
        self.builder.finish(&self.stamp);
        let start = self.extent.end;
        for frame in &self.builder.frames {
            self.extent.add(start + frame.at.start as u64..start + frame.at.end as u64, frame.first, frame.checksum);
        }
        if seal {
            self.builder.seal(&self.extent.seal(), &self.stamp);
            self.extent.sealed = true;
        }
        Os.write(&self.file, &self.builder.bytes, start)?;
        Os.sync(&self.file)?;
        self.extent.end = start + self.builder.bytes.len() as u64;
        self.extent.time = self.stamp.time;
        self.builder.clear();
        Ok(())
    }
}

/// Writes a whole sealed segment of these entries, ascending by revision; answers its length.
pub(super) fn write<'a>(path: &Path, head: Head, entries: impl Iterator<Item = Entry<'a>>) -> Result<u64, Error> {
    let file = private_file().create_new(true).open(path).map_err(|e| failed(path, &e))?;
    let mut out = Output::new(file, &head, log::now());
    for entry in entries {
        out.push(&entry).map_err(|e| failed(path, &e))?;
    }
    out.flush(true).map_err(|e| failed(path, &e))?;
    Ok(out.extent.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000;

    fn policy(minutes: u64, revisions: u64, bytes: u64) -> Policy {
        Policy { time: Duration::from_secs(minutes * 60), revisions, bytes }
    }

    /// Segments of 100 revisions and 100 bytes, one per minute, the first finished at minute 1.
    fn segments(count: u64) -> Vec<Finished> {
        (1..=count).map(|i| Finished { last: i * 100, time: i * MINUTE, bytes: 100, records: 100 }).collect()
    }

    #[test]
    fn history_goes_when_it_is_old_enough() {
        let all = segments(10);
        assert_eq!(choose(&all, &policy(5, 0, u64::MAX), 10 * MINUTE), Some(500));
        assert_eq!(choose(&all, &policy(5, 0, u64::MAX), 10 * MINUTE + 1), Some(500));
        assert_eq!(choose(&all, &policy(20, 0, u64::MAX), 10 * MINUTE), None);
        assert_eq!(choose(&all, &policy(5, 0, u64::MAX), 100 * MINUTE), Some(1000));
        assert_eq!(choose(&[], &policy(5, 0, u64::MAX), 10 * MINUTE), None);
    }

    #[test]
    fn the_latest_revisions_stay_however_old() {
        assert_eq!(choose(&segments(10), &policy(5, 700, u64::MAX), 100 * MINUTE), Some(300));
        assert_eq!(choose(&segments(10), &policy(5, 5000, u64::MAX), 100 * MINUTE), None);
    }

    #[test]
    fn young_history_goes_too_when_it_takes_too_much_room() {
        assert_eq!(choose(&segments(10), &policy(20, 0, 300), 10 * MINUTE), Some(600));
    }

    fn usage(bytes: u64, records: u64, needed: u64) -> Usage {
        Usage { bytes, records, needed }
    }

    #[test]
    fn rewriting_waits_until_it_is_worth_it() {
        assert_eq!(plan(&[], 1000), [] as [Range<usize>; 0]);
        assert_eq!(plan(&[usage(1000, 10, 6), usage(1000, 10, 6)], 1000), [] as [Range<usize>; 0]);
        assert_eq!(plan(&[usage(1000, 10, 5), usage(1000, 10, 5)], 1000), vec![0..2; 1]);
        assert_eq!(plan(&[usage(900, 10, 0)], 1000), [] as [Range<usize>; 0], "less than a segment's worth");
    }

    #[test]
    fn segments_without_garbage_are_left_alone() {
        let all = [usage(1000, 10, 10), usage(1000, 10, 0), usage(1000, 10, 10), usage(1000, 10, 0)];
        assert_eq!(plan(&all, 1000), [1..2, 3..4]);
    }

    #[test]
    fn a_run_fills_at_most_one_segment() {
        let all = [usage(1000, 10, 4); 5];
        assert_eq!(plan(&all, 1000), [0..2, 2..4, 4..5]);
    }

    #[test]
    fn many_small_segments_are_joined() {
        let all = [usage(100, 10, 10); SMALL_RUN];
        assert_eq!(plan(&all, 1000), vec![0..SMALL_RUN; 1]);
        assert_eq!(plan(&all[1..], 1000), [] as [Range<usize>; 0]);
    }
}
