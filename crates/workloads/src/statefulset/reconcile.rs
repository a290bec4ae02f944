//! Observes, applies what `plan` decides, and reports.

use std::sync::Arc;

use client::Patch;
use informer::{Action, Echoes, EventType, Informer, Key, Reconciler};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::json;

use super::plan::{self, Claims, Observed, Plan, Step, Templates};
use super::{claims, figures, identity};
use crate::Error;
use crate::common::history;
use crate::common::meta::MetaExt;
use crate::common::template_hash::template_hash;
use crate::common::{batch, claim, selector};
use crate::context::{Context, Tools};
use crate::inputs::changed;
use crate::metrics;

const WORKERS: usize = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let pods = inputs.read();
    let controller = StatefulSets {
        tools: context.tools.clone(),
        echoes: Echoes::new(&pods, context.tools.clock.clone()),
        sets: inputs.watch(changed),
        pods,
        claims: inputs.read(),
        revisions: inputs.read(),
    };
    claim::index_orphans(&controller.pods);
    claim::index_orphans(&controller.revisions);
    let sets = controller.sets.clone();
    inputs.feed(&controller.pods, move |change| {
        claim::concerned(change, &sets, |set: &StatefulSet| selector::parse(&set.spec.selector))
    });
    inputs.run(controller, WORKERS).await;
}

struct StatefulSets {
    tools: Tools,
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
        if !self.echoes.observed(key) {
            metrics::STATEFUL_STALE.increment(&["", "pods"]);
            return Ok(Action::After(informer::UNOBSERVED));
        }
        let Some(observed) = self.observe(key, set).await? else { return Ok(Action::Done) };
        let set = &observed.set;
        let plan = plan::plan(&observed, self.tools.clock.now());
        let applied = self.apply(&observed, &plan).await;
        figures::note(set, &plan.status);
        // Status is written even when `apply` failed: that is when users look.
        if set.status.as_ref() != Some(&plan.status) {
            let changed = StatefulSet { status: Some(plan.status.clone()), ..StatefulSet::clone(set) };
            self.tools.client.update_status(&changed).await?;
        }
        applied?;
        history::delete(&self.tools.client, &plan.surplus).await?;
        Ok(Action::after(plan.again))
    }

    fn uid(&self, key: &Key) -> Option<String> {
        self.sets.get(key)?.metadata.uid.clone()
    }
}

impl StatefulSets {
    async fn observe(&self, key: &Key, set: Arc<StatefulSet>) -> Result<Option<Observed>, Error> {
        let Some(selector) = selector::parse(&set.spec.selector) else { return Ok(None) };
        let revisions =
            claim::claim(&self.tools.client, &*set, &selector, claim::candidates(&self.revisions, &*set, &selector))
                .await?;
        let mut candidates = claim::candidates(&self.pods, &*set, &selector);
        // A pod of another name is not this set's, whatever its labels say.
        candidates.retain(|pod| {
            identity::parent_and_ordinal(pod.metadata.name()).is_some_and(|(parent, _)| parent == key.name)
        });
        let pods = claim::claim(&self.tools.client, &*set, &selector, candidates).await?;
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let hash = template_hash(&set.spec.template, collisions);
        let present = history::present(&self.tools.client, &*set, &set.spec.template, &hash, &revisions).await?;
        let templates = present.map(|update| {
            let current = set.status.as_ref().and_then(|status| status.current_revision.clone());
            let current = revisions.iter().find(|revision| revision.metadata.name == current).unwrap_or(&update);
            Templates::new(&set, current, &update)
        });
        Ok(Some(Observed { pods, claims: self.claims_of(&set), revisions, templates, set }))
    }

    fn claims_of(&self, set: &StatefulSet) -> Claims {
        let all = self.claims.by_namespace(set.metadata.namespace());
        let own = all.into_iter().filter(|claim| claims::may_be_of(set, claim.metadata.name()));
        own.map(|claim| (claim.metadata.name().to_owned(), claim)).collect()
    }

    async fn apply(&self, observed: &Observed, plan: &Plan) -> Result<(), Error> {
        let Some(templates) = &observed.templates else { return Ok(()) };
        for steps in &plan.phases {
            let take = |at: usize| self.take(&observed.set, templates, &steps[at]);
            batch::slow_start(steps.len(), take).await.1?;
        }
        Ok(())
    }

