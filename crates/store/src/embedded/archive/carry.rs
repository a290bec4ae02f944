//! The past in a backup: a directory beside the backup's file, with tables as they are and one more of what is in none yet.

use std::fs;
use std::path::{Path, PathBuf};

use super::build::build;
use super::table::{Table, parse_name};
use super::{DIRECTORY, Tables, load};
use crate::embedded::disk::{private_directory, private_file, sync_directory};
use crate::embedded::log::Log;
use crate::embedded::segment::failed;
use crate::{Error, Revision};

/// Bytes of the log that become one table of a backup.
const UNIT: u64 = 8 << 20;

/// The directory beside a backup's file.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".history");
    name.into()
}

/// The tables of a store that nobody has open.
pub(in crate::embedded) fn tables(store: &Path) -> Result<Tables, Error> {
    let dir = store.join(DIRECTORY);
    Ok(if dir.is_dir() { load(&dir)?.into() } else { Tables::default() })
}

/// Reads all of the past of a store that nobody has open, and changes nothing.
pub(crate) fn check(store: &Path) -> Result<(), Error> {
    let dir = store.join(DIRECTORY);
    if !dir.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(&dir).map_err(|e| failed(&dir, &e))? {
        let path = entry.map_err(|e| failed(&dir, &e))?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| parse_name(name).is_some()) {
            Table::open(&path)?.verify()?;
        }
    }
    Ok(())
}

/// Writes the past up to `revision` beside the file of a backup. `false`: the log went on meanwhile, and it has to be tried again.
pub(in crate::embedded) fn save(
    log: &Log,
    tables: &Tables,
    compacted: Revision,
    revision: Revision,
    file: &Path,
) -> Result<bool, Error> {
    let into = &beside(file);
    if into.exists() {
        fs::remove_dir_all(into).map_err(|e| failed(into, &e))?;
    }
    private_directory(into).map_err(|e| failed(into, &e))?;
    for table in tables.iter() {
        let path = into.join(table.path.file_name().unwrap_or_default());
        // The same file under a second name, where that can be: it never changes.
        if fs::hard_link(&table.path, &path).is_err() {
            copy(&table.file, &path).map_err(|e| failed(&path, &e))?;
        }
    }
    let mut after = tables.last().map_or(compacted, |table| table.foot.last);
    while after < revision {
        let Some(table) = build(log, into, after, revision, UNIT)? else { return Ok(false) };
        after = table.foot.last;
    }
    sync_directory(into).map_err(|e| failed(into, &e))?;
    Ok(true)
}

/// Puts the past that is beside a backup's file into a new store, all of it verified first. A backup may have none.
pub(crate) fn bring_back(file: &Path, store: &Path) -> Result<(), Error> {
    let from = beside(file);
    if !from.is_dir() {
        return Ok(());
    }
    let tables = load(&from)?;
    tables.iter().try_for_each(|table| table.verify())?;
    let into = store.join(DIRECTORY);
    private_directory(&into).map_err(|e| failed(&into, &e))?;
    for table in &tables {
        let path = into.join(table.path.file_name().unwrap_or_default());
        copy(&table.file, &path).map_err(|e| failed(&path, &e))?;
    }
    sync_directory(&into).map_err(|e| failed(&into, &e))
}

fn copy(mut from: &fs::File, to: &Path) -> std::io::Result<()> {
    use std::io::Seek as _;
    let mut out = private_file().create_new(true).open(to)?;
    // Other readers name the place that they read.
    from.seek(std::io::SeekFrom::Start(0))?;
    std::io::copy(&mut from, &mut out)?;
    out.sync_all()
}
