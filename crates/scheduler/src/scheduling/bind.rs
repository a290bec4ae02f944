//! From a node found to a pod bound, or back into the queue.

use std::sync::Arc;

use jiff::Timestamp;

use super::{BindJob, Effect, PreemptJob, Profiles, Scheduler, Under, judge, seconds};
use crate::framework::api::ApiFailure;
use crate::framework::{ClusterEvent, Code, Diagnosis, PermitOutcome, PluginId, PluginSet, Profile, Rejection, Work};
use crate::metrics::{Attempt as AttemptResult, Point, Status};
use crate::model::node::NodeIdx;
use crate::model::pod::PodInfo;
use crate::queue::{Nomination, QueuedPod};
use crate::scheduling::status;

impl Scheduler {
    /// Assumes the pod on its node and sets the binding in motion.
    pub(super) fn commit(&mut self, queued: QueuedPod, profile: Arc<Profile>, idx: NodeIdx, now: Timestamp) {
        let info = queued.info.clone();
        if let Err(error) = self.cluster.assume(info.clone(), idx) {
            return self.fail(
                queued,
                &profile,
                Rejection::error(error.to_string()),
                Nomination::Set(String::new()),
                now,
            );
        }
        self.queue.nominator.remove(info.uid());
        let under = Under {
            latest: Some(info.clone()),
            pod: queued,
            profile: profile.clone(),
            node: idx,
            node_name: self.cluster.node(idx).shared_name().clone(),
            waits: Vec::new(),
            waited: false,
            job: None,
            began: now,
        };
        if let Err(rejection) = self.reserve_and_permit(under, now) {
            self.unreserve(&info, &profile);
            self.cluster.forget(info.uid());
            let Some(under) = self.under_way.remove(info.uid()) else { return };
            self.fail_late(under, rejection, now);
        }
    }

