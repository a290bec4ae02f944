//! Which files a kustomization may read: those in and below its own directory, symbolic links followed first. A base is another
//! directory, which may be anywhere, but not around one that is being read already.

use std::path::{Component, Path, PathBuf};

use crate::Error;

/// Whether files outside of a kustomization's directory may be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Restrictor {
    #[default]
    RootOnly,
    None,
}

/// The largest file that is read: no object is larger, and a mistake in a path should not fill the memory.
const LARGEST: u64 = 64 << 20;

/// A directory with a kustomization, and those through which it was reached.
#[derive(Debug, Clone)]
pub struct Root {
    directory: PathBuf,
    referrers: Vec<PathBuf>,
    restrictor: Restrictor,
}

impl Root {
    pub fn open(directory: &Path, restrictor: Restrictor) -> Result<Self, Error> {
        if let Some(text) = directory.to_str().filter(|text| is_remote(text)) {
            return Err(refused(text));
        }
        let directory = confirmed(directory, &directory.display().to_string())?;
        Ok(Self { directory, referrers: Vec::new(), restrictor })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The root of a base or a component.
    pub fn base(&self, path: &str) -> Result<Self, Error> {
        if path.is_empty() {
            return Err(Error::new("new root cannot be empty"));
        }
        if is_remote(path) {
            return Err(refused(path));
        }
        if Path::new(path).is_absolute() {
            return Err(Error::new(format!("new root '{path}' cannot be absolute")));
        }
        let wanted = clean(&self.directory.join(path));
        let directory = confirmed(&wanted, &wanted.display().to_string())?;
        for visited in std::iter::once(&self.directory).chain(&self.referrers) {
            if visited.starts_with(&directory) {
                return Err(Error::new(format!(
                    "cycle detected: candidate root '{}' contains visited root '{}'",
                    directory.display(),
                    visited.display()
                )));
            }
        }
        let mut referrers = self.referrers.clone();
        referrers.insert(0, self.directory.clone());
        Ok(Self { directory, referrers, restrictor: self.restrictor })
    }

    /// The content of a file.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, Error> {
        if is_url(path) {
            return Err(refused(path));
        }
        let wanted =
            if Path::new(path).is_absolute() { PathBuf::from(path) } else { clean(&self.directory.join(path)) };
        let found = match self.restrictor {
            Restrictor::None => wanted,
            Restrictor::RootOnly => self.restricted(&wanted)?,
        };
        let size = std::fs::metadata(&found).map(|metadata| metadata.len());
        if size.as_ref().is_ok_and(|size| *size > LARGEST) {
            return Err(Error::new(format!("file '{}' is larger than {LARGEST} bytes", found.display())));
        }
        std::fs::read(&found).map_err(|error| Error::new(format!("open {}: {}", found.display(), reason(&error))))
    }

    fn restricted(&self, wanted: &Path) -> Result<PathBuf, Error> {
        let found = resolved(wanted, &wanted.display().to_string())?;
        if found.is_dir() {
            return Err(Error::new(format!("'{}' must resolve to a file", wanted.display())));
        }
        if !found.starts_with(&self.directory) {
            return Err(Error::new(format!(
                "security; file '{}' is not in or below '{}'",
                wanted.display(),
                self.directory.display()
            )));
        }
        Ok(found)
    }
}

/// A path without `.` and `..`, as it is written: links are followed later.
fn clean(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                cleaned.pop();
            }
            other => cleaned.push(other),
        }
    }
    cleaned
}

/// The path behind all links. Upstream names the part that is missing.
fn resolved(path: &Path, shown: &str) -> Result<PathBuf, Error> {
    std::fs::canonicalize(path).map_err(|error| {
        let missing = path.ancestors().filter(|part| !part.exists()).last().unwrap_or(path);
        Error::new(format!("evalsymlink failure on '{shown}' : lstat {}: {}", missing.display(), reason(&error)))
    })
}

fn confirmed(directory: &Path, shown: &str) -> Result<PathBuf, Error> {
    let outside = "must build at directory";
    if shown.is_empty() {
        return Err(Error::new(format!("{outside}: directory path cannot be empty")));
    }
    let absolute = std::path::absolute(directory).map_err(|error| Error::new(error.to_string()))?;
    let found = resolved(&clean(&absolute), shown)
        .map_err(|error| Error::new(format!("{outside}: not a valid directory: {error}")))?;
    if !found.is_dir() {
        return Err(Error::new(format!("{outside}: '{shown}': file is not directory")));
    }
    Ok(found)
}

/// What went wrong, in the words of the C library that Go uses as well.
fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        std::io::ErrorKind::NotADirectory => "not a directory".to_owned(),
        _ => error.to_string(),
    }
}

fn is_url(path: &str) -> bool {
    path.starts_with("http://") || path.starts_with("https://")
}

/// Whether a path names a repository, as upstream's git would clone it.
fn is_remote(path: &str) -> bool {
    let schemes = ["http://", "https://", "git::", "ssh://", "file://", "git@", "github.com/", "github.com:", "gh:"];
    schemes.iter().any(|scheme| path.starts_with(scheme)) || path.contains(".git/") || path.contains("?ref=")
}

fn refused(path: &str) -> Error {
    Error::new(format!("remote resources are not read: '{path}'; fetch it first and name its directory"))
}
