//! Amounts of compute resources as integers, and what a pod requests of them.
//!
//! CPU is counted in thousandths, everything else in whole units, both rounded up per container. Scalars are the
//! resources without a field of their own (extended resources, huge pages, attachable volumes); most pods have none, so
//! the list costs nothing until it is used.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodCondition, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use rules::names::{is_extended, is_huge_page};

/// CPU assumed for the scoring of a container that requests none.
pub const DEFAULT_MILLI_CPU: i64 = 100;
/// Memory assumed for the scoring of a container that requests none.
pub const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

type ResourceList = BTreeMap<String, Quantity>;

/// The whole number next to a quantity, away from zero; `None` when it is none.
pub fn whole(quantity: &Quantity) -> Option<i64> {
    quantity.0.parse::<machinery::quantity::Quantity>().ok().map(|q| q.value())
}

fn thousandths(quantity: &Quantity) -> Option<i64> {
    quantity.0.parse::<machinery::quantity::Quantity>().ok().map(|q| q.milli_value())
}

/// An amount of every resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resources {
    /// Thousandths of a core.
    pub milli_cpu: i64,
    pub memory: i64,
    pub ephemeral_storage: i64,
    scalars: Vec<(Arc<str>, i64)>,
}

impl Resources {
    /// Reads a list such as a node's `status.allocatable`; `pods` is returned apart, as it is a count of objects.
    pub fn from_list(list: Option<&ResourceList>) -> (Self, i64) {
        let mut resources = Self::default();
        let mut pods = 0;
        for (name, quantity) in list.into_iter().flatten() {
            match name.as_str() {
                "pods" => pods = whole(quantity).unwrap_or(0),
                _ => resources.set(name, amount(name, quantity)),
            }
        }
        (resources, pods)
    }

    fn set(&mut self, name: &str, amount: i64) {
        match name {
            "cpu" => self.milli_cpu = amount,
            "memory" => self.memory = amount,
            "ephemeral-storage" => self.ephemeral_storage = amount,
            _ if is_scalar(name) => match self.scalars.iter_mut().find(|(n, _)| &**n == name) {
                Some((_, held)) => *held = amount,
                None => self.scalars.push((name.into(), amount)),
            },
            _ => {}
        }
    }

    /// Adds `other`, or takes it away when `sign` is -1.
    pub fn add(&mut self, other: &Self, sign: i64) {
        self.milli_cpu += sign * other.milli_cpu;
        self.memory += sign * other.memory;
        self.ephemeral_storage += sign * other.ephemeral_storage;
        for (name, amount) in &other.scalars {
            match self.scalars.iter_mut().find(|(n, _)| n == name) {
                Some((_, held)) => *held += sign * amount,
                None => self.scalars.push((name.clone(), sign * amount)),
            }
        }
    }

    /// The amount of a scalar resource; zero when absent.
    pub fn scalar(&self, name: &str) -> i64 {
        self.scalars.iter().find(|(n, _)| &**n == name).map_or(0, |(_, amount)| *amount)
    }

    pub fn scalars(&self) -> &[(Arc<str>, i64)] {
        &self.scalars
    }

    /// The amount of any resource by name.
    pub fn get(&self, name: &str) -> i64 {
        match name {
            "cpu" => self.milli_cpu,
            "memory" => self.memory,
            "ephemeral-storage" => self.ephemeral_storage,
            _ => self.scalar(name),
        }
    }

    /// Whether nothing at all is requested.
    pub fn is_zero(&self) -> bool {
        self.milli_cpu == 0 && self.memory == 0 && self.ephemeral_storage == 0 && self.scalars.is_empty()
    }
}

fn amount(name: &str, quantity: &Quantity) -> i64 {
    let parsed = if name == "cpu" { thousandths(quantity) } else { whole(quantity) };
    parsed.unwrap_or(0)
}

/// Whether the scheduler accounts for the resource as a scalar.
pub fn is_scalar(name: &str) -> bool {
    is_extended(name)
        || is_huge_page(name)
        || name.contains("kubernetes.io/")
        || name.starts_with("attachable-volumes-")
}

