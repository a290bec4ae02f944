//! Image archives brought into containerd, each only when it changed.
//!
//! A record beside the archives says which file, by size and time or else by digest, gave which images. An archive is
//! read again when the file differs or when one of its images is gone.

use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::Containerd;
use crate::cri::{self, Runtime, v1};
use crate::{private, run};

/// Unpacking gigabytes on a slow disk takes minutes.
const LIMIT: Duration = Duration::from_secs(1800);
/// How long the CRI may take to see what was imported beside it.
const VISIBLE: Duration = Duration::from_secs(30);

/// Why an archive is not there as images.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The archive, or the record about it, cannot be read or written.
    #[error("read {path}: {source}", path = path.display())]
    File {
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    #[error("import {path}: {source}", path = path.display())]
    Import {
        path: PathBuf,
        /// What `ctr` said.
        source: run::Error,
    },
    /// The runtime does not answer.
    #[error("look for imported images: {0}")]
    Look(#[from] cri::Error),
    /// It was imported, but the runtime does not show it.
    #[error("image {0} was imported but does not appear")]
    Invisible(String),
}

/// What came of one archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Import {
    Unchanged,
    /// These images were imported.
    Imported(Vec<String>),
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    size: u64,
    modified_nanos: u128,
    digest: String,
    images: Vec<String>,
}

