//! A directory in which every file is a pod, in YAML or JSON.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::{Kept, Source, parse};

/// Files are read this soon after something was announced: an editor writes a file in several steps.
const SETTLE: Duration = Duration::from_millis(50);
/// Files that are read at most.
const FILES: usize = 1000;

/// Follows a directory until it is stopped; it is read after `every` even if nothing was announced.
pub(super) async fn run(dir: PathBuf, every: Duration, kept: Arc<Mutex<Kept>>, stop: CancellationToken) {
    let mut kept = kept.lock().await;
    loop {
        // Watched before it is read: what changes in between is not missed.
        let mut watch = common::files::Watch::new(&dir).inspect_err(|error| {
            tracing::warn!(%error, dir = %dir.display(), "static pods are not watched");
        });
        let found = read(&dir, &kept.node());
        kept.set(found);
        let news = async {
            match &mut watch {
                Ok(watch) => {
                    let _ = watch.changed().await;
                    tokio::time::sleep(SETTLE).await;
                }
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = news => {}
            () = tokio::time::sleep(every) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// All pods of a directory. A file that is not a pod is reported and left out.
fn read(dir: &Path, node: &str) -> Vec<Pod> {
    let listing = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = listing
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file() || kind.is_symlink()))
        .map(|entry| entry.path())
        .filter(|path| !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.')))
        .take(FILES)
        .collect();
    files.sort();
    let mut pods: Vec<Pod> = Vec::new();
    for file in files {
        let parsed = std::fs::read_to_string(&file)
            .map_err(|error| error.to_string())
            .and_then(|text| parse::pod(&text, Source::File(&file.to_string_lossy()), node));
        match parsed {
            Ok(pod) => pods.push(pod),
            Err(error) => tracing::error!(file = %file.display(), error, "file is not a pod"),
        }
    }
    pods
}
