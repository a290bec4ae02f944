//! Deployment: rolls pods from one template to the next by growing and shrinking ReplicaSets.
//!
//! `plan` and `status` decide and are pure; here the caches are read and the decisions applied, one step per turn: each step changes
//! ReplicaSets, whose echo brings the next turn. Upstream: DeploymentController.

mod plan;
mod rollback;
mod status;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use client::{Client, DeleteOptions};
use informer::{Action, Clock, Echoes, EventType, Informer, Key, Reconciler, Recorder};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::Error;
use crate::common::claim;
use crate::common::meta::{MetaExt, controller_key, controller_reference};
use crate::common::pod_control::namespace_ends;
use crate::common::template_hash::template_hash;
use crate::common::{pods, selector};
use crate::context::Context;
use plan::Resize;

const WORKERS: usize = 5;
/// The echo of a write brings the next turn; this is for the case that it never comes.
const UNHEARD: Duration = Duration::from_secs(30);

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let sets = context.informers.of();
    let controller = Deployments {
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        clock: context.clock.clone(),
        deployments: context.informers.of(),
        echoes: Echoes::new(&sets, context.clock.clone()),
        sets,
        pods: context.informers.of(),
    };
    claim::index_orphans(&controller.sets);
    let queue = context.queue();
    informer::feed(&controller.deployments, &queue, |change| [change.object().metadata.key()]);
    let deployments = controller.deployments.clone();
    informer::feed(&controller.sets, &queue, move |change| {
        let before = change.before().and_then(|set| controller_key::<Deployment>(&set.metadata));
        let now = change.after().and_then(|set| controller_key::<Deployment>(&set.metadata));
        let orphan = change.after().filter(|set| set.metadata.controller().is_none());
        let mut keys: Vec<Key> = before.into_iter().chain(now).collect();
        keys.extend(orphan.into_iter().flat_map(|set| adopters(&deployments, set)));
        keys
    });
    let sets = controller.sets.clone();
    informer::feed(&controller.pods, &queue, move |change| {
        // A Recreate rollout waits for the last old pod to go; nobody else needs to hear of pods.
        let gone = change.after().is_none().then(|| change.object());
        let set = gone.and_then(|pod| controller_key::<ReplicaSet>(&pod.metadata)).and_then(|key| sets.get(&key));
        set.and_then(|set| controller_key::<Deployment>(&set.metadata))
    });
    futures::join!(controller.deployments.synced(), controller.sets.synced(), controller.pods.synced());
    context.run(controller, queue, WORKERS).await;
}

/// The Deployments that select an orphan.
fn adopters(deployments: &Informer<Deployment>, set: &ReplicaSet) -> Vec<Key> {
    let candidates = deployments.by_namespace(set.metadata.namespace());
    let selecting = candidates.iter().filter(|deployment| {
        selector::parse(&deployment.spec.selector)
            .is_some_and(|selector| !selector.is_empty() && selector::matches(&selector, &set.metadata.labels))
    });
    selecting.map(|deployment| deployment.metadata.key()).collect()
}

struct Deployments {
    client: Client,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    /// Sizes are decided from the sizes that are; so the last decision must be visible before the next.
    echoes: Echoes<ReplicaSet>,
}

