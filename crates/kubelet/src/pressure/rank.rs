//! Who goes first when something runs out, and what is said about it.

use std::cmp::Reverse;

use k8s_openapi::api::core::v1::Pod;

use super::thresholds::{Observations, Signal, Threshold};
use crate::pod::{resources, spec};
use kubeletapi::stats::types::{ContainerStats, Fs, PodStats};

/// From this priority on a pod is the system's own.
const SYSTEM_CRITICAL: i32 = 2_000_000_000;

/// A pod that could be ended, and what it uses; nothing when that is not known.
#[derive(Debug)]
pub struct Candidate {
    pub pod: std::sync::Arc<Pod>,
    pub stats: Option<PodStats>,
}

/// Which disks' contents count for a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// What containers wrote beside their volumes.
    pub layers: bool,
    /// Logs and volumes of the node.
    pub files: bool,
}

impl Parts {
    /// With one disk everything counts; with a disk of their own, images and layers count there.
    pub fn of(signal: Signal, separate_images: bool) -> Self {
        let image_side = matches!(signal, Signal::ImageFs | Signal::ImageFsInodes);
        Self { layers: !separate_images || image_side, files: !separate_images || !image_side }
    }
}

/// A pod that is never ended for the sake of others.
pub fn is_critical(pod: &Pod) -> bool {
    spec::is_static(pod) || spec::is_mirror(pod) || priority(pod) >= SYSTEM_CRITICAL
}

fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// Puts candidates into the order in which they are ended.
pub fn rank(candidates: &mut [Candidate], signal: Signal, parts: Parts) {
    candidates.sort_by_cached_key(|candidate| {
        let pod = &*candidate.pod;
        let Some(stats) = &candidate.stats else {
            // Nobody knows what it uses: it goes first, among its priority where that comes first.
            let rank = if signal == Signal::Pid { priority(pod) } else { i32::MIN };
            return (false, rank, Reverse(i64::MAX));
        };
        let (used, asked) = match signal {
            Signal::Memory | Signal::AllocatableMemory => {
                let used = stats.memory.as_ref().map_or(0, |memory| memory.working_set_bytes);
                (signed(used), resources::request(pod, "memory"))
            }
            Signal::Pid => {
                let used = stats.process_stats.as_ref().map_or(0, |processes| processes.process_count);
                // Nobody asks for process numbers, so nobody exceeds what they asked for.
                return (false, priority(pod), Reverse(signed(used)));
            }
            Signal::NodeFs | Signal::ImageFs => {
                (signed(disk(pod, stats, parts, |fs| fs.used_bytes)), resources::request(pod, "ephemeral-storage"))
            }
            Signal::NodeFsInodes | Signal::ImageFsInodes => (signed(disk(pod, stats, parts, |fs| fs.inodes_used)), 0),
        };
        (used <= asked, priority(pod), Reverse(used - asked))
    });
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// What a pod takes of the disk.
fn disk(pod: &Pod, stats: &PodStats, parts: Parts, of: impl Fn(&Fs) -> u64) -> u64 {
    let mut sum = 0;
    for container in &stats.containers {
        sum += container.rootfs.as_ref().filter(|_| parts.layers).map_or(0, &of);
        sum += container.logs.as_ref().filter(|_| parts.files).map_or(0, &of);
    }
    let local = stats.volumes.iter().filter(|volume| parts.files && is_local(pod, &volume.name));
    sum + local.map(|volume| of(&volume.fs)).sum::<u64>()
}

/// Whether a volume lies on the node's own disk and goes with the pod.
fn is_local(pod: &Pod, name: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter(|volume| volume.name == name).any(|volume| {
        volume.config_map.is_some()
            || volume.empty_dir.as_ref().is_some_and(|source| source.medium.as_deref().unwrap_or_default() == "")
    })
}

/// Why a pod is ended, for its status and the event.
pub fn message(signal: Signal, candidate: &Candidate, met: &[Threshold], seen: &Observations) -> String {
    let resource = signal.resource();
    let mut text = format!("The node was low on resource: {resource}. ");
    let first = met.iter().find(|threshold| threshold.signal.resource() == resource);
    if let Some((threshold, seen)) = first.and_then(|threshold| Some((threshold, seen.get(&threshold.signal)?))) {
        let wanted = threshold.signal.amount(threshold.value.of(seen.capacity));
        let left = threshold.signal.amount(seen.available);
        text += &format!("Threshold quantity: {wanted}, available: {left}. ");
    }
    let Some(stats) = &candidate.stats else { return text };
    let pod = &*candidate.pod;
    let whole = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()?.requests.as_ref()?.get(resource));
    if let (Some(request), Some(memory), "memory") = (whole, &stats.memory, resource) {
        let used = signal.amount(signed(memory.working_set_bytes));
        let name = spec::name(pod);
        text +=
            &format!("Pod {name} was using {used}, request is {}, has larger consumption of {resource}. ", request.0);
    }
    for container in &stats.containers {
        let Some(member) =
            spec::containers(pod).iter().chain(spec::init_containers(pod)).find(|c| c.name == container.name)
        else {
            continue;
        };
        let Some(used) = used_by(container, resource) else { continue };
        let asked = member.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get(resource));
        if signed(used) > asked.map_or(0, resources::value) {
            let (name, used) = (&container.name, signal.amount(signed(used)));
            let asked = asked.map_or("0", |quantity| quantity.0.as_str());
            text += &format!(
                "Container {name} was using {used}, request is {asked}, has larger consumption of {resource}. "
            );
        }
    }
    text
}

