//! rbac.authorization.k8s.io: the bindings. Roles have no columns of their own.

use jiff::Timestamp;
use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, name};
use crate::table::{AGE, NAME, Printer, of, own, text};

pub static ROLE_BINDING: Printer = Printer::new(
    &[
        NAME,
        text("Role", of("io.k8s.api.rbac.v1.RoleBinding", "roleRef")),
        AGE,
        text("Users", own("The users who have the role.")).wide(),
        text("Groups", own("The groups that have the role.")).wide(),
        text("ServiceAccounts", own("The service accounts that have the role.")).wide(),
    ],
    binding,
);

pub static CLUSTER_ROLE_BINDING: Printer = Printer::new(
    &[
        NAME,
        text("Role", of("io.k8s.api.rbac.v1.ClusterRoleBinding", "roleRef")),
        AGE,
        text("Users", own("The users who have the role.")).wide(),
        text("Groups", own("The groups that have the role.")).wide(),
        text("ServiceAccounts", own("The service accounts that have the role.")).wide(),
    ],
    binding,
);

fn binding(object: &Value, now: Timestamp) -> Vec<Value> {
    let subjects = |kind: &str| {
        let of_kind = value::list(object, "subjects").iter().filter(|subject| value::text(subject, "kind") == kind);
        let shown = of_kind.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", value::text(subject, "namespace"), value::text(subject, "name")),
            _ => value::text(subject, "name").to_owned(),
        });
        shown.collect::<Vec<_>>().join(", ")
    };
    vec![
        name(object),
        json!(format!("{}/{}", value::text(object, "roleRef.kind"), value::text(object, "roleRef.name"))),
        age(object, now),
        json!(subjects("User")),
        json!(subjects("Group")),
        json!(subjects("ServiceAccount")),
    ]
}
