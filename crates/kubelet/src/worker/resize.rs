//! Changing what a running pod has: first whether the node has it, then the cgroup, then the containers.

use std::sync::Arc;
use std::time::Instant;

use informer::EventType;
use k8s_openapi::api::core::v1::Pod;
use node::cgroups::Limits;
use node::cri::v1;

use super::Worker;
use super::sync::Step;
use crate::admission;
use crate::pod::allocation::{Allocation, Change, summary};
use crate::pod::plan::{Cause, Start};
use crate::pod::state::Life;
use crate::pod::{resources, spec};
use crate::status::Resize;
use crate::volumes::pod_dir;

impl Worker {
    /// The pod as it was granted; what it asks for beyond that is looked at with the next turn.
    pub(super) fn take(&mut self, pod: &Arc<Pod>) {
        self.pod = self.allocation.as_ref().map_or_else(|| pod.clone(), |allocation| allocation.apply(pod));
    }

    /// Grants what the pod asks for, if the node has it. At its beginning a pod has been granted all it asks for.
    pub(super) fn allocate(&mut self) {
        let asked = self.orders.borrow().pod.clone();
        let shared = self.shared.clone();
        let dir = pod_dir(&shared.settings.root, self.uid());
        let Some(allocation) = &mut self.allocation else {
            let allocation = Allocation::read(&dir).unwrap_or_else(|| {
                let all = Allocation::of(&asked);
                save(&all, &dir, &asked);
                all
            });
            self.allocation = Some(allocation);
            self.take(&asked);
            shared.allocations.set(self.pod.clone());
            return self.allocate();
        };
        if !allocation.differs(&asked) {
            self.resize.pending = None;
            shared.allocations.settled(spec::uid(&asked));
            return;
        }
        let node = shared.me.get(&informer::Key::cluster(&shared.facts().node_name));
        let refusal = |pod: &Pod, others: &[Arc<Pod>]| admission::refusal(pod, others, node.as_deref());
        if let Err(verdict) = shared.allocations.grant(&asked, &self.news, refusal) {
            let news = self.resize.pending.as_ref().is_none_or(|(_, message)| *message != verdict.message);
            if news {
                let text = summary(&format!("Pod resize {}", verdict.reason), &asked, &verdict.message);
                shared.event(&asked, EventType::Warning, "ResizeDeferred", text);
            }
            self.resize.pending = Some(("Deferred".to_owned(), verdict.message));
            return;
        }
        allocation.grant(&asked);
        save(allocation, &dir, &asked);
        self.take(&asked);
        self.resize = Resize { pending: None, progress: Some(None) };
        shared.allocations.set(self.pod.clone());
        shared.event(&asked, EventType::Normal, "ResizeStarted", summary("Pod resize started", &asked, ""));
    }

    /// Notes what a container that was made just now runs with.
    pub(super) fn note_resources(&mut self, id: &str, name: &str) {
        let member = spec::member(&self.pod, name);
        let resources = member.and_then(|member| member.container.resources.clone());
        let dir = pod_dir(&self.shared.settings.root, self.uid());
        if let Some(allocation) = &mut self.allocation {
            allocation.note(id, resources.as_ref());
            save(allocation, &dir, &self.pod);
        }
    }

    /// Brings what is in force to what was granted. Nothing to do is nothing returned.
    pub(super) async fn actuate(&mut self) -> Option<Step> {
        let allocation = self.allocation.as_ref()?;
        let mut changes = Vec::new();
        for member in spec::members(&self.pod).filter(|member| member.kind != spec::Kind::Ephemeral) {
            let running = self.state.active(&member.container.name).filter(|c| c.life == Life::Running);
            if let Some(running) = running
                && let Some(change) = allocation.change(&running.id, &member.container)
            {
                let start = Start { kind: member.kind, index: member.index };
                changes.push((running.id.clone(), member.container.name.clone(), start, change));
            }
        }
        if changes.is_empty() {
            if self.resize.progress.is_some() {
                if let Err(why) = self.change_group().await {
                    return Some(self.resize_failed(&why));
                }
                self.resize.progress = None;
                let text = summary("Pod resize completed", &self.pod, "");
                self.shared.event(&self.pod, EventType::Normal, "ResizeCompleted", text);
                self.report(false);
            }
            return None;
        }
        self.resize.progress.get_or_insert(None);
        self.report(false);
        match self.change_all(&changes).await {
            Ok(None) => Some(Step::Again),
            Ok(Some(step)) => Some(step),
            Err(why) => Some(self.resize_failed(&why)),
        }
    }

