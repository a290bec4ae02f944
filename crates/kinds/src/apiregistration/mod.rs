//! The group `apiregistration.k8s.io`: who answers for which group.

pub mod api_service;

use crate::kind::Kind;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[Kind::new("apiservices", "APIService")
    .strategy(&api_service::ApiServices)
    .columns(&api_service::columns::TABLE)
    .stored_at("apiregistration.k8s.io/apiservices")];
