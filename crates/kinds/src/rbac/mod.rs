//! The group `rbac.authorization.k8s.io`: roles and bindings.

pub mod role;
pub mod role_binding;
#[cfg(test)]
mod tests;

use crate::kind::Kind;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("clusterrolebindings", "ClusterRoleBinding")
        .strategy(&role_binding::Bindings { namespaced: false })
        .columns(&role_binding::columns::CLUSTER_ROLE_BINDING),
    Kind::new("clusterroles", "ClusterRole").strategy(&role::Roles { namespaced: false }),
    Kind::new("rolebindings", "RoleBinding")
        .strategy(&role_binding::Bindings { namespaced: true })
        .columns(&role_binding::columns::ROLE_BINDING),
    Kind::new("roles", "Role").strategy(&role::Roles { namespaced: true }),
];
