//! What a Deployment does in one turn: which ReplicaSets it creates, resizes and deletes, and what it says about itself then.
//!
//! A turn is one step of a rollout; each step changes ReplicaSets, whose echo brings the next turn.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use informer::EventType;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::revisions::{self, REVISION, ROLLBACK_TO};
use super::sizes::{self, Resize};
use super::status;
use crate::common::meta::MetaExt;

/// What a turn sees.
pub(super) struct Observed {
    pub(super) deployment: Arc<Deployment>,
    /// The ReplicaSets that are its own.
    pub(super) sets: Vec<Arc<ReplicaSet>>,
    /// The uids of those that have pods which have not ended. Only a Deployment that recreates its pods has to know.
    pub(super) running: BTreeSet<String>,
}

/// An event: its type, reason and message.
pub(super) type Message = (EventType, &'static str, String);

/// A ReplicaSet as it should be, and the size it has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Update {
    pub(super) set: ReplicaSet,
    pub(super) before: i32,
}

/// A Deployment that takes the template of an earlier revision over, or not; and the event about it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RollBack {
    pub(super) deployment: Deployment,
    pub(super) event: Message,
}

/// What a turn does, in this order, and what it reports.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub(super) event: Option<Message>,
    pub(super) create: Option<ReplicaSet>,
    pub(super) update: Vec<Update>,
    /// Old ReplicaSets that nobody will go back to.
    pub(super) delete: Vec<Arc<ReplicaSet>>,
    pub(super) roll_back: Option<RollBack>,
    /// The Deployment with its revision and status, if all of that succeeds.
    pub(super) report: Deployment,
    /// The same, if it does not.
    pub(super) report_failed: Deployment,
    pub(super) again: Option<Duration>,
}

impl Plan {
    /// Says what is decided, for the turn's span.
    pub(super) fn say(&self) {
        if let Some(set) = &self.create {
            hops::decided(format_args!("created ReplicaSet {} with {} pods", set.metadata.name(), sizes::size(set)));
        }
        for Update { set, before } in &self.update {
            let (name, size) = (set.metadata.name(), sizes::size(set));
            if size == *before {
                hops::decided(format_args!("updated ReplicaSet {name}"));
            } else {
                hops::decided(format_args!("scaled ReplicaSet {name} from {before} to {size}"));
            }
        }
        for set in &self.delete {
            hops::decided(format_args!("deleted ReplicaSet {}", set.metadata.name()));
        }
        if self.roll_back.is_some() {
            hops::decided(format_args!("rolled back"));
        }
    }

    /// Nothing is done, this is reported.
    fn only(report: Deployment) -> Self {
        Self {
            event: None,
            create: None,
            update: Vec::new(),
            delete: Vec::new(),
            roll_back: None,
            report_failed: report.clone(),
            report,
            again: None,
        }
    }
}

fn is_paused(deployment: &Deployment) -> bool {
    deployment.spec.paused == Some(true)
}

pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let mut deployment = Deployment::clone(&observed.deployment);
    if deployment.spec.selector == LabelSelector::default() {
        let message = "This deployment is selecting all pods. A non-empty selector is required.";
        status::note_observed(&mut deployment);
        let event = Some((EventType::Warning, "SelectingAll", message.to_owned()));
        return Plan { event, ..Plan::only(deployment) };
    }
    let (new, old) = revisions::split(&deployment, &observed.sets);
    if deployment.metadata.is_deleting() {
        deployment.status = Some(status::basic(&deployment, new.as_ref(), &old, now));
        return Plan::only(deployment);
    }
    let paused = is_paused(&deployment);
    status::note_pause(&mut deployment, paused, now);
    let turn = Turn { plan: Plan::only(deployment.clone()), deployment, new, old, refreshed: None, now };
    match revisions::rollback_requested(&turn.deployment) {
        Some(revision) if !paused => turn.roll_back(revision),
        _ if paused || sizes::was_resized(&turn.deployment, &observed.sets) => turn.resize(paused),
        _ if sizes::is_rolling(&turn.deployment) => turn.rolling_update(),
        _ => turn.recreate(&observed.running),
    }
}

