//! ABAC: a file with one policy per line. Kept for clusters that still have one.

use std::path::Path;

use machinery::rest::User;
use serde::Deserialize;

use super::{Attributes, Authorizer, Rule, Rules, Verdict};

/// Why a policy file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("error reading policy file {path}: {source}")]
    Read { path: String, source: std::io::Error },
    /// A line is no policy.
    #[error("error reading policy file {path}, line {line}: {source}")]
    Line {
        path: String,
        /// The line, from 1.
        line: usize,
        source: serde_json::Error,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    user: String,
    group: String,
    readonly: bool,
    api_group: String,
    resource: String,
    namespace: String,
    #[serde(rename = "nonResourcePath")]
    path: String,
}

#[derive(Debug, Deserialize)]
struct Line {
    spec: Spec,
}

/// The policies, in order.
#[derive(Debug)]
pub struct Abac(Vec<Spec>);

impl Abac {
    pub fn load(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: name.clone(), source })?;
        Self::parse(&text).map_err(|(line, source)| Error::Line { path: name, line, source })
    }

    fn parse(text: &str) -> Result<Self, (usize, serde_json::Error)> {
        let lines =
            text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.trim().starts_with('#'));
        let read = |(number, line): (usize, &str)| {
            serde_json::from_str::<Line>(line).map(|line| line.spec).map_err(|error| (number + 1, error))
        };
        lines.map(read).collect::<Result<_, _>>().map(Self)
    }
}

impl Spec {
    fn is_for(&self, user: &User) -> bool {
        let by_name = match self.user.as_str() {
            "" => None,
            "*" => Some(true),
            name => Some(name == user.name),
        };
        let by_group = match self.group.as_str() {
            "" => None,
            "*" => Some(true),
            group => Some(user.groups.iter().any(|own| own == group)),
        };
        by_name.unwrap_or(true) && by_group.unwrap_or(true) && (by_name.is_some() || by_group.is_some())
    }

    fn matches(&self, asked: &Attributes<'_>) -> bool {
        let is = |word: &str, wanted: &str| word == "*" || word == wanted;
        if !self.is_for(asked.user) || (self.readonly && !matches!(asked.verb, "get" | "list" | "watch")) {
            return false;
        }
        if asked.is_resource {
            is(&self.namespace, asked.namespace)
                && is(&self.resource, asked.resource)
                && is(&self.api_group, asked.group)
        } else {
            match self.path.strip_suffix('*') {
                Some(_) => asked.path.starts_with(self.path.trim_end_matches('*')),
                None => self.path == asked.path,
            }
        }
    }
}

impl Authorizer for Abac {
    fn authorize(&self, asked: &Attributes<'_>) -> Verdict {
        if self.0.iter().any(|policy| policy.matches(asked)) {
            return Verdict::ALLOW;
        }
        Verdict::no_opinion("No policy matched.")
    }

    fn rules(&self, user: &User, namespace: &str, rules: &mut Rules) {
        let one = |text: &str| if text.is_empty() { Vec::new() } else { vec![text.to_owned()] };
        for policy in self.0.iter().filter(|policy| policy.is_for(user)) {
            let verbs =
                if policy.readonly { vec!["get".to_owned(), "list".to_owned(), "watch".to_owned()] } else { one("*") };
            if !policy.resource.is_empty() && (policy.namespace == "*" || policy.namespace == namespace) {
                let (groups, resources) = (vec![policy.api_group.clone()], one(&policy.resource));
                rules.rules.push(Rule { verbs: verbs.clone(), groups, resources, ..Rule::default() }.into());
            }
            if !policy.path.is_empty() {
                rules.rules.push(Rule { verbs, urls: one(&policy.path), ..Rule::default() }.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICIES: &str = r#"
# a comment
{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"user":"alice","namespace":"*","resource":"*","apiGroup":"*"}}
{"spec":{"group":"viewers","namespace":"a","resource":"pods","readonly":true}}
{"spec":{"user":"*","nonResourcePath":"/healthz*"}}
"#;

    #[test]
    fn policies_match_by_subject_and_object() {
        let abac = Abac::parse(POLICIES).expect("policies");
        let check = |user: &str, verb: &str, group: &str, namespace: &str, expect: bool| {
            let user = User::new(user, [group]);
            let asked = Attributes::question(&user, verb, "", "pods", "").in_namespace(namespace);
            assert_eq!(abac.authorize(&asked).allows(), expect, "{user:?} {verb} {namespace}");
        };
        check("alice", "delete", "x", "b", true);
        check("bob", "get", "viewers", "a", true);
        check("bob", "create", "viewers", "a", false);
        check("bob", "get", "viewers", "b", false);
        check("bob", "get", "others", "a", false);
        let bob = User::new("bob", []);
        let path = |path| Attributes { is_resource: false, path, ..Attributes::question(&bob, "get", "", "", "") };
        assert!(abac.authorize(&path("/healthz/etcd")).allows());
        assert!(!abac.authorize(&path("/metrics")).allows());
        assert!(Abac::parse("{\"kind\":\"Policy\"}").is_err());
    }
}
