//! What a Job's pod failure policy says about a failed pod.

use k8s_openapi::api::batch::v1::{PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::common::meta::MetaExt;

/// What a failure means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Count,
    Ignore,
    /// The index has failed.
    FailIndex,
    /// The Job has failed, for this reason.
    FailJob(String),
}

/// The first rule that matches decides; without one the failure counts.
pub(super) fn judge(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Verdict {
    let rules = policy.map(|policy| policy.rules.as_slice()).unwrap_or_default();
    let (namespace, name) = (pod.metadata.namespace(), pod.metadata.name());
    for (at, rule) in rules.iter().enumerate() {
        let action = rule.action.as_str();
        let message = if let Some(codes) = &rule.on_exit_codes {
            matching_container(pod, codes).map(|(container, code)| {
                format!("Container {container} for pod {namespace}/{name} failed with exit code {code} matching {action} rule at index {at}")
            })
        } else {
            matching_condition(pod, rule.on_pod_conditions.as_deref().unwrap_or_default()).map(|condition| {
                format!("Pod {namespace}/{name} has condition {condition} matching {action} rule at index {at}")
            })
        };
        let Some(message) = message else { continue };
        return match action {
            "Ignore" => Verdict::Ignore,
            "FailIndex" => Verdict::FailIndex,
            "FailJob" => Verdict::FailJob(message),
            _ => Verdict::Count,
        };
    }
    Verdict::Count
}

fn matching_container<'a>(pod: &'a Pod, codes: &PodFailurePolicyOnExitCodesRequirement) -> Option<(&'a str, i32)> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten());
    let named = containers.filter(|container| codes.container_name.as_ref().is_none_or(|name| *name == container.name));
    let code = |container: &ContainerStatus| Some(container.state.as_ref()?.terminated.as_ref()?.exit_code);
    let mut failed = named.filter_map(|container| Some((container.name.as_str(), code(container)?)));
    failed.find(|(_, code)| *code != 0 && (codes.operator == "In") == codes.values.contains(code))
}

fn matching_condition<'a>(
    pod: &'a Pod,
    patterns: &[k8s_openapi::api::batch::v1::PodFailurePolicyOnPodConditionsPattern],
) -> Option<&'a str> {
    let conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let matching = |condition: &&k8s_openapi::api::core::v1::PodCondition| {
        patterns.iter().any(|pattern| {
            pattern.type_ == condition.type_ && pattern.status.as_deref().unwrap_or("True") == condition.status
        })
    };
    conditions.into_iter().find(matching).map(|condition| condition.type_.as_str())
}
