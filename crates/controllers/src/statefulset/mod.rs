//! StatefulSet: pods with names, claims and an order.
//!
//! `plan` decides and is pure: it answers the first thing, or the few things, to do now. There are never two pods of one name, because names are unique;
//! there is never a new pod of a name before the old one is gone, because it cannot be created. Upstream: StatefulSetController.

mod figures;
mod identity;
mod plan;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Patch};
use informer::{Action, Clock, Echoes, EventType, Informer, Key, Reconciler, Recorder};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::json;

use crate::Error;
use crate::common::history::{self, Present};
use crate::common::meta::MetaExt;
use crate::common::template_hash::template_hash;
use crate::common::{batch, claim, pods, selector};
use crate::context::Context;
use crate::metrics;
use plan::{Step, Templates};

const WORKERS: usize = 5;
/// For the case that an echo never comes.
const UNHEARD: Duration = Duration::from_secs(30);

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let pods = context.informers.of();
    let controller = StatefulSets {
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        clock: context.clock.clone(),
        echoes: Echoes::new(&pods, context.clock.clone()),
        sets: context.informers.of(),
        pods,
        claims: context.informers.of(),
        revisions: context.informers.of(),
    };
    claim::index_orphans(&controller.pods);
    claim::index_orphans(&controller.revisions);
    let queue = context.queue();
    informer::feed(&controller.sets, &queue, |change| [change.object().metadata.key()]);
    let sets = controller.sets.clone();
    informer::feed(&controller.pods, &queue, move |change| {
        claim::concerned(change, &sets, |set: &StatefulSet| selector::parse(&set.spec.selector))
    });
    futures::join!(
        controller.sets.synced(),
        controller.pods.synced(),
        controller.claims.synced(),
        controller.revisions.synced()
    );
    context.run(controller, queue, WORKERS).await;
}

struct StatefulSets {
    client: Client,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    echoes: Echoes<Pod>,
    sets: Informer<StatefulSet>,
    pods: Informer<Pod>,
    claims: Informer<PersistentVolumeClaim>,
    revisions: Informer<ControllerRevision>,
}

impl Reconciler for StatefulSets {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(set) = self.sets.get(key) else {
            figures::forget(key);
            return Ok(Action::Done);
        };
        if !self.echoes.heard(key) {
            metrics::STATEFUL_STALE.increment(&["", "pods"]);
            return Ok(Action::After(UNHEARD));
        }
        let Some(selector) = selector::parse(&set.spec.selector) else { return Ok(Action::Done) };
        let known = claim::claim(&self.client, &*set, &selector, claim::candidates(&self.revisions, &*set)).await?;
        let mut candidates = claim::candidates(&self.pods, &*set);
        // A pod of another name is not this set's, whatever its labels say.
        candidates.retain(|pod| {
            identity::parent_and_ordinal(pod.metadata.name()).is_some_and(|(parent, _)| parent == key.name)
        });
        let own = claim::claim(&self.client, &*set, &selector, candidates).await?;
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let hash = template_hash(&set.spec.template, collisions);
        let present = history::present(&self.client, &*set, &set.spec.template, &hash, &known).await?;
        let Present::Revision(update) = present else { return self.note_collision(&set).await };
        let current_name = set.status.as_ref().and_then(|status| status.current_revision.clone());
        let current = known.iter().find(|revision| revision.metadata.name == current_name).unwrap_or(&update).clone();
        let templates = Templates::new(&set, &current, &update);
        let now = self.clock.now();
        let steps = plan::plan(&set, &own, &templates, now);
        let applied = self.apply(&set, &templates, steps).await;
        let status = status::status(&set, &own, &templates, now);
        figures::note(&set, &status);
        if set.status.as_ref() != Some(&status) {
            let changed = StatefulSet { status: Some(status), ..StatefulSet::clone(&set) };
            self.client.update_status(&changed).await?;
        }
        applied?;
        let in_use = |revision: &ControllerRevision| {
            let name = revision.metadata.name();
            [&templates.current_name, &templates.update_name].iter().any(|used| *used == name)
                || own.iter().any(|pod| pod.metadata.label(history::HASH_LABEL) == Some(name))
        };
        history::truncate(&self.client, &known, set.spec.revision_history_limit, in_use).await?;
        let min_ready = set.spec.min_ready_seconds.unwrap_or_default();
        let next = own.iter().filter_map(|pod| pods::available_in(pod, min_ready, now)).min();
        Ok(Action::after(next))
    }

    fn uid(&self, key: &Key) -> Option<String> {
        self.sets.get(key)?.metadata.uid.clone()
    }
}

impl StatefulSets {
    async fn note_collision(&self, set: &StatefulSet) -> Result<Action, Error> {
        let mut changed = set.clone();
        let status = changed.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
        self.client.update_status(&changed).await?;
        Ok(Action::Done)
    }

