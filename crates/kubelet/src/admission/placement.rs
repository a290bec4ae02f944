//! Whether a node is one that a pod asks for and may stay on: labels, affinity, taints, ports.

use k8s_openapi::api::core::v1::{Node, Pod};
use rules::selectors::RequiredNodeAffinity;
use rules::tolerations::untolerated;

use crate::pod::spec;

/// `spec.nodeSelector` and the node affinity that is required.
pub(super) fn selects(pod: &Pod, node: &Node) -> bool {
    RequiredNodeAffinity::parse(pod.spec.as_ref()).matches(node)
}

/// Whether the pod tolerates every taint that would drive it away again at once.
pub(super) fn may_stay(pod: &Pod, node: &Node) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    untolerated(taints, tolerations, &["NoExecute"]).is_none()
}

/// Whether no port of the node that the pod wants is another pod's.
pub(super) fn ports_free<'a>(pod: &Pod, others: impl Iterator<Item = &'a Pod>) -> bool {
    let wanted = host_ports(pod);
    if wanted.is_empty() {
        return true;
    }
    let taken: Vec<Port> = others.flat_map(host_ports).collect();
    !wanted.iter().any(|port| taken.iter().any(|other| port.clashes(other)))
}

/// A port of the node.
struct Port {
    protocol: String,
    number: i32,
    address: String,
}

impl Port {
    fn clashes(&self, other: &Self) -> bool {
        let everywhere = "0.0.0.0";
        self.protocol == other.protocol
            && self.number == other.number
            && (self.address == other.address || self.address == everywhere || other.address == everywhere)
    }
}

fn host_ports(pod: &Pod) -> Vec<Port> {
    let sidecars = spec::init_containers(pod).iter().filter(|c| spec::is_sidecar(c));
    let ports = sidecars.chain(spec::containers(pod)).flat_map(|c| c.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(Port {
                number: port.host_port.filter(|&n| n > 0)?,
                protocol: port.protocol.clone().unwrap_or_else(|| "TCP".to_owned()),
                address: port.host_ip.clone().filter(|ip| !ip.is_empty()).unwrap_or_else(|| "0.0.0.0".to_owned()),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn node() -> Node {
        serde_json::from_value(json!({
            "metadata": {"name": "n", "labels": {"disk": "ssd", "cores": "8"}},
            "spec": {"taints": [
                {"key": "soft", "effect": "NoSchedule"},
                {"key": "hard", "value": "yes", "effect": "NoExecute"},
            ]},
        }))
        .unwrap()
    }

    fn pod(mut spec: Value) -> Pod {
        spec["containers"] = json!([]);
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
    }

    #[test]
    fn labels_and_names_are_selected_as_the_scheduler_would() {
        let check = |term: Value, expect: bool| {
            let required = json!({"nodeSelectorTerms": [term.clone()]});
            let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
            assert_eq!(selects(&pod(json!({"affinity": affinity})), &node()), expect, "{term}");
        };
        let label = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(label("disk", "In", &["ssd", "hdd"]), true);
        check(label("disk", "NotIn", &["ssd"]), false);
        check(label("disk", "Exists", &[]), true);
        check(label("none", "DoesNotExist", &[]), true);
        check(label("cores", "Gt", &["4"]), true);
        check(label("cores", "Lt", &["4"]), false);
        check(json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}), true);
        check(json!({}), false);
        assert!(selects(&pod(json!({"nodeSelector": {"disk": "ssd"}})), &node()));
        assert!(!selects(&pod(json!({"nodeSelector": {"disk": "hdd"}})), &node()));
    }

    #[test]
    fn only_taints_that_drive_pods_away_count() {
        let check = |tolerations: Value, expect: bool| {
            assert_eq!(may_stay(&pod(json!({"tolerations": tolerations})), &node()), expect, "{tolerations}");
        };
        check(json!([]), false);
        check(json!([{"operator": "Exists"}]), true);
        check(json!([{"key": "hard", "value": "yes"}]), true);
        check(json!([{"key": "hard", "value": "no"}]), false);
        check(json!([{"key": "hard", "operator": "Exists", "effect": "NoSchedule"}]), false);
    }
}