    fn reserve_and_permit(&mut self, mut under: Under, now: Timestamp) -> Result<(), Rejection> {
        let (info, profile) = (under.pod.info.clone(), under.profile.clone());
        let node = self.cluster.node(under.node);
        let (state, cycle) = (&mut self.algorithm.state, &mut self.algorithm.cycle);
        let refused = |outcome: &Result<(), Rejection>| match outcome {
            Ok(()) => Status::Success,
            Err(rejection) => Status::Rejected(rejection.code),
        };
        cycle.restart();
        let mut reserve = || {
            for at in &profile.reserve {
                let run = || at.plugin.reserve(state, &info, node, &self.cluster).map_err(|r| r.by(at.id));
                cycle.plugin(at.name, Point::Reserve, run, refused)?;
            }
            Ok(())
        };
        let reserved = reserve();
        cycle.point(Point::Reserve, refused(&reserved));
        let mut permit = || {
            for at in &profile.permit {
                let status = |outcome: &PermitOutcome| match outcome {
                    PermitOutcome::Allow => Status::Success,
                    PermitOutcome::Wait(_) => Status::Wait,
                    PermitOutcome::Reject(rejection) => Status::Rejected(rejection.code),
                };
                match cycle.plugin(at.name, Point::Permit, || at.plugin.permit(state, &info, node), status) {
                    PermitOutcome::Allow => {}
                    PermitOutcome::Wait(limit) => {
                        under.waits.push((at.id, now.saturating_add(limit).unwrap_or(Timestamp::MAX)))
                    }
                    PermitOutcome::Reject(rejection) => return Err(rejection.by(at.id)),
                }
            }
            Ok(())
        };
        let permitted = reserved.and_then(|()| permit());
        let status = match (&permitted, under.waits.is_empty()) {
            (Err(rejection), _) => Status::Rejected(rejection.code),
            (Ok(()), true) => Status::Success,
            (Ok(()), false) => Status::Wait,
        };
        cycle.point(Point::Permit, status);
        if let Err(rejection) = permitted {
            self.under_way.insert(info.uid().clone(), under);
            return Err(rejection);
        }
        let state = &self.algorithm.state;
        let mut works: Vec<(Point, &'static str, Work)> = Vec::new();
        for at in &profile.pre_bind {
            let work = at.plugin.pre_bind(state, &info, node, &self.cluster);
            works.extend(work.map(|work| (Point::PreBind, at.name, work)));
        }
        let name = node.shared_name().clone();
        under.waited = !under.waits.is_empty();
        // What takes its time is announced, so that others keep the room free.
        if !works.is_empty() || !under.waits.is_empty() {
            let nomination = Nomination::Set(name.to_string());
            if let Some(patch) = status::patch(&info, None, &nomination, self.clock.now()) {
                self.effects.push(Effect::PatchStatus { pod: info.clone(), patch });
            }
        }
        let by_extender = self.extenders.iter().filter(|e| e.is_interested(&info)).find_map(|e| e.bind(&info, &name));
        let by_extender = by_extender.map(|work| ("Extender", work));
        let by_plugin = || profile.bind.iter().find_map(|at| Some((at.name, at.plugin.bind(&info, &name)?)));
        works.extend(by_extender.or_else(by_plugin).map(|(name, work)| (Point::Bind, name, work)));
        under.job = Some(BindJob { pod: info.clone(), node: name, works });
        self.under_way.insert(info.uid().clone(), under);
        self.start_if_permitted(info.uid());
        Ok(())
    }

    fn start_if_permitted(&mut self, uid: &str) {
        let Some(under) = self.under_way.get_mut(uid) else { return };
        if under.waits.is_empty()
            && let Some(job) = under.job.take()
        {
            if under.waited {
                self.metrics.permit_wait(Status::Success, seconds(under.began, self.now()));
            }
            self.queue.done(uid);
            self.effects.push(Effect::Bind(job));
        }
    }

    /// A Permit plugin lets a waiting pod go.
    pub fn allow(&mut self, uid: &str, plugin: PluginId) {
        if let Some(under) = self.under_way.get_mut(uid) {
            under.waits.retain(|(id, _)| *id != plugin);
        }
        self.start_if_permitted(uid);
    }

    /// A Permit plugin refuses a waiting pod.
    pub fn reject(&mut self, uid: &str, plugin: PluginId, reason: String) {
        let Some(under) = self.under_way.get(uid).filter(|u| u.job.is_some()) else { return };
        let waited = seconds(under.began, self.now());
        self.metrics.permit_wait(Status::Rejected(Code::Unschedulable), waited);
        self.give_up(uid, Rejection::unschedulable(reason).by(plugin));
    }

    /// The pod is bound.
    pub fn bound(&mut self, uid: &str) {
        let Some(under) = self.under_way.remove(uid) else { return };
        let (info, now) = (under.pod.info.clone(), self.now());
        let node = &under.node_name;
        let note = format!("Successfully assigned {}/{} to {node}", info.namespace(), info.name());
        self.record(&info, None, false, "Scheduled", "Binding", note);
        if !under.profile.post_bind.is_empty() {
            for at in &under.profile.post_bind {
                at.plugin.post_bind(&info, node);
            }
            self.metrics.point(&under.profile.name, Point::PostBind, Status::Success, seconds(now, self.now()));
        }
        self.metrics.attempt(&under.profile.name, AttemptResult::Scheduled, seconds(under.began, now));
        self.metrics.scheduled(&under.pod, now);
    }

    /// The pod could not be bound.
    pub fn bind_failed(&mut self, uid: &str, failure: &ApiFailure) {
        self.give_up(uid, Rejection::error(failure.to_string()));
    }

    /// The pod under way is being deleted or is gone: its room is free at once.
    pub(super) fn abandon(&mut self, uid: &str) {
        let waiting = self.under_way.get(uid).is_some_and(|u| u.job.is_some());
        if waiting {
            return self.give_up(uid, Rejection::unschedulable("removed"));
        }
        if let Some((info, idx)) = self.cluster.placed(uid).filter(|_| self.cluster.is_assumed(uid)) {
            let pod = Arc::new(info.on_node(self.cluster.node(idx).name()));
            self.cluster.forget(uid);
            self.dispatch(&ClusterEvent::assigned_pod_delete(pod));
        }
    }

    fn give_up(&mut self, uid: &str, rejection: Rejection) {
        let Some(under) = self.under_way.remove(uid) else { return };
        let (info, now) = (under.pod.info.clone(), self.now());
        self.unreserve(&info, &under.profile);
        let pod = Arc::new(info.on_node(&under.node_name));
        if self.cluster.forget(uid) {
            let event = ClusterEvent::assigned_pod_delete(pod);
            self.queue.on_event(&event, judge!(self), now, |other| other.uid() != info.uid());
        }
        self.fail_late(under, rejection, now);
    }

    pub(super) fn unreserve(&self, info: &PodInfo, profile: &Profile) {
        for at in profile.reserve.iter().rev() {
            at.plugin.unreserve(info);
        }
    }

    /// A failure after a node was found: the newest version of the pod is tried again, if there is one.
    fn fail_late(&mut self, under: Under, rejection: Rejection, now: Timestamp) {
        let Under { mut pod, profile, latest, .. } = under;
        let Some(latest) = latest else {
            self.queue.done(pod.info.uid());
            return;
        };
        pod.info = latest;
        let rejection = match rejection.is_rejection() {
            true => {
                let mut diagnosis = Diagnosis::default();
                diagnosis.reject_node(under.node, &rejection);
                (pod.rejectors, pod.pending) = (diagnosis.rejectors, diagnosis.pending);
                Rejection { reasons: smallvec::smallvec![diagnosis.message(1).into()], ..rejection }
            }
            false => {
                (pod.rejectors, pod.pending) = (PluginSet::default(), PluginSet::default());
                rejection
            }
        };
        self.fail(pod, &profile, rejection, Nomination::Set(String::new()), now);
    }

    pub(super) fn preempt(&mut self, preemptor: &Arc<PodInfo>, node: &str, victims: Vec<Arc<PodInfo>>) {
        let victims: Vec<_> = victims.into_iter().filter(|v| !v.is_terminating()).collect();
        if victims.is_empty() {
            return;
        }
        self.metrics.preemption(victims.len());
        // Victims that are not bound yet are turned back in memory; nothing of them is in the API.
        let (assumed, placed): (Vec<_>, Vec<_>) =
            victims.into_iter().partition(|v| self.under_way.get(v.uid()).is_some_and(|u| u.job.is_some()));
        for victim in assumed {
            let note = format!("Preempted by pod {} on node {node} (in kube-scheduler memory).", preemptor.uid());
            self.record(&victim, Some(preemptor.clone()), false, "Preempted", "Preempting", note);
            self.give_up(victim.uid(), Rejection::unschedulable("preempted").by(self.preemption_id));
        }
        let lower = self.queue.nominator.on(node).iter().filter(|p| p.priority < preemptor.priority);
        let displaced: Vec<_> = lower.cloned().collect();
        let Some(last) = placed.last() else { return };
        self.preempting.begin(preemptor.uid());
        self.last_victims.insert(preemptor.uid().clone(), last.uid().clone());
        self.effects.push(Effect::Preempt(PreemptJob {
            preemptor: preemptor.clone(),
            node: node.to_owned(),
            victims: placed,
            displaced,
        }));
    }

    /// The evictions for a pod are done, or failed. Those that are done are over once the last victim is seen to go: tried
    /// before, the pod would find it still there and evict once more. It is evicted last, so the others are gone then.
    pub fn preempted(&mut self, preemptor: &Arc<PodInfo>, failed: bool) {
        let last = self.last_victims.remove(preemptor.uid());
        match last.filter(|victim| !failed && self.is_staying(victim)) {
            Some(victim) => self.awaited.entry(victim).or_default().push(preemptor.clone()),
            None => self.end_preemption(preemptor, failed),
        }
    }

    fn is_staying(&self, uid: &str) -> bool {
        self.cluster.placed(uid).is_some_and(|(pod, _)| !pod.is_terminating())
    }

    /// Something was seen of a pod: perhaps others waited for it to go.
    pub(super) fn look_at_victim(&mut self, uid: &str) {
        if self.awaited.contains_key(uid) && !self.is_staying(uid) {
            for preemptor in self.awaited.remove(uid).into_iter().flatten() {
                self.end_preemption(&preemptor, false);
            }
        }
    }

    fn end_preemption(&mut self, preemptor: &Arc<PodInfo>, failed: bool) {
        self.preempting.end(preemptor.uid());
        // An event that came during the evictions was held back by the gate; a failure leaves nothing to wait for.
        if failed || self.queue.gated_by(preemptor.uid()) == Some(self.preemption_id) {
            let now = self.now();
            self.queue.activate(preemptor, judge!(self), now);
        }
    }
}
