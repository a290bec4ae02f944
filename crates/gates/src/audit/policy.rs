//! What is written about a request: an `audit.k8s.io/v1` Policy, whose first matching rule decides.

use std::path::Path;

use machinery::rest::User;
use machinery::status::FieldError;
use machinery::{Value, codec, names, value};
use serde_json::json;

use crate::RequestInfo;

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("failed to read file path {path:?}: {why}")]
    Read { path: String, why: String },
    /// The file makes no sense.
    #[error("{why}: from file {path}")]
    Policy { path: String, why: String },
}

/// How much is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    None,
    /// Who did what, and what came of it.
    Metadata,
    /// Also the object that was sent.
    Request,
    /// Also the object that was answered.
    RequestResponse,
}

impl Level {
    const ALL: [Self; 4] = [Self::None, Self::Metadata, Self::Request, Self::RequestResponse];

    /// As events name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "None",
            Self::Metadata => "Metadata",
            Self::Request => "Request",
            Self::RequestResponse => "RequestResponse",
        }
    }
}

/// When something is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Before anything is done.
    RequestReceived,
    /// The answer of a long-running request begins.
    ResponseStarted,
    /// The answer is complete.
    ResponseComplete,
    /// The server failed over it.
    Panic,
}

impl Stage {
    const ALL: [Self; 4] = [Self::RequestReceived, Self::ResponseStarted, Self::ResponseComplete, Self::Panic];

    /// As events name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RequestReceived => "RequestReceived",
            Self::ResponseStarted => "ResponseStarted",
            Self::ResponseComplete => "ResponseComplete",
            Self::Panic => "Panic",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What the policy says about one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ruling {
    pub level: Level,
    omitted: u8,
    /// Whether objects are written without their `managedFields`.
    pub omit_managed_fields: bool,
}

impl Ruling {
    /// Whether anything is written at a stage.
    pub fn covers(&self, stage: Stage) -> bool {
        self.level > Level::None && self.omitted & stage.bit() == 0
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Resources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    ruling: Ruling,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    namespaces: Vec<String>,
    resources: Vec<Resources>,
    urls: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
    otherwise: Ruling,
}

impl Policy {
    /// Reads the file of `--audit-policy-file`.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| Error::Read { path: name.clone(), why: error.to_string() })?;
        let failed = |why: String| Error::Policy { path: name.clone(), why };
        let decoded = codec::yaml::decode(&bytes, codec::Limits::default());
        let tree = decoded.map_err(|error| failed(format!("failed decoding: {}", error.message)))?.value;
        Self::read(&tree).map_err(failed)
    }

    fn read(tree: &Value) -> Result<Self, String> {
        let (version, kind) = (value::text(tree, "apiVersion"), value::text(tree, "kind"));
        if (version, kind) != ("audit.k8s.io/v1", "Policy") {
            return Err(format!("unknown group version field {version}, Kind={kind} in policy"));
        }
        let mut errors = Vec::new();
        let omitted = stages(tree, "omitStages", &mut errors);
        let omit_managed_fields = value::flag(tree, "omitManagedFields");
        let rules: Vec<Rule> = value::list(tree, "rules")
            .iter()
            .enumerate()
            .map(|(at, rule)| Rule::read(rule, &format!("rules[{at}]"), omitted, omit_managed_fields, &mut errors))
            .collect();
        if let [first, rest @ ..] = errors.as_slice() {
            let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
            return Err(if rest.is_empty() { first.to_string() } else { format!("[{}]", all.join(", ")) });
        }
        if rules.is_empty() {
            return Err("loaded illegal policy with 0 rules".to_owned());
        }
        Ok(Self { rules, otherwise: Ruling { level: Level::None, omitted, omit_managed_fields } })
    }

