//! What has to go, in which order, and when the namespace itself may.

use std::time::Duration;

use client::Gvr;
use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, NamespaceStatus, Pod};
use std::sync::Arc;

use super::status::{Findings, Remaining};
use crate::common::discovery::{Discovered, Resource};
use crate::common::meta::MetaExt;
use crate::common::pods;

const FINALIZER: &str = "kubernetes";
const TERMINATING: &str = "Terminating";
/// How long objects with finalizers are given before the next look; most are waited for by their own events.
const FINALIZER_ESTIMATE: i64 = 15;

#[derive(Debug, PartialEq)]
pub(super) enum Plan {
    /// There may be content that was not found, or that cannot be deleted.
    Fail(String),
    Wait(Duration),
    /// The namespace without the finalizer that held it.
    Finalize(Box<Namespace>),
}

/// What becomes of a namespace in which this was found.
pub(super) fn plan(namespace: &Namespace, findings: &Findings) -> Plan {
    if let Some(failure) = findings.first_failure() {
        let name = namespace.metadata.name();
        return Plan::Fail(format!("failed to delete all content of namespace {name}: {failure}"));
    }
    if findings.estimate > 0 {
        return Plan::Wait(Duration::from_secs(u64::try_from(findings.estimate / 2 + 1).unwrap_or(1)));
    }
    let mut namespace = namespace.clone();
    let spec = namespace.spec.get_or_insert_default();
    spec.finalizers.get_or_insert_default().retain(|finalizer| finalizer != FINALIZER);
    Plan::Finalize(Box::new(namespace))
}

/// The status of a namespace whose end begins; `None` if it says so.
pub(super) fn begun(namespace: &Namespace) -> Option<NamespaceStatus> {
    let status = namespace.status.clone().unwrap_or_default();
    (status.phase.as_deref() != Some(TERMINATING))
        .then(|| NamespaceStatus { phase: Some(TERMINATING.to_owned()), ..status })
}

/// Whether this controller still has to empty it.
pub(super) fn is_held(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.iter().flat_map(|spec| spec.finalizers.iter().flatten());
    finalizers.into_iter().any(|finalizer| finalizer == FINALIZER)
}

/// What is found out before anything is deleted.
pub(super) fn discovered(discovered: &Discovered, failure: Option<String>) -> Findings {
    let mut failures = discovered.failures.clone();
    failures.sort();
    let some = (!failures.is_empty()).then(|| {
        format!(
            "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
            failures.len(),
            failures.join(", ")
        )
    });
    let malformed = discovered.malformed.first();
    Findings {
        discovery: some.or(failure),
        parsing: malformed.map(|one| format!("unexpected GroupVersion string: {one}")),
        ..Findings::default()
    }
}

/// The resources to empty: pods, and those that wait for pods, because they may be needed to end them.
pub(super) fn deletable(resources: Vec<Resource>) -> (Vec<Resource>, Vec<Resource>) {
    let deletable = resources.into_iter().filter(|resource| resource.namespaced && resource.can(&["delete"]));
    deletable.partition(|resource| resource.gvr.group.is_empty() && resource.gvr.resource == "pods")
}

/// Notes what is left of a resource after everything in it was deleted.
pub(super) fn note(
    findings: &mut Findings,
    namespace: &str,
    resource: &Gvr,
    grace: i64,
    left: Result<Remaining, String>,
) {
    let left = match left {
        Ok(left) => left,
        Err(failure) => {
            findings.estimate = findings.estimate.max(grace);
            findings.failures.push(failure);
            return;
        }
    };
    if left.count == 0 {
        return;
    }
    let finalizers = !left.finalizers.is_empty();
    findings.estimate = findings.estimate.max(match (grace, finalizers) {
        (0, true) => FINALIZER_ESTIMATE,
        (grace, _) => grace,
    });
    if grace == 0 && !finalizers {
        let Gvr { group, version, resource } = resource;
        findings.failures.push(format!(
            "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={resource}"
        ));
    }
    findings.remaining.insert((resource.resource.clone(), resource.group.clone()), left);
}

/// How long the pods may take to end, counted from the deletion of the namespace.
pub(super) fn grace(namespace: &Namespace, pods: impl IntoIterator<Item = Arc<Pod>>, now: Timestamp) -> i64 {
    let running = pods.into_iter().filter(|pod| !pods::is_terminal(pod));
    let grace = running.filter_map(|pod| pods::spec(&pod)?.termination_grace_period_seconds).max().unwrap_or_default();
    let deleted = namespace.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0);
    let passed = clock::since(now, deleted);
    if passed >= Duration::from_secs(u64::try_from(grace).unwrap_or_default()) { 0 } else { grace }
}
