//! What an operator does with an embedded store: backup, restore, check.
//!
//! A backup is one file in the form of a log segment: every live record with its revision, checksummed frame by frame and
//! sealed. A store restored from it goes on from that revision. What came before is in a directory beside it, `FILE.history`, in the form
//! that the store has it; a backup that lost it is whole, but has no past.

use std::fs;
use std::path::Path;

use crate::embedded::{self, ORIGIN, Snapshot};
use crate::{Error, Revision};

/// What was found, written or restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    pub revision: Revision,
    /// The oldest revision whose state can still be read.
    pub oldest: Revision,
    pub keys: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Files of the log, or 1 for a backup.
    pub files: u64,
    pub disk_bytes: u64,
    /// Bytes of an unfinished write at the end, as a crash leaves it: never acknowledged, dropped at the next start.
    pub torn_bytes: u64,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "revision {}, oldest readable revision {}, {} keys of {} bytes, {} bytes on disk in {} file(s)",
            self.revision, self.oldest, self.keys, self.bytes, self.disk_bytes, self.files
        )?;
        if self.torn_bytes > 0 {
            write!(f, ", {} bytes of an unfinished write at the end", self.torn_bytes)?;
        }
        Ok(())
    }
}

/// Backs up a store that no process has open. A running server backs itself up with [`embedded::Embedded::backup`].
pub fn backup(dir: &Path, file: &Path) -> Result<Summary, Error> {
    require_store(dir)?;
    vacant(file)?;
    write_backup(file, embedded::save(dir, file)?)
}

/// Makes a new store in `dir`, which must be empty or not exist, from a backup, all of which is verified first.
pub fn restore(file: &Path, dir: &Path) -> Result<Summary, Error> {
    let (bytes, summary) = embedded::verify(file)?;
    embedded::private_directory(dir).map_err(|e| unavailable(dir, &e))?;
    let history = |entry: &std::io::Result<fs::DirEntry>| entry.as_ref().is_ok_and(|e| e.file_name() == "history");
    let mut found = fs::read_dir(dir).map_err(|e| unavailable(dir, &e))?.filter(|entry| !history(entry));
    if found.next().is_some() {
        return Err(Error::Unavailable(format!("{} is not empty; restore into a new directory", dir.display())));
    }
    // What an interrupted attempt left, which came before everything else.
    let history = dir.join("history");
    if history.exists() {
        fs::remove_dir_all(&history).map_err(|e| unavailable(&history, &e))?;
    }
    embedded::bring_back(file, dir)?;
    // A store nobody has written to is an empty directory.
    if summary.revision > ORIGIN {
        embedded::install(dir, &bytes)?;
    }
    Ok(summary)
}

/// Reads all of a store that no process has open, verifies every checksum and changes nothing.
pub fn check(dir: &Path) -> Result<Summary, Error> {
    require_store(dir)?;
    let summary = embedded::inspect(dir)?.1;
    embedded::check_history(dir)?;
    Ok(summary)
}

/// Without this a mistyped path would look like an empty store in good order.
fn require_store(dir: &Path) -> Result<(), Error> {
    if dir.is_dir() { Ok(()) } else { Err(Error::Unavailable(format!("{} is not a directory", dir.display()))) }
}

/// Nothing is written over.
pub(crate) fn vacant(file: &Path) -> Result<(), Error> {
    if file.exists() { Err(Error::Unavailable(format!("{} exists already", file.display()))) } else { Ok(()) }
}

/// Writes a snapshot beside its final name and moves it there once it is durable.
pub(crate) fn write_backup(file: &Path, mut snapshot: Snapshot) -> Result<Summary, Error> {
    vacant(file)?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let partial = file.with_file_name(name);
    let written = embedded::write_snapshot(&partial, &mut snapshot).and_then(|disk_bytes| {
        fs::rename(&partial, file).map_err(|e| unavailable(file, &e))?;
        let parent = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::File::open(parent).and_then(|d| d.sync_all()).map_err(|e| unavailable(parent, &e))?;
        Ok(disk_bytes)
    });
    let disk_bytes = written.inspect_err(|_| drop(fs::remove_file(&partial)))?;
    Ok(Summary {
        revision: snapshot.revision,
        oldest: snapshot.revision,
        keys: snapshot.records.len() as u64,
        bytes: snapshot.records.iter().map(|(r, _)| (r.key.len() + r.value.len()) as u64).sum(),
        files: 1,
        disk_bytes,
        torn_bytes: 0,
    })
}

fn unavailable(path: &Path, error: &std::io::Error) -> Error {
    Error::Unavailable(format!("{}: {error}", path.display()))
}