/// A pod's requests in the three readings that scheduling needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// What filters compare and nodes account for.
    pub exact: Resources,
    /// CPU and memory with a default for containers that request none: what nodes account for scoring.
    pub non_zero: (i64, i64),
    /// The same as scoring sees it for the incoming pod, which differs only under pod-level resources.
    pub scoring: (i64, i64),
}

/// Computes the requests of a pod: containers, sidecars, init containers, pod-level resources, resizes and overhead.
pub fn pod_requests(pod: &Pod) -> PodRequests {
    let Some(spec) = pod.spec.as_ref() else { return PodRequests::default() };
    let status = pod.status.as_ref();
    let exact = aggregate(status, spec, &[]);
    let defaults = [("cpu", DEFAULT_MILLI_CPU), ("memory", DEFAULT_MEMORY)];
    let scoring = aggregate(status, spec, &defaults);
    let pod_level =
        spec.resources.as_ref().and_then(|r| r.requests.as_ref()).is_some_and(|r| r.keys().any(|k| is_pod_level(k)));
    let non_zero = if pod_level {
        let missing: Vec<_> = defaults.into_iter().filter(|(name, _)| find(&exact, name).is_none()).collect();
        aggregate(status, spec, &missing)
    } else {
        scoring.clone()
    };
    let pair = |list: &Amounts| (find(list, "cpu").unwrap_or(0), find(list, "memory").unwrap_or(0));
    let mut resources = Resources::default();
    for (name, amount) in &exact {
        resources.set(name, *amount);
    }
    PodRequests { exact: resources, non_zero: pair(&non_zero), scoring: pair(&scoring) }
}

/// Named amounts; lists are short, so a scan beats a map.
type Amounts<'a> = Vec<(&'a str, i64)>;

fn find(list: &Amounts, name: &str) -> Option<i64> {
    list.iter().find(|(n, _)| *n == name).map(|(_, amount)| *amount)
}

fn merge<'a>(into: &mut Amounts<'a>, from: &Amounts<'a>, combine: fn(i64, i64) -> i64) {
    for (name, amount) in from {
        match into.iter_mut().find(|(n, _)| n == name) {
            Some((_, held)) => *held = combine(*held, *amount),
            None => into.push((name, *amount)),
        }
    }
}

fn read(list: Option<&ResourceList>) -> Amounts<'_> {
    list.into_iter().flatten().map(|(name, q)| (name.as_str(), amount(name, q))).collect()
}

fn is_pod_level(name: &str) -> bool {
    name == "cpu" || name == "memory" || is_huge_page(name)
}

/// What a pod's spec asks for, by resource; CPU in thousandths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Declared {
    pub requests: Box<[(Box<str>, i64)]>,
    pub limits: Box<[(Box<str>, i64)]>,
}

/// The requests and limits of a pod as its spec has them, whatever became of a resize.
pub fn declared(spec: &PodSpec) -> Declared {
    let own = |amounts: Amounts<'_>| {
        let mut owned: Vec<_> = amounts
            .into_iter()
            .filter(|(_, amount)| *amount != 0)
            .map(|(name, amount)| (name.into(), amount))
            .collect();
        owned.sort_unstable();
        owned.into()
    };
    let mut limits = combined(spec, |c, _| read(c.resources.as_ref().and_then(|r| r.limits.as_ref())));
    let pod_level = read(spec.resources.as_ref().and_then(|r| r.limits.as_ref()));
    let pod_level = pod_level.into_iter().filter(|(name, _)| is_pod_level(name)).collect();
    merge(&mut limits, &pod_level, |_, pod_level| pod_level);
    // Overhead is limited only together with what runs on top of it.
    let mut overhead = read(spec.overhead.as_ref());
    overhead.retain(|(name, _)| find(&limits, name).is_some());
    merge(&mut limits, &overhead, |a, b| a + b);
    Declared { requests: own(aggregate(None, spec, &[])), limits: own(limits) }
}

