//! What objects use of a quota.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, PodSpec, ResourceQuotaSpec, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Wire;
use machinery::quantity::{Format, Quantity};

use crate::common::meta::MetaExt;
use crate::common::pods;

/// Amounts by resource name. Only names that the quota limits are in it.
pub(super) type Usage = BTreeMap<String, Quantity>;

/// What is more than counted.
const MEASURED: [&str; 3] = ["pods", "services", "persistentvolumeclaims"];
/// What may be limited without saying that it is the count.
const COUNTED: [&str; 4] = ["configmaps", "replicationcontrollers", "resourcequotas", "secrets"];

fn add(used: &mut Usage, name: &str, amount: &Quantity) {
    if let Some(sum) = used.get_mut(name) {
        sum.add(amount);
    }
}

fn add_one(used: &mut Usage, name: &str) {
    add(used, name, &Quantity::new(1, Format::DecimalSi));
}

pub(super) fn set_count(used: &mut Usage, name: &str, count: usize) {
    if let Some(known) = used.get_mut(name) {
        *known = Quantity::new(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi);
    }
}

/// The limits that only count objects, each with the plural and the group of what it counts.
pub(super) fn counted(hard: &BTreeMap<String, Wire>) -> impl Iterator<Item = (&str, &str, &str)> {
    hard.keys().filter_map(|name| {
        let of = match name.strip_prefix("count/") {
            Some(of) => Some(of).filter(|of| !MEASURED.contains(of)),
            None => Some(name.as_str()).filter(|of| COUNTED.contains(of)),
        }?;
        let (plural, group) = of.split_once('.').unwrap_or((of, ""));
        Some((name.as_str(), plural, group))
    })
}

/// Whether a change of a pod changes what it uses.
pub(super) fn pod_matters(before: &Pod, after: &Pod) -> bool {
    let resources = |pod: &Pod| {
        let containers = pods::spec(pod).map(|spec| spec.containers.clone()).unwrap_or_default();
        containers.into_iter().map(|container| container.resources).collect::<Vec<_>>()
    };
    pods::is_terminal(before) != pods::is_terminal(after)
        || before.metadata.is_deleting() != after.metadata.is_deleting()
        || resources(before) != resources(after)
}

/// The sum of the containers, or the largest init container if that is more; sidecars add to both; the overhead comes on top.
fn amounts(
    spec: &PodSpec,
    of: impl Fn(&k8s_openapi::api::core::v1::ResourceRequirements) -> Option<BTreeMap<String, Wire>>,
) -> BTreeMap<String, Quantity> {
    let read = |container: &k8s_openapi::api::core::v1::Container| -> BTreeMap<String, Quantity> {
        let given = container.resources.as_ref().and_then(&of).unwrap_or_default();
        given.into_iter().filter_map(|(name, amount)| Some((name, amount.0.parse().ok()?))).collect()
    };
    let sum = |total: &mut BTreeMap<String, Quantity>, other: BTreeMap<String, Quantity>| {
        for (name, amount) in other {
            total.entry(name).or_insert_with(|| Quantity::new(0, amount.format())).add(&amount);
        }
    };
    let mut total = BTreeMap::new();
    spec.containers.iter().for_each(|container| sum(&mut total, read(container)));
    let mut sidecars = BTreeMap::new();
    let mut most: BTreeMap<String, Quantity> = BTreeMap::new();
    for container in spec.init_containers.iter().flatten() {
        let own = read(container);
        if container.restart_policy.as_deref() == Some("Always") {
            sum(&mut total, own.clone());
            sum(&mut sidecars, own);
            continue;
        }
        let mut running = sidecars.clone();
        sum(&mut running, own);
        for (name, amount) in running {
            let known = most.entry(name).or_insert_with(|| amount.clone());
            if amount > *known {
                *known = amount;
            }
        }
    }
    for (name, amount) in most {
        let known = total.entry(name).or_insert_with(|| amount.clone());
        if amount > *known {
            *known = amount;
        }
    }
    let overhead =
        spec.overhead.iter().flatten().filter_map(|(name, amount)| Some((name.clone(), amount.0.parse().ok()?)));
    sum(&mut total, overhead.collect());
    total
}

