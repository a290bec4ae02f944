//! Whether a pod that was bound to this node can run here: the node's own check, after the scheduler's.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::pod::qos::{self, Class};
use crate::pod::{resources, spec};
use crate::pressure::Conditions;
use crate::pressure::rank::is_critical;
use crate::pressure::thresholds::Condition;
use crate::status::Verdict;

/// Why a node under pressure does not take a pod; nothing when it does.
pub fn under_pressure(pod: &Pod, conditions: &Conditions) -> Option<Verdict> {
    if conditions.is_empty() || is_critical(pod) {
        return None;
    }
    if *conditions == Conditions::from([Condition::Memory])
        && (qos::class(pod) != Class::BestEffort || tolerates(pod, "node.kubernetes.io/memory-pressure"))
    {
        return None;
    }
    let names: Vec<&str> = conditions.iter().map(|condition| condition.as_str()).collect();
    Some(Verdict {
        reason: "Evicted".to_owned(),
        message: format!("The node had condition: [{}]. ", names.join(" ")),
        disruption: false,
    })
}

/// Whether the pod tolerates that nothing is scheduled for this reason.
fn tolerates(pod: &Pod, key: &str) -> bool {
    pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten()).any(|toleration| {
        let effect = toleration.effect.as_deref().unwrap_or_default();
        let named = toleration.key.as_deref().unwrap_or_default();
        let operator = toleration.operator.as_deref().unwrap_or("Equal");
        let value = toleration.value.as_deref().unwrap_or_default();
        (effect.is_empty() || effect == "NoSchedule")
            && match operator {
                "Exists" => named.is_empty() || named == key,
                _ => named == key && value.is_empty(),
            }
    })
}

/// Why not; nothing when it can.
pub fn refusal(pod: &Pod, others: &[Arc<Pod>], node: Option<&Node>) -> Option<Verdict> {
    let node = node?;
    let allocatable = |name: &str| node.status.as_ref()?.allocatable.as_ref()?.get(name);
    let most = allocatable("pods").map_or(i64::MAX, resources::value);
    let used = i64::try_from(others.len()).unwrap_or(i64::MAX);
    if used + 1 > most {
        return Some(out_of("pods", 1, used, most));
    }
    for name in ["cpu", "memory", "ephemeral-storage"] {
        let Some(capacity) = allocatable(name) else { continue };
        let (need, capacity): (fn(&Pod, &str) -> i64, i64) = if name == "cpu" {
            (resources::request_milli, resources::milli(capacity))
        } else {
            (resources::request, resources::value(capacity))
        };
        let wanted = need(pod, name);
        let used: i64 = others.iter().map(|other| need(other, name)).sum();
        if wanted > 0 && wanted + used > capacity {
            return Some(out_of(name, wanted, used, capacity));
        }
    }
    if !labels_fit(pod, node) {
        return Some(Verdict {
            reason: "NodeAffinity".to_owned(),
            message: "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector".to_owned(),
            disruption: false,
        });
    }
    let taken: Vec<(String, i32, String)> = others.iter().flat_map(|other| host_ports(other)).collect();
    let clash = host_ports(pod).into_iter().any(|(protocol, port, ip)| {
        taken.iter().any(|(p, n, other)| {
            *p == protocol && *n == port && (*other == ip || other == "0.0.0.0" || ip == "0.0.0.0")
        })
    });
    clash.then(|| Verdict {
        reason: "NodePorts".to_owned(),
        message: "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports".to_owned(),
        disruption: false,
    })
}

fn out_of(resource: &str, wanted: i64, used: i64, capacity: i64) -> Verdict {
    Verdict {
        reason: format!("OutOf{resource}"),
        message: format!(
            "Node didn't have enough resource: {resource}, requested: {wanted}, used: {used}, capacity: {capacity}"
        ),
        disruption: false,
    }
}

/// `spec.nodeSelector` against the node's labels.
fn labels_fit(pod: &Pod, node: &Node) -> bool {
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let selector = pod.spec.as_ref().and_then(|s| s.node_selector.as_ref());
    selector.is_none_or(|selector| selector.iter().all(|(key, value)| labels.get(key) == Some(value)))
}

/// Ports of the node a pod wants: protocol, number, address.
fn host_ports(pod: &Pod) -> Vec<(String, i32, String)> {
    let sidecars = spec::init_containers(pod).iter().filter(|c| spec::is_sidecar(c));
    let ports = sidecars.chain(spec::containers(pod)).flat_map(|c| c.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|&n| n > 0)?;
            let ip = port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned());
            Some((port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()), number, ip))
        })
        .collect()
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
            "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "2"}},
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
