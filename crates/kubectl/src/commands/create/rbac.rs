//! `kubectl create role`, `clusterrole`, `rolebinding` and `clusterrolebinding`.

use serde_json::{Value, json};

use super::rbac_rules::{self, Asked};
use super::{GENERATOR, generated, name};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::Flag;

const GROUP: &str = "rbac.authorization.k8s.io";

static RULES: &[Flag] = &[
    Flag::array("resource-name", "Object that the rule is about."),
    Flag::slice("resource", "Resource that the rule is about."),
    Flag::slice("verb", "What may be done."),
];

pub static ROLE: Command = Command {
    name: "role",
    aliases: &[],
    usage: "NAME --verb=verb --resource=resource.group/subresource [--resource-name=resourcename] [--dry-run=server|client|none]",
    short: "Create a role with single rule",
    flags: &[GENERATOR, RULES],
    children: &[],
    run: Some(|invocation| Box::pin(role(invocation))),
};

pub static CLUSTER_ROLE: Command = Command {
    name: "clusterrole",
    aliases: &[],
    usage: "NAME --verb=verb --resource=resource.group [--resource-name=resourcename] [--dry-run=server|client|none]",
    short: "Create a cluster role",
    flags: &[
        GENERATOR,
        RULES,
        &[
            Flag::array("aggregation-rule", "Label of roles to aggregate, as key=value."),
            Flag::slice("non-resource-url", "Path that the rule is about."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(cluster_role(invocation))),
};

static SUBJECTS: &[Flag] = &[
    Flag::string("clusterrole", "", "ClusterRole to bind."),
    Flag::array("group", "Group to bind it to."),
    Flag::array("serviceaccount", "Service account to bind it to, as namespace:name."),
    Flag::array("user", "User to bind it to."),
];

pub static ROLE_BINDING: Command = Command {
    name: "rolebinding",
    aliases: &[],
    usage: "NAME --clusterrole=NAME|--role=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    short: "Create a role binding for a particular role or cluster role",
    flags: &[GENERATOR, SUBJECTS, &[Flag::string("role", "", "Role to bind.")]],
    children: &[],
    run: Some(|invocation| Box::pin(role_binding(invocation))),
};

pub static CLUSTER_ROLE_BINDING: Command = Command {
    name: "clusterrolebinding",
    aliases: &[],
    usage: "NAME --clusterrole=NAME [--user=username] [--group=groupname] [--serviceaccount=namespace:serviceaccountname] [--dry-run=server|client|none]",
    short: "Create a cluster role binding for a particular cluster role",
    flags: &[GENERATOR, SUBJECTS],
    children: &[],
    run: Some(|invocation| Box::pin(cluster_role_binding(invocation))),
};

fn unique(list: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    for item in list {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

async fn role(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let asked = Asked {
        verbs: verbs(unique(invocation.flags.list("verb"))),
        resources: rbac_rules::resources(&invocation.flags.list("resource")),
        names: unique(invocation.flags.list("resource-name")),
        urls: Vec::new(),
    };
    if asked.verbs.is_empty() {
        return Err(Failure::message("at least one verb must be specified"));
    }
    if asked.resources.is_empty() {
        return Err(Failure::message("at least one resource must be specified"));
    }
    let rules = rbac_rules::rules(invocation, &asked).await?;
    let object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": {"name": name}, "rules": rules,
    });
    generated(invocation, "", object).await
}

/// All verbs are one.
fn verbs(list: Vec<String>) -> Vec<String> {
    if list.iter().any(|verb| verb == "*") { vec!["*".to_owned()] } else { list }
}

async fn cluster_role(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let flags = &invocation.flags;
    let aggregation = flags.list("aggregation-rule");
    let mut labels = serde_json::Map::new();
    for given in &aggregation {
        for pair in given.split(',') {
            let odd = || {
                Failure::Message(format!(
                    "invalid argument {} for \"--aggregation-rule\" flag: malformed pair, expect string=string\nSee 'kubectl create clusterrole --help' for usage.",
                    machinery::status::go_quote(given)
                ))
            };
            let (key, value) = pair.split_once('=').ok_or_else(odd)?;
            labels.insert(key.to_owned(), value.into());
        }
    }
    let asked = Asked {
        verbs: verbs(unique(flags.list("verb"))),
        resources: rbac_rules::resources(&flags.list("resource")),
        names: unique(flags.list("resource-name")),
        urls: unique(flags.list("non-resource-url")),
    };
    let mut object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": {"name": name}});
    if aggregation.is_empty() {
        rbac_rules::validate_cluster_role(&asked).map_err(Failure::Message)?;
        object["rules"] = Value::Array(rbac_rules::rules(invocation, &asked).await?);
        return generated(invocation, "", object).await;
    }
    if !asked.is_empty() {
        return Err(Failure::message(
            "aggregation rule must be specified without nonResourceURLs, verbs, resources or resourceNames",
        ));
    }
    object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
    object["rules"] = Value::Null;
    generated(invocation, "", object).await
}

fn subjects(invocation: &Invocation) -> Outcome<Vec<Value>> {
    let mut subjects = Vec::new();
    for (flag, kind) in [("user", "User"), ("group", "Group")] {
        for name in unique(invocation.flags.list(flag)) {
            subjects.push(json!({"apiGroup": GROUP, "kind": kind, "name": name}));
        }
    }
    for account in unique(invocation.flags.list("serviceaccount")) {
        let parts: Vec<&str> = account.split(':').collect();
        let [namespace, name] = parts[..] else {
            return Err(Failure::message("serviceaccount must be <namespace>:<name>"));
        };
        if name.is_empty() || namespace.is_empty() {
            return Err(Failure::message("serviceaccount must be <namespace>:<name>"));
        }
        subjects.push(json!({"kind": "ServiceAccount", "name": name, "namespace": namespace}));
    }
    Ok(subjects)
}

async fn role_binding(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let (role, cluster) = (invocation.flags.text("role").to_owned(), invocation.flags.text("clusterrole").to_owned());
    if role.is_empty() == cluster.is_empty() {
        return Err(Failure::message("exactly one of clusterrole or role must be specified"));
    }
    let (kind, of) = if role.is_empty() { ("ClusterRole", cluster) } else { ("Role", role) };
    binding(invocation, "RoleBinding", &name, kind, &of).await
}

async fn cluster_role_binding(invocation: &mut Invocation) -> Outcome {
    let name = name(invocation)?;
    let of = invocation.flags.text("clusterrole").to_owned();
    binding(invocation, "ClusterRoleBinding", &name, "ClusterRole", &of).await
}

async fn binding(invocation: &mut Invocation, kind: &str, name: &str, of_kind: &str, of: &str) -> Outcome {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": of_kind, "name": of},
    });
    let subjects = subjects(invocation)?;
    if !subjects.is_empty() {
        object["subjects"] = Value::Array(subjects);
    }
    generated(invocation, &format!("{}:", kind.to_lowercase()), object).await
}
