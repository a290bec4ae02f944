//! The past, on disk: every change of the last days, apart from the log that the present is made from.
//!
//! The log (see the module above) is read whole at every start, so it must not grow with history: it keeps some minutes for watchers that
//! come back. Before it gives anything up, that is here, in the directory `history`, as tables (see `table`): each has every change of
//! a run of revisions, with the *value that the change replaced*. Tables follow each other without holes and end before the log does.
//!
//! ```text
//! oldest ── table ── table ── … ── table ──┐ reached
//!                          compacted ── log ──────────── revision      memory: the present
//! ```
//! What a key held at a revision is what its first change after that revision replaced; without such a change it is the present. So each
//! value is written once, when it is replaced; nothing has to be kept for the sake of an older record; and giving up the oldest
//! history is the removal of a file. A start reads one foot per table, memory holds nothing else, and writers are never in the way: the
//! compactor's thread makes tables out of the log, a few megabytes at a time, and joins small ones so that a question asks few.
//!
//! A table gets its name when all of it is on disk, and is never changed. A crash leaves one more or one less, or a joined one beside
//! its parts; then the parts go. The log gives up only what is in a table that has its name, so nothing is ever in neither.

mod block;
mod build;
mod carry;
mod read;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::RwLock;

use self::table::Table;
use super::disk::{private_directory, sync_directory};
use super::segment::failed;
use crate::{Error, Revision};

pub(super) use self::build::turn;
pub(crate) use self::carry::{bring_back, check};
pub(super) use self::carry::{save, tables};
pub(super) use self::read::{changes, get, kept, made, moment, range};

const DIRECTORY: &str = "history";

/// How much of the past to keep.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keep {
    /// What is older goes.
    pub(super) time: Duration,
    /// However young, it may take no more.
    pub(super) bytes: u64,
    /// So many bytes of the log make a table.
    pub(super) unit: u64,
}

impl Keep {
    fn any(&self) -> bool {
        !self.time.is_zero() && self.bytes > 0
    }
}

/// Tables, oldest first, without holes between them.
pub(super) type Tables = Arc<Vec<Arc<Table>>>;

/// The tables of one store.
pub(super) struct Archive {
    dir: PathBuf,
    keep: Keep,
    tables: RwLock<Tables>,
    /// Bytes that were written to the log and are in no table.
    pending: AtomicU64,
    /// Somebody asked that history up to here be forgotten.
    floor: AtomicU64,
    /// The last table could not be written: the log shall not wait for it for ever.
    failing: AtomicBool,
}

impl Archive {
    /// The tables beside a log that has everything after `compacted` and ends at `revision`.
    pub(super) fn open(store: &Path, keep: Keep, compacted: Revision, revision: Revision) -> Result<Self, Error> {
        let dir = store.join(DIRECTORY);
        let mut tables = Vec::new();
        if keep.any() {
            private_directory(&dir).map_err(|e| failed(&dir, &e))?;
            tables = fitting(&dir, load(&dir)?, compacted, revision)?;
        } else if dir.is_dir() {
            fs::remove_dir_all(&dir).map_err(|e| failed(&dir, &e))?;
        }
        Ok(Self {
            dir,
            keep,
            tables: RwLock::new(Arc::new(tables)),
            pending: AtomicU64::new(keep.unit),
            floor: AtomicU64::new(0),
            failing: AtomicBool::new(false),
        })
    }

    pub(super) fn tables(&self) -> Tables {
        Arc::clone(&self.tables.read())
    }

    /// How far the log may give up what it has.
    pub(super) fn spares(&self) -> Revision {
        let waits = self.keep.any() && !self.failing.load(Ordering::Acquire);
        if waits { self.reached().unwrap_or(0) } else { Revision::MAX }
    }

    /// The last revision that is in a table.
    fn reached(&self) -> Option<Revision> {
        self.tables.read().last().map(|table| table.foot.last)
    }

    /// Takes note of bytes in the log; answers whether they are enough for a table.
    pub(super) fn written(&self, bytes: u64) -> bool {
        let pending = self.pending.fetch_add(bytes, Ordering::AcqRel) + bytes;
        self.keep.any() && pending >= self.keep.unit
    }

    /// The log waits: a table is wanted of whatever there is.
    pub(super) fn urge(&self) {
        self.pending.fetch_max(self.keep.unit, Ordering::AcqRel);
    }

