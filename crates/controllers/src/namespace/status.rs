//! The conditions of a namespace that is being deleted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NamespaceCondition, NamespaceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

/// What is left of one resource.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Remaining {
    pub(super) count: usize,
    /// How many objects have which finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
}

impl Remaining {
    pub(super) fn of<'a>(left: impl Iterator<Item = &'a ObjectMeta>) -> Self {
        let mut remaining = Self::default();
        for meta in left {
            remaining.count += 1;
            for finalizer in meta.finalizers.iter().flatten() {
                *remaining.finalizers.entry(finalizer.clone()).or_default() += 1;
            }
        }
        remaining
    }
}

/// What one attempt to empty a namespace found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// By resource and group. While pods remain, nothing else was looked at.
    pub(super) remaining: BTreeMap<(String, String), Remaining>,
    /// Why content could not be deleted.
    pub(super) failures: Vec<String>,
    /// Why not all resources are known.
    pub(super) discovery: Option<String>,
    /// Why the version of some resources is not understood.
    pub(super) parsing: Option<String>,
    /// In how many seconds more may be gone.
    pub(super) estimate: i64,
}

impl Findings {
    pub(super) fn merge(&mut self, other: Self) {
        self.remaining.extend(other.remaining);
        self.failures.extend(other.failures);
        self.estimate = self.estimate.max(other.estimate);
    }

    /// Why the namespace cannot be let go, whatever remains in it: there may be content that was not found.
    pub(super) fn first_failure(&self) -> Option<&String> {
        self.failures.first().or(self.discovery.as_ref()).or(self.parsing.as_ref())
    }
}

/// Type, reason and message of a condition while all is well.
const WELL: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "ResourcesDiscovered", "All resources successfully discovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
    (
        "NamespaceDeletionContentFailure",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    ("NamespaceContentRemaining", "ContentRemoved", "All content successfully removed"),
    ("NamespaceFinalizersRemaining", "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
];

/// The status with its conditions brought up to date; `None` if they are.
pub(super) fn updated(known: &NamespaceStatus, findings: &Findings, now: Timestamp) -> Option<NamespaceStatus> {
    let mut status = known.clone();
    let conditions = status.conditions.get_or_insert_default();
    for (type_, reason, message) in WELL {
        let (value, reason, message) = match problem(type_, findings) {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", reason, message.to_owned()),
        };
        let new = NamespaceCondition {
            type_: type_.to_owned(),
            status: value.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_transition_time: Some(Time(now)),
        };
        match conditions.iter_mut().find(|condition| condition.type_ == type_) {
            None => conditions.push(new),
            Some(old) => {
                let since = if old.status == new.status {
                    old.last_transition_time.clone()
                } else {
                    new.last_transition_time.clone()
                };
                *old = NamespaceCondition { last_transition_time: since, ..new };
            }
        }
    }
    (status != *known).then_some(status)
}

fn problem(type_: &str, findings: &Findings) -> Option<(&'static str, String)> {
    match type_ {
        "NamespaceDeletionDiscoveryFailure" => findings.discovery.clone().map(|message| ("DiscoveryFailed", message)),
        "NamespaceDeletionGroupVersionParsingFailure" => {
            findings.parsing.clone().map(|message| ("GroupVersionParsingFailed", message))
        }
        "NamespaceDeletionContentFailure" if !findings.failures.is_empty() => {
            let (count, list) = (findings.failures.len(), sorted(findings.failures.iter().cloned()));
            let message = format!("Failed to delete all resource types, {count} remaining: {list}");
            Some(("ContentDeletionFailed", message))
        }
        // Upstream is silent on what remains as long as that is pods. But those are what a namespace is most often stuck on.
        "NamespaceContentRemaining" if !findings.remaining.is_empty() => {
            let left = findings.remaining.iter();
            let list = left
                .map(|((resource, group), left)| format!("{resource}.{group} has {} resource instances", left.count));
            Some(("SomeResourcesRemain", format!("Some resources are remaining: {}", sorted(list))))
        }
        "NamespaceFinalizersRemaining" => {
            let mut finalizers: BTreeMap<&str, usize> = BTreeMap::new();
            for (finalizer, count) in findings.remaining.values().flat_map(|left| &left.finalizers) {
                *finalizers.entry(finalizer).or_default() += count;
            }
            let list = finalizers.iter().map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"));
            let message = format!("Some content in the namespace has finalizers remaining: {}", sorted(list));
            (!finalizers.is_empty()).then_some(("SomeFinalizersRemain", message))
        }
        _ => None,
    }
}

/// The texts as one, in an order that does not change from look to look.
fn sorted(texts: impl Iterator<Item = String>) -> String {
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    texts.join(", ")
}
