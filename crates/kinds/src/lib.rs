//! Everything about single kinds that is logic: which objects are good, what the server fills in, how a kind looks as a table and in
//! its other versions. Pure: no I/O, no clock, no client. What a kind *is* comes from `facts`.
//!
//! A group is a folder, and a kind is a folder in it: `core/pod`, `apps/deployment`. Its `mod.rs` has the [`Strategy`], its
//! `columns.rs` what a table shows, its `convert.rs` the way between versions, its `tests.rs` what upstream says. The table `KINDS` of the group
//! ties them together, and `GROUPS` here ties the groups together. Rules that several kinds share are in `checks`; what imitates the
//! wording of upstream's code is in `wording`. A kind that is in no table needs nothing special.

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod autoscaling;
mod batch;
mod certificates;
mod checks;
pub mod convert;
mod coordination;
mod core;
mod discovery;
mod flowcontrol;
mod internal_apiserver;
pub mod keep;
mod kind;
mod lifecycle;
mod networking;
mod node;
#[cfg(test)]
mod paths;
pub mod place;
mod policy;
mod rbac;
mod resource;
mod scheduling;
mod shared;
mod storage;
mod storagemigration;
pub mod strategy;
pub mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_of_writes;
pub mod wording;

use facts::Resource as Facts;

pub use apiextensions::custom_resource_definition::violations as structural_violations;
use kind::Kind;
pub use shared::Shared;
use strategy::{Plain, Strategy};

/// What the server that gives a Service its addresses asks of the kind.
pub mod service {
    pub use crate::core::service::fill::complete;
    pub use crate::core::service::{families, related_errors};
}

pub use crate::core::pod::subresources as pod;
pub use policy::pod_disruption_budget::subresources as budget;

/// Every group that has kinds with something special, by its name.
const GROUPS: &[(&str, &[Kind])] = &[
    ("", core::KINDS),
    ("admissionregistration.k8s.io", admissionregistration::KINDS),
    ("apiextensions.k8s.io", apiextensions::KINDS),
    ("apiregistration.k8s.io", apiregistration::KINDS),
    ("apps", apps::KINDS),
    ("autoscaling", autoscaling::KINDS),
    ("batch", batch::KINDS),
    ("certificates.k8s.io", certificates::KINDS),
    ("coordination.k8s.io", coordination::KINDS),
    ("discovery.k8s.io", discovery::KINDS),
    ("events.k8s.io", core::EVENTS),
    ("flowcontrol.apiserver.k8s.io", flowcontrol::KINDS),
    ("internal.apiserver.k8s.io", internal_apiserver::KINDS),
    ("lifecycle.k8s.io", lifecycle::KINDS),
    ("networking.k8s.io", networking::KINDS),
    ("node.k8s.io", node::KINDS),
    ("policy", policy::KINDS),
    ("rbac.authorization.k8s.io", rbac::KINDS),
    ("resource.k8s.io", resource::KINDS),
    ("scheduling.k8s.io", scheduling::KINDS),
    ("storage.k8s.io", storage::KINDS),
    ("storagemigration.k8s.io", storagemigration::KINDS),
];

fn rows(group: &str) -> impl Iterator<Item = &'static Kind> {
    GROUPS.iter().filter(move |(name, _)| *name == group).flat_map(|(_, kinds)| kinds.iter())
}

/// What is special about a built-in kind, if anything is.
fn kind(group: &str, kind: &str) -> Option<&'static Kind> {
    rows(group).find(|row| row.kind() == kind)
}

/// What is special about a built-in resource, if anything is.
fn resource(facts: &Facts) -> Option<&'static Kind> {
    rows(&facts.group).find(|row| row.plural() == facts.plural)
}

/// The strategy of a built-in kind.
pub fn strategy(group: &str, kind: &str) -> &'static dyn Strategy {
    crate::kind(group, kind).map_or(&Plain, Kind::rules)
}

/// The warning for clients of a version of a built-in kind that is deprecated.
pub fn deprecation(facts: &Facts) -> Option<String> {
    resource(facts)?.deprecation(facts)
}