impl Containerd {
    /// Imports every `*.tar` of a directory that changed since it was last imported. A broken archive is reported and
    /// does not keep the others from being imported.
    pub async fn import_directory(&self, dir: &Path) -> Result<(), ImportError> {
        let listing = match std::fs::read_dir(dir) {
            Ok(listing) => listing,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(ImportError::File { path: dir.to_owned(), source }),
        };
        let mut archives: Vec<PathBuf> =
            listing.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "tar")).collect();
        archives.sort();
        let mut first_failure = None;
        for archive in archives {
            match self.import_file(&archive).await {
                Ok(Import::Unchanged) => {}
                Ok(Import::Imported(images)) => tracing::info!(archive = %archive.display(), ?images, "imported"),
                Err(e) => {
                    tracing::error!(error = %e, "image archive not imported");
                    first_failure.get_or_insert(e);
                }
            }
        }
        first_failure.map_or(Ok(()), Err)
    }

    /// Imports one archive unless it is unchanged and its images are there.
    pub async fn import_file(&self, archive: &Path) -> Result<Import, ImportError> {
        let file_error = |source| ImportError::File { path: archive.to_owned(), source };
        let meta = std::fs::metadata(archive).map_err(file_error)?;
        let modified_nanos =
            meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok()).map_or(0, |d| d.as_nanos());
        let record_path = self.record_path(archive);
        let record: Option<Record> =
            std::fs::read(&record_path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let path = archive.to_owned();
        let mut digest = None;
        if let Some(record) = &record {
            let untouched = record.size == meta.len() && record.modified_nanos == modified_nanos;
            if !untouched {
                digest = Some(hash(path.clone()).await.map_err(file_error)?);
            }
            let same = untouched || digest.as_ref() == Some(&record.digest);
            if same && self.all_there(&record.images).await? {
                return Ok(Import::Unchanged);
            }
        }
        let digest = match digest {
            Some(digest) => digest,
            None => hash(path).await.map_err(file_error)?,
        };
        let images = self.run_import(archive).await?;
        let record = Record { size: meta.len(), modified_nanos, digest, images: images.clone() };
        let text = serde_json::to_vec(&record).expect("a record of numbers and strings becomes JSON");
        write_record(&record_path, &text).map_err(|source| ImportError::File { path: record_path.clone(), source })?;
        Ok(Import::Imported(images))
    }

    /// Names of the images that came from archives. Nobody else may have them.
    pub fn imported_images(&self) -> Vec<String> {
        let records = std::fs::read_dir(self.config.imported_dir()).into_iter().flatten().flatten();
        let read =
            records.filter_map(|entry| serde_json::from_slice::<Record>(&std::fs::read(entry.path()).ok()?).ok());
        read.flat_map(|record| record.images).collect()
    }

    /// Imports an archive made in memory, such as the pause image, unless an image of that name is there.
    pub async fn import_bytes(&self, name: &str, archive: impl FnOnce() -> Vec<u8>) -> Result<Import, ImportError> {
        if self.all_there(&[name.to_owned()]).await? {
            return Ok(Import::Unchanged);
        }
        let path = self.config.dir.join(format!("import-{}.tar", std::process::id()));
        let written = private::write(&path, archive());
        let result = match written {
            Ok(()) => self.run_import(&path).await.map(Import::Imported),
            Err(source) => Err(ImportError::File { path: path.clone(), source }),
        };
        let _ = std::fs::remove_file(&path);
        result
    }

    async fn run_import(&self, archive: &Path) -> Result<Vec<String>, ImportError> {
        let socket = self.config.socket();
        let args: [&std::ffi::OsStr; 9] = [
            "--address".as_ref(),
            socket.as_os_str(),
            "--namespace".as_ref(),
            "k8s.io".as_ref(),
            "images".as_ref(),
            "import".as_ref(),
            "--snapshotter".as_ref(),
            self.config.snapshotter.as_ref(),
            archive.as_os_str(),
        ];
        let output = run::output("ctr", &args, b"", LIMIT)
            .await
            .map_err(|source| ImportError::Import { path: archive.to_owned(), source })?;
        let images = imported(&String::from_utf8_lossy(&output));
        for image in &images {
            self.await_visible(image).await?;
        }
        Ok(images)
    }

    /// `ctr` works beside the CRI, which learns of new images by an event a moment later.
    async fn await_visible(&self, image: &str) -> Result<(), ImportError> {
        let visible = async {
            let mut pause = Duration::from_millis(2);
            loop {
                if self.all_there(&[image.to_owned()]).await? {
                    return Ok(());
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(200));
            }
        };
        tokio::time::timeout(VISIBLE, visible).await.unwrap_or_else(|_| Err(ImportError::Invisible(image.to_owned())))
    }

    async fn all_there(&self, images: &[String]) -> Result<bool, ImportError> {
        for image in images {
            let spec = v1::ImageSpec { image: image.clone(), ..Default::default() };
            if self.client.image_status(spec).await?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn record_path(&self, archive: &Path) -> PathBuf {
        let name = archive.to_string_lossy();
        let digest = crate::oci::sha256(name.as_bytes());
        self.config.imported_dir().join(digest.trim_start_matches("sha256:"))
    }
}

/// The names in what `ctr images import` prints: `unpacking NAME (DIGEST)...done`.
fn imported(output: &str) -> Vec<String> {
    output
        .lines()
        .filter_map(|line| line.strip_prefix("unpacking ")?.split_once(" ("))
        .map(|(name, _)| name.to_owned())
        .collect()
}

fn write_record(path: &Path, text: &[u8]) -> std::io::Result<()> {
    if let Some(dir) = path.parent() {
        private::directory(dir)?;
    }
    private::write(path, text)
}

/// The digest of a file of any size.
async fn hash(path: PathBuf) -> std::io::Result<String> {
    let work = move || {
        let mut file = std::fs::File::open(path)?;
        let mut context = ring::digest::Context::new(&ring::digest::SHA256);
        let mut buffer = vec![0; 1 << 20];
        loop {
            let n = std::io::Read::read(&mut file, &mut buffer)?;
            if n == 0 {
                let hex: String = context.finish().as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
                return Ok(format!("sha256:{hex}"));
            }
            context.update(&buffer[..n]);
        }
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|e| Err(std::io::Error::other(e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_the_importers_output() {
        let output = "unpacking registry.trireme.local/pause:1 (sha256:ab)...done\nunpacking x:y (sha256:cd)...done\n";
        assert_eq!(imported(output), ["registry.trireme.local/pause:1", "x:y"]);
    }
}