/// A pod that ended uses nothing but its name.
pub(super) fn add_pod(used: &mut Usage, pod: &Pod) {
    add_one(used, "count/pods");
    if pods::is_terminal(pod) {
        return;
    }
    add_one(used, "pods");
    let Some(spec) = pods::spec(pod) else { return };
    for (name, amount) in amounts(spec, |resources| resources.requests.clone()) {
        add(used, &format!("requests.{name}"), &amount);
        if matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
            add(used, &name, &amount);
        }
    }
    for (name, amount) in amounts(spec, |resources| resources.limits.clone()) {
        add(used, &format!("limits.{name}"), &amount);
    }
}

pub(super) fn add_service(used: &mut Usage, service: &Service) {
    add_one(used, "services");
    add_one(used, "count/services");
    let Some(spec) = &service.spec else { return };
    let ports = spec.ports.as_ref().map_or(0, Vec::len);
    let type_ = spec.type_.as_deref().unwrap_or("ClusterIP");
    let allocated =
        type_ == "NodePort" || (type_ == "LoadBalancer" && spec.allocate_load_balancer_node_ports != Some(false));
    if allocated {
        add(used, "services.nodeports", &Quantity::new(i64::try_from(ports).unwrap_or(i64::MAX), Format::DecimalSi));
    }
    if type_ == "LoadBalancer" {
        add_one(used, "services.loadbalancers");
    }
}

pub(super) fn add_claim(used: &mut Usage, claim: &PersistentVolumeClaim) {
    let Some(spec) = &claim.spec else { return };
    let class = spec.storage_class_name.clone().unwrap_or_default();
    let of_class = |name: &str| format!("{class}.storageclass.storage.k8s.io/{name}");
    for name in [
        "persistentvolumeclaims".to_owned(),
        "count/persistentvolumeclaims".to_owned(),
        of_class("persistentvolumeclaims"),
    ] {
        add_one(used, &name);
    }
    let request = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage").cloned());
    if let Some(amount) = request.and_then(|request| request.0.parse::<Quantity>().ok()) {
        add(used, "requests.storage", &amount);
        add(used, &of_class("requests.storage"), &amount);
    }
}

pub(super) fn has_scopes(spec: &ResourceQuotaSpec) -> bool {
    spec.scopes.as_ref().is_some_and(|scopes| !scopes.is_empty()) || spec.scope_selector.is_some()
}

/// Whether a pod is one that the quota is about.
pub(super) fn in_scope(spec: &ResourceQuotaSpec, pod: &Pod) -> bool {
    let scopes = spec.scopes.iter().flatten().all(|scope| matches_scope(pod, scope, "Exists", &[]));
    let terms = spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    scopes
        && terms.into_iter().all(|term| {
            matches_scope(pod, &term.scope_name, &term.operator, term.values.as_deref().unwrap_or_default())
        })
}

fn matches_scope(pod: &Pod, scope: &str, operator: &str, values: &[String]) -> bool {
    let Some(spec) = pods::spec(pod) else { return false };
    let terminating = spec.active_deadline_seconds.is_some_and(|seconds| seconds >= 0);
    let best_effort = pod.status.as_ref().and_then(|status| status.qos_class.as_deref()) == Some("BestEffort");
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "PriorityClass" => {
            let class = spec.priority_class_name.clone().unwrap_or_default();
            match operator {
                "In" => values.contains(&class),
                "NotIn" => !values.contains(&class),
                "Exists" => !class.is_empty(),
                "DoesNotExist" => class.is_empty(),
                _ => false,
            }
        }
        "CrossNamespacePodAffinity" => crosses_namespaces(spec),
        _ => false,
    }
}

/// Its affinity looks into other namespaces.
fn crosses_namespaces(spec: &PodSpec) -> bool {
    let Some(affinity) = &spec.affinity else { return false };
    let near = affinity.pod_affinity.iter().flat_map(|pods| {
        let required = pods.required_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = pods.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        required.chain(preferred.map(|weighted| &weighted.pod_affinity_term))
    });
    let apart = affinity.pod_anti_affinity.iter().flat_map(|pods| {
        let required = pods.required_during_scheduling_ignored_during_execution.iter().flatten();
        let preferred = pods.preferred_during_scheduling_ignored_during_execution.iter().flatten();
        required.chain(preferred.map(|weighted| &weighted.pod_affinity_term))
    });
    let mut terms = near.chain(apart);
    terms.any(|term| {
        term.namespaces.as_ref().is_some_and(|names| !names.is_empty()) || term.namespace_selector.is_some()
    })
}