impl Reconciler for Deployments {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(cached) = self.deployments.get(key) else { return Ok(Action::Done) };
        if !self.echoes.heard(key) {
            return Ok(Action::After(UNHEARD));
        }
        let mut deployment = Deployment::clone(&cached);
        if deployment.spec.selector == LabelSelector::default() {
            return self.selects_all(deployment).await;
        }
        let Some(selector) = selector::parse(&deployment.spec.selector) else { return Ok(Action::Done) };
        let candidates = claim::candidates(&self.sets, &deployment);
        let sets = claim::claim(&self.client, &deployment, &selector, candidates).await?;
        if deployment.metadata.is_deleting() {
            let (new, old) = plan::split(&deployment, &sets);
            return self.report(&deployment, status::basic(&deployment, new.as_ref(), &old, self.clock.now())).await;
        }
        self.note_pause(&mut deployment).await?;
        if !plan::is_paused(&deployment)
            && let Some(revision) = rollback::requested(&deployment)
        {
            return self.roll_back(deployment, &sets, revision).await;
        }
        if plan::is_paused(&deployment) || plan::was_resized(&deployment, &sets) {
            return self.resize(deployment, &sets).await;
        }
        if plan::is_rolling(&deployment) {
            self.rolling_update(deployment, &sets).await
        } else {
            self.recreate(deployment, &sets).await
        }
    }

    fn uid(&self, key: &Key) -> Option<String> {
        self.deployments.get(key)?.metadata.uid.clone()
    }
}

impl Deployments {
    async fn selects_all(&self, mut deployment: Deployment) -> Result<Action, Error> {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        self.recorder.event(&deployment, EventType::Warning, "SelectingAll", message);
        let generation = deployment.metadata.generation;
        let status = deployment.status.get_or_insert_default();
        if status.observed_generation < generation {
            status.observed_generation = generation;
            self.client.update_status(&deployment).await?;
        }
        Ok(Action::Done)
    }

    /// Notes in the conditions that a Deployment was paused or resumed, so that a pause does not count as lack of progress.
    async fn note_pause(&self, deployment: &mut Deployment) -> Result<(), Error> {
        if plan::progress_deadline(deployment).is_none() {
            return Ok(());
        }
        let known = deployment.status.clone().unwrap_or_default();
        let reason = status::find(&known, status::PROGRESSING).and_then(|condition| condition.reason.as_deref());
        let noted = reason == Some(status::PAUSED);
        let (reason, message) = match (reason, plan::is_paused(deployment)) {
            (Some(status::TIMED_OUT), _) => return Ok(()),
            (_, true) if !noted => (status::PAUSED, "Deployment is paused"),
            (_, false) if noted => ("DeploymentResumed", "Deployment is resumed"),
            _ => return Ok(()),
        };
        let now = self.clock.now();
        let condition = status::condition(status::PROGRESSING, "Unknown", reason, message.to_owned(), now);
        status::set(deployment.status.get_or_insert_default(), condition);
        *deployment = self.client.update_status(deployment).await?;
        Ok(())
    }

    async fn resize(&self, mut deployment: Deployment, sets: &[Arc<ReplicaSet>]) -> Result<Action, Error> {
        let (new, mut old) = self.new_and_old(&mut deployment, sets, false).await?;
        plan::by_age(&mut old);
        let (sizes, annotate) = plan::resize(&deployment, new.as_ref(), &old);
        self.scale(&deployment, sizes, annotate).await?;
        if plan::is_paused(&deployment) && rollback::requested(&deployment).is_none() {
            self.clean_up(&deployment, &old).await?;
        }
        let status = status::basic(&deployment, new.as_ref(), &old, self.clock.now());
        self.report(&deployment, status).await
    }

    async fn rolling_update(&self, mut deployment: Deployment, sets: &[Arc<ReplicaSet>]) -> Result<Action, Error> {
        let (new, old) = self.new_and_old(&mut deployment, sets, true).await?;
        let Some(new) = new else { return Ok(Action::Done) };
        let (wanted, current) = (plan::wanted(&deployment), plan::size(&new));
        let grown = if current > wanted {
            wanted
        } else if !old.iter().all(|set| plan::is_observed(set)) {
            // How many pods a ReplicaSet has that was just resized, nobody knows; its report brings the next turn.
            current
        } else {
            let all = old.iter().map(|set| plan::footprint(set)).sum::<i32>() + current;
            plan::new_size(&deployment, all, current)
        };
        if grown == current {
            let shrunk = plan::shrink(&deployment, &new, &old);
            if shrunk.is_empty() && status::is_complete(&deployment, &deployment.status.clone().unwrap_or_default()) {
                self.clean_up(&deployment, &old).await?;
            }
            self.scale(&deployment, shrunk, false).await?;
        } else {
            self.scale(&deployment, vec![(new.clone(), grown)], false).await?;
        }
        self.report_rollout(&deployment, Some(&new), &old).await
    }

