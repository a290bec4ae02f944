//! Observes, applies what `plan` decides, and reports.

use std::collections::BTreeSet;
use std::sync::Arc;

use client::DeleteOptions;
use informer::{Action, Echoes, EventType, Informer, Key, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::plan::{self, Observed, Plan, RollBack, Update};
use super::{revisions, sizes, status};
use crate::Error;
use crate::common::meta::{MetaExt, controller_key};
use crate::common::pod_control::namespace_ends;
use crate::common::{claim, pods, selector};
use crate::context::{Context, Tools};
use crate::inputs::changed;

const WORKERS: usize = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let sets = inputs.read();
    let controller = Deployments {
        tools: context.tools.clone(),
        deployments: inputs.watch(changed),
        echoes: Echoes::new(&sets, context.tools.clock.clone()),
        sets,
        pods: inputs.read(),
    };
    claim::index_orphans(&controller.sets);
    let deployments = controller.deployments.clone();
    inputs.feed(&controller.sets, move |change| {
        let before = change.before().and_then(|set| controller_key::<Deployment>(&set.metadata));
        let now = change.after().and_then(|set| controller_key::<Deployment>(&set.metadata));
        let orphan = change.after().filter(|set| set.metadata.controller().is_none());
        let mut keys: Vec<Key> = before.into_iter().chain(now).collect();
        keys.extend(orphan.into_iter().flat_map(|set| adopters(&deployments, set)));
        keys
    });
    let sets = controller.sets.clone();
    inputs.feed(&controller.pods, move |change| {
        // A Recreate rollout waits for the last old pod to go; nobody else needs changes of pods.
        let gone = change.after().is_none().then(|| change.object());
        let set = gone.and_then(|pod| controller_key::<ReplicaSet>(&pod.metadata)).and_then(|key| sets.get(&key));
        set.and_then(|set| controller_key::<Deployment>(&set.metadata))
    });
    inputs.run(controller, WORKERS).await;
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
    tools: Tools,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    /// Sizes are decided from the sizes that are; so the last decision must be visible before the next.
    echoes: Echoes<ReplicaSet>,
}

impl Reconciler for Deployments {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        if !self.echoes.observed(key) {
            return Ok(Action::After(informer::UNOBSERVED));
        }
        let Some(observed) = self.observe(key).await? else { return Ok(Action::Done) };
        let now = self.tools.clock.now();
        let plan = plan::plan(&observed, now);
        plan.say();
        let applied = self.apply(&observed.deployment, &plan).await;
        let report = match &applied {
            Ok(()) => plan.report,
            Err(failure) => failure.noted(plan.report_failed, now),
        };
        let reported = self.report(&observed.deployment, &report).await;
        // What failed first is what matters.
        applied?;
        reported?;
        Ok(Action::after(plan.again))
    }

    fn uid(&self, key: &Key) -> Option<String> {
        self.deployments.get(key)?.metadata.uid.clone()
    }
}

/// Why not all of a plan was done.
enum Failure {
    /// The new ReplicaSet was refused.
    Refused {
        message: String,
        error: client::Error,
    },
    /// Its name is taken by another template.
    Collision(client::Error),
    Other(Error),
}

impl Failure {
    /// The Deployment that tells of it.
    fn noted(&self, mut deployment: Deployment, now: Timestamp) -> Deployment {
        match self {
            Self::Refused { message, .. } => status::note_not_created(&mut deployment, message.clone(), now),
            Self::Collision(_) => status::note_collision(&mut deployment),
            Self::Other(_) => {}
        }
        deployment
    }
}

impl From<client::Error> for Failure {
    fn from(error: client::Error) -> Self {
        Self::Other(error.into())
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused { error, .. } | Failure::Collision(error) => error.into(),
            Failure::Other(error) => error,
        }
    }
}

