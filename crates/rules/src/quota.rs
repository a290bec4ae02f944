//! What an object uses of a quota, and which quotas count it.
//!
//! Admission charges by it before an object is stored, the quota controller counts by it afterwards. Two answers to one question would let
//! `status.used` contradict what was charged, so there is one.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use machinery::quantity::{Format, Quantity};
use machinery::selector::label::{LabelSelector, Operator, Requirement};
use machinery::{Value, time, value};

use crate::names::{is_extended, is_huge_page};
use crate::pod_resources::{Amounts, Side, held, of};
use crate::qos::is_best_effort_in as is_best_effort;

const BY_CLASS: &str = ".storageclass.storage.k8s.io/";
const BY_DEVICE_CLASS: &str = ".deviceclass.resource.k8s.io/devices";
/// How many devices a claim can be given: what one uses that asks for all there are.
const MOST_DEVICES: i64 = 32;

/// A kind of object as quotas see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted<'a> {
    Pods,
    Services,
    Claims,
    /// Claims of devices, ResourceClaims.
    DeviceClaims,
    /// Everything else: by number alone.
    Other {
        group: &'a str,
        resource: &'a str,
    },
}

impl<'a> Counted<'a> {
    pub fn of(group: &'a str, resource: &'a str) -> Self {
        match (group, resource) {
            ("", "pods") => Self::Pods,
            ("", "services") => Self::Services,
            ("", "persistentvolumeclaims") => Self::Claims,
            ("resource.k8s.io", "resourceclaims") => Self::DeviceClaims,
            _ => Self::Other { group, resource },
        }
    }

    fn count_name(self) -> String {
        match self {
            Self::Pods => "count/pods".to_owned(),
            Self::Services => "count/services".to_owned(),
            Self::Claims => "count/persistentvolumeclaims".to_owned(),
            Self::DeviceClaims => "count/resourceclaims.resource.k8s.io".to_owned(),
            Self::Other { group: "", resource } => format!("count/{resource}"),
            Self::Other { group, resource } => format!("count/{resource}.{group}"),
        }
    }

