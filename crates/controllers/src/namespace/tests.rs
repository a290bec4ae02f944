//! Conditions of a namespace on its way out.

use std::time::Duration;

use client::Gvr;
use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::json;

use super::plan::{self, Plan};
use super::status::{Findings, Remaining, updated};
use crate::common::discovery::Discovered;
use crate::testing::{at, pod};

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

fn namespace() -> Namespace {
    serde_json::from_value(json!({
        "metadata": {"name": "ns", "deletionTimestamp": "1970-01-01T00:01:40Z"},
        "spec": {"finalizers": ["kubernetes", "other"]}, "status": {"phase": "Terminating"},
    }))
    .expect("a namespace")
}

#[test]
fn a_namespace_goes_when_nothing_is_left_in_it() {
    let empty = Findings::default();
    let Plan::Finalize(free) = plan::plan(&namespace(), &empty) else { panic!("nothing is left") };
    assert!(plan::is_held(&namespace()) && !plan::is_held(&free));
    let waiting = Findings { estimate: 15, ..Findings::default() };
    assert_eq!(plan::plan(&namespace(), &waiting), Plan::Wait(Duration::from_secs(8)));
    let blind = plan::discovered(&Discovered::default(), Some("refused".to_owned()));
    let expected = "failed to delete all content of namespace ns: refused".to_owned();
    assert_eq!(plan::plan(&namespace(), &blind), Plan::Fail(expected));
    assert_eq!(plan::begun(&namespace()), None);
    assert_eq!(plan::begun(&Namespace::default()).and_then(|status| status.phase).as_deref(), Some("Terminating"));
}

#[test]
fn what_is_left_is_waited_for_or_complained_about() {
    let gvr = Gvr::new("apps", "v1", "deployments");
    let left = |finalizers: &[&str]| {
        let finalizers = Some(finalizers.iter().map(|name| (*name).to_owned()).collect());
        let meta = ObjectMeta { finalizers, ..ObjectMeta::default() };
        Remaining::of([&meta].into_iter())
    };
    for (grace, left, estimate, failures) in [
        (0, Ok(Remaining::default()), 0, &[][..]),
        (0, Ok(left(&["a/b"])), 15, &[]),
        (30, Ok(left(&[])), 30, &[]),
        (30, Err("refused".to_owned()), 30, &["refused"]),
        (
            0,
            Ok(left(&[])),
            0,
            &["unexpected items still remain in namespace: ns for gvr: apps/v1, Resource=deployments"],
        ),
    ] {
        let mut findings = Findings::default();
        plan::note(&mut findings, "ns", &gvr, grace, left);
        assert_eq!(
            (findings.estimate, findings.failures.iter().map(String::as_str).collect::<Vec<_>>()),
            (estimate, failures.to_vec())
        );
    }
}

#[test]
fn pods_are_given_their_grace_from_the_deletion_on() {
    let slow =
        pod("a").with(|pod| pod.spec.get_or_insert_default().termination_grace_period_seconds = Some(30)).build();
    let done = pod("b")
        .phase("Failed")
        .with(|pod| pod.spec.get_or_insert_default().termination_grace_period_seconds = Some(90))
        .build();
    let pods = [slow, done];
    assert_eq!(plan::grace(&namespace(), pods.clone(), at(110)), 30);
    assert_eq!(plan::grace(&namespace(), pods.clone(), at(130)), 0, "their time is over");
}
