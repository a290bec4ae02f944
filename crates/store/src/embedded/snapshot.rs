//! The state of one revision as one file, in the form of a rewritten segment that covers all of history.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::archive;
use super::compact;
use super::disk::{Disk, Os, private_file, sync_directory};
use super::frame::{Change, Entry};
use super::log::{self, Loaded, Mode};
use super::memory::{Memory, ORIGIN};
use super::segment::{self, Head, damaged, failed};
use crate::admin::Summary;
use crate::{Error, Record, Revision};

/// Everything alive at one revision.
pub(crate) struct Snapshot {
    pub(crate) revision: Revision,
    /// Ascending by revision, with when they expire (0 is never).
    pub(crate) records: Vec<(Record, u64)>,
}

/// Takes one; it shares the values with the store.
pub(super) fn take(memory: &Memory) -> Snapshot {
    Snapshot { revision: memory.revision, records: memory.all().collect() }
}

/// Writes it into a new file; answers its length.
pub(crate) fn write_snapshot(file: &Path, snapshot: &mut Snapshot) -> Result<u64, Error> {
    snapshot.records.sort_unstable_by_key(|(record, _)| record.revision);
    let revision = snapshot.revision;
    let head = Head { salt: log::salt(), first: ORIGIN + 1, last: Some(revision), compacted: revision };
    let entries = snapshot.records.iter().map(|(record, expires)| Entry {
        revision: record.revision,
        previous: 0,
        change: Change::Put { key: &record.key, value: &record.value, expires: *expires },
        note: b"",
    });
    compact::write(file, head, entries)
}

/// Reads a whole store without changing it.
pub(crate) fn inspect(dir: &Path) -> Result<(Snapshot, Summary), Error> {
    let Loaded { log, memory, lock: _lock, torn } = log::load(dir, Mode::ReadOnly, Duration::ZERO)?;
    let (files, disk_bytes) = log.size();
    let summary = Summary {
        revision: memory.revision,
        oldest: memory.compacted,
        keys: memory.keys() as u64,
        bytes: memory.bytes,
        files: files as u64,
        disk_bytes,
        torn_bytes: torn,
    };
    Ok((take(&memory), summary))
}

/// Reads a whole store without changing it, and writes its past beside a backup's file.
pub(crate) fn save(dir: &Path, file: &Path) -> Result<Snapshot, Error> {
    let Loaded { log, memory, lock: _lock, .. } = log::load(dir, Mode::ReadOnly, Duration::ZERO)?;
    let tables = archive::tables(dir)?;
    if tables.last().is_none_or(|table| (memory.compacted..=memory.revision).contains(&table.foot.last)) {
        archive::save(&log, &tables, memory.compacted, memory.revision, file)?;
    }
    Ok(take(&memory))
}

/// Reads a backup and verifies all of it.
pub(crate) fn verify(file: &Path) -> Result<(Vec<u8>, Summary), Error> {
    let bytes = fs::read(file).map_err(|e| failed(file, &e))?;
    let Some(head) = Head::decode(&bytes).filter(|head| head.first == ORIGIN + 1 && head.last.is_some()) else {
        return Err(damaged(file, 0, "this is no backup of a store"));
    };
    let scan = segment::scan(file, head.salt, bytes, false)?;
    let scan = scan.ok_or_else(|| damaged(file, 0, "this backup is empty"))?;
    let size = |place: &segment::Place| (place.key.len() + place.value.as_ref().map_or(0, |v| v.len())) as u64;
    let summary = Summary {
        revision: scan.extent.last,
        oldest: scan.extent.last,
        keys: scan.extent.records,
        bytes: scan.places.iter().map(size).sum(),
        files: 1,
        disk_bytes: scan.extent.end,
        torn_bytes: 0,
    };
    Ok((scan.bytes, summary))
}

/// Makes the verified bytes of a backup the only segment of an empty directory.
pub(crate) fn install(dir: &Path, bytes: &[u8]) -> Result<(), Error> {
    let head = Head::decode(bytes).ok_or_else(|| damaged(dir, 0, "this is no backup of a store"))?;
    let path = dir.join(segment::name(head.first, head.salt));
    let partial = path.with_extension("tmp");
    let write = || {
        let file = private_file().create(true).truncate(true).open(&partial)?;
        Os.write(&file, bytes, 0)?;
        file.sync_all()?;
        fs::rename(&partial, &path)?;
        sync_directory(dir)
    };
    write().map_err(|e| failed(&path, &e))
}
