//! Static pods: files of this node that are pods, without the API having been asked.
//!
//! A directory is watched; every file in it is one pod, in YAML or JSON. The API is shown an image of each, a mirror pod,
//! so that it can be seen and its status read; deleting the image does not end the pod.

mod mirror;
mod parse;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use informer::Informer;
use k8s_openapi::api::core::v1::Pod;
use tokio_util::sync::CancellationToken;

use crate::pod::spec;
use crate::pods::Pods;
use crate::shared::Shared;
use mirror::Mirror;

/// Files are read again after this long even if nothing was announced, and this soon after something was: an editor
/// writes a file in several steps.
const LOOK: Duration = Duration::from_secs(300);
const SETTLE: Duration = Duration::from_millis(50);
/// Files that are read at most.
const FILES: usize = 1000;

/// Follows a directory until told to stop.
pub async fn run(dir: PathBuf, shared: Arc<Shared>, pods: Pods, api: Informer<Pod>, stop: CancellationToken) {
    let mut known: HashMap<String, Mirror> = HashMap::new();
    loop {
        // Watched before it is read: what changes in between is not missed.
        let mut watch = node::files::Watch::new(&dir).inspect_err(|error| {
            tracing::warn!(%error, dir = %dir.display(), "static pods are not watched");
        });
        let found = read(&dir, &shared.facts().node_name);
        let uids: HashSet<String> = found.iter().map(|pod| spec::uid(pod).to_owned()).collect();
        known.retain(|uid, _| {
            let stays = uids.contains(uid);
            if !stays {
                pods.remove(uid);
            }
            stays
        });
        for pod in found {
            let uid = spec::uid(&pod).to_owned();
            if known.contains_key(&uid) {
                continue;
            }
            let pod = Arc::new(pod);
            pods.set(pod.clone());
            if let Some(handle) = pods.handle(&uid) {
                known.insert(uid, Mirror::start(shared.clone(), pod, handle.status.clone(), api.clone()));
            }
        }
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
            () = tokio::time::sleep(LOOK) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// All pods of a directory. A file that is not a pod is reported and left out.
fn read(dir: &std::path::Path, node: &str) -> Vec<Pod> {
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
            .and_then(|text| parse::pod(&text, &file.to_string_lossy(), node));
        match parsed {
            Ok(pod) => pods.push(pod),
            Err(error) => tracing::error!(file = %file.display(), error, "file is not a pod"),
        }
    }
    pods
}