/// A plan under construction.
struct Turn {
    /// With what is noted in its conditions so far.
    deployment: Deployment,
    /// The ReplicaSet with the Deployment's template.
    new: Option<Arc<ReplicaSet>>,
    old: Vec<Arc<ReplicaSet>>,
    /// The new one, brought up to date, where it has to be written.
    refreshed: Option<ReplicaSet>,
    plan: Plan,
    now: Timestamp,
}

impl Turn {
    fn resize(mut self, paused: bool) -> Plan {
        self.refresh_new();
        let (sizes, annotate) = sizes::resize(&self.deployment, self.new.as_ref(), &self.old);
        self.set_sizes(sizes, annotate);
        if paused && revisions::rollback_requested(&self.deployment).is_none() {
            self.plan.delete = revisions::surplus_history(&self.deployment, &self.old);
        }
        let status = status::basic(&self.deployment, self.new.as_ref(), &self.old, self.now);
        self.deployment.status = Some(status);
        self.finish()
    }

    fn rolling_update(mut self) -> Plan {
        self.refresh_or_create_new();
        let Some(new) = self.new.clone() else { return self.finish() };
        let (wanted, current) = (sizes::wanted(&self.deployment), sizes::size(&new));
        let grown = if current > wanted {
            wanted
        } else if !self.old.iter().all(|set| sizes::is_observed(set)) {
            // How many pods a ReplicaSet has that was just resized, nobody knows; its report brings the next turn.
            current
        } else {
            let all = sizes::total(self.old.iter().map(|set| sizes::footprint(set)).chain([current]));
            sizes::new_size(&self.deployment, all, current)
        };
        if grown == current {
            let shrunk = sizes::shrink(&self.deployment, &new, &self.old);
            if shrunk.is_empty() {
                self.clean_up();
            }
            self.set_sizes(shrunk, false);
        } else {
            self.set_sizes(vec![(new, grown)], false);
        }
        self.report_rollout()
    }

    /// Nothing new before all old pods are gone.
    fn recreate(mut self, running: &BTreeSet<String>) -> Plan {
        self.refresh_new();
        let is_large = |set: &&Arc<ReplicaSet>| sizes::size(set) > 0;
        let shrunk: Vec<Resize> = self.old.iter().filter(is_large).map(|set| (set.clone(), 0)).collect();
        if !shrunk.is_empty() {
            self.set_sizes(shrunk, false);
            return self.report_rollout();
        }
        let has_pods = |set: &Arc<ReplicaSet>| {
            set.status.as_ref().is_some_and(|status| status.replicas > 0) || running.contains(set.metadata.uid())
        };
        if self.old.iter().any(has_pods) {
            return self.report_rollout();
        }
        if self.new.is_none() {
            self.refresh_or_create_new();
        }
        let wanted = sizes::wanted(&self.deployment);
        let grown = self.new.iter().filter(|set| sizes::size(set) != wanted).map(|set| (set.clone(), wanted)).collect();
        self.set_sizes(grown, false);
        self.clean_up();
        self.report_rollout()
    }

    /// Takes the template of an old revision over and removes the request, whether it could be granted or not. A template that has no ReplicaSet yet
    /// gets one first, in a turn of its own: it may be what is gone back to.
    fn roll_back(mut self, revision: i64) -> Plan {
        self.refresh_or_create_new();
        if self.plan.create.is_some() {
            return self.finish();
        }
        let mut deployment = self.deployment.clone();
        let new = self.refreshed.clone().map(Arc::new).or(self.new.clone());
        let all: Vec<Arc<ReplicaSet>> = self.old.iter().cloned().chain(new).collect();
        let wanted = if revision == 0 { revisions::last_revision(&all) } else { Some(revision) };
        let target =
            wanted.and_then(|wanted| all.iter().find(|set| revisions::revision(&set.metadata) == Some(wanted)));
        let name = deployment.metadata.name().to_owned();
        let not_found = "DeploymentRollbackRevisionNotFound";
        let event = match (wanted, target) {
            (None, _) => (EventType::Warning, not_found, "Unable to find last revision.".to_owned()),
            (_, None) => (EventType::Warning, not_found, "Unable to find the revision to rollback to.".to_owned()),
            (Some(wanted), Some(set)) if take_over(&mut deployment, set) => {
                let message = format!("Rolled back deployment {name:?} to revision {wanted}");
                (EventType::Normal, "DeploymentRollback", message)
            }
            _ => {
                let message =
                    format!("The rollback revision contains the same template as current deployment {name:?}");
                (EventType::Warning, "DeploymentRollbackTemplateUnchanged", message)
            }
        };
        if let Some(annotations) = &mut deployment.metadata.annotations {
            annotations.remove(ROLLBACK_TO);
        }
        self.plan.roll_back = Some(RollBack { deployment, event });
        self.finish()
    }

