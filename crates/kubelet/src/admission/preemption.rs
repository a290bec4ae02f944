//! Who has to go so that a critical pod can run: of the pods that may be ended for it, as few as possible, best effort ones
//! before burstable ones before guaranteed ones. Upstream: CriticalPodAdmissionHandler.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;

use crate::pod::resources;
use crate::pressure::rank::is_critical;
use rules::qos::{self, Class};

/// An amount of a resource that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub resource: String,
    /// How much of it; processors in thousandths.
    pub amount: i64,
}

/// No set of pods has what is missing: how much would still be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: {}", list(.0))]
pub struct NotEnough(Vec<Missing>);

fn list(missing: &[Missing]) -> String {
    let one = |missing: &Missing| format!("(res: {}, q: {}), ", missing.resource, missing.amount);
    format!("[{}]", missing.iter().map(one).collect::<String>())
}

/// The pods to end so that `pod` has what it misses.
pub fn victims(pod: &Pod, active: &[Arc<Pod>], missing: &[Missing]) -> Result<Vec<Arc<Pod>>, NotEnough> {
    let of = |class: Class| -> Vec<Arc<Pod>> {
        active.iter().filter(|other| may_preempt(pod, other) && qos::class(other) == class).cloned().collect()
    };
    let (best_effort, burstable, guaranteed) = (of(Class::BestEffort), of(Class::Burstable), of(Class::Guaranteed));
    let rest = without(missing, best_effort.iter().chain(&burstable).chain(&guaranteed));
    if !rest.is_empty() {
        return Err(NotEnough(rest));
    }
    // Each class gives only what the classes before it cannot.
    let of_guaranteed = nearest(guaranteed, without(missing, best_effort.iter().chain(&burstable)))?;
    let of_burstable = nearest(burstable, without(missing, best_effort.iter().chain(&of_guaranteed)))?;
    let of_best_effort = nearest(best_effort, without(missing, of_burstable.iter().chain(&of_guaranteed)))?;
    Ok([of_best_effort, of_burstable, of_guaranteed].concat())
}

/// A critical pod may have what one that is not critical holds; otherwise the priority decides.
fn may_preempt(pod: &Pod, other: &Pod) -> bool {
    let priority = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.priority);
    (is_critical(pod) && !is_critical(other))
        || matches!((priority(pod), priority(other)), (Some(own), Some(others)) if own > others)
}

fn request(pod: &Pod, resource: &str) -> i64 {
    match resource {
        "cpu" => resources::request_milli(pod, resource),
        "pods" => 1,
        _ => resources::request(pod, resource),
    }
}

/// What is still missing once these pods are gone.
fn without<'a>(missing: &[Missing], pods: impl Iterator<Item = &'a Arc<Pod>> + Clone) -> Vec<Missing> {
    let left = |one: &Missing| {
        let freed: i64 = pods.clone().map(|pod| request(pod, &one.resource)).sum();
        Missing { resource: one.resource.clone(), amount: one.amount - freed }
    };
    missing.iter().map(left).filter(|one| one.amount > 0).collect()
}

/// Takes, again and again, the pod whose going leaves the smallest part missing; the smaller of two that leave the same.
fn nearest(mut pods: Vec<Arc<Pod>>, mut missing: Vec<Missing>) -> Result<Vec<Arc<Pod>>, NotEnough> {
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let size = |pod: &Pod| (request(pod, "memory"), request(pod, "cpu"));
        let best = (0..pods.len()).min_by(|&a, &b| {
            let (a, b) = (&pods[a], &pods[b]);
            distance(a, &missing).total_cmp(&distance(b, &missing)).then_with(|| size(a).cmp(&size(b)))
        });
        let Some(best) = best else { return Err(NotEnough(missing)) };
        let pod = pods.swap_remove(best);
        missing = without(&missing, std::iter::once(&pod));
        chosen.push(pod);
    }
    Ok(chosen)
}

/// How far a pod is from having all that is missing; every resource weighs the same, whatever its unit.
fn distance(pod: &Pod, missing: &[Missing]) -> f64 {
    let part = |one: &Missing| {
        let left = one.amount - request(pod, &one.resource);
        if left > 0 { (left as f64 / one.amount as f64).powi(2) } else { 0.0 }
    };
    missing.iter().map(part).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, priority: i32, resources: Value) -> Arc<Pod> {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"priority": priority, "containers": [{"name": "c", "resources": resources}]},
        });
        Arc::new(serde_json::from_value(pod).unwrap())
    }

    fn burstable(name: &str, cpu: &str, memory: &str) -> Arc<Pod> {
        pod(name, 0, json!({"requests": {"cpu": cpu, "memory": memory}}))
    }

    fn missing(resource: &str, amount: i64) -> Missing {
        Missing { resource: resource.to_owned(), amount }
    }

    fn check(active: &[Arc<Pod>], wanted: &[Missing], expect: Result<&[&str], &str>) {
        let critical = pod("critical", 2_000_000_000, json!({}));
        let chosen = victims(&critical, active, wanted).map_err(|error| error.to_string());
        let names = chosen.map(|pods| pods.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect::<Vec<_>>());
        let expect = expect.map(|names| names.iter().map(|name| (*name).to_owned()).collect()).map_err(str::to_owned);
        assert_eq!(names, expect);
    }

    #[test]
    fn as_few_as_possible_go_and_the_least_guaranteed_first() {
        let whole = json!({"cpu": "200m", "memory": "100Mi"});
        let guaranteed = pod("guaranteed", 0, json!({"requests": whole, "limits": whole}));
        let (small, large) = (burstable("small", "100m", "100Mi"), burstable("large", "300m", "300Mi"));
        let all = [guaranteed, small, large, pod("idle", 0, json!({}))];
        check(&all, &[missing("cpu", 100)], Ok(&["small"]));
        check(&all, &[missing("cpu", 150)], Ok(&["large"]));
        check(&all, &[missing("cpu", 400)], Ok(&["large", "small"]));
        check(&all, &[missing("cpu", 500)], Ok(&["large", "guaranteed"]));
        check(&all, &[missing("cpu", 600)], Ok(&["large", "small", "guaranteed"]));
        check(&all, &[missing("cpu", 50), missing("memory", 200 << 20)], Ok(&["large"]));
        check(&all, &[missing("pods", 1)], Ok(&["idle"]));
        check(&[], &[], Ok(&[]));
    }

    #[test]
    fn what_nobody_has_is_told_and_critical_pods_stay() {
        let critical = pod("other", 2_000_000_001, json!({"requests": {"cpu": "1"}}));
        let why = "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources: \
                   [(res: cpu, q: 400), ]";
        check(&[critical, burstable("small", "100m", "1Mi")], &[missing("cpu", 500)], Err(why));
    }
}
