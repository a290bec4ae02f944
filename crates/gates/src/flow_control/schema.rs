//! Flow schemas: which requests belong to which priority level, and what makes a flow within it. Pure.

use machinery::rest::User;
use machinery::{Value, value};

use crate::RequestInfo;

/// What makes the requests of a schema one flow or many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distinguisher {
    /// All are one flow.
    None,
    /// A flow per user.
    User,
    /// A flow per namespace.
    Namespace,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    User(String),
    Group(String),
    ServiceAccount { namespace: String, name: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ResourceRule {
    verbs: Vec<String>,
    groups: Vec<String>,
    resources: Vec<String>,
    namespaces: Vec<String>,
    cluster_scope: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PathRule {
    verbs: Vec<String>,
    paths: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

/// A FlowSchema, as far as it decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    pub name: String,
    /// Its uid, which answers carry.
    pub uid: String,
    /// Whose requests these are.
    pub level: String,
    pub precedence: i64,
    /// What makes a flow.
    pub distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

fn texts(tree: &Value, field: &str) -> Vec<String> {
    value::list(tree, field).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Schema {
    pub fn read(object: &Value) -> Self {
        let text = |path: &str| value::text(object, path).to_owned();
        let rules = value::list(object, "spec.rules").iter().map(|rule| Rule {
            subjects: value::list(rule, "subjects").iter().filter_map(Subject::read).collect(),
            resources: value::list(rule, "resourceRules")
                .iter()
                .map(|rule| ResourceRule {
                    verbs: texts(rule, "verbs"),
                    groups: texts(rule, "apiGroups"),
                    resources: texts(rule, "resources"),
                    namespaces: texts(rule, "namespaces"),
                    cluster_scope: value::flag(rule, "clusterScope"),
                })
                .collect(),
            paths: value::list(rule, "nonResourceRules")
                .iter()
                .map(|rule| PathRule { verbs: texts(rule, "verbs"), paths: texts(rule, "nonResourceURLs") })
                .collect(),
        });
        Self {
            name: text("metadata.name"),
            uid: text("metadata.uid"),
            level: text("spec.priorityLevelConfiguration.name"),
            precedence: value::int(object, "spec.matchingPrecedence").unwrap_or(1000),
            distinguisher: match value::text(object, "spec.distinguisherMethod.type") {
                "ByUser" => Distinguisher::User,
                "ByNamespace" => Distinguisher::Namespace,
                _ => Distinguisher::None,
            },
            rules: rules.collect(),
        }
    }

    /// Whether a request is one of its.
    pub fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        self.rules.iter().any(|rule| {
            rule.subjects.iter().any(|subject| subject.is(user))
                && if info.is_resource {
                    rule.resources.iter().any(|rule| rule.matches(info))
                } else {
                    rule.paths.iter().any(|rule| rule.matches(info))
                }
        })
    }

    /// What tells a request's flow from the others of the schema.
    pub fn flow<'a>(&self, user: &'a User, info: &'a RequestInfo) -> &'a str {
        match self.distinguisher {
            Distinguisher::None => "",
            Distinguisher::User => &user.name,
            Distinguisher::Namespace => &info.namespace,
        }
    }
}

impl Subject {
    fn read(subject: &Value) -> Option<Self> {
        let text = |path: &str| value::text(subject, path).to_owned();
        match value::text(subject, "kind") {
            "User" => Some(Self::User(text("user.name"))),
            "Group" => Some(Self::Group(text("group.name"))),
            "ServiceAccount" => {
                let (namespace, name) = (text("serviceAccount.namespace"), text("serviceAccount.name"));
                Some(Self::ServiceAccount { namespace, name })
            }
            _ => None,
        }
    }

    fn is(&self, user: &User) -> bool {
        match self {
            Self::User(name) => name == "*" || *name == user.name,
            Self::Group(name) => name == "*" || user.groups.contains(name),
            Self::ServiceAccount { namespace, name } => {
                let account = user.name.strip_prefix("system:serviceaccount:");
                let account = account.and_then(|rest| rest.strip_prefix(namespace.as_str())?.strip_prefix(':'));
                account.is_some_and(|account| name == "*" || account == name)
            }
        }
    }
}

/// Whether a list names something, or everything.
fn names(list: &[String], wanted: &str) -> bool {
    matches!(list, [all] if all == "*") || list.iter().any(|name| name == wanted)
}

impl ResourceRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        let resource = match info.subresource.as_str() {
            "" => names(&self.resources, &info.resource),
            subresource => {
                matches!(self.resources.as_slice(), [all] if all == "*")
                    || self.resources.iter().any(|name| {
                        let rest = name.strip_prefix(info.resource.as_str()).and_then(|rest| rest.strip_prefix('/'));
                        rest == Some(subresource)
                    })
            }
        };
        resource
            && names(&self.verbs, info.verb)
            && names(&self.groups, &info.group)
            && if info.namespace.is_empty() { self.cluster_scope } else { names(&self.namespaces, &info.namespace) }
    }
}

impl PathRule {
    fn matches(&self, info: &RequestInfo) -> bool {
        names(&self.verbs, info.verb)
            && self.paths.iter().any(|path| {
                let below = path.trim_end_matches('*').trim_end_matches('/');
                path == "*"
                    || *path == info.path
                    || info.path.strip_prefix(below).is_some_and(|rest| rest.starts_with('/'))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::query::Query;
    use serde_json::json;

    fn check(subject: Value, rule: Value, who: &User, what: (&str, &str), expect: bool) {
        let kind = if rule.get("nonResourceURLs").is_some() { "nonResourceRules" } else { "resourceRules" };
        let schema = Schema::read(&json!({"spec": {"rules": [{"subjects": [subject], kind: [rule]}]}}));
        let info = RequestInfo::of(&what.0.parse().expect("a method"), what.1, &Query::default());
        assert_eq!(schema.matches(who, &info), expect, "{subject} {rule} {} {what:?}", who.name);
    }

    #[test]
    fn requests_are_matched_as_upstream_does() {
        let jane = User::new("jane", ["devs"]);
        let bot = User::new("system:serviceaccount:kube-system:bot", ["system:serviceaccounts"]);
        let group = |name: &str| json!({"kind": "Group", "group": {"name": name}});
        let account = |name: &str| json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": name}});
        let all =
            json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true});
        let pods = ("GET", "/api/v1/namespaces/a/pods");
        check(group("devs"), all.clone(), &jane, pods, true);
        check(group("ops"), all.clone(), &jane, pods, false);
        check(group("*"), all.clone(), &jane, pods, true);
        check(json!({"kind": "User", "user": {"name": "jane"}}), all.clone(), &jane, pods, true);
        check(account("*"), all.clone(), &bot, pods, true);
        check(account("bot"), all.clone(), &bot, pods, true);
        check(account("other"), all.clone(), &bot, pods, false);
        check(account("*"), all.clone(), &jane, pods, false);
        let rule = |changes: Value| {
            let mut rule = all.clone();
            for (key, text) in changes.as_object().expect("changes") {
                rule[key] = text.clone();
            }
            rule
        };
        for (changes, what, expect) in [
            (json!({"verbs": ["list"]}), pods, true),
            (json!({"verbs": ["get"]}), pods, false),
            (json!({"apiGroups": ["apps"]}), pods, false),
            (json!({"namespaces": ["b"]}), pods, false),
            (json!({"namespaces": ["a"]}), pods, true),
            (json!({"clusterScope": false}), ("GET", "/api/v1/nodes"), false),
            (json!({"resources": ["nodes", "nodes/status"]}), ("PATCH", "/api/v1/nodes/n1/status"), true),
            (json!({"resources": ["nodes"]}), ("PATCH", "/api/v1/nodes/n1/status"), false),
        ] {
            check(group("devs"), rule(changes), &jane, what, expect);
        }
        let probes = json!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*"]});
        check(group("devs"), probes.clone(), &jane, ("GET", "/healthz"), true);
        check(group("devs"), probes.clone(), &jane, ("GET", "/healthz/etcd"), true);
        check(group("devs"), probes.clone(), &jane, ("GET", "/healthzz"), false);
        check(group("devs"), probes.clone(), &jane, ("GET", "/logs/x"), true);
        check(group("devs"), probes, &jane, ("GET", "/version"), false);
    }
}
