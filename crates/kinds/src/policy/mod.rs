//! The group `policy`.

pub mod pod_disruption_budget;

use crate::kind::Kind;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[Kind::new("poddisruptionbudgets", "PodDisruptionBudget")
    .strategy(&pod_disruption_budget::DisruptionBudgets)
    .columns(&pod_disruption_budget::columns::TABLE)];
