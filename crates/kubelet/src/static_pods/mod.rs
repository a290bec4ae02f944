//! Static pods: pods that this node has from a directory or a URL, without the API having been asked.
//!
//! A directory is watched ([`files`]), a URL is asked from time to time ([`url`]). The API is shown an image of each pod, a
//! mirror pod, so that it can be seen and its status read; deleting the image does not end the pod.

mod files;
mod mirror;
mod parse;
mod url;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::DeleteOptions;
use futures::FutureExt;
use futures::future::join_all;
use informer::Informer;
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;

use crate::pod::spec;
use crate::pods::Pods;
use crate::shared::Shared;
use crate::upkeep::tasks::Tasks;
use mirror::Mirror;
pub use parse::Source;
pub use url::Config as Url;

/// Where static pods come from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// A directory, with how often it is read though nothing was announced.
    pub files: Option<(PathBuf, Duration)>,
    pub url: Option<Url>,
}

/// Follows all sources until it is stopped. The returned future is done once each of them was read.
pub(crate) fn follow(
    sources: Sources,
    shared: &Arc<Shared>,
    pods: &Pods,
    api: &Informer<Pod>,
    tasks: &mut Tasks,
    stop: &CancellationToken,
) -> impl Future<Output = ()> + Send + use<> {
    let mut read = Vec::new();
    let mut keeper = || {
        let (seen, reader) = watch::channel(false);
        read.push(reader);
        let kept = Kept { shared: shared.clone(), pods: pods.clone(), api: api.clone(), known: HashMap::new(), seen };
        Arc::new(Mutex::new(kept))
    };
    if let Some((dir, every)) = sources.files {
        let (kept, stop) = (keeper(), stop.clone());
        tasks.keep("static pod files", move || files::run(dir.clone(), every, kept.clone(), stop.clone()));
    }
    if let Some(config) = sources.url {
        let (kept, stop) = (keeper(), stop.clone());
        tasks.keep("static pod URL", move || url::run(config.clone(), kept.clone(), stop.clone()));
    }
    join_all(read.into_iter().map(|mut seen| async move {
        // A source that ended was stopped: then nobody asks.
        let _ = seen.wait_for(|seen| *seen).await;
    }))
    .map(drop)
}

/// Removes images of static pods that this node does not have any more. Only after all sources were read.
pub async fn sweep(shared: &Shared, pods: &Pods, api: &Informer<Pod>) {
    let active = pods.active();
    let present: HashSet<(&str, &str)> =
        active.iter().filter(|pod| spec::is_static(pod)).map(|pod| (spec::namespace(pod), spec::name(pod))).collect();
    for mirror in api.list().iter().filter(|pod| spec::is_mirror(pod)) {
        if !present.contains(&(spec::namespace(mirror), spec::name(mirror))) {
            delete(shared, mirror, mirror.metadata.uid.clone()).await;
        }
    }
}

async fn delete(shared: &Shared, mirror: &Pod, uid: Option<String>) {
    let now = DeleteOptions { grace_period_seconds: Some(0), uid, ..DeleteOptions::default() };
    let deleted = shared.client.delete::<Pod>(spec::namespace(mirror), spec::name(mirror), &now).await;
    if let Err(error) = deleted
        && !error.is_not_found()
        && !error.is_conflict()
    {
        tracing::warn!(%error, pod = spec::name(mirror), "mirror pod not deleted");
    }
}

/// The pods of one source, kept running.
struct Kept {
    shared: Arc<Shared>,
    pods: Pods,
    api: Informer<Pod>,
    known: HashMap<String, Mirror>,
    seen: watch::Sender<bool>,
}

impl Kept {
    fn node(&self) -> String {
        self.shared.facts().node_name.clone()
    }

    /// These are the source's pods now: what is new runs, what is gone ends.
    fn set(&mut self, found: Vec<Pod>) {
        let uids: HashSet<String> = found.iter().map(|pod| spec::uid(pod).to_owned()).collect();
        let gone: Vec<String> = self.known.keys().filter(|uid| !uids.contains(*uid)).cloned().collect();
        for uid in gone {
            self.pods.remove(&uid);
            if let Some(mirror) = self.known.remove(&uid) {
                mirror.end();
            }
        }
        for pod in found {
            let uid = spec::uid(&pod).to_owned();
            if self.known.contains_key(&uid) {
                continue;
            }
            let pod = Arc::new(pod);
            self.pods.set(pod.clone());
            if let Some(handle) = self.pods.handle(&uid) {
                let mirror = Mirror::start(self.shared.clone(), pod, handle.status.clone(), self.api.clone());
                self.known.insert(uid, mirror);
            }
        }
        self.seen.send_replace(true);
    }
}