impl Deployments {
    async fn observe(&self, key: &Key) -> Result<Option<Observed>, Error> {
        let Some(deployment) = self.deployments.get(key) else { return Ok(None) };
        let Some(selector) = selector::parse(&deployment.spec.selector) else { return Ok(None) };
        let sets = if deployment.spec.selector == LabelSelector::default() {
            Vec::new()
        } else {
            let candidates = claim::candidates(&self.sets, &*deployment, &selector);
            claim::claim(&self.tools.client, &*deployment, &selector, candidates).await?
        };
        let runs =
            |set: &&Arc<ReplicaSet>| self.pods.by_owner(set.metadata.uid()).iter().any(|pod| !pods::is_terminal(pod));
        let running = if sizes::is_rolling(&deployment) {
            BTreeSet::new()
        } else {
            sets.iter().filter(runs).map(|set| set.metadata.uid().to_owned()).collect()
        };
        Ok(Some(Observed { deployment, sets, running }))
    }

    async fn apply(&self, deployment: &Deployment, plan: &Plan) -> Result<(), Failure> {
        if let Some((type_, reason, message)) = &plan.event {
            self.tools.recorder.event(deployment, *type_, reason, message.clone());
        }
        if let Some(set) = &plan.create {
            self.create(deployment, set).await?;
        }
        for update in &plan.update {
            self.update(deployment, update).await?;
        }
        for set in &plan.delete {
            let (namespace, name) = (set.metadata.namespace(), set.metadata.name());
            match self.tools.client.delete::<ReplicaSet>(namespace, name, &DeleteOptions::default()).await {
                Err(error) if !error.is_not_found() => return Err(error.into()),
                _ => {}
            }
        }
        if let Some(RollBack { deployment, event: (type_, reason, message) }) = &plan.roll_back {
            let updated = self.tools.client.update(deployment).await?;
            self.tools.recorder.event(&updated, *type_, reason, message.clone());
        }
        Ok(())
    }

    async fn create(&self, deployment: &Deployment, set: &ReplicaSet) -> Result<(), Failure> {
        let name = set.metadata.name();
        match self.tools.client.create(set).await {
            Ok(created) => {
                self.echoes.wrote(&deployment.metadata.key(), &created);
                self.record_size(deployment, name, 0, sizes::size(&created));
                Ok(())
            }
            Err(error) if error.is_already_exists() => Err(self.collision(deployment, set, error).await?),
            Err(error) if namespace_ends(&error) => Err(error.into()),
            Err(error) => {
                let message = format!("Failed to create new replica set {name:?}: {error}");
                self.tools.recorder.event(deployment, EventType::Warning, "ReplicaSetCreateError", message.clone());
                Err(Failure::Refused { message, error })
            }
        }
    }

    /// Another template has the same hash, or the cache is behind: either way the next turn decides, with another hash if need be.
    async fn collision(
        &self,
        deployment: &Deployment,
        set: &ReplicaSet,
        error: client::Error,
    ) -> Result<Failure, client::Error> {
        let (namespace, name) = (set.metadata.namespace(), set.metadata.name());
        let live = self.tools.client.get::<ReplicaSet>(namespace, name).await?;
        let template = live.spec.template.as_ref();
        let same = template.is_some_and(|template| revisions::same_template(template, &deployment.spec.template));
        let owned = live.metadata.controller().is_some_and(|owner| owner.uid == deployment.metadata.uid());
        if owned && same {
            return Ok(Failure::Other(Error::Waiting(format!("replica set {name} is not in the cache yet"))));
        }
        Ok(Failure::Collision(error))
    }

    async fn update(&self, deployment: &Deployment, update: &Update) -> Result<(), client::Error> {
        let written = self.tools.client.update(&update.set).await?;
        self.echoes.wrote(&deployment.metadata.key(), &written);
        self.record_size(deployment, update.set.metadata.name(), update.before, sizes::size(&update.set));
        Ok(())
    }

    fn record_size(&self, deployment: &Deployment, set: &str, before: i32, after: i32) {
        if before != after {
            let way = if before < after { "up" } else { "down" };
            let message = format!("Scaled {way} replica set {set} from {before} to {after}");
            self.tools.recorder.event(deployment, EventType::Normal, "ScalingReplicaSet", message);
        }
    }

    /// Writes the status, and with it the annotation that names the revision.
    async fn report(&self, known: &Deployment, report: &Deployment) -> Result<(), client::Error> {
        if known.status != report.status || known.metadata.annotations != report.metadata.annotations {
            self.tools.client.update_status(report).await?;
        }
        Ok(())
    }
}