    fn resize_failed(&mut self, why: &str) -> Step {
        let news = self.resize.progress.as_ref().is_none_or(|before| before.as_deref() != Some(why));
        if news {
            let text = summary("Pod resize error", &self.pod, why);
            self.shared.event(&self.pod, EventType::Warning, "ResizeError", text);
        }
        self.resize.progress = Some(Some(why.to_owned()));
        self.report(false);
        Step::Wait(Some(super::sync::AGAIN))
    }

    async fn change_all(&mut self, changes: &[(String, String, Start, Change)]) -> Result<Option<Step>, String> {
        let pod = self.pod.clone();
        let memory = self.shared.facts().memory;
        let mut in_place = Vec::new();
        for (id, name, ..) in changes.iter().filter(|(.., change)| *change == Change::InPlace) {
            let member = spec::member(&pod, name).ok_or("the container is gone")?;
            let limits = resources::container_limits(&pod, &member.container, memory);
            self.check_memory(id, name, &limits).await?;
            in_place.push((id, name, limits));
        }
        // Room first, so that no container's limit exceeds its pod's on the way; then the containers; then the rest.
        let target = resources::pod_limits(&pod, self.shared.settings.pod_pids);
        self.check_pod_memory(&target)?;
        self.limit_pod(&self.room(&target)).await?;
        for (id, name, limits) in in_place {
            self.shared.runtime.update_resources(id, limits).await.map_err(|error| error.to_string())?;
            self.note_resources(id, name);
        }
        self.follow(changes).await?;
        let mut starts = Vec::new();
        for (id, name, start, _) in changes.iter().filter(|(.., change)| *change == Change::Restart) {
            let message = format!("Container {name} resize requires restart");
            self.stopper().one(id, name, &message, Cause::Other, None).await.map_err(|error| error.to_string())?;
            starts.push(*start);
        }
        self.limit_pod(&with_unlimited(target)).await?;
        if starts.is_empty() {
            return Ok(None);
        }
        self.read().await.map_err(|error| error.to_string())?;
        Ok(Some(self.start_all(&starts).await))
    }

    /// Gives the pod's group what the pod was granted: one without containers to tell has a group of its own all the same.
    async fn change_group(&self) -> Result<(), String> {
        let target = resources::pod_limits(&self.pod, self.shared.settings.pod_pids);
        self.check_pod_memory(&target)?;
        self.shared.share_processors().await.map_err(|error| error.to_string())?;
        self.limit_pod(&self.room(&target)).await?;
        self.follow(&[]).await?;
        self.limit_pod(&with_unlimited(target)).await
    }

    /// The limits of the pod's group while its containers change. Of a pod that says them as a whole nobody knows what they were.
    fn room(&self, target: &Limits) -> Limits {
        if self.has_whole() {
            return Limits { cpu_quota: Some(-1), memory: Some(-1), ..target.clone() };
        }
        widest(&self.pod_limits_in_force(), target)
    }

    fn has_whole(&self) -> bool {
        self.pod.spec.as_ref().is_some_and(|spec| spec.resources.is_some())
    }