    async fn apply(&self, set: &StatefulSet, templates: &Templates, steps: Vec<Step>) -> Result<(), Error> {
        batch::all(steps, |step| async move {
            match step {
                Step::Create(ordinal) => self.create(set, templates, ordinal).await,
                Step::Delete(pod) => self.delete(set, &pod).await,
                Step::Repair(pod) => self.repair(set, &pod).await,
                Step::KeepClaims(pod) => self.fit_claims(set, &pod).await,
            }
        })
        .await
    }

    async fn create(&self, set: &StatefulSet, templates: &Templates, ordinal: i32) -> Result<(), Error> {
        let pod = templates.pod(set, ordinal);
        let (name, owner) = (pod.metadata.name().to_owned(), set.metadata.name());
        if let Err(error) = self.ensure_claims(set, &pod).await {
            let message = format!("create Pod {name} in StatefulSet {owner} failed error: {error}");
            self.recorder.event(set, EventType::Warning, "FailedCreate", message);
            return Err(error);
        }
        match self.client.create(&pod).await {
            Ok(created) => {
                self.echoes.wrote(&set.metadata.key(), &created);
                let message = format!("create Pod {name} in StatefulSet {owner} successful");
                self.recorder.event(set, EventType::Normal, "SuccessfulCreate", message);
                self.fit_claims(set, &created).await
            }
            // The one before it still ends, or the cache is behind.
            Err(error) if error.is_already_exists() => Err(error.into()),
            Err(error) => {
                let message = format!("create Pod {name} in StatefulSet {owner} failed error: {error}");
                self.recorder.event(set, EventType::Warning, "FailedCreate", message);
                Err(error.into())
            }
        }
    }

    async fn delete(&self, set: &StatefulSet, pod: &Pod) -> Result<(), Error> {
        let (namespace, name, owner) = (pod.metadata.namespace(), pod.metadata.name(), set.metadata.name());
        let options = client::DeleteOptions { uid: pod.metadata.uid.clone(), ..client::DeleteOptions::default() };
        match self.client.delete::<Pod>(namespace, name, &options).await {
            Ok(()) => {
                let message = format!("delete Pod {name} in StatefulSet {owner} successful");
                self.recorder.event(set, EventType::Normal, "SuccessfulDelete", message);
                Ok(())
            }
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => {
                let message = format!("delete Pod {name} in StatefulSet {owner} failed error: {error}");
                self.recorder.event(set, EventType::Warning, "FailedDelete", message);
                Err(error.into())
            }
        }
    }

    /// Gives an adopted or edited pod its identity back.
    async fn repair(&self, set: &StatefulSet, pod: &Pod) -> Result<(), Error> {
        self.ensure_claims(set, pod).await?;
        let labels = identity::labels(set, pod.metadata.name());
        let patch =
            Patch::Merge(json!({"metadata": {"labels": labels, "resourceVersion": pod.metadata.resource_version}}));
        let written = self.client.patch::<Pod>(pod.metadata.namespace(), pod.metadata.name(), &patch).await?;
        self.echoes.wrote(&set.metadata.key(), &written);
        Ok(())
    }

    async fn ensure_claims(&self, set: &StatefulSet, pod: &Pod) -> Result<(), Error> {
        for wanted in identity::claims(set, pod.metadata.name()) {
            match self.claims.get(&wanted.metadata.key()) {
                Some(known) if known.metadata.is_deleting() => {
                    return Err(Error::Waiting(format!("pvc {} is being deleted", wanted.metadata.name())));
                }
                Some(_) => {}
                None => {
                    let (claim, name, owner) = (wanted.metadata.name(), pod.metadata.name(), set.metadata.name());
                    match self.client.create(&wanted).await {
                        Ok(_) => {
                            let message = format!("create Claim {claim} Pod {name} in StatefulSet {owner} success");
                            self.recorder.event(set, EventType::Normal, "SuccessfulCreate", message);
                        }
                        Err(error) if error.is_already_exists() => {}
                        Err(error) => {
                            let message = format!(
                                "create Claim {claim} for Pod {name} in StatefulSet {owner} failed error: {error}"
                            );
                            self.recorder.event(set, EventType::Warning, "FailedCreate", message);
                            return Err(error.into());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the claims of a pod go with the set or the pod, or stay, as the retention policy says.
    async fn fit_claims(&self, set: &StatefulSet, pod: &Pod) -> Result<(), Error> {
        for wanted in identity::claims(set, pod.metadata.name()) {
            let Some(claim) = self.claims.get(&wanted.metadata.key()) else { continue };
            let Some(owners) = identity::claim_owners(set, pod, &claim) else { continue };
            let mut changed = PersistentVolumeClaim::clone(&claim);
            changed.metadata.owner_references = Some(owners);
            match self.client.update(&changed).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}