    /// Forgets what happened up to `revision`, because somebody asked for it.
    pub(super) fn forget(&self, revision: Revision) {
        self.floor.fetch_max(revision, Ordering::AcqRel);
        let gone = self.tables().iter().take_while(|table| table.foot.last <= revision).count();
        self.drop_oldest(gone);
    }

    fn drop_oldest(&self, count: usize) {
        let gone: Vec<_> = {
            let mut tables = self.tables.write();
            let gone = tables[..count.min(tables.len())].to_vec();
            *tables = Arc::new(tables[gone.len()..].to_vec());
            gone
        };
        // Readers that have them open go on reading.
        gone.iter().for_each(|table| remove(&table.path));
    }

    /// Puts a table in the place of those that it covers, or after all.
    fn put(&self, table: Table) {
        let mut tables = self.tables.write();
        let covered = |other: &Arc<Table>| other.foot.after >= table.foot.after && other.foot.last <= table.foot.last;
        let (parts, mut kept): (Vec<_>, Vec<_>) = tables.iter().cloned().partition(covered);
        kept.push(Arc::new(table));
        kept.sort_by_key(|table| table.foot.after);
        *tables = Arc::new(kept);
        drop(tables);
        parts.iter().for_each(|part| remove(&part.path));
    }

    /// Bytes on disk.
    fn bytes(&self) -> u64 {
        self.tables.read().iter().map(|table| table.foot.bytes).sum()
    }
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(file = %path.display(), %error, "history that is not kept any more stays on disk until the next start");
    }
}

/// Makes a finished table durable under its name.
fn settle(mut table: Table, dir: &Path) -> Result<Table, Error> {
    let path = dir.join(table::name(table.foot.after, table.foot.last));
    fs::rename(&table.path, &path).and_then(|()| sync_directory(dir)).map_err(|e| failed(&path, &e))?;
    table.path = path;
    Ok(table)
}

/// The readable tables of a directory, oldest first, without those that a joined one covers.
fn load(dir: &Path) -> Result<Vec<Arc<Table>>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| failed(dir, &e))? {
        let path = entry.map_err(|e| failed(dir, &e))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if let Some((after, last)) = table::parse_name(name) {
            found.push((after, last, path));
        } else if name.ends_with(".tmp") {
            remove(&path);
        }
    }
    // Of those that begin together the longest comes first.
    found.sort_by_key(|(after, last, _)| (*after, std::cmp::Reverse(*last)));
    let (mut tables, mut covered) = (Vec::new(), 0);
    for (after, last, path) in found {
        if last <= covered {
            remove(&path);
            continue;
        }
        match Table::open(&path) {
            Ok(table) if (table.foot.after, table.foot.last) == (after, last) => tables.push(Arc::new(table)),
            Ok(_) => tracing::error!(file = %path.display(), "history under another's name; it is left where it is"),
            Err(Error::Damaged(what)) => tracing::error!("{what}"),
            Err(error) => return Err(error),
        }
        covered = last;
    }
    Ok(tables)
}

/// Those tables that lead without a hole to where the log begins. The others cannot be read any more.
fn fitting(
    dir: &Path,
    tables: Vec<Arc<Table>>,
    compacted: Revision,
    revision: Revision,
) -> Result<Vec<Arc<Table>>, Error> {
    if let Some(ahead) = tables.last().filter(|table| table.foot.last > revision) {
        // The log of an earlier time was put back: these changes are not its past.
        let aside = dir.with_extension("of-another-log");
        tracing::error!(
            "{} ends at revision {}, the log at {revision}: it is the history of another log, and set aside as {}",
            dir.display(),
            ahead.foot.last,
            aside.display()
        );
        if aside.is_dir() {
            fs::remove_dir_all(&aside).map_err(|e| failed(&aside, &e))?;
        }
        fs::rename(dir, &aside).map_err(|e| failed(dir, &e))?;
        private_directory(dir).map_err(|e| failed(dir, &e))?;
        return Ok(Vec::new());
    }
    let mut fitting: Vec<Arc<Table>> = Vec::new();
    let mut broken = tables.last().is_some_and(|table| table.foot.last < compacted);
    for table in tables.into_iter().rev() {
        broken |= fitting.last().is_some_and(|newer| newer.foot.after != table.foot.last);
        if broken {
            tracing::warn!(file = %table.path.display(), "history before a hole is removed");
            remove(&table.path);
        } else {
            fitting.push(table);
        }
    }
    fitting.reverse();
    Ok(fitting)
}
