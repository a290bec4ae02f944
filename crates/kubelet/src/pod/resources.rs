//! What a pod asks of the node, and how that is said to the kernel.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use node::cgroups::Limits;
use node::cri::v1;
use serde_json::json;

use super::spec;
use rules::names::is_of_whole_pods;
use rules::pod_resources::Side;
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

/// What a pod asks for or may use of a resource, as [`rules::pod_resources::charged`] has it: what it says as a whole, or else what its containers
/// say together; and the overhead of its runtime class. A test holds the two to each other.
fn charged(pod: &Pod, name: &str, side: Side, unit: impl Fn(&Quantity) -> i64) -> i64 {
    let own = pod_level(pod, name, side).map_or_else(|| sum(pod, name, side, &unit), &unit);
    let overhead = pod.spec.as_ref().and_then(|spec| spec.overhead.as_ref()).and_then(|o| o.get(name)).map_or(0, &unit);
    own + overhead
}

/// The containers of a pod together: those that run at the same time added up, init containers as their greatest need, sidecars from
/// their place on.
fn sum(pod: &Pod, name: &str, side: Side, unit: impl Fn(&Quantity) -> i64) -> i64 {
    let need = |container: &Container| of(container, side).and_then(|list| list.get(name)).map_or(0, &unit);
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
    (regular + sidecars).max(peak)
}

fn of(container: &Container, side: Side) -> Option<&List> {
    match side {
        Side::Requests => requests(container),
        Side::Limits => limits(container),
    }
}

/// A pod's request of a resource, in thousandths.
pub fn request_milli(pod: &Pod, name: &str) -> i64 {
    charged(pod, name, Side::Requests, milli)
}

/// A pod's request of a resource.
pub fn request(pod: &Pod, name: &str) -> i64 {
    charged(pod, name, Side::Requests, value)
}

/// Resources beside the usual ones that containers of the pod ask for.
pub fn further(pod: &Pod) -> impl Iterator<Item = &str> {
    let containers = spec::init_containers(pod).iter().chain(spec::containers(pod));
    let names: BTreeSet<&str> = containers.filter_map(requests).flat_map(BTreeMap::keys).map(String::as_str).collect();
    names.into_iter().filter(|name| !matches!(*name, "cpu" | "memory" | "ephemeral-storage"))
}

fn pod_level<'a>(pod: &'a Pod, name: &str, side: Side) -> Option<&'a Quantity> {
    let resources = pod.spec.as_ref()?.resources.as_ref().filter(|_| is_of_whole_pods(name))?;
    let list = match side {
        Side::Requests => resources.requests.as_ref()?,
        Side::Limits => resources.limits.as_ref()?,
    };
    list.get(name)
}

/// A pod's limit of a resource, in the given unit: there is one only when every container has one.
fn limit(pod: &Pod, name: &str, unit: impl Fn(&Quantity) -> i64 + Copy) -> Option<i64> {
    if pod_level(pod, name, Side::Limits).is_some() {
        return Some(charged(pod, name, Side::Limits, unit));
    }
    let long_running =
        spec::containers(pod).iter().chain(spec::init_containers(pod).iter().filter(|c| spec::is_sidecar(c)));
    let all_limited = spec::init_containers(pod)
        .iter()
        .chain(long_running)
        .all(|container| limits(container).is_some_and(|list| list.get(name).is_some_and(|q| unit(q) != 0)));
    all_limited.then(|| charged(pod, name, Side::Limits, unit))
}

/// A pod's limit of a resource, added up over those of its containers that have one; nothing when none has.
pub fn any_limit(pod: &Pod, name: &str) -> Option<i64> {
    let mut all = spec::init_containers(pod).iter().chain(spec::containers(pod));
    all.any(|container| limits(container).is_some_and(|list| list.contains_key(name)))
        .then(|| charged(pod, name, Side::Limits, value))
}

/// What a pod asks for or may use, of every resource that it names, as [`rules::pod_resources::charged`] has it.
pub fn whole(pod: &Pod, side: Side) -> List {
    let Some(spec) = &pod.spec else { return List::new() };
    let holder =
        |container: &Container| json!({"resources": container.resources, "restartPolicy": container.restart_policy});
    let tree = json!({"spec": {
        "containers": spec.containers.iter().map(holder).collect::<Vec<_>>(),
        "initContainers": spec.init_containers.iter().flatten().map(holder).collect::<Vec<_>>(),
        "resources": spec.resources, "overhead": spec.overhead,
    }});
    let amounts = rules::pod_resources::charged(&tree, side).into_iter();
    amounts.map(|(name, amount)| (name, Quantity(amount.to_string()))).collect()
}

