//! The file `ACKNOWLEDGED`: up to which revision writes were acknowledged as durable.
//!
//! The log alone cannot say what an unreadable end is. A crash during a write leaves any part of it, and damage to the last group
//! that was acknowledged looks the same: nothing follows that would prove it had been whole. So there is one place more in which
//! revisions are counted. After a group's sync and before its answers the group's last revision is written here:
//! ```text
//! magic, 8 bytes · revision u64 · checksum u32 of both
//! ```
//! It is written in place and lies within one sector, so a crash leaves the old number or the new one. It is not synced, so that a
//! group costs no second sync: a process that is killed loses nothing of it, and the kernel brings it to the disk within half a
//! minute. What matters is the order: this number is never ahead of what is durable in the log. It may be behind, after
//! a power cut or an earlier version of Trireme, and is then put right by the next start.
//!
//! Hence at start: a log that ends before this revision has lost what was acknowledged, be it a flipped bit in the last group,
//! a file cut short, or a last segment that is gone. It is refused. A log that ends at or after it had at most a torn tail.
//! A store without the file, or with one that is unreadable, is an older one or was restored: it is judged by the log alone.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::disk::{Disk, private_file};
use super::segment::failed;
use crate::{Error, Revision};

const NAME: &str = "ACKNOWLEDGED";
const MAGIC: [u8; 8] = *b"TRIREMEA";
const LENGTH: usize = 20;

/// Where the file is in a store's directory.
pub(super) fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// The revision it names, if there is such a file and it is whole.
pub(super) fn read(dir: &Path) -> Result<Option<Revision>, Error> {
    let path = path(dir);
    match std::fs::read(&path) {
        Ok(bytes) => {
            let revision = decode(&bytes);
            if revision.is_none() {
                tracing::warn!(file = %path.display(), "unreadable: the end of the log is judged without it");
            }
            Ok(revision)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(&path, &error)),
    }
}

fn encode(revision: Revision) -> [u8; LENGTH] {
    let mut out = [0; LENGTH];
    out[..8].copy_from_slice(&MAGIC);
    out[8..16].copy_from_slice(&revision.to_le_bytes());
    let checksum = crc32fast::hash(&out[..16]);
    out[16..].copy_from_slice(&checksum.to_le_bytes());
    out
}

fn decode(bytes: &[u8]) -> Option<Revision> {
    let revision = Revision::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
    (bytes == encode(revision)).then_some(revision)
}

/// The file, open for the one writer.
pub(super) struct Acknowledged {
    file: File,
    path: PathBuf,
    /// Said once, and again after it went well.
    failing: bool,
}

impl Acknowledged {
    /// Opens the file, made if need be, and lets it name what the log was found to hold.
    pub(super) fn open(dir: &Path, disk: &dyn Disk, revision: Revision) -> Result<Self, Error> {
        let path = path(dir);
        let file = private_file().create(true).truncate(false).open(&path).map_err(|e| failed(&path, &e))?;
        // What is longer is not ours, and would stay unreadable.
        if file.metadata().is_ok_and(|found| found.len() > LENGTH as u64) {
            file.set_len(0).map_err(|e| failed(&path, &e))?;
        }
        let mut opened = Self { file, path, failing: false };
        opened.set(disk, revision);
        Ok(opened)
    }

    /// Everything up to `revision` is durable and about to be acknowledged. A number that is behind is still true, so a failure is no
    /// reason to refuse the write.
    pub(super) fn set(&mut self, disk: &dyn Disk, revision: Revision) {
        let written = disk.write(&self.file, &encode(revision), 0);
        if let Err(error) = &written
            && !self.failing
        {
            tracing::warn!(file = %self.path.display(), %error, "damage to the latest writes would not be noticed");
        }
        self.failing = written.is_err();
    }

    /// Brings it to the disk, for a clean end.
    pub(super) fn sync(&self, disk: &dyn Disk) -> io::Result<()> {
        disk.sync(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_it_was_told_or_nothing() {
        let bytes = encode(77);
        assert_eq!(decode(&bytes), Some(77));
        for length in 0..LENGTH {
            assert_eq!(decode(&bytes[..length]), None, "{length} bytes");
        }
        for bit in 0..LENGTH * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), None, "bit {bit}");
        }
    }
}
