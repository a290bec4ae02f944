//! Files written so that a reader sees all of an update or none of it.
//!
//! The files are in a directory of their own whose name begins with two dots; `..data` is a link to it; the names the
//! reader sees are links through `..data`. An update writes a new directory and moves the one link.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Component, Path, PathBuf};

use super::payload::{File, Files};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Why an update was not done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A path that would leave the volume, or be taken for one of our own names.
    #[error("invalid path: {0}")]
    Path(String),
    #[error("{operation} {path}: {source}", path = path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { operation, path, source }
}

/// Makes the volume hold exactly these files; says whether anything changed. `finish` is run on the new directory before
/// anybody sees it.
pub fn write(volume: &Path, files: &Files, finish: impl Fn(&Path) -> std::io::Result<()>) -> Result<bool, Error> {
    for path in files.keys() {
        check(path)?;
    }
    let link = volume.join(DATA);
    let before = std::fs::read_link(&link).ok().map(|target| volume.join(target));
    if before.as_ref().is_some_and(|dir| is_current(dir, files)) {
        // A crash may have come between the link's move and the visible links.
        link_visible(volume, files)?;
        return Ok(false);
    }
    let fresh = unused_name(volume);
    let made = fill(&fresh, files).and_then(|()| finish(&fresh).map_err(failed("set owner of", &fresh)));
    if let Err(e) = made {
        let _ = std::fs::remove_dir_all(&fresh);
        return Err(e);
    }
    let staged = volume.join(NEW_DATA);
    let _ = std::fs::remove_file(&staged);
    let name = fresh.file_name().expect("a name was just joined to the path");
    symlink(name, &staged).map_err(failed("link", &staged))?;
    std::fs::rename(&staged, &link).map_err(failed("rename", &staged))?;
    link_visible(volume, files)?;
    sweep(volume, &fresh, files)?;
    Ok(true)
}

fn check(path: &str) -> Result<(), Error> {
    let plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if path.is_empty() || !plain || path.starts_with("..") || path.len() > 4096 {
        return Err(Error::Path(path.to_owned()));
    }
    Ok(())
}

fn unused_name(volume: &Path) -> PathBuf {
    let now = jiff::Timestamp::now().strftime("%Y_%m_%d_%H_%M_%S.%9f").to_string();
    (0..)
        .map(|n: u32| volume.join(if n == 0 { format!("..{now}") } else { format!("..{now}.{n}") }))
        .find(|path| !path.exists())
        .expect("some number is unused")
}

fn is_current(dir: &Path, files: &Files) -> bool {
    let same = |(path, file): (&String, &File)| {
        let path = dir.join(path);
        std::fs::read(&path).is_ok_and(|data| data == file.data)
            && path.metadata().is_ok_and(|m| m.uid() == file.owner.unwrap_or(0))
    };
    files.iter().all(same) && count(dir) == files.len()
}

fn count(dir: &Path) -> usize {
    let listing = std::fs::read_dir(dir).into_iter().flatten().flatten();
    listing.map(|entry| if entry.file_type().is_ok_and(|kind| kind.is_dir()) { count(&entry.path()) } else { 1 }).sum()
}

fn fill(dir: &Path, files: &Files) -> Result<(), Error> {
    make_dir(dir)?;
    for (name, file) in files {
        let path = dir.join(name);
        let mut parents: Vec<&Path> = path.ancestors().skip(1).take_while(|p| *p != dir).collect();
        parents.reverse();
        for parent in parents {
            if !parent.exists() {
                make_dir(parent)?;
            }
        }
        std::fs::write(&path, &file.data).map_err(failed("write", &path))?;
        let rights = std::fs::Permissions::from_mode(file.mode);
        std::fs::set_permissions(&path, rights).map_err(failed("change mode of", &path))?;
        if let Some(owner) = file.owner {
            chown(&path, Some(owner), None).map_err(failed("change owner of", &path))?;
        }
    }
    Ok(())
}

/// Readable by all, whatever this process's mask.
fn make_dir(dir: &Path) -> Result<(), Error> {
    std::fs::create_dir(dir).map_err(failed("make", dir))?;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o755)).map_err(failed("change mode of", dir))
}

fn top(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

fn link_visible(volume: &Path, files: &Files) -> Result<(), Error> {
    for name in files.keys().map(|path| top(path)) {
        let visible = volume.join(name);
        if visible.symlink_metadata().is_err() {
            symlink(Path::new(DATA).join(name), &visible).map_err(failed("link", &visible))?;
        }
    }
    Ok(())
}

/// Removes links to files that are gone, and directories of earlier updates.
fn sweep(volume: &Path, current: &Path, files: &Files) -> Result<(), Error> {
    for entry in std::fs::read_dir(volume).map_err(failed("list", volume))?.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if path == current || name == DATA {
            continue;
        }
        if name.starts_with("..") {
            let removed = if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            removed.map_err(failed("remove", &path))?;
        } else if !files.keys().any(|file| top(file) == name) {
            std::fs::remove_file(&path).map_err(failed("remove", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        let file = |data: &str| File { data: data.into(), mode: 0o640, owner: None };
        list.iter().map(|(path, data)| ((*path).to_owned(), file(data))).collect()
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| !name.starts_with("..2"));
        names.sort();
        names
    }

    #[test]
    fn updates_replace_everything_at_once_and_leave_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path();
        assert!(write(volume, &files(&[("a", "1"), ("d/b", "2")]), |_| Ok(())).unwrap());
        assert_eq!(std::fs::read_to_string(volume.join("d/b")).unwrap(), "2");
        assert_eq!(volume.join("a").metadata().unwrap().mode() & 0o777, 0o640);
        assert!(!write(volume, &files(&[("a", "1"), ("d/b", "2")]), |_| Ok(())).unwrap());
        assert!(write(volume, &files(&[("a", "3"), ("c", "4")]), |_| Ok(())).unwrap());
        assert_eq!(names(volume), ["..data", "a", "c"]);
        assert_eq!(std::fs::read_to_string(volume.join("a")).unwrap(), "3");
        assert_eq!(std::fs::read_dir(volume).unwrap().count(), 4);
        assert!(write(volume, &Files::new(), |_| Ok(())).unwrap());
        assert_eq!(names(volume), ["..data"]);
    }

    #[test]
    fn paths_that_would_leave_the_volume_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for bad in ["", "/etc/passwd", "../x", "a/../../x", "..data", "..x/y"] {
            assert!(write(dir.path(), &files(&[(bad, "")]), |_| Ok(())).is_err(), "{bad}");
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