fn used_by(container: &ContainerStats, resource: &str) -> Option<u64> {
    match resource {
        "memory" => container.memory.as_ref().map(|memory| memory.working_set_bytes),
        "ephemeral-storage" => Some(container.rootfs.as_ref()?.used_bytes + container.logs.as_ref()?.used_bytes),
        _ => None,
    }
}

/// Why a pod that takes more of the disk than it may must end, with the limit's name in figures; nothing when it keeps to
/// its limits.
pub fn over_limit(pod: &Pod, stats: &PodStats, separate_images: bool) -> Option<(&'static str, String)> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    for volume in volumes {
        let Some(source) = volume.empty_dir.as_ref().filter(|s| s.medium.as_deref().unwrap_or_default() == "") else {
            // One in memory is limited by the kernel.
            continue;
        };
        let Some(limit) = source.size_limit.as_ref().filter(|limit| resources::value(limit) > 0) else { continue };
        let used = stats.volumes.iter().find(|stats| stats.name == volume.name).map(|stats| stats.fs.used_bytes);
        if used.is_some_and(|used| signed(used) > resources::value(limit)) {
            let message = format!("Usage of EmptyDir volume {:?} exceeds the limit {:?}. ", volume.name, limit.0);
            return Some(("emptydirfs.limit", message));
        }
    }
    let used = stats.ephemeral_storage.as_ref().map_or(0, |fs| fs.used_bytes);
    if let Some(limit) = resources::any_limit(pod, "ephemeral-storage")
        && signed(used) > limit
    {
        let limit = Signal::NodeFs.amount(limit);
        let message = format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. ");
        return Some(("ephemeralpodfs.limit", message));
    }
    let sidecars = spec::init_containers(pod).iter().filter(|container| spec::is_sidecar(container));
    for container in spec::containers(pod).iter().chain(sidecars) {
        let limit = container.resources.as_ref().and_then(|r| r.limits.as_ref()?.get("ephemeral-storage"));
        let Some(limit) = limit.filter(|limit| resources::value(limit) != 0) else { continue };
        let Some(one) = stats.containers.iter().find(|stats| stats.name == container.name) else { continue };
        let logs = one.logs.as_ref().map_or(0, |fs| fs.used_bytes);
        let layer = one.rootfs.as_ref().filter(|_| !separate_images).map_or(0, |fs| fs.used_bytes);
        if signed(logs + layer) > resources::value(limit) {
            let name = &container.name;
            let message = format!("Container {name} exceeded its local ephemeral storage limit {:?}. ", limit.0);
            return Some(("ephemeralcontainerfs.limit", message));
        }
    }
    None
}

/// Whether a pod has any limit on what it takes of the disk.
pub fn is_limited(pod: &Pod) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.any(|volume| volume.empty_dir.as_ref().is_some_and(|source| source.size_limit.is_some()))
        || resources::any_limit(pod, "ephemeral-storage").is_some()
}

#[cfg(test)]
mod tests {
    use super::super::thresholds::{Observation, Value};
    use super::*;
    use jiff::Timestamp;
    use kubeletapi::stats::types::{Memory, PodReference, ProcessStats, VolumeStats};
    use serde_json::json;
    use std::time::Duration;

    fn memory(bytes: u64) -> Memory {
        Memory {
            time: Timestamp::UNIX_EPOCH,
            available_bytes: None,
            usage_bytes: bytes,
            working_set_bytes: bytes,
            rss_bytes: bytes,
            page_faults: 0,
            major_page_faults: 0,
        }
    }

