//! What upstream says about MutatingAdmissionPolicies and ValidatingAdmissionPolicies.

use serde_json::json;

use crate::testing::status;

#[test]
fn what_checking_of_types_found_says_where_and_what() {
    let checked = json!({"status": {"typeChecking": {"expressionWarnings": [{"fieldRef": "f"}]}}});
    let (_, errors) = status("admissionregistration.k8s.io", "ValidatingAdmissionPolicy", checked, &json!({}));
    assert_eq!(errors, ["status.typeChecking.expressionWarnings[0].warning: Required value"]);
    let scaler = json!({"status": {"conditions": [{"type": "A", "observedGeneration": -1}]}});
    let (_, errors) = status("autoscaling", "HorizontalPodAutoscaler", scaler, &json!({}));
    assert_eq!(
        errors,
        ["status.conditions[0].observedGeneration: Invalid value: -1: must be greater than or equal to 0"]
    );
}
