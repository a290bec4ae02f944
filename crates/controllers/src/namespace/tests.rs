//! Conditions of a namespace on its way out.

use k8s_openapi::api::core::v1::NamespaceStatus;

use super::status::{Findings, Remaining, updated};
use crate::testing::at;

#[test]
fn conditions_say_what_is_left_and_then_that_nothing_is() {
    let mut findings = Findings::default();
    let remaining = Remaining { count: 2, finalizers: [("a/b".to_owned(), 2)].into() };
    findings.remaining.insert(("configmaps".to_owned(), String::new()), remaining);
    let status = updated(&NamespaceStatus::default(), &findings, at(1)).expect("a change");
    let message = |status: &NamespaceStatus, type_: &str| {
        let found = status.conditions.iter().flatten().find(|condition| condition.type_ == type_);
        found.map(|found| (found.status.clone(), found.message.clone().unwrap_or_default())).expect("a condition")
    };
    assert_eq!(
        message(&status, "NamespaceContentRemaining"),
        ("True".to_owned(), "Some resources are remaining: configmaps. has 2 resource instances".to_owned())
    );
    assert_eq!(
        message(&status, "NamespaceFinalizersRemaining").1,
        "Some content in the namespace has finalizers remaining: a/b in 2 resource instances"
    );
    assert!(updated(&status, &findings, at(2)).is_none());
    let well = updated(&status, &Findings::default(), at(3)).expect("a change");
    assert_eq!(
        message(&well, "NamespaceContentRemaining"),
        ("False".to_owned(), "All content successfully removed".to_owned())
    );
}

#[test]
fn every_condition_says_what_it_found_in_the_words_of_upstream() {
    let left = |count, finalizers: &[(&str, usize)]| Remaining {
        count,
        finalizers: finalizers.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
    };
    let findings = |remaining: Vec<((&str, &str), Remaining)>| Findings {
        remaining: remaining
            .into_iter()
            .map(|((resource, group), left)| ((resource.into(), group.into()), left))
            .collect(),
        ..Findings::default()
    };
    let check = |findings: &Findings, wrong: &[(&str, &str, &str)]| {
        let status = updated(&NamespaceStatus::default(), findings, at(1)).expect("conditions");
        let conditions = status.conditions.unwrap_or_default();
        assert_eq!(conditions.len(), 5);
        let said: Vec<(&str, &str, &str)> = conditions
            .iter()
            .filter(|condition| condition.status == "True")
            .map(|condition| {
                let (reason, message) = (condition.reason.as_deref(), condition.message.as_deref());
                (condition.type_.as_str(), reason.unwrap_or_default(), message.unwrap_or_default())
            })
            .collect();
        assert_eq!(said, wrong);
    };
    check(&Findings::default(), &[]);
    // Pods alone: nothing else was looked at, and what is known is said.
    check(
        &findings(vec![(("pods", ""), left(1, &[("batch.kubernetes.io/job-tracking", 1)]))]),
        &[
            (
                "NamespaceContentRemaining",
                "SomeResourcesRemain",
                "Some resources are remaining: pods. has 1 resource instances",
            ),
            (
                "NamespaceFinalizersRemaining",
                "SomeFinalizersRemain",
                "Some content in the namespace has finalizers remaining: batch.kubernetes.io/job-tracking in 1 resource instances",
            ),
        ],
    );
    check(
        &findings(vec![
            (("widgets", "example.com"), left(2, &[("b/b", 2), ("a/a", 1)])),
            (("configmaps", ""), left(3, &[("b/b", 1)])),
        ]),
        &[
            (
                "NamespaceContentRemaining",
                "SomeResourcesRemain",
                "Some resources are remaining: configmaps. has 3 resource instances, widgets.example.com has 2 resource instances",
            ),
            (
                "NamespaceFinalizersRemaining",
                "SomeFinalizersRemain",
                "Some content in the namespace has finalizers remaining: a/a in 1 resource instances, b/b in 3 resource instances",
            ),
        ],
    );
    let failing = Findings {
        failures: vec!["z failed".to_owned(), "a failed".to_owned()],
        discovery: Some("no answer".to_owned()),
        parsing: Some("unexpected GroupVersion string: a/b/c".to_owned()),
        ..Findings::default()
    };
    check(
        &failing,
        &[
            ("NamespaceDeletionDiscoveryFailure", "DiscoveryFailed", "no answer"),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                "GroupVersionParsingFailed",
                "unexpected GroupVersion string: a/b/c",
            ),
            (
                "NamespaceDeletionContentFailure",
                "ContentDeletionFailed",
                "Failed to delete all resource types, 2 remaining: a failed, z failed",
            ),
        ],
    );
}
