//! `kubectl auth can-i`.

use machinery::value::{flag, list, text};
use serde_json::{Value, json};

use crate::api::JSON;
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::print::tabs::Tabs;

/// Verbs that are asked about without surprise.
const VERBS: [&str; 15] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "use",
    "bind",
    "impersonate",
    "*",
    "approve",
    "sign",
    "escalate",
];

pub static COMMAND: Command = Command {
    name: "can-i",
    aliases: &[],
    usage: "VERB [TYPE | TYPE/NAME | NONRESOURCEURL]",
    short: "Check whether an action is allowed",
    flags: &[
        sets::ALL_NAMESPACES,
        &[
            Flag::bool("list", "Show everything that is allowed."),
            Flag::bool("no-headers", "Print no headers."),
            Flag::bool("quiet", "Only the exit code says it.").short('q'),
            Flag::string("subresource", "", "Part of the object."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let flags = &invocation.flags;
    let arguments = flags.arguments.clone();
    if flags.is("list") {
        if !arguments.is_empty() {
            return Err(Failure::message("list option must be specified with no arguments"));
        }
        if flags.is("quiet") || flags.is("all-namespaces") || !flags.text("subresource").is_empty() {
            return Err(Failure::message(
                "list option can't be specified with neither quiet, all-namespaces nor subresource options",
            ));
        }
        return rules(invocation).await;
    }
    let (verb, what, name) = match &arguments[..] {
        [verb, what] => match what.split_once('/') {
            Some(("", _)) | None => (verb.clone(), what.clone(), String::new()),
            Some((kind, name)) => (verb.clone(), kind.to_owned(), name.to_owned()),
        },
        _ => {
            return Err(Failure::message(
                "you must specify two arguments: verb resource or verb resource/resourceName.\nSee 'kubectl auth can-i -h' for help and examples.",
            ));
        }
    };
    if flags.is("no-headers") {
        return Err(Failure::message("--no-headers cannot be set without --list specified"));
    }
    let subresource = flags.text("subresource").to_owned();
    if what.starts_with('/') && !subresource.is_empty() {
        return Err(Failure::message("--subresource can not be used with NonResourceURL"));
    }
    if what.starts_with('/') && !name.is_empty() {
        return Err(Failure::message("NonResourceURL and ResourceName can not specified together"));
    }
    if !VERBS.contains(&verb.as_str()) && !what.starts_with('/') {
        invocation.streams.error(&format!("Warning: verb '{verb}' is not a known verb\n"));
    }
    let spec = spec(invocation, &verb, &what, &name, &subresource).await?;
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer = invocation.session.api()?.send(http::Method::POST, path, JSON, &review).await?;
    let allowed = flag(&answer, "status.allowed");
    if !invocation.flags.is("quiet") {
        let mut line = if allowed { "yes".to_owned() } else { "no".to_owned() };
        for field in ["status.reason", "status.evaluationError"] {
            if !allowed && !text(&answer, field).is_empty() {
                line += &format!(" - {}", text(&answer, field));
            }
        }
        invocation.say(&line)?;
    }
    if allowed { Ok(()) } else { Err(Failure::Exit(1)) }
}

/// What is asked about: a path, or a resource as the server knows it.
async fn spec(invocation: &mut Invocation, verb: &str, what: &str, name: &str, subresource: &str) -> Outcome<Value> {
    if what.starts_with('/') {
        return Ok(json!({"nonResourceAttributes": {"path": what, "verb": verb}}));
    }
    let mut namespace = invocation.session.namespace()?;
    if invocation.flags.is("all-namespaces") {
        namespace.clear();
    }
    let (resource, group, version) = match invocation.session.mapping(what).await {
        _ if what == "*" => ("*".to_owned(), "*".to_owned(), String::new()),
        Ok(mapping) => {
            if !mapping.namespaced && !invocation.flags.is("all-namespaces") {
                invocation
                    .streams
                    .error(&format!("Warning: resource '{}' is not namespace scoped\n", mapping.resource));
            }
            if !mapping.namespaced {
                namespace.clear();
            }
            (mapping.resource, mapping.group, String::new())
        }
        Err(_) => {
            let (resource, group) = what.split_once('.').unwrap_or((what, ""));
            let place = if group.is_empty() { String::new() } else { format!(" in group '{group}'") };
            invocation
                .streams
                .error(&format!("Warning: the server doesn't have a resource type '{resource}'{place}\n"));
            (resource.to_owned(), group.to_owned(), String::new())
        }
    };
    let mut attributes = json!({"verb": verb, "resource": resource});
    for (field, value) in [
        ("group", group.as_str()),
        ("version", &version),
        ("namespace", &namespace),
        ("name", name),
        ("subresource", subresource),
    ] {
        if !value.is_empty() {
            attributes[field] = value.into();
        }
    }
    Ok(json!({"resourceAttributes": attributes}))
}

async fn rules(invocation: &mut Invocation) -> Outcome {
    let namespace = invocation.session.namespace()?;
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": namespace},
    });
    let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let answer = invocation.session.api()?.send(http::Method::POST, path, JSON, &review).await?;
    if flag(&answer, "status.incomplete") {
        let why = text(&answer, "status.evaluationError").to_owned();
        let tail = if why.is_empty() { String::new() } else { format!(": {why}") };
        invocation.streams.error(&format!("warning: the list may be incomplete{tail}"));
    }
    let words = |rule: &Value, field: &str| -> Vec<String> {
        list(rule, field).iter().filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let mut rows: Vec<(String, [String; 4])> = Vec::new();
    for rule in list(&answer, "status.resourceRules") {
        let groups = words(rule, "apiGroups");
        let names = each_name(&words(rule, "resourceNames"));
        let verbs = format!("[{}]", words(rule, "verbs").join(" "));
        for resource in words(rule, "resources") {
            for group in &groups {
                let what = if group.is_empty() { resource.clone() } else { format!("{resource}.{group}") };
                // Upstream sorts rules by how Go prints them.
                let key = format!("Verbs:{verbs},APIGroups:[{group}],Resources:[{resource}],");
                rows.extend(
                    names
                        .iter()
                        .map(|name| (key.clone(), [what.clone(), "[]".to_owned(), name.clone(), verbs.clone()])),
                );
            }
        }
    }
    for rule in list(&answer, "status.nonResourceRules") {
        let verbs = format!("[{}]", words(rule, "verbs").join(" "));
        for path in words(rule, "nonResourceURLs") {
            let key = format!("Verbs:{verbs},APIGroups:[],Resources:[],NonResourceURLs:[{path}]");
            rows.push((key, [String::new(), format!("[{path}]"), "[]".to_owned(), verbs.clone()]));
        }
    }
    rows.sort();
    // What several rules say alike of resources is shown once.
    rows.dedup_by(|one, other| one == other && !one.1[0].is_empty());
    let mut table = String::new();
    if !invocation.flags.is("no-headers") {
        table += "Resources\tNon-Resource URLs\tResource Names\tVerbs\n";
    }
    table.extend(rows.iter().map(|(_, row)| row.join("\t") + "\n"));
    let text = Tabs::new().align(&table);
    invocation.print(&text)
}

/// A row for each name that a rule is about, or one for all.
fn each_name(names: &[String]) -> Vec<String> {
    if names.is_empty() { vec!["[]".to_owned()] } else { names.iter().map(|name| format!("[{name}]")).collect() }
}

#[cfg(test)]
mod tests {
    use super::each_name;

    #[test]
    fn every_name_of_a_rule_has_a_row() {
        assert_eq!(each_name(&["a".to_owned(), "b".to_owned()]), ["[a]", "[b]"]);
        assert_eq!(each_name(&[]), ["[]"]);
    }
}
