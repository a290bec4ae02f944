//! The writing end of the log: groups of entries, each durable with one write and one sync.

use std::sync::Arc;

use parking_lot::Mutex;

use super::acknowledged::Acknowledged;
use super::disk::{Disk, private_file, sync_directory};
use super::frame::{Builder, Entry, Stamp};
use super::log::{self, Log};
use super::segment::{self, Extent, Head, Segment};
use crate::{Error, Revision};

/// What a disk has room for at the least before it is called well again.
const PROBE: usize = 64 << 10;

/// Appends to the newest segment, and starts another when it is large enough. There is one per log.
pub(super) struct Appender {
    log: Arc<Log>,
    disk: Arc<dyn Disk>,
    active: Option<Arc<Segment>>,
    builder: Builder,
    segment_bytes: u64,
    acknowledged: Acknowledged,
    /// Set for good when a sync failed: what the disk holds is unknown from then on.
    poison: Option<Error>,
    /// How many bytes the disk had no room for, last time it had none.
    refused: usize,
}

/// A group on its way to the disk.
pub(super) struct Group<'a> {
    appender: &'a mut Appender,
    stamp: Stamp,
    head: Option<Head>,
    records: u64,
    last: Revision,
}

/// How much of a group's consequences the caller has to see to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Synced {
    /// The segment is finished: a time to think about compaction.
    pub(super) rotated: bool,
    pub(super) bytes: u64,
}

impl Appender {
    /// One for a log that was found to end at `revision`.
    pub(super) fn new(
        log: Arc<Log>,
        disk: Arc<dyn Disk>,
        segment_bytes: u64,
        revision: Revision,
    ) -> Result<Self, Error> {
        let acknowledged = Acknowledged::open(&log.dir, &*disk, revision)?;
        let builder = Builder::default();
        Ok(Self { log, disk, active: None, builder, segment_bytes, acknowledged, poison: None, refused: 0 })
    }

    /// Begins a group whose first new revision is `next`.
    pub(super) fn group(&mut self, next: Revision, compacted: Revision) -> Result<Group<'_>, Error> {
        if let Some(poison) = &self.poison {
            return Err(poison.clone());
        }
        self.builder.clear();
        let (salt, base, head) = match &self.active {
            Some(active) => (active.head.salt, active.extent.lock().end, None),
            None => {
                let head = Head { salt: log::salt(), first: next, last: None, compacted };
                self.builder.bytes.extend_from_slice(&head.encode());
                (head.salt, 0, Some(head))
            }
        };
        let stamp = Stamp { salt, base, time: (self.log.clock)() };
        Ok(Group { appender: self, stamp, head, records: 0, last: next - 1 })
    }

    /// Is there a segment under way, so that an entry without a revision has somewhere to go?
    pub(super) fn has_segment(&self) -> bool {
        self.active.is_some()
    }

    /// Finishes the segment, for a clean end.
    pub(super) fn finish(&mut self, next: Revision, compacted: Revision) -> Result<(), Error> {
        if self.active.is_some() {
            self.group(next, compacted)?.write(true)?;
        }
        self.acknowledged.sync(&*self.disk).map_err(|e| segment::failed(&self.log.dir, &e))
    }

    /// Whether only a restart can help.
    pub(super) fn is_poisoned(&self) -> bool {
        self.poison.is_some()
    }

    /// Whether the disk has room for what it refused. Nothing is left of the attempt.
    pub(super) fn probe(&self) -> Result<(), Error> {
        let zeros = vec![0; self.refused.max(PROBE)];
        let (path, written) = match &self.active {
            // Zeros after the last group are a torn tail, should the process end here.
            Some(segment) => {
                let end = segment.extent.lock().end;
                let written = self.disk.write(&segment.file, &zeros, end);
                (segment.path.clone(), written.and(segment.file.set_len(end)))
            }
            None => {
                let path = self.log.dir.join("probe.tmp");
                let file = private_file().create(true).truncate(true).open(&path);
                let written = file.and_then(|file| self.disk.write(&file, &zeros, 0));
                (path.clone(), written.and(std::fs::remove_file(&path)))
            }
        };
        written.map_err(|e| segment::failed(&path, &e))
    }
}

impl Group<'_> {
    pub(super) fn push(&mut self, entry: &Entry<'_>) {
        if entry.key().is_some() {
            self.records += 1;
            self.last = entry.revision;
        }
        self.appender.builder.push(entry, &self.stamp);
    }

    /// Makes the group durable. After an error none of it counts.
    pub(super) fn commit(self) -> Result<Synced, Error> {
        self.write(false)
    }

    fn write(self, finish: bool) -> Result<Synced, Error> {
        let Self { appender, stamp, head, records, last } = self;
        appender.builder.finish(&stamp);
        let bytes = appender.builder.bytes.len() as u64;
        let segment = match (&appender.active, head) {
            (Some(active), _) => Arc::clone(active),
            (None, head) => create(&appender.log, head.expect("a group without a segment brings its head"))?,
        };
        let mut extent = segment.extent.lock().clone();
        let start = extent.end;
        for frame in &appender.builder.frames {
            extent.add(start + frame.at.start as u64..start + frame.at.end as u64, frame.first, frame.checksum);
        }
        extent.records += records;
        extent.last = last;
        extent.time = stamp.time;
        let rotated = finish || extent.end >= appender.segment_bytes;
        if rotated {
            appender.builder.seal(&extent.seal(), &stamp);
            extent.sealed = true;
            extent.end = start + appender.builder.bytes.len() as u64;
        }
        if let Err(error) = appender.disk.write(&segment.file, &appender.builder.bytes, start) {
            let what = format!("{}: {error}", segment.path.display());
            appender.refused = appender.builder.bytes.len();
            // Nothing of it was synced: once the file is cut back, the store is as it was, and a full disk may empty.
            let undone = match head {
                Some(_) => std::fs::remove_file(&segment.path),
                None => segment.file.set_len(start),
            };
            if undone.is_err() {
                appender.poison = Some(Error::Unavailable(format!("{what}; restart to recover")));
            }
            return Err(Error::Unavailable(what));
        }
        let synced = appender.disk.sync(&segment.file).and_then(|()| match head {
            Some(_) => sync_directory(&appender.log.dir),
            None => Ok(()),
        });
        if let Err(error) = synced {
            // The kernel may have dropped the pages and will report success next time: no later sync can be trusted.
            let what = format!("{}: sync failed: {error}; restart to recover", segment.path.display());
            let poison = Error::Unavailable(what);
            appender.poison = Some(poison.clone());
            return Err(poison);
        }
        *segment.extent.lock() = extent;
        if records > 0 {
            appender.acknowledged.set(&*appender.disk, last);
        }
        if head.is_some() {
            appender.log.segments.write().insert(segment.head.first, Arc::clone(&segment));
        }
        appender.active = (!rotated).then_some(segment);
        Ok(Synced { rotated, bytes })
    }
}

fn create(log: &Log, head: Head) -> Result<Arc<Segment>, Error> {
    let path = log.dir.join(segment::name(head.first, head.salt));
    let file = private_file().create_new(true).open(&path);
    let file = file.map_err(|e| segment::failed(&path, &e))?;
    let extent = Mutex::new(Extent::upto(head.first - 1));
    Ok(Arc::new(Segment { path, file, head, extent }))
}