/// The most that the containers of a pod need at any moment of its life. The second argument says whether a container is an
/// init container.
fn combined<'a>(spec: &'a PodSpec, of_container: impl Fn(&'a Container, bool) -> Amounts<'a>) -> Amounts<'a> {
    let mut total = Amounts::new();
    for container in &spec.containers {
        merge(&mut total, &of_container(container, false), |a, b| a + b);
    }
    // An init container runs beside the sidecars started before it; the pod needs the highest of these moments.
    let mut sidecars = Amounts::new();
    let mut peak = Amounts::new();
    for container in spec.init_containers.iter().flatten() {
        let amounts = of_container(container, true);
        let mut moment = sidecars.clone();
        merge(&mut moment, &amounts, |a, b| a + b);
        if container.restart_policy.as_deref() == Some("Always") {
            merge(&mut total, &amounts, |a, b| a + b);
            sidecars.clone_from(&moment);
        }
        merge(&mut peak, &moment, i64::max);
    }
    merge(&mut total, &peak, i64::max);
    total
}

fn aggregate<'a>(status: Option<&'a PodStatus>, spec: &'a PodSpec, defaults: &[(&'a str, i64)]) -> Amounts<'a> {
    let infeasible = status.and_then(|s| s.conditions.as_ref()).is_some_and(|c| c.iter().any(resize_is_infeasible));
    let of_container = |container: &'a Container, is_init: bool| {
        let statuses = status
            .and_then(|s| if is_init { s.init_container_statuses.as_ref() } else { s.container_statuses.as_ref() });
        let desired = read(container.resources.as_ref().and_then(|r| r.requests.as_ref()));
        let status = statuses.into_iter().flatten().find(|s| s.name == container.name);
        let mut requests = in_effect(desired, status, infeasible);
        for (name, amount) in defaults {
            if find(&requests, name).is_none() {
                requests.push((name, *amount));
            }
        }
        requests
    };
    let mut total = combined(spec, of_container);

    let desired = read(spec.resources.as_ref().and_then(|r| r.requests.as_ref()));
    let mut pod_level: Amounts = desired.into_iter().filter(|(name, _)| is_pod_level(name)).collect();
    if !pod_level.is_empty()
        && let Some(status) = status
        && let Some(actual) = status.resources.as_ref()
    {
        if infeasible {
            pod_level.clear();
        }
        merge(&mut pod_level, &read(actual.requests.as_ref()), i64::max);
        merge(&mut pod_level, &read(status.allocated_resources.as_ref()), i64::max);
        pod_level.retain(|(name, _)| is_pod_level(name));
    }
    merge(&mut total, &pod_level, |_, pod_level| pod_level);
    merge(&mut total, &read(spec.overhead.as_ref()), |a, b| a + b);
    total
}

/// While a resize is under way the node must hold the largest of what is wanted, granted and running.
fn in_effect<'a>(desired: Amounts<'a>, status: Option<&'a ContainerStatus>, infeasible: bool) -> Amounts<'a> {
    let Some((status, actual)) = status.and_then(|s| Some((s, s.resources.as_ref()?))) else { return desired };
    let mut requests = if infeasible { Amounts::new() } else { desired };
    merge(&mut requests, &read(actual.requests.as_ref()), i64::max);
    merge(&mut requests, &read(status.allocated_resources.as_ref()), i64::max);
    requests
}

