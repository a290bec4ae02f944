//! The group `discovery.k8s.io`.

pub mod endpoint_slice;

use crate::kind::Kind;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[Kind::new("endpointslices", "EndpointSlice")
    .strategy(&endpoint_slice::EndpointSlices)
    .columns(&endpoint_slice::columns::TABLE)];
