//! The group `scheduling.k8s.io`: priorities, and pods that are scheduled together.

pub mod cells;
pub mod composite_pod_group;
pub mod groups;
pub mod pod_group;
pub mod priority_class;
#[cfg(test)]
mod tests;
pub mod workload;

use crate::kind::Kind;
use crate::strategy::PlainWithStatus;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("compositepodgroups", "CompositePodGroup")
        .strategy(&PlainWithStatus)
        .columns(&composite_pod_group::columns::TABLE),
    Kind::new("podgroups", "PodGroup").strategy(&pod_group::PodGroups).columns(&pod_group::columns::TABLE),
    Kind::new("priorityclasses", "PriorityClass")
        .strategy(&priority_class::PriorityClasses)
        .columns(&priority_class::columns::TABLE),
    Kind::new("workloads", "Workload").strategy(&workload::Workloads).columns(&workload::columns::TABLE),
];
