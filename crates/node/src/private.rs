//! Files and directories that are no business of the machine's other users.
//!
//! What Trireme keeps on disk holds secrets: objects, keys, tokens, what programs log. Three modes are enough:
//! - a *private* directory, 0700, and *private* files, 0600, are their owner's alone;
//! - a *passage*, 0711, can be gone through but not listed. Such is the way to the file systems of containers: the first process
//!   of a pod with user namespaces goes it as a stranger. Volumes need no such way: they are bind mounts.
//!
//! What an earlier version left open is closed at the next start. Where that is not permitted, on a directory that somebody else
//! owns, it is said in the log and the start goes on.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Result, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Makes a directory that only its owner may enter; one that is there is closed for others.
pub fn directory(path: &Path) -> Result<()> {
    make(path, 0o700)
}

/// Makes a directory through which others may go to what they know the name of, and nothing else; or makes one such that is there.
pub fn passage(path: &Path) -> Result<()> {
    make(path, 0o711)?;
    let present = std::fs::metadata(path)?.permissions().mode() & 0o7777;
    // A way may lead through what was private before.
    if present & 0o011 == 0o011 {
        Ok(())
    } else {
        std::fs::set_permissions(path, Permissions::from_mode(present | 0o011))
    }
}

/// Opens a file for appending, made if need be, that only its owner may read.
pub fn append(path: &Path) -> Result<File> {
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    restrict(path, 0o600)?;
    Ok(file)
}

/// Writes a file that only its owner may read, as [`std::fs::write`] does.
pub fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    // Before the content is there: the file may be an older one.
    restrict(path, 0o600)?;
    file.write_all(text.as_ref())
}

/// Takes from others what rights they have on a file, or on a directory and everything below it. Nothing at `path` is no error.
/// Links are not followed, and other file systems are left alone.
pub fn close(path: &Path) -> Result<()> {
    let top = match path.symlink_metadata() {
        Ok(top) => top,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut pending = vec![path.to_owned()];
    while let Some(path) = pending.pop() {
        // Somebody may remove it meanwhile.
        let Ok(found) = path.symlink_metadata() else { continue };
        if found.file_type().is_symlink() || found.dev() != top.dev() {
            continue;
        }
        restrict(&path, 0o700)?;
        if found.is_dir() {
            pending.extend(std::fs::read_dir(&path)?.flatten().map(|entry| entry.path()));
        }
    }
    Ok(())
}

fn make(path: &Path, mode: u32) -> Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    restrict(path, mode)
}

/// Leaves a path at most these rights.
fn restrict(path: &Path, most: u32) -> Result<()> {
    let present = std::fs::metadata(path)?.permissions().mode() & 0o7777;
    // Whatever the owner and the sticky bits are: this is about others.
    let wanted = present & !(0o077 & !most);
    if wanted == present {
        return Ok(());
    }
    match std::fs::set_permissions(path, Permissions::from_mode(wanted)) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            tracing::warn!("other users may have rights on {}, and they cannot be taken away: {error}", path.display());
            Ok(())
        }
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.symlink_metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_made_is_its_owner_s_and_what_was_open_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for before in [0o755, 0o700, 0o777] {
            directory(&at("private/deep")).unwrap();
            passage(&at("passage")).unwrap();
            write(&at("file"), "secret").unwrap();
            append(&at("log")).unwrap().write_all(b"line\n").unwrap();
            let modes = ["private", "private/deep", "passage", "file", "log"].map(|name| mode(&at(name)));
            assert_eq!(modes, [0o700, 0o700, 0o711, 0o600, 0o600]);
            // As an earlier version may have made them.
            for (name, mode) in [("private/deep", before), ("passage", before), ("file", 0o644), ("log", 0o644)] {
                std::fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
            }
        }
        assert_eq!(std::fs::read_to_string(at("log")).unwrap(), "line\n".repeat(3));
    }

    #[test]
    fn a_tree_is_closed_without_following_links() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("tree/deep")).unwrap();
        for name in ["tree/deep/file", "outside"] {
            std::fs::write(at(name), "x").unwrap();
            std::fs::set_permissions(at(name), Permissions::from_mode(0o666)).unwrap();
        }
        std::os::unix::fs::symlink(at("outside"), at("tree/link")).unwrap();
        close(&at("tree")).unwrap();
        close(&at("nothing")).unwrap();
        let modes = ["tree", "tree/deep", "tree/deep/file", "outside"].map(|name| mode(&at(name)));
        assert_eq!(modes, [0o700, 0o700, 0o600, 0o666]);
    }
}