/// What the group of a running pod has: its share of the processor, and limits where the whole pod has some.
pub fn in_force(pod: &Pod) -> ResourceRequirements {
    let mut given = pod.spec.as_ref().and_then(|spec| spec.resources.clone()).unwrap_or_default();
    let mut take = |side: Side, name: &str| {
        let amount = whole(pod, side).remove(name);
        let list = match side {
            Side::Requests => &mut given.requests,
            Side::Limits => &mut given.limits,
        };
        if let Some(amount) = amount {
            list.get_or_insert_default().insert(name.to_owned(), amount);
        }
    };
    // Less than the kernel takes is no request.
    if request_milli(pod, "cpu") > MIN_SHARES {
        take(Side::Requests, "cpu");
    }
    take(Side::Requests, "memory");
    for (name, limited) in [("cpu", limit(pod, "cpu", milli)), ("memory", limit(pod, "memory", value))] {
        if limited.is_some() {
            take(Side::Limits, name);
        }
    }
    given
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
    let limit =
        |name: &str| limits(container).and_then(|list| list.get(name)).or_else(|| pod_level(pod, name, Side::Limits));
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
    fn what_a_group_has_is_told_in_the_words_of_the_api() {
        let mut pod = pod(vec![], vec![container("100m/1", "64Mi/1Gi"), container("50m/500m", "/")]);
        let told = |pod: &Pod| serde_json::to_value(in_force(pod)).expect("resources");
        let requests = json!({"cpu": "150m", "memory": "64Mi"});
        assert_eq!(told(&pod), json!({"requests": requests, "limits": {"cpu": "1500m"}}));
        assert_eq!(json!(whole(&pod, Side::Limits)), json!({"cpu": "1500m", "memory": "1Gi"}));
        let whole = json!({"requests": {"cpu": "1"}, "limits": {"memory": "2Gi"}});
        pod.spec.as_mut().expect("a specification").resources = serde_json::from_value(whole).ok();
        let requests = json!({"cpu": "1", "memory": "64Mi"});
        assert_eq!(told(&pod), json!({"requests": requests, "limits": {"cpu": "1500m", "memory": "2Gi"}}));
        assert_eq!(told(&Pod::default()), json!({}));
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

    /// Pods from a seed: with init containers, sidecars, resources of the whole pod, and overhead, each with and without.
    fn generated(seed: u64) -> Pod {
        use serde_json::{Map, Value, json};
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = move |most: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % most
        };
        let list = |next: &mut dyn FnMut(u64) -> u64| -> Value {
            let mut list = Map::new();
            if next(4) > 0 {
                list.insert("cpu".into(), json!(format!("{}m", next(2000))));
            }
            if next(4) > 0 {
                list.insert("memory".into(), json!(format!("{}Mi", next(500))));
            }
            Value::Object(list)
        };
        let container = |name: String, next: &mut dyn FnMut(u64) -> u64| json!({"name": name, "resources": {"requests": list(next), "limits": list(next)}});
        let regular: Vec<Value> = (0..=next(3)).map(|n| container(format!("c{n}"), &mut next)).collect();
        let mut init: Vec<Value> = (0..next(4)).map(|n| container(format!("i{n}"), &mut next)).collect();
        for container in &mut init {
            if next(2) == 0 {
                container["restartPolicy"] = json!("Always");
            }
        }
        let mut spec = json!({"containers": regular, "initContainers": init});
        if next(3) == 0 {
            spec["resources"] = json!({"requests": {"cpu": format!("{}m", next(9000))}, "limits": {"memory": format!("{}Mi", next(900))}});
        }
        if next(2) == 0 {
            spec["overhead"] = json!({"cpu": "70m", "memory": "20Mi"});
        }
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[test]
    fn a_node_counts_what_quotas_count() {
        use rules::pod_resources::charged;
        for seed in 0..2_000 {
            let pod = generated(seed);
            let tree = serde_json::to_value(&pod).unwrap();
            let asked = charged(&tree, Side::Requests);
            let cpu = asked.get("cpu").map_or(0, machinery::quantity::Quantity::milli_value);
            let memory = asked.get("memory").map_or(0, machinery::quantity::Quantity::value);
            assert_eq!((request_milli(&pod, "cpu"), request(&pod, "memory")), (cpu, memory), "{tree}");
            let most = charged(&tree, Side::Limits);
            if let Some(limit) = limit(&pod, "memory", value) {
                assert_eq!(Some(limit), most.get("memory").map(machinery::quantity::Quantity::value), "{tree}");
            }
        }
    }
}
