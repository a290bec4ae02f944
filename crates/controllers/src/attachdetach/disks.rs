//! Disks of storage networks: no driver attaches them, so what nodes were told is all that says where they are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, PersistentVolume};
use rules::network_disks::{plugin_of, unique_name};

use super::plan::{Observed, Plan, Step, is_reported, is_shared, let_go, wait, wanted};

/// The index of nodes by the disks that they were given, and of volumes by what nodes call them.
pub(super) const INDEX: &str = "disk";

/// The disks that a node was given.
pub(super) fn given(node: &Node) -> Vec<String> {
    let attached = node.status.as_ref().and_then(|status| status.volumes_attached.as_deref()).unwrap_or_default();
    attached.iter().map(|one| one.name.clone()).filter(|name| plugin_of(name).is_some()).collect()
}

pub(super) fn name(volume: &PersistentVolume) -> Vec<String> {
    unique_name(volume).map(|(_, name)| name).into_iter().collect()
}

/// The node of a pod that wants the disk is given it, a second one only if several may have it; one without such pods has to give it back.
pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let mut plan = Plan::default();
    let Some((_, unique)) = unique_name(&observed.volume) else { return plan };
    let wanted = wanted(observed);
    let remembered = observed.remembered.given.iter().flat_map(|(_, nodes)| nodes).cloned();
    let listed: BTreeMap<&String, bool> =
        observed.nodes.iter().map(|(name, node)| (name, is_reported(node, &unique))).collect();
    let shown = listed.iter().filter(|(_, reported)| **reported).map(|(name, _)| (*name).clone());
    // A node that is gone has nothing.
    let mut holders: BTreeSet<String> =
        remembered.chain(shown).filter(|name| observed.nodes.contains_key(name)).collect();
    for node in holders.clone().into_iter().filter(|node| !wanted.contains_key(node)) {
        if let Some(forced) = let_go(observed, &unique, &node, now, &mut plan) {
            plan.steps.push(Step::Take { node, forced });
        }
    }
    for (node, users) in &wanted {
        let is_told = listed.get(node).copied().unwrap_or_default();
        match holders.contains(node) {
            true if is_told => {}
            false if !holders.is_empty() && !is_shared(&observed.volume) => {
                wait(observed, |other| holders.contains(other), &wanted, node, &mut plan);
            }
            _ => {
                plan.steps.push(Step::Report { node: node.clone(), users: users.clone() });
                holders.insert(node.clone());
            }
        }
    }
    plan.remembered.given = (!holders.is_empty()).then(|| (Arc::clone(&observed.volume), holders));
    plan
}
