//! Creating and deleting the pods of an owner, with the events that tell of it.

use std::borrow::Cow;
use std::sync::Arc;

use client::{DeleteOptions, Kind};
use informer::{Change, EventType, Expectations, Informer};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::batch;
use super::meta::{MetaExt, controller_key, controller_reference};
use crate::context::Tools;

/// The longest prefix that still gives valid pod names.
const MAX_PREFIX: usize = 253;

/// A pod as its template says, named after its owner.
pub fn from_template<O: Kind>(template: &PodTemplateSpec, owner: &O) -> Pod {
    let meta = template.metadata.clone().unwrap_or_default();
    let name = owner.metadata().name();
    let prefix = if name.len() < MAX_PREFIX { format!("{name}-") } else { name.to_owned() };
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(prefix),
            namespace: owner.metadata().namespace.clone(),
            labels: meta.labels,
            annotations: meta.annotations,
            finalizers: meta.finalizers,
            owner_references: Some(vec![controller_reference(owner)]),
            ..ObjectMeta::default()
        },
        spec: template.spec.clone(),
        status: None,
    }
}

/// Whether creations fail only because the namespace ends, which is no failure worth telling of.
pub fn namespace_ends(error: &client::Error) -> bool {
    let details = error.api().and_then(|error| error.details.as_ref());
    details.is_some_and(|details| details.causes.iter().any(|cause| cause.reason == "NamespaceTerminating"))
}

/// What the cache shows of a pod is what its owner waits for.
pub fn observe<O: Kind>(change: &Change<Pod>, expectations: &Expectations) {
    let pod = change.object();
    let Some(key) = controller_key::<O>(&pod.metadata) else { return };
    match change {
        // A restarted controller may see a pod for the first time when it is already going.
        Change::Added(_) if !pod.metadata.is_deleting() => expectations.creation_observed(&key),
        Change::Modified { .. } if !pod.metadata.is_deleting() => {}
        _ => expectations.deletion_observed(&key, pod.metadata.uid()),
    }
}

/// The writes of one owner, each expected back through the cache: until they were all seen there, the owner's pods are not counted again.
pub struct Expected<'a, O> {
    pub owner: &'a O,
    pub tools: &'a Tools,
    pub expectations: &'a Expectations,
    pub pods: &'a Informer<Pod>,
}

impl<O: Kind> Expected<'_, O> {
    /// Creates so many pods, few at first and more while that goes well. Answers how many there are now, and what went wrong.
    pub async fn create<'p>(
        &self,
        count: usize,
        pod: impl Fn(usize) -> Cow<'p, Pod>,
    ) -> (usize, Result<(), client::Error>) {
        let key = &self.owner.metadata().key();
        self.expectations.expect_creations(key, count);
        let (created, answer) = batch::slow_start(count, |at| {
            let pod = pod(at);
            async move {
                match self.create_one(&pod).await {
                    Err(error) if namespace_ends(&error) => {
                        // Every further one would fail too, and none is needed any more.
                        self.expectations.creation_observed(key);
                        Ok(())
                    }
                    answer => answer.map(drop),
                }
            }
        })
        .await;
        for _ in created..count {
            self.expectations.creation_observed(key);
        }
        (created, answer)
    }

    /// Deletes pods, all at once.
    pub async fn delete(&self, pods: &[&Arc<Pod>]) -> Result<(), client::Error> {
        let key = self.owner.metadata().key();
        self.expectations.expect_deletions(&key, pods.iter().map(|pod| pod.metadata.uid().to_owned()));
        batch::all(pods, |pod| async {
            let deleted = self.delete_one(pod).await;
            // No event will come of a pod that stays, or that the cache has lost already.
            let known = self.pods.get(&pod.metadata.key());
            if deleted.is_err() || known.is_none_or(|known| known.metadata.uid != pod.metadata.uid) {
                self.expectations.deletion_observed(&key, pod.metadata.uid());
            }
            deleted
        })
        .await
    }

    async fn create_one(&self, pod: &Pod) -> Result<Pod, client::Error> {
        let created = self.tools.client.create(pod).await;
        match &created {
            Ok(pod) => {
                self.event(EventType::Normal, "SuccessfulCreate", format!("Created pod: {}", pod.metadata.name()))
            }
            Err(error) if namespace_ends(error) => {}
            Err(error) => self.event(EventType::Warning, "FailedCreate", format!("Error creating: {error}")),
        }
        created
    }

    /// One that is gone already is deleted.
    async fn delete_one(&self, pod: &Pod) -> Result<(), client::Error> {
        let (namespace, name) = (pod.metadata.namespace(), pod.metadata.name());
        // Only this very pod: one of the same name may have taken its place since the cache was read.
        let options = DeleteOptions { uid: pod.metadata.uid.clone(), ..DeleteOptions::default() };
        match self.tools.client.delete::<Pod>(namespace, name, &options).await {
            Ok(()) => {
                self.event(EventType::Normal, "SuccessfulDelete", format!("Deleted pod: {name}"));
                Ok(())
            }
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => {
                self.event(EventType::Warning, "FailedDelete", format!("Error deleting: {error}"));
                Err(error)
            }
        }
    }

    /// An event about the owner.
    fn event(&self, kind: EventType, reason: &str, message: String) {
        self.tools.recorder.event(self.owner, kind, reason, message);
    }
}
