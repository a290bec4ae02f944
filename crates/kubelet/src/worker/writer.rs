//! Brings a pod's status to the API: only what changed, the latest only, until it is there.
//!
//! A task per pod, so that an API server that does not answer stops no pod. The final deletion goes the same way, after
//! the last status.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Client, DeleteOptions, Patch};
use informer::{Backoff, guard};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::figures::Figures;
use crate::pod::spec;
use crate::shared::Shared;
use crate::status;

#[derive(Debug, Clone, Default)]
struct Wanted {
    status: Option<PodStatus>,
    /// What the API was last seen to have, and at which revision.
    seen: Option<(u64, PodStatus)>,
    delete: bool,
}

/// The way to the API for one pod's status.
#[derive(Debug)]
pub struct Writer {
    wanted: watch::Sender<Wanted>,
    task: JoinHandle<()>,
}

impl Writer {
    /// For this pod, as the API has it now.
    pub fn start(shared: &Shared, pod: &Pod) -> Self {
        let (wanted, receiver) = watch::channel(Wanted::default());
        let task = Task {
            client: shared.client.clone(),
            figures: shared.figures.clone(),
            namespace: spec::namespace(pod).to_owned(),
            name: spec::name(pod).to_owned(),
            uid: spec::uid(pod).to_owned(),
            known: pod.status.clone().unwrap_or_default(),
            revision: revision(pod),
            owner: owner(pod),
        };
        Self { wanted, task: tokio::spawn(task.run(receiver)) }
    }

    /// The status to bring there. An earlier one that is still on its way is skipped.
    pub fn set(&self, status: PodStatus) {
        self.wanted.send_if_modified(|wanted| {
            let news = wanted.status.as_ref() != Some(&status);
            wanted.status = Some(status);
            news
        });
    }

    /// The pod as the API has it now. What somebody else changed in the status, as the node lifecycle controller does while
    /// the node is silent, is put right again.
    pub fn saw(&self, pod: &Pod) {
        let revision = revision(pod);
        self.wanted.send_if_modified(|wanted| {
            let news = wanted.seen.as_ref().is_none_or(|(before, _)| *before < revision);
            if news {
                wanted.seen = Some((revision, pod.status.clone().unwrap_or_default()));
            }
            news
        });
    }

    /// Deletes the pod for good, once its last status is there.
    pub fn delete(&self) {
        self.wanted.send_if_modified(|wanted| !std::mem::replace(&mut wanted.delete, true));
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Revisions count up; one that cannot be read is older than all.
fn revision(pod: &Pod) -> u64 {
    pod.metadata.resource_version.as_ref().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn owner(pod: &Pod) -> String {
    rules::owners::controller_uid(&pod.metadata).unwrap_or_default().to_owned()
}

struct Task {
    client: Client,
    figures: Arc<Figures>,
    namespace: String,
    name: String,
    uid: String,
    known: PodStatus,
    revision: u64,
    owner: String,
}

/// Whether the pod has become another one of the same name: a patch that names a uid cannot change it.
fn is_another(error: &client::Error) -> bool {
    let details = error.api().and_then(|error| error.details.as_ref());
    details.is_some_and(|details| details.causes.iter().any(|cause| cause.field == "metadata.uid"))
}

impl Task {
    async fn run(mut self, mut wanted: watch::Receiver<Wanted>) {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(10), 0.5);
        while wanted.changed().await.is_ok() {
            let begun = Instant::now();
            loop {
                let now = wanted.borrow_and_update().clone();
                let uid = self.uid.clone();
                match guard::caught("pod status", &uid, self.bring(&now)).await {
                    None => tokio::time::sleep(backoff.delay()).await,
                    Some(Ok(wrote)) => {
                        if wrote {
                            self.figures.statuses.observe(&[], begun.elapsed().as_secs_f64());
                        }
                        break backoff.reset();
                    }
                    // Gone, or another pod by now: there is nobody to tell.
                    Some(Err(e)) if e.is_not_found() || is_another(&e) => break,
                    Some(Err(error)) => {
                        tracing::warn!(pod = %format!("{}/{}", self.namespace, self.name), %error, "pod status not written");
                        tokio::time::sleep(backoff.delay()).await;
                    }
                }
            }
        }
    }

    /// Says whether there was a status to write.
    async fn bring(&mut self, wanted: &Wanted) -> Result<bool, client::Error> {
        let mut wrote = false;
        // The echo of our own writes is not newer than their answers.
        if let Some((revision, seen)) = wanted.seen.as_ref().filter(|(revision, _)| *revision > self.revision) {
            (self.known, self.revision) = (seen.clone(), *revision);
        }
        if let Some(status) = &wanted.status
            && let Some(patch) = status::patch(&self.uid, &self.known, status)
        {
            let hop = hops::stage(hops::Stage::Status, "patch").after(hops::export::cause_of(&self.uid));
            let patch = Patch::Strategic(patch);
            let writing = self.client.patch_status::<Pod>(&self.namespace, &self.name, &patch);
            let patched = hops::scope(hop.context(), writing).await?;
            hop.end(&self.uid, &self.owner, 0);
            self.revision = revision(&patched);
            self.known = patched.status.unwrap_or_default();
            wrote = true;
        }
        if wanted.delete {
            let options = DeleteOptions {
                grace_period_seconds: Some(0),
                uid: Some(self.uid.clone()),
                ..DeleteOptions::default()
            };
            match self.client.delete::<Pod>(&self.namespace, &self.name, &options).await {
                // The uid is another's: our pod has gone.
                Err(error) if error.is_conflict() => {}
                deleted => drop(deleted?),
            }
        }
        Ok(wrote)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testkit::Cluster;

    use super::*;

    #[tokio::test]
    async fn a_pod_of_the_same_name_that_came_later_is_not_touched() {
        let cluster = Cluster::start().await;
        let admin = cluster.in_process();
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]},
        }))
        .unwrap();
        let first = admin.create(&pod).await.unwrap();
        let mut task = Task {
            client: admin.clone(),
            figures: Arc::default(),
            namespace: "default".to_owned(),
            name: "p".to_owned(),
            uid: spec::uid(&first).to_owned(),
            known: PodStatus::default(),
            revision: 0,
            owner: String::new(),
        };
        let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
        admin.delete::<Pod>("default", "p", &now).await.unwrap();
        let status = PodStatus { phase: Some("Failed".to_owned()), ..PodStatus::default() };
        let wanted = Wanted { status: Some(status), ..Wanted::default() };
        assert!(task.bring(&wanted).await.unwrap_err().is_not_found());

        let second = admin.create(&pod).await.unwrap();
        let refused = task.bring(&wanted).await.unwrap_err();
        assert!(is_another(&refused), "{refused}");
        assert!(!task.bring(&Wanted { delete: true, ..Wanted::default() }).await.unwrap());
        assert_eq!(admin.get::<Pod>("default", "p").await.unwrap().status, second.status);
        // The same for the pod that is there goes through.
        task.uid = spec::uid(&second).to_owned();
        assert!(task.bring(&wanted).await.unwrap());
        assert_eq!(spec::phase(&admin.get::<Pod>("default", "p").await.unwrap()), "Failed");
    }
}