    /// What it says about a request. The first rule that matches decides; none is silence.
    pub fn of(&self, user: &User, info: &RequestInfo) -> Ruling {
        self.rules.iter().find(|rule| rule.matches(user, info)).map_or(self.otherwise, |rule| rule.ruling)
    }
}

impl Rule {
    fn read(rule: &Value, at: &str, omitted: u8, omit_managed: bool, errors: &mut Vec<FieldError>) -> Self {
        let texts = |field: &str| -> Vec<String> {
            value::list(rule, field).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let level = match value::text(rule, "level") {
            "" => {
                errors.push(FieldError::required(format!("{at}.level"), ""));
                Level::None
            }
            given => Level::ALL.into_iter().find(|level| level.name() == given).unwrap_or_else(|| {
                let names = ["Metadata", "None", "Request", "RequestResponse"];
                errors.push(FieldError::not_supported(format!("{at}.level"), given, names));
                Level::None
            }),
        };
        let urls = texts("nonResourceURLs");
        for (index, url) in urls.iter().enumerate().filter(|(_, url)| *url != "*") {
            let path = format!("{at}.nonResourceURLs[{index}]");
            if !url.starts_with('/') {
                let why = "non-resource URL rules must begin with a '/' character";
                errors.push(FieldError::invalid(path.clone(), url.as_str(), why));
            }
            if url.char_indices().any(|(place, character)| character == '*' && place + 1 < url.len()) {
                let why = "non-resource URL wildcards '*' must be the final character of the rule";
                errors.push(FieldError::invalid(path, url.as_str(), why));
            }
        }
        let resources: Vec<Resources> = value::list(rule, "resources")
            .iter()
            .map(|entry| {
                let texts = |field: &str| -> Vec<String> {
                    value::list(entry, field).iter().filter_map(Value::as_str).map(str::to_owned).collect()
                };
                let group = value::text(entry, "group").to_owned();
                let problems = names::is_dns1123_subdomain(&group);
                if !group.is_empty() && group != "*" && !problems.is_empty() {
                    let path = format!("{at}.resources.group");
                    errors.push(FieldError::invalid(path, group.as_str(), problems.join(",")));
                }
                let found = Resources { group, resources: texts("resources"), names: texts("resourceNames") };
                if !found.names.is_empty() && found.resources.is_empty() {
                    let path = format!("{at}.resources.resourceNames");
                    let why = "using resourceNames requires at least one resource";
                    errors.push(FieldError::invalid(path, json!(found.names), why));
                }
                found
            })
            .collect();
        let omitted = omitted | stages(rule, &format!("{at}.omitStages"), errors);
        let namespaces = texts("namespaces");
        if !urls.is_empty() && (!resources.is_empty() || !namespaces.is_empty()) {
            let why = "rules cannot apply to both regular resources and non-resource URLs";
            errors.push(FieldError::invalid(format!("{at}.nonResourceURLs"), json!(urls), why));
        }
        let omit_managed_fields = rule.get("omitManagedFields").and_then(Value::as_bool).unwrap_or(omit_managed);
        let ruling = Ruling { level, omitted, omit_managed_fields };
        let (users, groups, verbs) = (texts("users"), texts("userGroups"), texts("verbs"));
        Self { ruling, users, groups, verbs, namespaces, resources, urls }
    }

    fn matches(&self, user: &User, info: &RequestInfo) -> bool {
        let names = |list: &[String], wanted: &str| list.iter().any(|name| name == wanted);
        if !self.users.is_empty() && !names(&self.users, &user.name) {
            return false;
        }
        if !self.groups.is_empty() && !user.groups.iter().any(|group| names(&self.groups, group)) {
            return false;
        }
        if !self.verbs.is_empty() && !names(&self.verbs, info.verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            return info.is_resource
                && (self.namespaces.is_empty() || names(&self.namespaces, &info.namespace))
                && (self.resources.is_empty() || self.resources.iter().any(|resources| resources.match_to(info)));
        }
        if !self.urls.is_empty() {
            return !info.is_resource && self.urls.iter().any(|url| path_matches(&info.path, url));
        }
        true
    }
}

impl Resources {
    fn match_to(&self, info: &RequestInfo) -> bool {
        if self.group != "*" && self.group != info.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.names.is_empty() && !self.names.contains(&info.name) {
            return false;
        }
        self.resources.iter().any(|named| match named.split_once('/') {
            _ if named == "*" => true,
            Some(("*", subresource)) => !info.subresource.is_empty() && subresource == info.subresource,
            Some((resource, "*")) => resource == info.resource,
            Some((resource, subresource)) => resource == info.resource && subresource == info.subresource,
            None => *named == info.resource && info.subresource.is_empty(),
        })
    }
}

fn path_matches(path: &str, named: &str) -> bool {
    match named.strip_suffix('*') {
        Some(beginning) => path.starts_with(beginning.trim_end_matches('*')),
        None => path == named,
    }
}

/// The stages of `omitStages` in `tree`, which is at `path`.
fn stages(tree: &Value, path: &str, errors: &mut Vec<FieldError>) -> u8 {
    let mut omitted = 0;
    for (at, given) in value::list(tree, "omitStages").iter().enumerate() {
        let given = given.as_str().unwrap_or_default();
        match Stage::ALL.into_iter().find(|stage| stage.name() == given) {
            Some(stage) => omitted |= stage.bit(),
            None => {
                let why = format!("allowed stages are {}", Stage::ALL.map(Stage::name).join(","));
                errors.push(FieldError::invalid(format!("{path}[{at}]"), given, why));
            }
        }
    }
    omitted
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::query::Query;

    fn policy(rules: Value) -> Result<Policy, String> {
        Policy::read(&json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    }

    /// Whether a rule for `Metadata` matches jane's request.
    fn check(rule: Value, method: &str, path: &str, expect: bool) {
        let mut rule = rule;
        rule["level"] = json!("Metadata");
        let policy = policy(json!([rule])).expect("a policy");
        let user = User::new("jane", ["devs"]);
        let info = RequestInfo::of(&method.parse().expect("a method"), path, &Query::default());
        assert_eq!(policy.of(&user, &info).level == Level::Metadata, expect, "{rule} {method} {path}");
    }

    #[test]
    fn rules_match_as_upstreams() {
        let pod = "/api/v1/namespaces/a/pods/web";
        for (rule, path, expect) in [
            (json!({}), pod, true),
            (json!({"users": ["jane"]}), pod, true),
            (json!({"users": ["joe"]}), pod, false),
            (json!({"userGroups": ["ops", "devs"]}), pod, true),
            (json!({"userGroups": ["ops"]}), pod, false),
            (json!({"verbs": ["get"]}), pod, true),
            (json!({"verbs": ["list"]}), pod, false),
            (json!({"namespaces": ["a"]}), pod, true),
            (json!({"namespaces": ["b"]}), pod, false),
            (json!({"namespaces": [""]}), "/api/v1/nodes/n1", true),
            (json!({"resources": [{"group": ""}]}), pod, true),
            (json!({"resources": [{"group": "apps"}]}), pod, false),
            (json!({"resources": [{"group": "*", "resources": ["pods"]}]}), pod, true),
            (json!({"resources": [{"resources": ["pods"]}]}), "/api/v1/namespaces/a/pods/web/log", false),
            (json!({"resources": [{"resources": ["pods/log"]}]}), "/api/v1/namespaces/a/pods/web/log", true),
            (json!({"resources": [{"resources": ["*/log"]}]}), "/api/v1/namespaces/a/pods/web/log", true),
            (json!({"resources": [{"resources": ["*/log"]}]}), pod, false),
            (json!({"resources": [{"resources": ["pods/*"]}]}), "/api/v1/namespaces/a/pods/web/log", true),
            (json!({"resources": [{"resources": ["*"]}]}), "/api/v1/namespaces/a/pods/web/log", true),
            (json!({"resources": [{"resources": ["pods"], "resourceNames": ["web"]}]}), pod, true),
            (json!({"resources": [{"resources": ["pods"], "resourceNames": ["db"]}]}), pod, false),
            (json!({"nonResourceURLs": ["/healthz*"]}), "/healthz/etcd", true),
            (json!({"nonResourceURLs": ["/healthz"]}), "/healthz/etcd", false),
            (json!({"nonResourceURLs": ["*"]}), "/version", true),
            (json!({"nonResourceURLs": ["*"]}), pod, false),
            (json!({"resources": [{"group": ""}]}), "/version", false),
        ] {
            check(rule, "GET", path, expect);
        }
    }

    #[test]
    fn the_first_rule_decides_and_its_stages_add_up() {
        let policy = Policy::read(&json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "omitManagedFields": true,
            "rules": [
                {"level": "None", "verbs": ["get"]},
                {"level": "Request", "verbs": ["create"], "omitStages": ["Panic"], "omitManagedFields": false},
                {"level": "RequestResponse", "verbs": ["delete", "create"]},
            ],
        }))
        .expect("a policy");
        let ruling = |method: &str| {
            let info = RequestInfo::of(
                &method.parse().expect("a method"),
                "/api/v1/namespaces/a/pods",
                &Query::parse("fieldSelector=metadata.name%3Dx"),
            );
            policy.of(&User::new("jane", []), &info)
        };
        let create = ruling("POST");
        assert_eq!((create.level, create.omit_managed_fields), (Level::Request, false));
        assert!(!create.covers(Stage::RequestReceived) && !create.covers(Stage::Panic));
        assert!(create.covers(Stage::ResponseComplete));
        assert_eq!(ruling("PATCH").level, Level::None, "nothing is said about patches");
    }

