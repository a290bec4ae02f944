//! What a directory takes of a disk.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags};

/// What a directory and everything below it takes of its disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in blocks of the disk, as `du` counts them.
    pub bytes: u64,
    /// Files, directories and links.
    pub inodes: u64,
}

/// Adds up a directory. Other file systems mounted below it do not count, and a link is never followed: what is below
/// belongs to a container, which may change it meanwhile. What vanishes meanwhile is left out.
pub fn usage(root: &Path) -> std::io::Result<Usage> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let base = rustix::fs::openat(CWD, root, flags, Mode::empty())?;
    let top = rustix::fs::fstat(&base)?;
    let mut total = Usage { bytes: blocks(&top), inodes: 1 };
    let mut linked = HashSet::new();
    let mut pending = vec![PathBuf::from(".")];
    while let Some(path) = pending.pop() {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let Ok(fd) = rustix::fs::openat2(&base, &path, flags, Mode::empty(), how) else { continue };
        let Ok(listing) = Dir::read_from(&fd) else { continue };
        for entry in listing.flatten() {
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            let Ok(stat) = rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            if stat.st_dev != top.st_dev || (stat.st_nlink > 1 && is_file(&stat) && !linked.insert(stat.st_ino)) {
                continue;
            }
            total.bytes += blocks(&stat);
            total.inodes += 1;
            if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                pending.push(path.join(std::ffi::OsStr::from_bytes(name.to_bytes())));
            }
        }
    }
    Ok(total)
}

fn is_file(stat: &rustix::fs::Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn blocks(stat: &rustix::fs::Stat) -> u64 {
    // The kernel counts in 512 bytes whatever the disk's own blocks are.
    u64::try_from(stat.st_blocks).unwrap_or(0) * 512
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_added_up_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("inside");
        std::fs::create_dir_all(inside.join("deep")).unwrap();
        std::fs::write(dir.path().join("outside"), vec![1; 1 << 20]).unwrap();
        let empty = usage(&inside).unwrap();
        assert_eq!(empty.inodes, 2);
        std::fs::write(inside.join("deep/file"), vec![1; 64 << 10]).unwrap();
        std::fs::hard_link(inside.join("deep/file"), inside.join("again")).unwrap();
        std::os::unix::fs::symlink(dir.path(), inside.join("out")).unwrap();
        let full = usage(&inside).unwrap();
        assert_eq!(full.inodes, 4);
        assert!((64 << 10..256 << 10).contains(&(full.bytes - empty.bytes)), "{full:?} {empty:?}");
        assert!(usage(&inside.join("out")).is_err());
    }
}
