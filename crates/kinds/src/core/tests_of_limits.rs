//! What upstream says about quotas and limits.

use serde_json::json;

use crate::core::limit_range::LimitRanges;
use crate::core::resource_quota::ResourceQuotas;
use crate::strategy::Strategy;

#[test]
fn quotas_and_limits_are_checked() {
    let quota =
        json!({"spec": {"hard": {"pods": "1", "odd": "1", "cpu": "-1"}, "scopes": ["BestEffort", "NotBestEffort"]}});
    let errors: Vec<String> = ResourceQuotas.validate(&quota).iter().map(ToString::to_string).collect();
    assert!(
        errors.contains(&"spec.hard[odd]: Invalid value: \"odd\": must be a standard resource for quota".to_owned()),
        "{errors:?}"
    );
    assert!(
        errors
            .contains(&"spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes".to_owned()),
        "{errors:?}"
    );
    let mut range = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]}});
    LimitRanges.default(&mut range);
    assert_eq!(range["spec"]["limits"][0]["defaultRequest"]["cpu"], "1");
    let errors: Vec<String> = LimitRanges.validate(&range).iter().map(ToString::to_string).collect();
    assert_eq!(errors[0], "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1");
}
