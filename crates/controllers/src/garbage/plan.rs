//! What to do with one object, given what is known of its owners.

use std::sync::Arc;

use client::Propagation;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

use super::graph::{FOREGROUND, Graph, Node, ORPHAN};

/// How an owner stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is there and stays.
    Solid,
    /// It is not there.
    Absent,
    /// It is there and waits for its dependents to go.
    Waiting,
}

#[derive(Debug, PartialEq)]
pub(super) enum Step {
    Nothing,
    /// Take these finalizer away: what it stood for is done.
    RemoveFinalizer(&'static str),
    /// Let go of the dependents, then take the finalizer away.
    Orphan(Vec<Arc<str>>),
    /// Have a look at these first.
    LookAt(Vec<Arc<str>>),
    /// Keep only these owners.
    KeepOwners(Vec<OwnerReference>),
    /// Delete it; `unblock` are dependents that must no longer hold it back, or two that wait for each other would wait for ever.
    Delete {
        policy: Propagation,
        unblock: Vec<Arc<str>>,
    },
}

/// The step for an object that is going: finish what its finalizers stand for.
pub(super) fn step_for_deleting(graph: &Graph, uid: &str, node: &Node) -> Step {
    if node.orphans_dependents() {
        return Step::Orphan(graph.dependents(uid).into_iter().map(|(dependent, _)| dependent).collect());
    }
    if !node.waits_for_dependents() {
        return Step::Nothing;
    }
    let blocking: Vec<_> = graph.dependents(uid).into_iter().filter(|(_, dependent)| dependent.blocks(uid)).collect();
    if blocking.is_empty() {
        return Step::RemoveFinalizer(FOREGROUND);
    }
    let look = blocking.into_iter().filter(|(_, dependent)| !dependent.waits_for_dependents());
    Step::LookAt(look.map(|(dependent, _)| dependent).collect())
}

/// The step for an object that stays for now: does any owner still hold it?
pub(super) fn step(graph: &Graph, uid: &str, node: &Node, standing: impl Fn(&OwnerReference) -> Standing) -> Step {
    if node.owners.is_empty() {
        return Step::Nothing;
    }
    let standings: Vec<Standing> = node.owners.iter().map(standing).collect();
    let has = |wanted: Standing| standings.contains(&wanted);
    if has(Standing::Solid) {
        if !has(Standing::Absent) && !has(Standing::Waiting) {
            return Step::Nothing;
        }
        let kept = node.owners.iter().zip(&standings).filter(|(_, standing)| **standing == Standing::Solid);
        return Step::KeepOwners(kept.map(|(owner, _)| owner.clone()).collect());
    }
    let dependents = graph.dependents(uid);
    if has(Standing::Waiting) && !dependents.is_empty() {
        // The owner waits for this one, so this one has to take its dependents along. Dependents that wait themselves would close a circle.
        let circle = dependents.iter().any(|(_, dependent)| dependent.waits_for_dependents());
        let unblock = if circle {
            dependents
                .into_iter()
                .filter(|(_, dependent)| dependent.blocks(uid))
                .map(|(dependent, _)| dependent)
                .collect()
        } else {
            Vec::new()
        };
        return Step::Delete { policy: Propagation::Foreground, unblock };
    }
    let policy = if node.has_finalizer(ORPHAN) {
        Propagation::Orphan
    } else if node.has_finalizer(FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    Step::Delete { policy, unblock: Vec::new() }
}