    fn fs(bytes: u64) -> Fs {
        Fs {
            time: Timestamp::UNIX_EPOCH,
            available_bytes: 0,
            capacity_bytes: 0,
            used_bytes: bytes,
            inodes_free: 0,
            inodes: 0,
            inodes_used: 1,
        }
    }

    /// A pod with one container that uses so much of everything.
    fn candidate(name: &str, priority: i32, resources: serde_json::Value, used: Option<u64>) -> Candidate {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "uid": name},
            "spec": {"priority": priority, "containers": [{"name": "c", "resources": resources}],
                     "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]},
        }))
        .unwrap();
        let stats = used.map(|used| PodStats {
            pod_ref: PodReference { name: name.into(), namespace: "n".into(), uid: name.into() },
            start_time: Timestamp::UNIX_EPOCH,
            sandbox: String::new(),
            containers: vec![ContainerStats {
                name: "c".into(),
                start_time: Timestamp::UNIX_EPOCH,
                cpu: None,
                memory: Some(memory(used)),
                rootfs: Some(fs(used)),
                logs: Some(fs(0)),
                id: String::new(),
                image: String::new(),
                disk: String::new(),
            }],
            cpu: None,
            memory: Some(memory(used)),
            network: None,
            volumes: vec![VolumeStats { name: "v".into(), fs: fs(0), claim: None }],
            ephemeral_storage: Some(fs(used)),
            process_stats: Some(ProcessStats { process_count: used }),
        });
        Candidate { pod: pod.into(), stats }
    }

    fn order(mut candidates: Vec<Candidate>, signal: Signal) -> Vec<String> {
        rank(&mut candidates, signal, Parts::of(signal, false));
        candidates.iter().map(|candidate| spec::name(&candidate.pod).to_owned()).collect()
    }

    #[test]
    fn who_takes_more_than_asked_for_goes_first() {
        let asks = |bytes: u64| json!({"requests": {"memory": bytes.to_string()}});
        let all = || {
            vec![
                candidate("modest", 0, asks(100), Some(50)),
                candidate("important", 10, json!({}), Some(500)),
                candidate("greedy", 0, asks(100), Some(400)),
                candidate("greedier", 0, json!({}), Some(400)),
                candidate("unknown", 5, json!({}), None),
            ]
        };
        assert_eq!(order(all(), Signal::Memory), ["unknown", "greedier", "greedy", "important", "modest"]);
        assert_eq!(order(all(), Signal::Pid), ["greedy", "greedier", "modest", "unknown", "important"]);
    }

    #[test]
    fn messages_say_what_was_short_and_who_took_it() {
        let threshold =
            Threshold { signal: Signal::Memory, value: Value::Amount(100 << 20), grace: Duration::ZERO, reclaim: None };
        let seen: Observations = [(Signal::Memory, Observation { available: 50 << 20, capacity: 1 << 30 })].into();
        let one = candidate("p", 0, json!({"requests": {"memory": "1Mi"}}), Some(2 << 20));
        assert_eq!(
            message(Signal::Memory, &one, &[threshold], &seen),
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
             Container c was using 2Mi, request is 1Mi, has larger consumption of memory. "
        );
    }

    #[test]
    fn limits_on_the_disk_are_checked_in_order() {
        let over = |candidate: &Candidate| {
            over_limit(&candidate.pod, candidate.stats.as_ref().unwrap(), false).map(|(_, message)| message)
        };
        let limited = json!({"limits": {"ephemeral-storage": "1Ki"}});
        assert_eq!(over(&candidate("p", 0, limited.clone(), Some(1024))), None);
        assert_eq!(
            over(&candidate("p", 0, limited.clone(), Some(1025))).as_deref(),
            Some("Pod ephemeral local storage usage exceeds the total limit of containers 1Ki. ")
        );
        let mut one = candidate("p", 0, limited, Some(1025));
        one.stats.as_mut().unwrap().ephemeral_storage = None;
        assert_eq!(over(&one).as_deref(), Some("Container c exceeded its local ephemeral storage limit \"1Ki\". "));
        one.stats.as_mut().unwrap().volumes[0].fs.used_bytes = (1 << 20) + 1;
        assert_eq!(over(&one).as_deref(), Some("Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". "));
    }

    #[test]
    fn what_the_node_cannot_do_without_stays() {
        assert!(!is_critical(&candidate("p", 1_999_999_999, json!({}), None).pod));
        assert!(is_critical(&candidate("p", 2_000_000_000, json!({}), None).pod));
    }
}
