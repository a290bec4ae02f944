//! What a pod asks of the node, and how that is said to the kernel.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use node::cgroups::Limits;
use node::cri::v1;

use super::spec;
use rules::qos::{self, Class};

/// Fewest shares the kernel takes.
const MIN_SHARES: i64 = 2;
/// Most shares the kernel takes.
const MAX_SHARES: i64 = 262_144;
/// Microseconds of a scheduling period.
pub const PERIOD: i64 = 100_000;
/// Shortest run time per period the kernel takes.
const MIN_QUOTA: i64 = 1000;

type List = BTreeMap<String, Quantity>;

/// A quantity in thousandths; zero when it does not parse, which the API server does not let happen.
pub fn milli(quantity: &Quantity) -> i64 {
    quantity.0.parse::<machinery::quantity::Quantity>().map_or(0, |quantity| quantity.milli_value())
}

/// A quantity, rounded up to a whole number.
pub fn value(quantity: &Quantity) -> i64 {
    quantity.0.parse::<machinery::quantity::Quantity>().map_or(0, |quantity| quantity.value())
}

fn requests(container: &Container) -> Option<&List> {
    container.resources.as_ref().and_then(|resources| resources.requests.as_ref())
}

fn limits(container: &Container) -> Option<&List> {
    container.resources.as_ref().and_then(|resources| resources.limits.as_ref())
}

/// Processor weight for a request in thousandths of a processor.
pub fn shares(milli_cpu: i64) -> i64 {
    (milli_cpu * 1024 / 1000).clamp(MIN_SHARES, MAX_SHARES)
}

/// Run time per period for a limit in thousandths of a processor; zero for none.
pub fn quota(milli_cpu: i64, period: i64) -> i64 {
    if milli_cpu == 0 { 0 } else { (milli_cpu * period / 1000).max(MIN_QUOTA) }
}

/// What the containers of a pod ask for together: those that run at the same time added up, init containers as their
/// greatest need, sidecars from their place on.
pub fn total(pod: &Pod, name: &str, of: impl Fn(&Container) -> Option<&List>, unit: impl Fn(&Quantity) -> i64) -> i64 {
    let need = |container: &Container| of(container).and_then(|list| list.get(name)).map_or(0, &unit);
    let regular: i64 = spec::containers(pod).iter().map(&need).sum();
    let (mut sidecars, mut peak) = (0, 0);
    for container in spec::init_containers(pod) {
        if spec::is_sidecar(container) {
            sidecars += need(container);
            peak = peak.max(sidecars);
        } else {
            peak = peak.max(sidecars + need(container));
        }
    }
    let overhead = pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref()).and_then(|o| o.get(name)).map_or(0, &unit);
    (regular + sidecars).max(peak) + overhead
}

/// A pod's request of a resource, in thousandths.
pub fn request_milli(pod: &Pod, name: &str) -> i64 {
    pod_level(pod, name, true).map_or_else(|| total(pod, name, requests, milli), milli)
}

/// A pod's request of a resource.
pub fn request(pod: &Pod, name: &str) -> i64 {
    pod_level(pod, name, true).map_or_else(|| total(pod, name, requests, value), value)
}

/// Resources beside the usual ones that containers of the pod ask for.
pub fn further(pod: &Pod) -> impl Iterator<Item = &str> {
    let containers = spec::init_containers(pod).iter().chain(spec::containers(pod));
    let names: BTreeSet<&str> = containers.filter_map(requests).flat_map(BTreeMap::keys).map(String::as_str).collect();
    names.into_iter().filter(|name| !matches!(*name, "cpu" | "memory" | "ephemeral-storage"))
}

fn pod_level<'a>(pod: &'a Pod, name: &str, request: bool) -> Option<&'a Quantity> {
    let resources = pod.spec.as_ref()?.resources.as_ref()?;
    if request { resources.requests.as_ref()?.get(name) } else { resources.limits.as_ref()?.get(name) }
}

/// A pod's limit of a resource, in the given unit: there is one only when every container has one.
fn limit(pod: &Pod, name: &str, unit: impl Fn(&Quantity) -> i64 + Copy) -> Option<i64> {
    if let Some(quantity) = pod_level(pod, name, false) {
        return Some(unit(quantity));
    }
    let long_running =
        spec::containers(pod).iter().chain(spec::init_containers(pod).iter().filter(|c| spec::is_sidecar(c)));
    let all_limited = spec::init_containers(pod)
        .iter()
        .chain(long_running)
        .all(|container| limits(container).is_some_and(|list| list.get(name).is_some_and(|q| unit(q) != 0)));
    all_limited.then(|| total(pod, name, limits, unit))
}

/// A pod's limit of a resource, added up over those of its containers that have one; nothing when none has.
pub fn any_limit(pod: &Pod, name: &str) -> Option<i64> {
    let mut all = spec::init_containers(pod).iter().chain(spec::containers(pod));
    all.any(|container| limits(container).is_some_and(|list| list.contains_key(name)))
        .then(|| total(pod, name, limits, value))
}

/// Limits of a pod's own cgroup.
pub fn pod_limits(pod: &Pod, pids: Option<i64>) -> Limits {
    let class = qos::class(pod);
    let cpu_limit = limit(pod, "cpu", milli);
    let memory_limit = limit(pod, "memory", value);
    let shares_of = |milli| u64::try_from(shares(milli)).unwrap_or(2);
    Limits {
        cpu_shares: Some(match class {
            Class::BestEffort => shares_of(0),
            _ => shares_of(request_milli(pod, "cpu")),
        }),
        cpu_quota: cpu_limit.map(|milli| quota(milli, PERIOD)),
        cpu_period: Some(PERIOD as u64),
        memory: memory_limit,
        pids,
    }
}

