//! The group `lifecycle.k8s.io`: evictions that are asked for and carried out as objects.

pub mod eviction;
pub mod eviction_request;
pub mod targets;

use crate::kind::Kind;
use crate::strategy::PlainWithStatus;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("evictionrequests", "EvictionRequest")
        .strategy(&PlainWithStatus)
        .columns(&eviction_request::columns::TABLE),
    Kind::new("evictions", "Eviction").strategy(&PlainWithStatus).columns(&eviction::columns::TABLE),
];
