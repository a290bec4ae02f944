//! The two system calls on which durability hangs, behind a trait so that tests can make them fail.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Writes and syncs of the log.
pub(super) trait Disk: Send + Sync + 'static {
    /// Writes all of `bytes` at `offset`.
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Returns once the file's bytes are durable.
    fn sync(&self, file: &File) -> io::Result<()>;
}

/// The real one.
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

/// Makes creations, renames and removals in a directory durable.
pub(crate) fn sync_directory(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