/// Limits of a container, as they are passed to the runtime.
pub fn container_limits(pod: &Pod, container: &Container, node_memory: i64) -> v1::LinuxContainerResources {
    let request = |name: &str| requests(container).and_then(|list| list.get(name));
    let limit = |name: &str| limits(container).and_then(|list| list.get(name)).or_else(|| pod_level(pod, name, false));
    let cpu_limit = limit("cpu").map_or(0, milli);
    // A container that only has a limit asks for all of it.
    let cpu_request = request("cpu").map_or(cpu_limit, milli);
    v1::LinuxContainerResources {
        cpu_shares: shares(cpu_request),
        cpu_quota: quota(cpu_limit, PERIOD),
        cpu_period: PERIOD,
        memory_limit_in_bytes: limit("memory").map_or(0, value),
        oom_score_adj: oom_score(pod, container, node_memory),
        hugepage_limits: hugepages(container),
        ..Default::default()
    }
}

fn hugepages(container: &Container) -> Vec<v1::HugepageLimit> {
    limits(container)
        .into_iter()
        .flatten()
        .filter_map(|(name, quantity)| {
            let size = name.strip_prefix("hugepages-")?.trim_end_matches('i');
            Some(v1::HugepageLimit { page_size: format!("{size}B"), limit: u64::try_from(value(quantity)).ok()? })
        })
        .collect()
}

/// Who goes first when memory runs out: the more of its request a container leaves unused, the later.
fn oom_score(pod: &Pod, container: &Container, node_memory: i64) -> i64 {
    const GUARANTEED: i64 = -997;
    const BEST_EFFORT: i64 = 1000;
    let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
    // From here on up priorities are the system's own; this one is that of what the node cannot do without.
    if priority >= 2_000_001_000 {
        return GUARANTEED;
    }
    match qos::class(pod) {
        Class::Guaranteed => GUARANTEED,
        Class::BestEffort => BEST_EFFORT,
        Class::Burstable => {
            let need = |c: &Container| requests(c).and_then(|list| list.get("memory")).map_or(0, value);
            let score = |bytes: i64| 1000 - 1000 * bytes / node_memory.max(1);
            let mut adjusted = score(need(container));
            if spec::is_sidecar(container) {
                let least = spec::containers(pod).iter().map(need).min().unwrap_or(0);
                adjusted = adjusted.min(score(least));
            }
            match adjusted {
                score if score < 1000 + GUARANTEED => 1000 + GUARANTEED,
                BEST_EFFORT => BEST_EFFORT - 1,
                score => score,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};

    fn container(cpu: &str, memory: &str) -> Container {
        let list = |cpu: &str, memory: &str| {
            let pairs = [("cpu", cpu), ("memory", memory)].into_iter().filter(|(_, v)| !v.is_empty());
            Some(pairs.map(|(n, v)| (n.to_owned(), Quantity(v.to_owned()))).collect::<List>())
        };
        let (cpu_request, cpu_limit) = cpu.split_once('/').unwrap();
        let (memory_request, memory_limit) = memory.split_once('/').unwrap();
        let resources = ResourceRequirements {
            requests: list(cpu_request, memory_request),
            limits: list(cpu_limit, memory_limit),
            claims: None,
        };
        Container { resources: Some(resources), ..Default::default() }
    }

    fn pod(init: Vec<Container>, regular: Vec<Container>) -> Pod {
        let spec = PodSpec { init_containers: Some(init), containers: regular, ..Default::default() };
        Pod { spec: Some(spec), ..Default::default() }
    }

    #[test]
    fn a_pod_asks_for_the_most_it_ever_needs_at_once() {
        let sidecar = Container { restart_policy: Some("Always".into()), ..container("100m/", "/") };
        let init = vec![sidecar, container("1/", "/")];
        assert_eq!(request_milli(&pod(init.clone(), vec![container("200m/", "/")]), "cpu"), 1100);
        assert_eq!(request_milli(&pod(init, vec![container("2/", "/")]), "cpu"), 2100);
    }

    #[test]
    fn a_pod_is_limited_only_when_all_its_containers_are() {
        let limits = pod_limits(&pod(vec![], vec![container("/1", "/1Gi"), container("/500m", "/")]), Some(10));
        assert_eq!((limits.cpu_quota, limits.memory, limits.pids), (Some(150_000), None, Some(10)));
    }

    #[test]
    fn containers_are_told_to_the_runtime_in_the_kernels_units() {
        let one = container("500m/1", "256Mi/512Mi");
        let limits = container_limits(&pod(vec![], vec![one.clone()]), &one, 1 << 30);
        assert_eq!(limits.cpu_shares, 512);
        assert_eq!((limits.cpu_quota, limits.cpu_period), (100_000, 100_000));
        assert_eq!(limits.memory_limit_in_bytes, 512 << 20);
        assert_eq!(limits.oom_score_adj, 750);
        let bare = container("/", "/");
        let limits = container_limits(&pod(vec![], vec![bare.clone()]), &bare, 1 << 30);
        assert_eq!((limits.cpu_shares, limits.cpu_quota, limits.oom_score_adj), (2, 0, 1000));
    }
}