fn resize_is_infeasible(condition: &PodCondition) -> bool {
    condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, pod};
    use k8s_openapi::api::core::v1::ResourceRequirements;

    #[test]
    fn requests_sum_containers_and_take_the_peak_of_init_containers() {
        let requests = pod_requests(
            &pod("p")
                .with(container("a").cpu("100m").memory("1Ki"))
                .with(container("b").cpu("200m"))
                .with_init(container("i").cpu("1"))
                .build(),
        );
        assert_eq!((requests.exact.milli_cpu, requests.exact.memory), (1000, 1024));
        // The default memory of container `b` counts for scoring only.
        assert_eq!(requests.non_zero.1, 1024 + DEFAULT_MEMORY);
    }

    #[test]
    fn sidecars_count_with_containers_and_with_later_init_containers() {
        let requests = pod_requests(
            &pod("p")
                .with(container("a").cpu("100m"))
                .with_init(container("sidecar").cpu("200m").always())
                .with_init(container("i").cpu("250m"))
                .build(),
        );
        assert_eq!(requests.exact.milli_cpu, 450, "init beside sidecar exceeds container beside sidecar");
    }

    #[test]
    fn pod_level_requests_override_and_overhead_adds() {
        let requests = pod_requests(
            &pod("p")
                .with(container("a").cpu("100m").memory("10"))
                .pod_level("cpu", "2")
                .overhead("cpu", "50m")
                .build(),
        );
        assert_eq!((requests.exact.milli_cpu, requests.exact.memory), (2050, 10));
        assert_eq!(requests.non_zero, (2050, 10));
    }

    #[test]
    fn a_resize_holds_the_largest_of_wanted_and_granted() {
        let pending = pod("p").with(container("c").cpu("100m")).resized("c", "300m", "200m");
        assert_eq!(pod_requests(&pending.clone().build()).exact.milli_cpu, 300);
        let infeasible = pod("p").with(container("c").cpu("900m")).resized("c", "300m", "200m").condition(
            "PodResizePending",
            "True",
            "Infeasible",
        );
        assert_eq!(pod_requests(&infeasible.build()).exact.milli_cpu, 300);
    }

    #[test]
    fn scalars_are_the_resources_without_a_field() {
        for (name, scalar) in [
            ("nvidia.com/gpu", true),
            ("hugepages-2Mi", true),
            ("attachable-volumes-x", true),
            ("example.kubernetes.io/x", true),
            ("gpu", false),
            ("cpu", false),
            ("requests.example.com/x", false),
        ] {
            assert_eq!(is_scalar(name), scalar, "{name}");
        }
    }

    /// The scheduler adds up by itself, because it does so for every pod of the cluster; it must come to what quotas come to.
    #[test]
    fn a_pod_asks_for_what_quotas_charge() {
        use rules::pod_resources::{Side, charged};
        let mut pods = vec![pod("plain").cpu("100m").memory("64Mi").build()];
        for (init, whole, overhead) in
            [(false, false, true), (true, false, false), (true, true, true), (false, true, true)]
        {
            let mut pod = pod("p").cpu("250m").memory("32Mi").build();
            let spec = pod.spec.as_mut().expect("a specification");
            let list = |cpu: &str| Some(BTreeMap::from([("cpu".to_owned(), Quantity(cpu.to_owned()))]));
            if init {
                let with = |name: &str, cpu: &str, policy: Option<&str>| Container {
                    name: name.to_owned(),
                    restart_policy: policy.map(str::to_owned),
                    resources: Some(ResourceRequirements { requests: list(cpu), ..ResourceRequirements::default() }),
                    ..Container::default()
                };
                spec.init_containers = Some(vec![
                    with("early", "1", None),
                    with("side", "300m", Some("Always")),
                    with("late", "900m", None),
                ]);
            }
            if whole {
                spec.resources = Some(ResourceRequirements { requests: list("2"), ..ResourceRequirements::default() });
            }
            if overhead {
                spec.overhead = list("50m");
            }
            pods.push(pod);
        }
        for pod in pods {
            let asked = charged(&serde_json::to_value(&pod).expect("JSON"), Side::Requests);
            let exact = pod_requests(&pod).exact;
            let amount = |name: &str, of: fn(&machinery::quantity::Quantity) -> i64| asked.get(name).map_or(0, of);
            assert_eq!(exact.milli_cpu, amount("cpu", machinery::quantity::Quantity::milli_value), "{pod:?}");
            assert_eq!(exact.memory, amount("memory", machinery::quantity::Quantity::value), "{pod:?}");
        }
    }
}
