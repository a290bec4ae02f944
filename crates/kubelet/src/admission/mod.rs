//! Whether a pod that was bound to this node can run here: the node's own check, after the scheduler's.

mod placement;
mod preemption;
pub mod sysctls;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod, Taint};

use crate::pod::{resources, spec};
use crate::pressure::Conditions;
use crate::pressure::rank::is_critical;
use crate::pressure::thresholds::Condition;
use crate::status::Verdict;
use preemption::Missing;
use rules::qos::{self, Class};

/// Why a node under pressure does not take a pod; nothing when it does.
pub fn under_pressure(pod: &Pod, conditions: &Conditions) -> Option<Verdict> {
    if conditions.is_empty() || is_critical(pod) {
        return None;
    }
    if *conditions == Conditions::from([Condition::Memory])
        && (qos::class(pod) != Class::BestEffort || tolerates(pod, rules::names::MEMORY_PRESSURE))
    {
        return None;
    }
    let names: Vec<&str> = conditions.iter().map(|condition| condition.as_str()).collect();
    Some(verdict("Evicted", format!("The node had condition: [{}]. ", names.join(" "))))
}

/// Whether the pod tolerates that nothing is scheduled for this reason.
fn tolerates(pod: &Pod, key: &str) -> bool {
    let taint = Taint { key: key.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    rules::tolerations::any_tolerates(tolerations, &taint)
}

/// One reason why a pod cannot run here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Too little of something is left.
    Insufficient {
        resource: String,
        /// What the pod asks for; processors in thousandths, like the rest.
        wanted: i64,
        used: i64,
        capacity: i64,
    },
    /// A rule that has nothing to do with amounts.
    Predicate { name: &'static str, why: &'static str },
    /// Something that is said in its own words.
    Other(Verdict),
}

impl Reason {
    /// For the pod's status and its event.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Insufficient { resource, wanted, used, capacity } => verdict(
                &format!("OutOf{resource}"),
                format!(
                    "Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {capacity}"
                ),
            ),
            Self::Predicate { name, why } => verdict(name, format!("Predicate {name} failed: {why}")),
            Self::Other(verdict) => verdict.clone(),
        }
    }
}

fn verdict(reason: &str, message: String) -> Verdict {
    Verdict { reason: reason.to_owned(), message, disruption: None }
}

/// What becomes of a pod that wants to run here.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    Admitted,
    /// It runs once others have been ended for it.
    After {
        victims: Vec<Arc<Pod>>,
        /// The first resource that they have and it misses.
        resource: String,
    },
    Refused(Verdict),
}

/// Whether a pod runs here beside the others. A critical one is refused for want of room only when nobody can be ended for it.
pub fn admit(pod: &Pod, others: &[Arc<Pod>], node: Option<&Node>) -> Admission {
    let reasons = reasons(pod, others, node);
    if reasons.is_empty() {
        return Admission::Admitted;
    }
    let lacks = |reason: &Reason| match reason {
        Reason::Insufficient { resource, wanted, used, capacity } => {
            Some(Missing { resource: resource.clone(), amount: wanted - (capacity - used) })
        }
        _ => None,
    };
    let missing: Vec<Missing> = reasons.iter().filter_map(lacks).collect();
    if !is_critical(pod) {
        return Admission::Refused(reasons[0].verdict());
    }
    if let Some(other) = reasons.iter().find(|reason| !matches!(reason, Reason::Insufficient { .. })) {
        return Admission::Refused(other.verdict());
    }
    match preemption::victims(pod, others, &missing) {
        Ok(victims) => Admission::After {
            victims,
            resource: missing.first().map(|missing| missing.resource.clone()).unwrap_or_default(),
        },
        Err(error) => Admission::Refused(verdict(
            "UnexpectedAdmissionError",
            format!("Unexpected error while attempting to recover from admission failure: {error}"),
        )),
    }
}

/// Why a pod that runs here cannot have what it asks for now; nothing when it can.
pub fn refusal(pod: &Pod, others: &[Arc<Pod>], node: Option<&Node>) -> Option<Verdict> {
    reasons(pod, others, node).first().map(Reason::verdict)
}

