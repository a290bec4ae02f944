//! Makes a data directory from a backup. Doing it again after an interruption goes on where it was.

use std::fs;
use std::path::Path;

use node::private;

use super::keeper::{copy, describe, sync};
use super::{Backup, Error, KEYS, STORE};

/// Restores a backup into a data directory that has neither a store nor other keys.
pub fn restore(backup: &Path, data_dir: &Path) -> Result<Backup, Error> {
    let description = describe(backup)?;
    for name in KEYS {
        same_or_absent(&backup.join(name), &data_dir.join(name))?;
    }
    private::directory(data_dir).map_err(Error::file(data_dir))?;
    // Keys first: a store without them would make a server give itself new ones.
    for name in KEYS {
        copy(&backup.join(name), &data_dir.join(name))?;
    }
    sync(data_dir)?;
    store::admin::restore(&backup.join(STORE), &crate::store::directory(data_dir))?;
    sync(data_dir)?;
    Ok(description)
}

/// Nothing that is there is overwritten with something else.
fn same_or_absent(from: &Path, to: &Path) -> Result<(), Error> {
    if !to.exists() {
        return Ok(());
    }
    if !from.is_dir() {
        let same = matches!((fs::read(from), fs::read(to)), (Ok(from), Ok(to)) if from == to);
        return if same { Ok(()) } else { Err(Error::InTheWay(to.to_owned())) };
    }
    for entry in fs::read_dir(to).map_err(Error::file(to))? {
        let entry = entry.map_err(Error::file(to))?;
        same_or_absent(&from.join(entry.file_name()), &entry.path())?;
    }
    Ok(())
}