    /// Brings the revision of the new ReplicaSet up to date, and the Deployment's with it.
    fn refresh_new(&mut self) {
        let Some(new) = &self.new else { return };
        let revision = revisions::next_revision(&self.old);
        self.refreshed = revisions::refreshed(&self.deployment, new, revision);
        if self.refreshed.is_none() {
            let revision = new.metadata.annotation(REVISION).unwrap_or_default();
            revisions::set_revision(&mut self.deployment, revision);
            status::note_found(&mut self.deployment, new.metadata.name(), self.now);
        }
    }

    fn refresh_or_create_new(&mut self) {
        if self.new.is_some() {
            return self.refresh_new();
        }
        let revision = revisions::next_revision(&self.old);
        let set = revisions::new_set(&self.deployment, &self.old, revision);
        revisions::set_revision(&mut self.deployment, &revision.to_string());
        status::note_created(&mut self.deployment, set.metadata.name(), self.now);
        self.new = Some(Arc::new(set.clone()));
        self.plan.create = Some(set);
    }

    /// Gives ReplicaSets their sizes, and with `annotate` the annotations that tell of them even where the size stays.
    fn set_sizes(&mut self, sizes: Vec<Resize>, annotate: bool) {
        let annotations = sizes::replicas_annotations(&self.deployment);
        for (set, size) in sizes {
            let before = sizes::size(&set);
            let is_new = self.new.as_ref().is_some_and(|new| new.metadata.uid == set.metadata.uid);
            let base = self.refreshed.as_ref().filter(|_| is_new).unwrap_or(&set);
            let annotated = annotations.iter().all(|(key, value)| base.metadata.annotation(key) == Some(value));
            if before == size && (!annotate || annotated) {
                continue;
            }
            let mut changed = base.clone();
            changed.metadata.annotations.get_or_insert_default().extend(annotations.clone());
            changed.spec.replicas = Some(size);
            if is_new {
                self.refreshed = None;
            }
            self.plan.update.push(Update { set: changed, before });
        }
    }

    fn clean_up(&mut self) {
        let known = self.deployment.status.clone().unwrap_or_default();
        if status::is_complete(&self.deployment, &known) {
            self.plan.delete = revisions::surplus_history(&self.deployment, &self.old);
        }
    }

    fn report_rollout(mut self) -> Plan {
        let status = status::rollout(&self.deployment, self.new.as_ref(), &self.old, self.now);
        self.plan.again = status::next_check(&self.deployment, &status, self.now);
        self.deployment.status = Some(status);
        self.finish()
    }

    fn finish(mut self) -> Plan {
        if let Some(set) = self.refreshed.take() {
            let before = sizes::size(&set);
            self.plan.update.push(Update { set, before });
        }
        // A Deployment whose template changes says nothing about the one it had.
        if self.plan.roll_back.is_none() {
            self.plan.report = self.deployment;
        }
        self.plan
    }
}

/// Whether the template was another one.
fn take_over(deployment: &mut Deployment, set: &ReplicaSet) -> bool {
    let Some(mut template) = set.spec.template.clone() else { return false };
    if revisions::same_template(&template, &deployment.spec.template) {
        return false;
    }
    if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
        labels.remove(revisions::HASH_LABEL);
    }
    deployment.spec.template = template;
    deployment.metadata.annotations = Some(revisions::rolled_back_annotations(&deployment.metadata, &set.metadata));
    true
}