/// Everything that speaks against it, in upstream's order.
fn reasons(pod: &Pod, others: &[Arc<Pod>], node: Option<&Node>) -> Vec<Reason> {
    let Some(node) = node else { return Vec::new() };
    if let Some(verdict) = foreign(pod, node) {
        return vec![Reason::Other(verdict)];
    }
    let mut reasons = insufficient(pod, others, node);
    let mut failed = |name, why| reasons.push(Reason::Predicate { name, why });
    if !placement::selects(pod, node) {
        failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    }
    if !placement::ports_free(pod, others.iter().map(|other| &**other)) {
        failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    }
    if !spec::is_static(pod) && !placement::may_stay(pod, node) {
        failed("TaintToleration", "node(s) had taints that the pod didn't tolerate");
    }
    reasons
}

/// What nothing that could be ended would change.
fn foreign(pod: &Pod, node: &Node) -> Option<Verdict> {
    let labelled = pod.metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/os"));
    if labelled.is_some_and(|os| os != "linux") {
        let message = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return Some(verdict("PodOSSelectorNodeLabelDoesNotMatch", message.to_owned()));
    }
    let spec = pod.spec.as_ref()?;
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Some(verdict("PodOSNotSupported", message.to_owned()));
    }
    let policy = spec.security_context.as_ref().and_then(|context| context.supplemental_groups_policy.as_deref());
    let able = node.status.as_ref().and_then(|status| status.features.as_ref()?.supplemental_groups_policy);
    (policy == Some("Strict") && able != Some(true)).then(|| {
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        verdict("SupplementalGroupsPolicyNotSupported", message.to_owned())
    })
}

