//! The group `node.k8s.io`.

pub mod runtime_class;

use crate::kind::Kind;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[Kind::new("runtimeclasses", "RuntimeClass")
    .strategy(&runtime_class::RuntimeClasses)
    .columns(&runtime_class::columns::TABLE)];