    /// The name from before counting had a syntax.
    fn alias(self) -> Option<&'a str> {
        match self {
            Self::Other { group: "", resource } => {
                const ALIASED: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];
                ALIASED.contains(&resource).then_some(resource)
            }
            _ => None,
        }
    }

    /// Whether a quota's resource is about this kind.
    pub fn is_limited_by(self, name: &str) -> bool {
        if name == self.count_name() || self.alias() == Some(name) {
            return true;
        }
        match self {
            Self::Pods => {
                const NAMES: [&str; 10] = [
                    "cpu",
                    "memory",
                    "ephemeral-storage",
                    "requests.cpu",
                    "requests.memory",
                    "requests.ephemeral-storage",
                    "limits.cpu",
                    "limits.memory",
                    "limits.ephemeral-storage",
                    "pods",
                ];
                let asked = name.strip_prefix("requests.");
                NAMES.contains(&name)
                    || is_huge_page(name)
                    || asked.is_some_and(|asked| is_huge_page(asked) || is_extended(asked))
            }
            Self::Services => matches!(name, "services" | "services.nodeports" | "services.loadbalancers"),
            Self::Claims => {
                let own = |name: &str| matches!(name, "persistentvolumeclaims" | "requests.storage");
                own(name) || name.split_once(BY_CLASS).is_some_and(|(_, rest)| own(rest))
            }
            Self::DeviceClaims => name.ends_with(BY_DEVICE_CLASS),
            Self::Other { .. } => false,
        }
    }

    /// What an object uses.
    pub fn usage(self, object: &Value, now: Timestamp) -> Amounts {
        let one = || Quantity::new(1, Format::DecimalSi);
        let mut used = BTreeMap::from([(self.count_name(), one())]);
        if let Some(alias) = self.alias() {
            used.insert(alias.to_owned(), one());
        }
        match self {
            Self::Pods => {
                if is_charged(object, now) {
                    used.extend(computed(&held(object, Side::Requests), &held(object, Side::Limits)));
                }
            }
            Self::Services => used.extend(service(object)),
            Self::Claims => used.extend(claim(object)),
            Self::DeviceClaims => used.extend(devices(object)),
            Self::Other { .. } => {}
        }
        used
    }

    /// What a quota makes an object say and it does not.
    pub fn missing(self, object: &Value, limited: &[String]) -> Option<String> {
        const MUST: [&str; 6] = ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
        let whole =
            value::at(object, "spec.resources").and_then(Value::as_object).is_some_and(|given| !given.is_empty());
        if self != Self::Pods || whole {
            return None;
        }
        let mut missing: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for container in
            ["spec.containers", "spec.initContainers"].into_iter().flat_map(|list| value::list(object, list))
        {
            let given = computed(&of(container, Side::Requests), &of(container, Side::Limits));
            for name in limited.iter().filter(|name| MUST.contains(&name.as_str()) && !given.contains_key(*name)) {
                missing.entry(name).or_default().push(value::text(container, "name"));
            }
        }
        let messages: Vec<String> = missing
            .into_iter()
            .map(|(name, mut containers)| {
                containers.sort_unstable();
                containers.dedup();
                format!("{name} for: {}", containers.join(","))
            })
            .collect();
        (!messages.is_empty()).then(|| format!("must specify {}", messages.join("; ")))
    }

    /// Whether the quota's scopes include the object.
    pub fn is_in_scope(self, quota: &Value, object: &Value) -> bool {
        let plain = value::list(quota, "spec.scopes").iter().filter_map(Value::as_str);
        let chosen = value::list(quota, "spec.scopeSelector.matchExpressions").iter();
        plain.clone().all(|scope| self.matches(scope, None, object))
            && chosen.clone().all(|one| self.matches(value::text(one, "scopeName"), Some(one), object))
    }

    fn matches(self, scope: &str, expression: Option<&Value>, object: &Value) -> bool {
        match self {
            Self::Pods => match scope {
                "Terminating" => is_terminating(object),
                "NotTerminating" => !is_terminating(object),
                "BestEffort" => is_best_effort(object),
                "NotBestEffort" => !is_best_effort(object),
                "PriorityClass" => by_name(expression, value::text(object, "spec.priorityClassName")),
                "CrossNamespacePodAffinity" => crosses_namespaces(object),
                _ => false,
            },
            Self::Claims if scope == "VolumeAttributesClass" => {
                // While a claim goes from one class to another it is a claim of both.
                const CLASSES: [&str; 3] = [
                    "spec.volumeAttributesClassName",
                    "status.currentVolumeAttributesClassName",
                    "status.modifyVolumeStatus.targetVolumeAttributesClassName",
                ];
                let mut classes = CLASSES.iter().map(|path| value::text(object, path)).filter(|name| !name.is_empty());
                match classes.clone().next() {
                    None => by_name(expression, ""),
                    Some(_) => classes.any(|name| by_name(expression, name)),
                }
            }
            // A scoped quota counts only what has the scope.
            _ => false,
        }
    }
}

/// A scope that selects by the name of a class.
fn by_name(expression: Option<&Value>, name: &str) -> bool {
    let operator = match expression.map_or("Exists", |expression| value::text(expression, "operator")) {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return !name.is_empty(),
    };
    let values = expression.map_or(&[][..], |expression| value::list(expression, "values"));
    let values = values.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let Ok(requirement) = Requirement::new("class".to_owned(), operator, values) else { return false };
    LabelSelector::new(vec![requirement]).matches(|_| Some(name).filter(|name| !name.is_empty()))
}

/// Whether a pod has a deadline.
pub fn is_terminating(pod: &Value) -> bool {
    value::int(pod, "spec.activeDeadlineSeconds").is_some_and(|seconds| seconds >= 0)
}