    async fn recreate(&self, mut deployment: Deployment, sets: &[Arc<ReplicaSet>]) -> Result<Action, Error> {
        // Nothing new before all old pods are gone.
        let (mut new, old) = self.new_and_old(&mut deployment, sets, false).await?;
        let shrunk: Vec<Resize> = old.iter().filter(|set| plan::size(set) > 0).map(|set| (set.clone(), 0)).collect();
        if !shrunk.is_empty() {
            self.scale(&deployment, shrunk, false).await?;
            return self.report_rollout(&deployment, new.as_ref(), &old).await;
        }
        let counted = old.iter().any(|set| set.status.as_ref().is_some_and(|status| status.replicas > 0));
        let running =
            old.iter().any(|set| self.pods.by_owner(set.metadata.uid()).iter().any(|pod| !pods::is_terminal(pod)));
        if counted || running {
            return self.report_rollout(&deployment, new.as_ref(), &old).await;
        }
        if new.is_none() {
            (new, _) = self.new_and_old(&mut deployment, sets, true).await?;
        }
        let wanted = plan::wanted(&deployment);
        let grown = new.iter().filter(|set| plan::size(set) != wanted).map(|set| (set.clone(), wanted)).collect();
        self.scale(&deployment, grown, false).await?;
        if status::is_complete(&deployment, &deployment.status.clone().unwrap_or_default()) {
            self.clean_up(&deployment, &old).await?;
        }
        self.report_rollout(&deployment, new.as_ref(), &old).await
    }

    /// The new ReplicaSet, made if there is none and `create` says so, with its revision brought up to date; and the old ones.
    async fn new_and_old(
        &self,
        deployment: &mut Deployment,
        sets: &[Arc<ReplicaSet>],
        create: bool,
    ) -> Result<(Option<Arc<ReplicaSet>>, Vec<Arc<ReplicaSet>>), Error> {
        let (new, old) = plan::split(deployment, sets);
        let revision = plan::next_revision(&old);
        let new = match new {
            Some(new) => Some(self.bring_up_to_date(deployment, new, revision).await?),
            None if create => self.create_set(deployment, &old, revision).await?,
            None => None,
        };
        Ok((new, old))
    }

    async fn bring_up_to_date(
        &self,
        deployment: &mut Deployment,
        set: Arc<ReplicaSet>,
        revision: i64,
    ) -> Result<Arc<ReplicaSet>, Error> {
        let annotations = plan::annotations(deployment, &set.metadata, revision);
        let min_ready = deployment.spec.min_ready_seconds.unwrap_or_default();
        let has_min_ready = set.spec.min_ready_seconds.unwrap_or_default();
        if annotations != set.metadata.annotations.clone().unwrap_or_default() || min_ready != has_min_ready {
            let mut changed = ReplicaSet::clone(&set);
            changed.metadata.annotations = Some(annotations);
            changed.spec.min_ready_seconds = (min_ready != 0).then_some(min_ready);
            let written = self.client.update(&changed).await?;
            self.echoes.wrote(&deployment.metadata.key(), &written);
            return Ok(Arc::new(written));
        }
        let revision = set.metadata.annotation(plan::REVISION).unwrap_or_default();
        let mut changed = set_revision(deployment, revision);
        let known = deployment.status.clone().unwrap_or_default();
        if plan::progress_deadline(deployment).is_some() && status::find(&known, status::PROGRESSING).is_none() {
            let message = format!("Found new replica set {:?}", set.metadata.name());
            let condition =
                status::condition(status::PROGRESSING, "True", "FoundNewReplicaSet", message, self.clock.now());
            status::set(deployment.status.get_or_insert_default(), condition);
            changed = true;
        }
        if changed {
            *deployment = self.client.update_status(deployment).await?;
        }
        Ok(set)
    }

