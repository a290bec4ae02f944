//! The group `coordination.k8s.io`: who leads.

pub mod lease;
pub mod lease_candidate;
#[cfg(test)]
mod tests;

use crate::kind::{Deprecation, Kind};

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("leasecandidates", "LeaseCandidate")
        .strategy(&lease_candidate::LeaseCandidates)
        .columns(&lease_candidate::columns::TABLE)
        .deprecated(&[Deprecation::new("v1alpha2", 35).until(38), Deprecation::new("v1beta1", 36).until(39)]),
    Kind::new("leases", "Lease").strategy(&lease::Leases).columns(&lease::columns::TABLE),
];