fn insufficient(pod: &Pod, others: &[Arc<Pod>], node: &Node) -> Vec<Reason> {
    let allocatable = |name: &str| node.status.as_ref()?.allocatable.as_ref()?.get(name);
    let mut reasons = Vec::new();
    let mut compare = |resource: &str, wanted: i64, used: i64, capacity: i64| {
        if wanted > capacity.saturating_sub(used) {
            reasons.push(Reason::Insufficient { resource: resource.to_owned(), wanted, used, capacity });
        }
    };
    let most = allocatable("pods").map_or(i64::MAX, resources::value);
    compare("pods", 1, i64::try_from(others.len()).unwrap_or(i64::MAX), most);
    let own = ["cpu", "memory", "ephemeral-storage"];
    for name in own.into_iter().chain(resources::further(pod)) {
        let capacity = match allocatable(name) {
            Some(quantity) if name == "cpu" => resources::milli(quantity),
            Some(quantity) => resources::value(quantity),
            // What the node does not know is the cluster's, or the node has none of it.
            None if own.contains(&name) || name.contains('/') => continue,
            None => 0,
        };
        let need = if name == "cpu" { resources::request_milli } else { resources::request };
        let wanted = need(pod, name);
        if wanted > 0 {
            compare(name, wanted, others.iter().map(|other| need(other, name)).sum(), capacity);
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(spec: serde_json::Value) -> Arc<Pod> {
        Arc::new(serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap())
    }

    fn check(spec: serde_json::Value, others: &[Arc<Pod>], expect: Option<&str>) {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"disk": "ssd"}},
            "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "2", "example.com/device": "3"}},
        }))
        .unwrap();
        let refused = refusal(&pod(spec), others, Some(&node));
        assert_eq!(refused.map(|v| format!("{}: {}", v.reason, v.message)).as_deref(), expect);
    }

    #[test]
    fn pods_that_do_not_fit_are_refused_with_figures() {
        let cpu = |amount: &str| json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": amount}}}]});
        check(cpu("600m"), &[], None);
        check(
            cpu("600m"),
            &[pod(cpu("500m"))],
            Some("OutOfcpu: Node didn't have enough resource: cpu, requested: 600, used: 500, capacity: 1000"),
        );
        check(
            cpu("0"),
            &[pod(cpu("0")), pod(cpu("0"))],
            Some("OutOfpods: Node didn't have enough resource: pods, requested: 1, used: 2, capacity: 2"),
        );
    }

    #[test]
    fn what_the_node_offers_beside_is_counted_and_what_only_the_cluster_knows_is_not() {
        let asks = |name: &str| json!({"containers": [{"name": "c", "resources": {"requests": {name: "2"}}}]});
        check(
            asks("example.com/device"),
            &[pod(asks("example.com/device"))],
            Some(
                "OutOfexample.com/device: Node didn't have enough resource: example.com/device, requested: 2, used: 2, capacity: 3",
            ),
        );
        check(asks("example.com/licence"), &[], None);
        check(
            asks("hugepages-2Mi"),
            &[],
            Some(
                "OutOfhugepages-2Mi: Node didn't have enough resource: hugepages-2Mi, requested: 2, used: 0, capacity: 0",
            ),
        );
    }

    #[test]
    fn pods_for_other_systems_are_refused() {
        let os = json!({"containers": [], "os": {"name": "windows"}});
        check(os, &[], Some("PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS"));
        let strict = json!({"containers": [], "securityContext": {"supplementalGroupsPolicy": "Strict"}});
        check(
            strict,
            &[],
            Some("SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node"),
        );
    }

    #[test]
    fn a_critical_pod_takes_the_room_of_others() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": "n"},
            "status": {"allocatable": {"cpu": "1", "pods": "10"}},
        }))
        .unwrap();
        let asks = |cpu: &str, priority: i32| {
            let requests = json!({"requests": {"cpu": cpu}});
            pod(json!({"priority": priority, "containers": [{"name": "c", "resources": requests}]}))
        };
        let (small, large) = (asks("300m", 0), asks("600m", 0));
        let others = [small.clone(), large.clone()];
        let critical = 2_000_000_000;
        assert_eq!(admit(&asks("100m", critical), &others, Some(&node)), Admission::Admitted);
        let after = Admission::After { victims: vec![small], resource: "cpu".to_owned() };
        assert_eq!(admit(&asks("200m", critical), &others, Some(&node)), after);
        assert!(matches!(admit(&asks("200m", 5), &others, Some(&node)), Admission::Refused(_)));
        let Admission::Refused(refused) = admit(&asks("2", critical), &others, Some(&node)) else { panic!("refused") };
        assert_eq!(refused.reason, "UnexpectedAdmissionError");
        assert_eq!(
            refused.message,
            "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of \
             pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 1000), ]"
        );
    }

    #[test]
    fn a_node_under_pressure_takes_only_what_can_stand_it() {
        let check = |spec: serde_json::Value, conditions: &[Condition], expect: Option<&str>| {
            let refused = under_pressure(&pod(spec), &conditions.iter().copied().collect());
            assert_eq!(refused.map(|v| format!("{}: {}", v.reason, v.message)).as_deref(), expect);
        };
        let best_effort = json!({"containers": [{"name": "c"}]});
        let burstable = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
        let tolerant = json!({"containers": [], "tolerations": [{"operator": "Exists"}]});
        let critical = json!({"containers": [], "priority": 2_000_000_000});
        let memory = [Condition::Memory];
        check(best_effort.clone(), &[], None);
        check(best_effort, &memory, Some("Evicted: The node had condition: [MemoryPressure]. "));
        check(burstable.clone(), &memory, None);
        check(tolerant, &memory, None);
        let both = [Condition::Memory, Condition::Disk];
        check(burstable, &both, Some("Evicted: The node had condition: [MemoryPressure DiskPressure]. "));
        check(critical, &both, None);
    }

    #[test]
    fn labels_and_ports_must_fit() {
        check(json!({"containers": [], "nodeSelector": {"disk": "ssd"}}), &[], None);
        check(
            json!({"containers": [], "nodeSelector": {"disk": "hdd"}}),
            &[],
            Some("NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"),
        );
        let port = |ip: &str| json!({"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": 80, "hostIP": ip}]}]});
        check(port("127.0.0.1"), &[pod(port("127.0.0.2"))], None);
        check(
            port("127.0.0.1"),
            &[pod(port(""))],
            Some("NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"),
        );
    }
}