    async fn create_set(
        &self,
        deployment: &mut Deployment,
        old: &[Arc<ReplicaSet>],
        revision: i64,
    ) -> Result<Option<Arc<ReplicaSet>>, Error> {
        let set = new_set(deployment, old, revision);
        let name = set.metadata.name().to_owned();
        let now = self.clock.now();
        let (created, is_new) = match self.client.create(&set).await {
            Ok(created) => {
                self.echoes.wrote(&deployment.metadata.key(), &created);
                (Arc::new(created), true)
            }
            Err(error) if error.is_already_exists() => match self.own_set(deployment, &set.metadata.key()) {
                Some(known) => (known, false),
                None => return self.resolve_collision(deployment, error).await,
            },
            Err(error) if namespace_ends(&error) => return Err(error.into()),
            Err(error) => {
                let message = format!("Failed to create new replica set {name:?}: {error}");
                if plan::progress_deadline(deployment).is_some() {
                    let reason = "ReplicaSetCreateError";
                    let condition = status::condition(status::PROGRESSING, "False", reason, message.clone(), now);
                    status::set(deployment.status.get_or_insert_default(), condition);
                    // The failed creation is what matters; it is what the turn ends with.
                    let _ = self.client.update_status(deployment).await;
                }
                self.recorder.event(deployment, EventType::Warning, "ReplicaSetCreateError", message);
                return Err(error.into());
            }
        };
        let size = plan::size(&created);
        if is_new && size > 0 {
            let message = format!("Scaled up replica set {name} from 0 to {size}");
            self.recorder.event(deployment, EventType::Normal, "ScalingReplicaSet", message);
        }
        let mut changed = set_revision(deployment, &revision.to_string());
        if is_new && plan::progress_deadline(deployment).is_some() {
            let message = format!("Created new replica set {name:?}");
            let condition = status::condition(status::PROGRESSING, "True", "NewReplicaSetCreated", message, now);
            status::set(deployment.status.get_or_insert_default(), condition);
            changed = true;
        }
        if changed {
            *deployment = self.client.update_status(deployment).await?;
        }
        Ok(Some(created))
    }

    /// The ReplicaSet of this name, if it is this Deployment's with this very template: a creation that the cache had not shown yet.
    fn own_set(&self, deployment: &Deployment, key: &Key) -> Option<Arc<ReplicaSet>> {
        let set = self.sets.get(key)?;
        let owned = set.metadata.controller().is_some_and(|owner| owner.uid == deployment.metadata.uid());
        let same = plan::same_template(set.spec.template.as_ref()?, &deployment.spec.template);
        (owned && same).then_some(set)
    }

