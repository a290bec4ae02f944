//! What is reported about the evictions of a DeviceTaintRule.

use k8s_openapi::api::resource::v1::DeviceTaintRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use super::plan::NO_EXECUTE;

pub(super) const IN_PROGRESS: &str = "EvictionInProgress";
const RECREATE: &str = "if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update.";

/// What was counted for a rule.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Pods that have to go, or would.
    pub(super) pods: usize,
    /// In how many namespaces those are.
    pub(super) namespaces: usize,
    /// Devices that drivers publish.
    pub(super) published: usize,
    /// Devices that are allocated.
    pub(super) allocated: usize,
    /// Pods that were evicted since the controller started.
    pub(super) evicted: usize,
}

/// What is reported about a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub(super) status: &'static str,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Progress {
    /// Whether a rule says so already.
    pub(super) fn is_reported_by(&self, condition: &Condition, generation: Option<i64>) -> bool {
        condition.status == self.status
            && condition.reason == self.reason
            && condition.message == self.message
            && condition.observed_generation == generation
    }
}

/// The condition that a rule has.
pub(super) fn known(rule: &DeviceTaintRule) -> Option<&Condition> {
    let conditions = rule.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().find(|condition| condition.type_ == IN_PROGRESS)
}

/// What is reported about a rule of this effect.
pub(super) fn progress(effect: &str, counts: &Counts) -> Progress {
    let number =
        |count: usize, one: &str, many: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {many}") };
    let namespaces = number(counts.namespaces, "namespace", "different namespaces");
    let (status, reason, mut message) = match effect {
        NO_EXECUTE if counts.pods > 0 => {
            let pods = number(counts.pods, "pod needs", "pods need");
            ("True", "PodsPendingEviction", format!("{pods} to be evicted in {namespaces}."))
        }
        NO_EXECUTE if counts.evicted > 0 => ("False", "Completed", String::new()),
        NO_EXECUTE => ("False", "NotStarted", String::new()),
        "None" => {
            let published = number(counts.published, "published device", "published devices");
            let allocated = number(counts.allocated, "allocated device", "allocated devices");
            let pods = number(counts.pods, "pod", "pods");
            let message = format!(
                "{published} selected. {allocated} selected. {pods} would be evicted in {namespaces} {RECREATE}"
            );
            ("False", "NoEffect", message)
        }
        _ => ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.".to_owned()),
    };
    if counts.evicted > 0 {
        let space = if message.is_empty() { "" } else { " " };
        let pods = number(counts.evicted, "pod", "pods");
        message = format!("{message}{space}{pods} evicted since starting the controller.");
    }
    Progress { status, reason, message }
}