    #[test]
    fn policies_that_make_no_sense_are_refused() {
        for (rules, expect) in [
            (json!([]), "loaded illegal policy with 0 rules"),
            (json!([{}]), "rules[0].level: Required value"),
            (
                json!([{"level": "All"}]),
                "rules[0].level: Unsupported value: \"All\": supported values: \"Metadata\", \"None\", \"Request\", \"RequestResponse\"",
            ),
            (json!([{"level": "None", "nonResourceURLs": ["healthz"]}]), "must begin with a '/'"),
            (json!([{"level": "None", "nonResourceURLs": ["/a*b"]}]), "must be the final character"),
            (json!([{"level": "None", "nonResourceURLs": ["/"], "namespaces": ["a"]}]), "cannot apply to both"),
            (json!([{"level": "None", "resources": [{"group": "a/b"}]}]), "rules[0].resources.group: Invalid value"),
            (json!([{"level": "None", "resources": [{"resourceNames": ["a"]}]}]), "requires at least one resource"),
            (json!([{"level": "None", "omitStages": ["x"]}]), "rules[0].omitStages[0]: Invalid value: \"x\""),
        ] {
            let error = policy(rules.clone()).expect_err("refused");
            assert!(error.contains(expect), "{rules}: {error}");
        }
        assert!(Policy::read(&json!({"kind": "Policy"})).is_err());
    }
}
