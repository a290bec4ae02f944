//! Paths of the node itself, which must be what the pod says they are.

use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Checks a path against the type a pod expects, making it where the type says so.
pub(super) fn check(path: &str, kind: &str) -> Result<(), String> {
    let at = Path::new(path);
    match kind {
        "" => return Ok(()),
        "DirectoryOrCreate" if !at.exists() => {
            return std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(at)
                .map_err(|e| format!("make {path}: {e}"));
        }
        "FileOrCreate" if !at.exists() => {
            return std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o644)
                .open(at)
                .map(drop)
                .map_err(|e| format!("make {path}: {e}"));
        }
        _ => {}
    }
    let found = at.metadata().map(|meta| meta.file_type());
    let is = |holds: fn(&std::fs::FileType) -> bool| found.as_ref().is_ok_and(holds);
    let (good, what) = match kind {
        "Directory" | "DirectoryOrCreate" => (is(std::fs::FileType::is_dir), "directory"),
        "File" | "FileOrCreate" => (is(std::fs::FileType::is_file), "file"),
        "Socket" => (is(FileTypeExt::is_socket), "socket file"),
        "CharDevice" => (is(FileTypeExt::is_char_device), "character device"),
        "BlockDevice" => (is(FileTypeExt::is_block_device), "block device"),
        other => return Err(format!("{other} is an invalid volume type")),
    };
    if good { Ok(()) } else { Err(format!("hostPath type check failed: {path} is not a {what}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_checked_and_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        let missing = path("none");
        assert_eq!(check(&missing, ""), Ok(()));
        assert_eq!(
            check(&missing, "Directory"),
            Err(format!("hostPath type check failed: {missing} is not a directory"))
        );
        assert_eq!(check(&path("a/b"), "DirectoryOrCreate"), Ok(()));
        assert_eq!(check(&path("a/f"), "FileOrCreate"), Ok(()));
        assert_eq!(check(&path("a/f"), "File"), Ok(()));
        assert!(check(&path("a/f"), "Directory").is_err());
        assert_eq!(check("/dev/null", "CharDevice"), Ok(()));
        assert!(check("/dev/null", "BlockDevice").is_err());
    }
}
