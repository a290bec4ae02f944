//! What upstream says about RuntimeClasses.

use serde_json::json;

use crate::testing::said;

#[test]
fn a_runtime_class_is_checked_whole_when_it_changes() {
    let class = |selector: &str| json!({"metadata": {"name": "r"}, "handler": "h", "scheduling": {"nodeSelector": {"a": selector}}});
    let refused = said("node.k8s.io", "RuntimeClass", class("-"), Some(&class("b")));
    assert!(
        refused.len() == 1 && refused[0].starts_with("scheduling.nodeSelector: Invalid value: \"-\""),
        "{refused:?}"
    );
}