    /// Containers that say no limit have that of their pod, and the kernel takes no limit of a group below one inside of it.
    /// Those that change themselves are not its business.
    async fn follow(&self, changes: &[(String, String, Start, Change)]) -> Result<(), String> {
        if !self.has_whole() {
            return Ok(());
        }
        let memory = self.shared.facts().memory;
        for member in spec::members(&self.pod).filter(|member| member.kind != spec::Kind::Ephemeral) {
            let running = self.state.active(&member.container.name).filter(|c| c.life == Life::Running);
            if let Some(running) = running.filter(|running| changes.iter().all(|(id, ..)| *id != running.id)) {
                let limits = resources::container_limits(&self.pod, &member.container, memory);
                let updated = self.shared.runtime.update_resources(&running.id, limits).await;
                updated.map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    /// As [`Worker::check_memory`], for the pod as a whole.
    fn check_pod_memory(&self, target: &Limits) -> Result<(), String> {
        let used = self.shared.cgroups.as_ref().and_then(|cgroups| cgroups.usage(&self.shared.cgroup(&self.pod)));
        match (target.memory, used.and_then(|usage| i64::try_from(usage.memory).ok())) {
            (Some(limit), Some(used)) if limit > 0 && used > limit => {
                Err(format!("attempting to set pod memory limit ({limit}) below current usage ({used})"))
            }
            _ => Ok(()),
        }
    }

    /// A limit below what is used would have the kernel kill somebody.
    async fn check_memory(&self, id: &str, name: &str, limits: &v1::LinuxContainerResources) -> Result<(), String> {
        let limit = limits.memory_limit_in_bytes;
        if limit <= 0 {
            return Ok(());
        }
        let filter = v1::ContainerStatsFilter { id: id.to_owned(), ..Default::default() };
        let stats = self.shared.runtime.container_stats(filter).await.map_err(|error| error.to_string())?;
        let used = stats.first().and_then(|stats| stats.memory.as_ref()?.working_set_bytes.as_ref()).map(|v| v.value);
        match used.and_then(|used| i64::try_from(used).ok()) {
            Some(used) if used > limit => {
                Err(format!("attempting to set container {name:?} memory limit ({limit}) below current usage ({used})"))
            }
            _ => Ok(()),
        }
    }

    /// The limits of the pod's group while its containers have what they have.
    fn pod_limits_in_force(&self) -> Limits {
        let mut pod = Pod::clone(&self.pod);
        if let (Some(spec), Some(allocation)) = (&mut pod.spec, &self.allocation) {
            for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
                let running = self.state.active(&container.name);
                if let Some(present) = running.and_then(|running| allocation.in_force(&running.id)) {
                    container.resources = Some(present.clone());
                }
            }
        }
        resources::pod_limits(&pod, self.shared.settings.pod_pids)
    }

    async fn limit_pod(&self, limits: &Limits) -> Result<(), String> {
        let Some(cgroups) = &self.shared.cgroups else { return Ok(()) };
        let begun = Instant::now();
        let updated = cgroups.update(&self.shared.cgroup(&self.pod), limits).await;
        self.shared.figures.cgroups.observe(&["update"], begun.elapsed().as_secs_f64());
        updated.map_err(|error| error.to_string())
    }
}

fn save(allocation: &Allocation, dir: &std::path::Path, pod: &Pod) {
    if let Err(error) = allocation.write(dir) {
        tracing::warn!(%error, pod = %spec::long_name(pod), "what the pod was given is not written down");
    }
}

/// A limit that is gone has to be taken away, which saying nothing about it would not do.
fn with_unlimited(limits: Limits) -> Limits {
    Limits { cpu_quota: limits.cpu_quota.or(Some(-1)), memory: limits.memory.or(Some(-1)), ..limits }
}

/// The wider of two limits, each by itself.
fn widest(a: &Limits, b: &Limits) -> Limits {
    let wider = |a: Option<i64>, b: Option<i64>| match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        _ => Some(-1),
    };
    Limits {
        cpu_shares: a.cpu_shares.max(b.cpu_shares),
        cpu_quota: wider(a.cpu_quota, b.cpu_quota),
        cpu_period: b.cpu_period,
        memory: wider(a.memory, b.memory),
        pids: b.pids,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_widened_before_they_are_narrowed() {
        let limits = |quota, memory| Limits { cpu_quota: quota, memory, ..Limits::default() };
        let wide = widest(&limits(Some(1), Some(10)), &limits(Some(2), None));
        assert_eq!((wide.cpu_quota, wide.memory), (Some(2), Some(-1)));
        let unlimited = with_unlimited(limits(None, Some(5)));
        assert_eq!((unlimited.cpu_quota, unlimited.memory), (Some(-1), Some(5)));
    }
}