    /// Another template has the same hash, or the cache is behind: either way the next turn decides, with another hash if need be.
    async fn resolve_collision(
        &self,
        deployment: &mut Deployment,
        error: client::Error,
    ) -> Result<Option<Arc<ReplicaSet>>, Error> {
        let hash = deployment_hash(deployment);
        let name = plan::set_name(deployment.metadata.name(), &hash);
        let live = self.client.get::<ReplicaSet>(deployment.metadata.namespace(), &name).await?;
        let template = live.spec.template.as_ref();
        let same = template.is_some_and(|template| plan::same_template(template, &deployment.spec.template));
        let owned = live.metadata.controller().is_some_and(|owner| owner.uid == deployment.metadata.uid());
        if owned && same {
            return Err(Error::Waiting(format!("replica set {name} is not in the cache yet")));
        }
        let status = deployment.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or_default() + 1);
        self.client.update_status(deployment).await?;
        Err(error.into())
    }

    /// Gives ReplicaSets their sizes.
    async fn scale(&self, deployment: &Deployment, sizes: Vec<Resize>, annotate: bool) -> Result<(), Error> {
        let annotations = plan::replicas_annotations(deployment);
        for (set, size) in sizes {
            let before = plan::size(&set);
            let current = annotations.iter().all(|(key, value)| set.metadata.annotation(key) == Some(value));
            if before == size && (!annotate || current) {
                continue;
            }
            let mut changed = ReplicaSet::clone(&set);
            changed.metadata.annotations.get_or_insert_default().extend(annotations.clone());
            changed.spec.replicas = Some(size);
            let written = self.client.update(&changed).await?;
            self.echoes.wrote(&deployment.metadata.key(), &written);
            if before != size {
                let way = if before < size { "up" } else { "down" };
                let name = set.metadata.name();
                let message = format!("Scaled {way} replica set {name} from {before} to {size}");
                self.recorder.event(deployment, EventType::Normal, "ScalingReplicaSet", message);
            }
        }
        Ok(())
    }

    async fn clean_up(&self, deployment: &Deployment, old: &[Arc<ReplicaSet>]) -> Result<(), Error> {
        for set in plan::surplus_history(deployment, old) {
            let (namespace, name) = (set.metadata.namespace(), set.metadata.name());
            match self.client.delete::<ReplicaSet>(namespace, name, &DeleteOptions::default()).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    async fn report_rollout(
        &self,
        deployment: &Deployment,
        new: Option<&Arc<ReplicaSet>>,
        old: &[Arc<ReplicaSet>],
    ) -> Result<Action, Error> {
        let now = self.clock.now();
        let status = status::rollout(deployment, new, old, now);
        let next = status::next_check(deployment, &status, now);
        self.report(deployment, status).await?;
        Ok(Action::after(next))
    }

    async fn report(&self, deployment: &Deployment, status: DeploymentStatus) -> Result<Action, Error> {
        if deployment.status.as_ref() != Some(&status) {
            let changed = Deployment { status: Some(status), ..deployment.clone() };
            self.client.update_status(&changed).await?;
        }
        Ok(Action::Done)
    }
}

/// Whether the Deployment had another revision before.
fn set_revision(deployment: &mut Deployment, revision: &str) -> bool {
    if deployment.metadata.annotation(plan::REVISION) == Some(revision) {
        return false;
    }
    let annotations = deployment.metadata.annotations.get_or_insert_default();
    annotations.insert(plan::REVISION.to_owned(), revision.to_owned());
    true
}

fn deployment_hash(deployment: &Deployment) -> String {
    let collisions = deployment.status.as_ref().and_then(|status| status.collision_count);
    template_hash(&deployment.spec.template, collisions)
}

/// The ReplicaSet for the Deployment's present template.
fn new_set(deployment: &Deployment, old: &[Arc<ReplicaSet>], revision: i64) -> ReplicaSet {
    let hash = deployment_hash(deployment);
    let spec = deployment.spec.clone();
    let (mut template, mut selector) = (spec.template, spec.selector);
    let meta = template.metadata.get_or_insert_default();
    meta.labels.get_or_insert_default().insert(plan::HASH_LABEL.to_owned(), hash.clone());
    let labels = meta.labels.clone();
    selector.match_labels.get_or_insert_default().insert(plan::HASH_LABEL.to_owned(), hash.clone());
    let mut annotations = plan::annotations(deployment, &ObjectMeta::default(), revision);
    annotations.extend(plan::replicas_annotations(deployment));
    let others: i32 = old.iter().map(|set| plan::footprint(set)).sum();
    let observed = old.iter().all(|set| plan::is_observed(set));
    let replicas = if observed { plan::new_size(deployment, others, 0) } else { 0 };
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(plan::set_name(deployment.metadata.name(), &hash)),
            namespace: deployment.metadata.namespace.clone(),
            labels,
            annotations: Some(annotations),
            owner_references: Some(vec![controller_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: ReplicaSetSpec {
            replicas: Some(replicas),
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        },
        status: None,
    }
}
