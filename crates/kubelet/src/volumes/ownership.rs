//! The group of a pod's volumes: everything belongs to it, and what is made later does too.

use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

const SET_GROUP: u32 = 0o2000;

/// Gives a tree to a group, readable and writable. With `on_mismatch` only when its root is not the group's already.
pub(super) fn apply(root: &Path, group: u32, on_mismatch: bool) -> std::io::Result<()> {
    if on_mismatch {
        let meta = root.metadata()?;
        if meta.gid() == group && meta.mode() & SET_GROUP != 0 && meta.mode() & 0o060 == 0o060 {
            return Ok(());
        }
    }
    walk(root, group, 0o660)
}

/// Gives a tree to a group, readable only.
pub(super) fn apply_read_only(root: &Path, group: Option<u32>) -> std::io::Result<()> {
    group.map_or(Ok(()), |group| walk(root, group, 0o440))
}

fn walk(path: &Path, group: u32, mask: u32) -> std::io::Result<()> {
    let meta = path.symlink_metadata()?;
    lchown(path, None, Some(group))?;
    // A link's own rights mean nothing, and following it could lead out of the volume.
    if meta.is_symlink() {
        return Ok(());
    }
    let extra = if meta.is_dir() { mask | SET_GROUP | 0o110 } else { mask };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(meta.mode() & 0o7777 | extra))?;
    if meta.is_dir() {
        for entry in std::fs::read_dir(path)? {
            walk(&entry?.path(), group, mask)?;
        }
    }
    Ok(())
}