fn crosses_namespaces(pod: &Value) -> bool {
    let crosses = |term: &Value| {
        !value::list(term, "namespaces").is_empty()
            || term.get("namespaceSelector").is_some_and(|selector| !selector.is_null())
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let Some(affinity) = value::at(pod, &format!("spec.affinity.{kind}")) else { return false };
        value::list(affinity, "requiredDuringSchedulingIgnoredDuringExecution").iter().any(crosses)
            || value::list(affinity, "preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|weighted| weighted.get("podAffinityTerm").is_some_and(crosses))
    })
}

/// Whether a pod counts still: it has not ended, and is not gone but for its record.
fn is_charged(pod: &Value, now: Timestamp) -> bool {
    !matches!(value::text(pod, "status.phase"), "Succeeded" | "Failed")
        && charged_until(pod).is_none_or(|due| now <= due)
}

/// When a pod that is being deleted stops to count, even if nobody confirms its end: its node may be lost, and it must not keep others from
/// taking its place. `None` if it is not being deleted.
pub fn charged_until(pod: &Value) -> Option<Timestamp> {
    let deleted = time::parse_clamped(value::text(pod, "metadata.deletionTimestamp"))?;
    let grace = value::int(pod, "metadata.deletionGracePeriodSeconds")?;
    Some(deleted.checked_add(SignedDuration::from_secs(grace)).unwrap_or(Timestamp::MAX))
}

fn computed(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut used = BTreeMap::from([("pods".to_owned(), Quantity::new(1, Format::DecimalSi))]);
    for name in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(request) = requests.get(name) {
            used.insert(name.to_owned(), request.clone());
            used.insert(format!("requests.{name}"), request.clone());
        }
        if let Some(limit) = limits.get(name) {
            used.insert(format!("limits.{name}"), limit.clone());
        }
    }
    for (name, request) in requests {
        if is_huge_page(name) {
            used.insert(name.clone(), request.clone());
        }
        if is_huge_page(name) || is_extended(name) {
            used.insert(format!("requests.{name}"), request.clone());
        }
    }
    used
}

fn service(service: &Value) -> Amounts {
    let ports = value::list(service, "spec.ports");
    let (mut node_ports, mut balancers) = (0, 0);
    match value::text(service, "spec.type") {
        "NodePort" => node_ports = ports.len(),
        "LoadBalancer" => {
            let allocates =
                value::at(service, "spec.allocateLoadBalancerNodePorts").and_then(Value::as_bool).unwrap_or(true);
            let given = ports.iter().filter(|port| value::int(port, "nodePort").is_some_and(|port| port != 0)).count();
            node_ports = if allocates { ports.len() } else { given };
            balancers = 1;
        }
        _ => {}
    }
    let number = |count: usize| Quantity::new(i64::try_from(count).unwrap_or(i64::MAX), Format::DecimalSi);
    BTreeMap::from([
        ("services".to_owned(), number(1)),
        ("services.nodeports".to_owned(), number(node_ports)),
        ("services.loadbalancers".to_owned(), number(balancers)),
    ])
}

fn claim(claim: &Value) -> Amounts {
    let one = || Quantity::new(1, Format::DecimalSi);
    let mut used = BTreeMap::from([("persistentvolumeclaims".to_owned(), one())]);
    let annotated =
        value::at(claim, "metadata.annotations").and_then(|all| all.get("volume.beta.kubernetes.io/storage-class"));
    let class = annotated.and_then(Value::as_str).unwrap_or_else(|| value::text(claim, "spec.storageClassName"));
    if !class.is_empty() {
        used.insert(format!("{class}{BY_CLASS}persistentvolumeclaims"), one());
    }
    let read = |path: &str| value::text(claim, path).parse::<Quantity>().ok();
    let asked = read("spec.resources.requests.storage");
    let storage = match (asked, read("status.allocatedResources.storage")) {
        (Some(asked), Some(allocated)) if allocated > asked => Some(allocated),
        (asked, _) => asked,
    };
    if let Some(storage) = storage {
        if !class.is_empty() {
            used.insert(format!("{class}{BY_CLASS}requests.storage"), storage.clone());
        }
        used.insert("requests.storage".to_owned(), storage);
    }
    used
}

