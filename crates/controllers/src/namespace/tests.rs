//! Conditions of a namespace on its way out.

use k8s_openapi::api::core::v1::NamespaceStatus;

use super::status::{Findings, Remaining, updated};
use crate::testing::at;

#[test]
fn conditions_say_what_is_left_and_then_that_nothing_is() {
    let mut findings = Findings { totals: true, ..Findings::default() };
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
    let well = updated(&status, &Findings { totals: true, ..Findings::default() }, at(3)).expect("a change");
    assert_eq!(
        message(&well, "NamespaceContentRemaining"),
        ("False".to_owned(), "All content successfully removed".to_owned())
    );
}
