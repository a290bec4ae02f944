//! The two system calls on which durability hangs, behind a trait so that tests can make them fail.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Writes and syncs of the log.
pub(super) trait Disk: Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`.
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Returns once the file's bytes are durable.
    fn sync(&self, file: &File) -> io::Result<()>;
}

#[derive(Debug)]
pub(super) struct Os;

impl Disk for Os {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }
}

/// How a file of a store or a backup is opened: what is in it, Secrets among it, is for its owner only.
pub(crate) fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    options
}

/// Makes a store's directory, or closes the one that is there for everybody else.
pub(crate) fn private_directory(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    if dir.metadata()?.permissions().mode() & 0o077 == 0 {
        return Ok(());
    }
    match std::fs::set_permissions(dir, Permissions::from_mode(0o700)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            tracing::warn!(dir = %dir.display(), %error, "other users may have rights on the store, and they cannot be taken away");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Makes creations, renames and removals in a directory durable.
pub(crate) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
