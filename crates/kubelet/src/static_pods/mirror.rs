//! The API's image of a static pod: made, made again when somebody deletes it, and given the pod's status.

use std::sync::Arc;
use std::time::Duration;

use client::DeleteOptions;
use informer::{Backoff, Informer, Key, guard};
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::pod::spec;
use crate::shared::Shared;
use crate::worker::writer::Writer;

/// A mirror and the task that keeps it. Dropped, it stays as it is: the pod runs on without us.
pub(super) struct Mirror {
    task: JoinHandle<()>,
    shared: Arc<Shared>,
    pod: Arc<Pod>,
}

impl Mirror {
    pub(super) fn start(
        shared: Arc<Shared>,
        pod: Arc<Pod>,
        status: watch::Receiver<Arc<PodStatus>>,
        api: Informer<Pod>,
    ) -> Self {
        let (clock, (own, image)) = (shared.clock.clone(), (shared.clone(), pod.clone()));
        let task = tokio::spawn(async move {
            let keep = || keep(own.clone(), image.clone(), status.clone(), api.clone());
            guard::restarted("mirror pod", &*clock, keep).await;
        });
        Self { task, shared, pod }
    }

    /// Removes the mirror from the API: the pod is gone.
    pub(super) fn end(self) {
        let (shared, pod) = (self.shared.clone(), self.pod.clone());
        tokio::spawn(async move { super::delete(&shared, &pod, None).await });
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn keep(shared: Arc<Shared>, pod: Arc<Pod>, mut status: watch::Receiver<Arc<PodStatus>>, api: Informer<Pod>) {
    let key = Key::new(spec::namespace(&pod), spec::name(&pod));
    let changed = Arc::new(Notify::new());
    let (notify, watched) = (changed.clone(), key.clone());
    api.subscribe(move |change| {
        if Key::of(&change.object().metadata) == watched {
            notify.notify_one();
        }
    });
    api.synced().await;
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30), 0.2);
    let mut writer: Option<(String, Writer)> = None;
    loop {
        let mut retry = None;
        match api.get(&key) {
            Some(mirror) if is_image_of(&mirror, &pod) => {
                let uid = spec::uid(&mirror).to_owned();
                if writer.as_ref().is_none_or(|(known, _)| *known != uid) {
                    writer = Some((uid, Writer::start(&shared, &mirror)));
                }
                if let Some((_, writer)) = &writer {
                    writer.set(PodStatus::clone(&status.borrow_and_update()));
                }
            }
            // An image of an earlier file, or one that somebody deletes: away with it, and the next one is made.
            Some(old) => {
                let options = DeleteOptions {
                    grace_period_seconds: Some(0),
                    uid: old.metadata.uid.clone(),
                    ..DeleteOptions::default()
                };
                if let Err(error) = shared.client.delete::<Pod>(&key.namespace, &key.name, &options).await
                    && !error.is_not_found()
                {
                    tracing::warn!(%error, %key, "old mirror pod not deleted");
                    retry = Some(backoff.delay());
                }
            }
            None => match create(&shared, &pod).await {
                Ok(()) => backoff.reset(),
                Err(error) => {
                    tracing::warn!(%error, %key, "mirror pod not created");
                    retry = Some(backoff.delay());
                }
            },
        }
        let timer = async {
            match retry {
                Some(delay) => tokio::time::sleep(delay).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = changed.notified() => {}
            changed = status.changed() => {
                if changed.is_err() {
                    return;
                }
                status.mark_changed();
            }
            () = timer => {}
        }
    }
}

fn is_image_of(mirror: &Pod, pod: &Pod) -> bool {
    spec::annotation(mirror, spec::MIRROR) == spec::annotation(pod, "kubernetes.io/config.hash")
        && !spec::is_deleting(mirror)
}

async fn create(shared: &Shared, pod: &Pod) -> Result<(), client::Error> {
    let name = shared.facts().node_name.clone();
    let node: Node = shared.client.get("", &name).await?;
    let mut mirror = pod.clone();
    mirror.metadata.uid = None;
    mirror.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name,
        uid: node.metadata.uid.unwrap_or_default(),
        controller: Some(true),
        ..OwnerReference::default()
    }]);
    let hash = spec::annotation(pod, "kubernetes.io/config.hash").unwrap_or_default().to_owned();
    mirror.metadata.annotations.get_or_insert_default().insert(spec::MIRROR.to_owned(), hash);
    match shared.client.create(&mirror).await {
        Err(error) if error.is_already_exists() => Ok(()),
        other => other.map(drop),
    }
}
