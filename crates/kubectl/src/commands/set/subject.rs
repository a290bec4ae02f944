//! `kubectl set subject`.

use machinery::value::{list, text};
use serde_json::{Value, json};

use super::{COMMON, apply};
use crate::command::{Command, Invocation};
use crate::error::Outcome;
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
    let (mut subjects, mut wrong) = (Vec::new(), None);
    for (flag, kind) in [("user", "User"), ("group", "Group")] {
        for name in flags.list(flag) {
            subjects.push(json!({"apiGroup": group, "kind": kind, "name": name}));
        }
    }
    for account in flags.list("serviceaccount") {
        let parts: Vec<&str> = account.split(':').collect();
        let [namespace, name] = parts[..] else {
            wrong = Some("serviceaccount must be <namespace>:<name>".to_owned());
            continue;
        };
        subjects.push(json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}));
    }
    if subjects.is_empty() && wrong.is_none() {
        wrong = Some("you must specify at least one value of user, group or serviceaccount".to_owned());
    }
    let arguments = invocation.arguments();
    apply(invocation, arguments, wrong, ("subjects updated", "failed to patch subjects to rolebinding:"), |info| {
        if !matches!(info.mapping.kind.as_str(), "RoleBinding" | "ClusterRoleBinding") {
            let only = "setting subjects is only supported for RoleBinding/ClusterRoleBinding";
            return Err(vec![if info.mapping.verbs.is_empty() {
                format!("error: {}\n {only}\n", info.named())
            } else {
                format!("error: {}/{} {only}", info.mapping.resource, info.name)
            }]);
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
