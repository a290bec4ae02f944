//! The rules of a role that is made from flags.

use serde_json::{Value, json};

use crate::command::Invocation;
use crate::error::{Failure, Outcome};

/// What the flags ask for.
#[derive(Debug, Default)]
pub struct Asked {
    pub verbs: Vec<String>,
    pub resources: Vec<Resource>,
    pub names: Vec<String>,
    pub urls: Vec<String>,
}

impl Asked {
    pub fn is_empty(&self) -> bool {
        self.verbs.is_empty() && self.resources.is_empty() && self.names.is_empty() && self.urls.is_empty()
    }
}

/// `resource.group/subresource`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resource {
    pub group: String,
    pub resource: String,
    pub subresource: String,
}

pub fn resources(words: &[String]) -> Vec<Resource> {
    let mut found = Vec::new();
    for word in words {
        let (whole, subresource) = word.split_once('/').unwrap_or((word, ""));
        let (resource, group) = whole.split_once('.').unwrap_or((whole, ""));
        let one =
            Resource { group: group.to_owned(), resource: resource.to_owned(), subresource: subresource.to_owned() };
        // All resources are one.
        if word == "*" {
            return vec![one];
        }
        found.push(one);
    }
    found
}

const KNOWN: [&str; 11] =
    ["get", "delete", "list", "create", "update", "patch", "watch", "proxy", "deletecollection", "use", "bind"];
const MORE: [&str; 2] = ["escalate", "impersonate"];
const URL_VERBS: [&str; 8] = ["get", "put", "post", "head", "options", "delete", "patch", "*"];

pub fn validate_cluster_role(asked: &Asked) -> Result<(), String> {
    if asked.verbs.is_empty() {
        return Err("at least one verb must be specified".to_owned());
    }
    if asked.resources.is_empty() && asked.urls.is_empty() {
        return Err("one of resource or nonResourceURL must be specified".to_owned());
    }
    if !asked.urls.is_empty() {
        if let Some(verb) = asked.verbs.iter().find(|verb| !URL_VERBS.contains(&verb.as_str())) {
            return Err(format!("invalid verb: '{verb}' for nonResourceURL"));
        }
        for url in asked.urls.iter().filter(|url| *url != "*") {
            if !url.starts_with('/') {
                return Err("nonResourceURL should start with /".to_owned());
            }
            if url.trim_end_matches('*').contains('*') {
                return Err("nonResourceURL only supports wildcard matches when '*' is at the end".to_owned());
            }
        }
    }
    Ok(())
}

const RBAC: &str = "rbac.authorization.k8s.io";

/// Verbs that only some resources know, each with its group.
const SPECIAL: [(&str, &[(&str, &str)]); 4] = [
    ("use", &[("policy", "podsecuritypolicies"), ("extensions", "podsecuritypolicies")]),
    ("bind", &[(RBAC, "roles"), (RBAC, "clusterroles")]),
    ("escalate", &[(RBAC, "roles"), (RBAC, "clusterroles")]),
    ("impersonate", &[("", "users"), ("", "serviceaccounts"), ("", "groups"), ("authentication.k8s.io", "userextras")]),
];

/// A verb that this resource does not know.
fn special<'a>(verbs: &'a [String], of: (&str, &str)) -> Option<&'a str> {
    let refused = |verb: &&str| SPECIAL.iter().any(|(special, known)| special == verb && !known.contains(&of));
    verbs.iter().map(String::as_str).find(refused)
}

/// Whether one of the verbs knows this resource although no server serves it.
fn known_to(verbs: &[String], of: (&str, &str)) -> bool {
    SPECIAL.iter().any(|(special, known)| verbs.iter().any(|verb| verb == special) && known.contains(&of))
}

/// One rule for each group, with its resources as the server names them, and one for paths.
pub async fn rules(invocation: &mut Invocation, asked: &Asked) -> Outcome<Vec<Value>> {
    for verb in &asked.verbs {
        if verb != "*"
            && !KNOWN.contains(&verb.as_str())
            && !MORE.contains(&verb.as_str())
            && !asked.resources.is_empty()
        {
            invocation.streams.error(&format!("Warning: '{verb}' is not a standard resource verb"));
        }
    }
    let mut groups: Vec<(String, Vec<String>)> = Vec::new();
    for one in &asked.resources {
        if one.resource.is_empty() {
            return Err(Failure::message("resource must be specified if apiGroup/subresource specified"));
        }
        let (group, mut name) = if one.resource == "*" {
            (one.group.clone(), "*".to_owned())
        } else {
            let word =
                if one.group.is_empty() { one.resource.clone() } else { format!("{}.{}", one.resource, one.group) };
            let mapping = invocation.session.mapping(&word).await.map_err(Failure::without_prefix);
            let known = mapping.as_ref().map_or((one.group.as_str(), one.resource.as_str()), |mapping| {
                (mapping.group.as_str(), mapping.resource.as_str())
            });
            match special(&asked.verbs, known) {
                Some(verb) => {
                    let (group, resource) = known;
                    return Err(Failure::Message(format!(
                        "can not perform '{verb}' on '{resource}' in group '{group}'"
                    )));
                }
                None if mapping.is_err() && known_to(&asked.verbs, known) => (one.group.clone(), one.resource.clone()),
                None => mapping.map(|mapping| (mapping.group, mapping.resource))?,
            }
        };
        if !one.subresource.is_empty() {
            name = format!("{name}/{}", one.subresource);
        }
        match groups.iter_mut().find(|(known, _)| *known == group) {
            Some((_, names)) if names.contains(&name) => {}
            Some((_, names)) => names.push(name),
            None => groups.push((group, vec![name])),
        }
    }
    groups.sort();
    let rule = |(group, resources): (String, Vec<String>)| {
        let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": asked.verbs});
        if !asked.names.is_empty() {
            rule["resourceNames"] = json!(asked.names);
        }
        rule
    };
    let mut rules: Vec<Value> = groups.into_iter().map(rule).collect();
    if !asked.urls.is_empty() {
        rules.push(json!({"nonResourceURLs": asked.urls, "verbs": asked.verbs}));
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_know_resources_that_nobody_serves() {
        for (verb, of, refused, known) in [
            ("impersonate", ("", "users"), false, true),
            ("impersonate", ("", "pods"), true, false),
            ("get", ("", "users"), false, false),
            ("bind", (RBAC, "roles"), false, true),
        ] {
            let verbs = [verb.to_owned()];
            assert_eq!((special(&verbs, of).is_some(), known_to(&verbs, of)), (refused, known), "{verb} {of:?}");
        }
    }

    #[test]
    fn resources_are_taken_apart() {
        let one = |word: &str| resources(&[word.to_owned()]).remove(0);
        assert_eq!(
            one("pods/log"),
            Resource { resource: "pods".to_owned(), subresource: "log".to_owned(), ..Default::default() }
        );
        assert_eq!(
            one("deployments.apps"),
            Resource { resource: "deployments".to_owned(), group: "apps".to_owned(), ..Default::default() }
        );
        assert_eq!(resources(&["pods".to_owned(), "*".to_owned()]).len(), 1);
    }
}
