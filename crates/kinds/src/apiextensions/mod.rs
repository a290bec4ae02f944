//! The group `apiextensions.k8s.io`: definitions of other kinds.

pub mod custom_resource_definition;

use crate::kind::Kind;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[Kind::new("customresourcedefinitions", "CustomResourceDefinition")
    .strategy(&custom_resource_definition::Definitions)
    .columns(&custom_resource_definition::columns::TABLE)
    .converted(&custom_resource_definition::convert::CONVERSIONS)
    .stored_at("apiextensions.k8s.io/customresourcedefinitions")];