    async fn take(&self, set: &StatefulSet, templates: &Templates, step: &Step) -> Result<(), Error> {
        match step {
            Step::Create(ordinal) => self.create(set, templates, *ordinal).await,
            Step::Delete(pod) => self.delete(set, pod).await,
            Step::Repair(pod) => self.repair(set, pod).await,
            Step::CreateClaims(pod) => self.ensure_claims(set, pod).await,
            Step::OwnClaims(pod) => self.own_claims(set, pod).await,
        }
    }

    async fn create(&self, set: &StatefulSet, templates: &Templates, ordinal: i32) -> Result<(), Error> {
        let pod = templates.pod(set, ordinal);
        let (name, owner) = (pod.metadata.name().to_owned(), set.metadata.name());
        if let Err(error) = self.ensure_claims(set, &pod).await {
            let message = format!("create Pod {name} in StatefulSet {owner} failed error: {error}");
            self.tools.recorder.event(set, EventType::Warning, "FailedCreate", message);
            return Err(error);
        }
        match self.tools.client.create(&pod).await {
            Ok(created) => {
                self.echoes.wrote(&set.metadata.key(), &created);
                let message = format!("create Pod {name} in StatefulSet {owner} successful");
                self.tools.recorder.event(set, EventType::Normal, "SuccessfulCreate", message);
                self.own_claims(set, &created).await
            }
            // The one before it still ends, or the cache is behind.
            Err(error) if error.is_already_exists() => Err(error.into()),
            Err(error) => {
                let message = format!("create Pod {name} in StatefulSet {owner} failed error: {error}");
                self.tools.recorder.event(set, EventType::Warning, "FailedCreate", message);
                Err(error.into())
            }
        }
    }

    async fn delete(&self, set: &StatefulSet, pod: &Pod) -> Result<(), Error> {
        let (namespace, name, owner) = (pod.metadata.namespace(), pod.metadata.name(), set.metadata.name());
        let options = client::DeleteOptions { uid: pod.metadata.uid.clone(), ..client::DeleteOptions::default() };
        match self.tools.client.delete::<Pod>(namespace, name, &options).await {
            Ok(()) => {
                let message = format!("delete Pod {name} in StatefulSet {owner} successful");
                self.tools.recorder.event(set, EventType::Normal, "SuccessfulDelete", message);
                Ok(())
            }
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            Err(error) => {
                let message = format!("delete Pod {name} in StatefulSet {owner} failed error: {error}");
                self.tools.recorder.event(set, EventType::Warning, "FailedDelete", message);
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
        let written = self.tools.client.patch::<Pod>(pod.metadata.namespace(), pod.metadata.name(), &patch).await?;
        self.echoes.wrote(&set.metadata.key(), &written);
        Ok(())
    }

    async fn ensure_claims(&self, set: &StatefulSet, pod: &Pod) -> Result<(), Error> {
        for wanted in claims::claims(set, pod.metadata.name()) {
            match self.claims.get(&wanted.metadata.key()) {
                Some(known) if known.metadata.is_deleting() => {
                    return Err(Error::Waiting(format!("pvc {} is being deleted", wanted.metadata.name())));
                }
                Some(_) => {}
                None => {
                    let (claim, name, owner) = (wanted.metadata.name(), pod.metadata.name(), set.metadata.name());
                    match self.tools.client.create(&wanted).await {
                        Ok(_) => {
                            let message = format!("create Claim {claim} Pod {name} in StatefulSet {owner} success");
                            self.tools.recorder.event(set, EventType::Normal, "SuccessfulCreate", message);
                        }
                        Err(error) if error.is_already_exists() => {}
                        Err(error) => {
                            let message = format!(
                                "create Claim {claim} for Pod {name} in StatefulSet {owner} failed error: {error}"
                            );
                            self.tools.recorder.event(set, EventType::Warning, "FailedCreate", message);
                            return Err(error.into());
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes the claims of a pod go with the set or the pod, or stay, as the retention policy says.
    async fn own_claims(&self, set: &StatefulSet, pod: &Pod) -> Result<(), Error> {
        for name in claims::claim_names(set, pod.metadata.name()) {
            let Some(claim) = self.claims.get(&Key::new(set.metadata.namespace(), &name)) else { continue };
            if claims::has_other_controller(set, pod, &claim) {
                let message = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging controller, the retention policy is ignored for this claim"
                );
                self.tools.recorder.event(set, EventType::Warning, "ConflictingController", message);
            }
            let Some(owners) = claims::claim_owners(set, pod, &claim) else { continue };
            let mut changed = PersistentVolumeClaim::clone(&claim);
            changed.metadata.owner_references = Some(owners);
            match self.tools.client.update(&changed).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }
}