/// Devices by class. Of requests that take the first of several that there is, the most that any of these may take.
fn devices(claim: &Value) -> Amounts {
    let mut used: BTreeMap<String, i64> = BTreeMap::new();
    for request in value::list(claim, "spec.devices.requests") {
        let choices = match request.get("exactly") {
            Some(exactly) => std::slice::from_ref(exactly),
            None => value::list(request, "firstAvailable"),
        };
        let mut most: BTreeMap<&str, i64> = BTreeMap::new();
        for choice in choices {
            let number = match value::text(choice, "allocationMode") {
                "ExactCount" => value::int(choice, "count").unwrap_or_default(),
                "All" => MOST_DEVICES,
                _ => 0,
            };
            let known = most.entry(value::text(choice, "deviceClassName")).or_default();
            *known = number.max(*known);
        }
        for (class, number) in most {
            let sum = used.entry(format!("{class}{BY_DEVICE_CLASS}")).or_default();
            *sum = sum.saturating_add(number);
        }
    }
    used.into_iter().map(|(name, number)| (name, Quantity::new(number, Format::DecimalSi))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().expect("a time")
    }

    fn check(counted: Counted<'_>, object: Value, expect: &str) {
        let used = counted.usage(&object, now());
        let text: Vec<String> = used.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(text.join(","), expect, "{object}");
    }

    #[test]
    fn objects_use_what_quotas_count() {
        let pod = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1", "example.com/gpu": "2"}, "limits": {"cpu": "2"}}}]}});
        check(
            Counted::Pods,
            pod.clone(),
            "count/pods=1,cpu=1,limits.cpu=2,pods=1,requests.cpu=1,requests.example.com/gpu=2",
        );
        let mut done = pod;
        done["status"] = json!({"phase": "Succeeded"});
        check(Counted::Pods, done, "count/pods=1");
        check(Counted::of("", "secrets"), json!({}), "count/secrets=1,secrets=1");
        check(Counted::of("apps", "deployments"), json!({}), "count/deployments.apps=1");
        let balancer = json!({"spec": {"type": "LoadBalancer", "ports": [{"port": 1}, {"port": 2}]}});
        check(Counted::Services, balancer, "count/services=1,services=1,services.loadbalancers=1,services.nodeports=2");
        let claim = json!({"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}});
        check(
            Counted::Claims,
            claim,
            "count/persistentvolumeclaims=1,fast.storageclass.storage.k8s.io/persistentvolumeclaims=1,fast.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi",
        );
    }

    #[test]
    fn claims_of_devices_use_the_most_that_they_may_be_given() {
        let of = |class: &str, mode: &str, count: i64| json!({"deviceClassName": class, "allocationMode": mode, "count": count});
        let claim = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": of("gold", "ExactCount", 2)},
            {"name": "b", "exactly": of("gold", "All", 0)},
            {"name": "c", "firstAvailable": [of("tin", "ExactCount", 3), of("tin", "ExactCount", 4), of("gold", "ExactCount", 1)]},
            {"name": "d", "exactly": of("iron", "Unheard", 9)},
        ]}}});
        let kind = Counted::of("resource.k8s.io", "resourceclaims");
        check(
            kind,
            claim,
            "count/resourceclaims.resource.k8s.io=1,gold.deviceclass.resource.k8s.io/devices=35,iron.deviceclass.resource.k8s.io/devices=0,tin.deviceclass.resource.k8s.io/devices=4",
        );
        assert!(kind.is_limited_by("gold.deviceclass.resource.k8s.io/devices"));
        assert!(!Counted::Pods.is_limited_by("gold.deviceclass.resource.k8s.io/devices"));
    }

    #[test]
    fn a_pod_that_is_deleted_counts_until_its_grace_is_over() {
        let pod = |deleted: &str, grace: Value| json!({"metadata": {"deletionTimestamp": deleted, "deletionGracePeriodSeconds": grace}, "spec": {"containers": [{}]}});
        check(Counted::Pods, pod("2025-12-31T23:59:30Z", json!(30)), "count/pods=1,pods=1");
        check(Counted::Pods, pod("2025-12-31T23:59:29Z", json!(30)), "count/pods=1");
        check(Counted::Pods, pod("2025-12-31T23:59:29Z", json!(i64::MAX)), "count/pods=1,pods=1");
        check(Counted::Pods, pod("2025-12-31T23:00:00Z", Value::Null), "count/pods=1,pods=1");
    }

    #[test]
    fn scopes_choose_pods() {
        let scoped = |scopes: Value| json!({"spec": {"scopes": scopes}});
        let effort = json!({"spec": {"containers": [{}]}});
        let burst = json!({"spec": {"activeDeadlineSeconds": 5, "priorityClassName": "high", "containers": [{"resources": {"requests": {"cpu": "1"}}}]}});
        for (quota, pod, expect) in [
            (scoped(json!(["BestEffort"])), &effort, true),
            (scoped(json!(["BestEffort"])), &burst, false),
            (scoped(json!(["NotBestEffort", "Terminating"])), &burst, true),
            (scoped(json!(["NotTerminating"])), &burst, false),
            (scoped(json!(["PriorityClass"])), &burst, true),
            (scoped(json!(["PriorityClass"])), &effort, false),
            (
                json!({"spec": {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}}}),
                &burst,
                true,
            ),
            (
                json!({"spec": {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}]}}}),
                &burst,
                false,
            ),
        ] {
            assert_eq!(Counted::Pods.is_in_scope(&quota, pod), expect, "{quota} {pod}");
        }
        assert!(!Counted::Services.is_in_scope(&scoped(json!(["BestEffort"])), &json!({})));
    }

    #[test]
    fn a_claim_is_of_every_class_that_it_has_or_is_to_have() {
        let selects = |operator: &str, values: Value| json!({"spec": {"scopeSelector": {"matchExpressions": [{"scopeName": "VolumeAttributesClass", "operator": operator, "values": values}]}}});
        let plain = json!({"spec": {}});
        let moving = json!({
            "spec": {"volumeAttributesClassName": "gold"},
            "status": {
                "currentVolumeAttributesClassName": "silver",
                "modifyVolumeStatus": {"targetVolumeAttributesClassName": "bronze"},
            },
        });
        for (quota, claim, expect) in [
            (selects("In", json!(["gold"])), &moving, true),
            (selects("In", json!(["silver"])), &moving, true),
            (selects("In", json!(["bronze"])), &moving, true),
            (selects("In", json!(["iron"])), &moving, false),
            (selects("NotIn", json!(["gold"])), &moving, true),
            (selects("Exists", json!([])), &moving, true),
            (selects("Exists", json!([])), &plain, false),
            (selects("DoesNotExist", json!([])), &plain, true),
            (selects("DoesNotExist", json!([])), &moving, false),
        ] {
            assert_eq!(Counted::Claims.is_in_scope(&quota, claim), expect, "{quota} {claim}");
        }
    }

    #[test]
    fn containers_must_say_what_is_limited() {
        let pod =
            json!({"spec": {"containers": [{"name": "b"}, {"name": "a", "resources": {"requests": {"cpu": "1"}}}]}});
        let limited = ["requests.cpu".to_owned(), "limits.memory".to_owned(), "pods".to_owned()];
        assert_eq!(
            Counted::Pods.missing(&pod, &limited).as_deref(),
            Some("must specify limits.memory for: a,b; requests.cpu for: b")
        );
    }
}
