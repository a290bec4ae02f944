//! `kubectl set subject`.

use machinery::value::{list, text};
use serde_json::{Value, json};

use super::{COMMON, apply};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};

pub static COMMAND: Command = Command {
    name: "subject",
    aliases: &[],
    usage: "(-f FILENAME | TYPE NAME) [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    short: "Update the user, group, or service account in a role binding or cluster role binding",
    flags: &[
        &[Flag::array("user", "User to bind it to.")],
        sets::PRINT,
        sets::FILENAME,
        sets::SELECTOR,
        sets::DRY_RUN,
        COMMON,
        &[
            Flag::array("group", "Group to bind it to."),
            Flag::array("serviceaccount", "Service account to bind it to, as namespace:name."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let flags = &invocation.flags;
    let group = "rbac.authorization.k8s.io";
    let mut subjects = Vec::new();
    for (flag, kind) in [("user", "User"), ("group", "Group")] {
        for name in flags.list(flag) {
            subjects.push(json!({"apiGroup": group, "kind": kind, "name": name}));
        }
    }
    for account in flags.list("serviceaccount") {
        let parts: Vec<&str> = account.split(':').collect();
        let [namespace, name] = parts[..] else {
            return Err(Failure::message("serviceaccount must be <namespace>:<name>"));
        };
        subjects.push(json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}));
    }
    if subjects.is_empty() {
        return Err(Failure::message("you must specify at least one value of user, group or serviceaccount"));
    }
    let arguments = invocation.arguments();
    apply(invocation, arguments, "subjects updated", "failed to patch subjects to rolebinding:", |info| {
        if !matches!(info.mapping.kind.as_str(), "RoleBinding" | "ClusterRoleBinding") {
            return Err(vec!["setting subjects is only supported for RoleBinding/ClusterRoleBinding".to_owned()]);
        }
        let mut all = list(&info.object, "subjects").to_vec();
        let same = |one: &Value, other: &Value| {
            ["kind", "name", "namespace"].iter().all(|field| text(one, field) == text(other, field))
        };
        for subject in &subjects {
            if !all.iter().any(|known| same(known, subject)) {
                all.push(subject.clone());
            }
        }
        info.object["subjects"] = Value::Array(all);
        Ok(())
    })
    .await
}
