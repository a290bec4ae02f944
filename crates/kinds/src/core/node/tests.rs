//! What upstream says about Nodes.

use serde_json::json;

use crate::testing::said;

#[test]
fn a_node_with_ranges_that_cannot_be_read() {
    let node = json!({"metadata": {"name": "n"}, "spec": {"podCIDRs": ["10.0.0.0/24", "x"], "taints": [
        {"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"},
    ]}});
    let refused = said("", "Node", node, None);
    assert_eq!(
        refused[0],
        "metadata.taints[1]: Duplicate value: {\"Key\":\"a\",\"Value\":\"\",\"Effect\":\"NoSchedule\",\"TimeAdded\":null}: taints must be unique by key and effect pair"
    );
    assert_eq!(
        refused[2],
        "spec.podCIDRs: Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[1]: <nil> (invalid CIDR address: x)"
    );
}
