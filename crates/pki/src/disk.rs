//! Files that are either whole or not there, whenever the machine stops.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::error::Error;

/// Who may read a file besides its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    Owner,
    Everybody,
}

/// Writes a file that only its owner may read, atomically and durably.
pub fn write_private(path: &Path, text: &str) -> Result<(), Error> {
    write(path, text, Readers::Owner)
}

pub(crate) fn write(path: &Path, text: &str, readers: Readers) -> Result<(), Error> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let mode = match readers {
        Readers::Owner => 0o600,
        Readers::Everybody => 0o644,
    };
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    // Left over from a crash, perhaps with another mode.
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&unfinished).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&unfinished, path).map_err(failed)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
}

/// The file's text, or `None` if there is no such file.
pub(crate) fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::File { path: path.to_owned(), source }),
    }
}

/// Makes a directory that only its owner may enter.
pub(crate) fn directory(path: &Path) -> Result<(), Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| Error::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn files_are_replaced_whole_with_the_right_mode() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("key");
        assert_eq!(read(&path).expect("no error"), None);
        fs::write(directory.path().join("key.new"), "left over").expect("a file");
        for text in ["one", "two"] {
            write_private(&path, text).expect("written");
            assert_eq!(read(&path).expect("read").as_deref(), Some(text));
            let mode = fs::metadata(&path).expect("metadata").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
    }
}
