//! Which requests a webhook or a policy is about: rules, scope, equivalent versions, selectors. Compiled once per change
//! of the configuration.

use machinery::selector::label::LabelSelector;
use machinery::status::ApiError;
use machinery::{Value, value};

use super::subject::Subject;
use crate::registry::Shared;

/// What is about a request, as a configuration describes it.
#[derive(Debug)]
pub struct Matching {
    equivalent: bool,
    /// `None` is about everything: a policy's binding need not repeat the rules of its policy.
    rules: Option<Vec<Rule>>,
    excluded: Vec<Rule>,
    namespaces: Result<LabelSelector, String>,
    objects: Result<LabelSelector, String>,
}

/// A rule about requests.
#[derive(Debug)]
struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<(String, String)>,
    names: Vec<String>,
    scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
}

/// What a rule looks at, besides the version of the resource.
#[derive(Debug, Clone, Copy)]
struct Seen<'a> {
    operation: &'a str,
    subresource: &'a str,
    namespaced: bool,
    name: &'a str,
}

impl Matching {
    /// Of a webhook: one without rules is about nothing.
    pub fn of_webhook(tree: &Value) -> Self {
        Self { rules: Some(rules(tree, "rules")), ..Self::read(tree) }
    }

    /// Of the constraints of a policy or of its binding: one without rules is about everything.
    pub fn of_policy(tree: &Value) -> Self {
        let rules = rules(tree, "resourceRules");
        Self { rules: (!rules.is_empty()).then_some(rules), ..Self::read(tree) }
    }

    fn read(tree: &Value) -> Self {
        let selector = |key: &str| match tree.get(key).filter(|selector| selector.is_object()) {
            Some(selector) => LabelSelector::from_value(selector),
            None => Ok(LabelSelector::everything()),
        };
        Self {
            equivalent: value::text(tree, "matchPolicy") != "Exact",
            rules: None,
            excluded: rules(tree, "excludeResourceRules"),
            namespaces: selector("namespaceSelector"),
            objects: selector("objectSelector"),
        }
    }

    /// The version of the resource in which the request is meant, if it is.
    pub fn matches(&self, subject: &Subject<'_>) -> Result<Option<Shared<facts::Resource>>, ApiError> {
        // The rules first: they are cheap, and what they do not mean is no business of a selector's error either.
        let Some(version) = self.version(subject) else { return Ok(None) };
        Ok((self.selects_object(subject)? && self.selects_namespace(subject)?).then_some(version))
    }

    /// The version asked for if a rule means it, or the first equivalent one that a rule means.
    fn version(&self, subject: &Subject<'_>) -> Option<Shared<facts::Resource>> {
        let info = subject.request.info;
        let seen = Seen {
            operation: subject.request.operation.name(),
            subresource: &info.subresource,
            namespaced: !info.namespace.is_empty() && !subject.is_namespace(),
            name: subject.name(),
        };
        if self.first(&self.excluded, seen, subject).is_some() {
            return None;
        }
        match &self.rules {
            None => Some(subject.request.facts.clone()),
            Some(rules) => self.first(rules, seen, subject),
        }
    }

    fn first(&self, rules: &[Rule], seen: Seen<'_>, subject: &Subject<'_>) -> Option<Shared<facts::Resource>> {
        let asked = subject.request.facts;
        if rules.iter().any(|rule| rule.matches(seen, asked)) {
            return Some(asked.clone());
        }
        if !self.equivalent {
            return None;
        }
        let versions = subject.versions();
        let others = || versions.iter().filter(|other| !std::ptr::eq(&***other, &**asked));
        rules.iter().find_map(|rule| others().find(|other| rule.matches(seen, other))).cloned()
    }

    /// Whether it looks at the object as it was or as it will be. Options to connect and to delete have no labels.
    fn selects_object(&self, subject: &Subject<'_>) -> Result<bool, ApiError> {
        let selector = self.objects.as_ref().map_err(ApiError::internal)?;
        let matches = |object: &Value| {
            let labels = value::at(object, "metadata.labels");
            selector.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str))
        };
        let labelled = |object: &&Value| object.get("metadata").is_some();
        Ok(selector.is_empty()
            || subject.new.filter(labelled).is_some_and(matches)
            || subject.old.filter(labelled).is_some_and(matches))
    }

    /// Whether it looks at the namespace. What is of no namespace is never left out; a namespace has its own labels.
    fn selects_namespace(&self, subject: &Subject<'_>) -> Result<bool, ApiError> {
        let selector = self.namespaces.as_ref().map_err(ApiError::internal)?;
        if selector.is_empty() {
            return Ok(true);
        }
        if subject.is_namespace()
            && let Some(new) = subject.new.filter(|_| subject.request.info.subresource.is_empty())
        {
            let labels = value::at(new, "metadata.labels");
            return Ok(selector.matches(|key| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str)));
        }
        let name = if subject.is_namespace() { subject.name() } else { &subject.request.info.namespace };
        if name.is_empty() {
            return Ok(true);
        }
        let namespace = subject.namespace(name)?;
        Ok(selector.matches(|key| namespace.meta().label(key)))
    }
}

fn rules(tree: &Value, key: &str) -> Vec<Rule> {
    value::list(tree, key).iter().map(Rule::read).collect()
}

impl Rule {
    fn read(tree: &Value) -> Self {
        let strings = |key: &str| -> Vec<String> {
            value::list(tree, key).iter().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let split = |word: &String| match word.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
            None => (word.clone(), String::new()),
        };
        Self {
            operations: strings("operations"),
            groups: strings("apiGroups"),
            versions: strings("apiVersions"),
            resources: strings("resources").iter().map(split).collect(),
            names: strings("resourceNames"),
            scope: match value::text(tree, "scope") {
                "Cluster" => Scope::Cluster,
                "Namespaced" => Scope::Namespaced,
                _ => Scope::All,
            },
        }
    }

    fn matches(&self, seen: Seen<'_>, facts: &facts::Resource) -> bool {
        let has = |list: &[String], wanted: &str| list.iter().any(|word| word == "*" || word == wanted);
        let scope = match self.scope {
            Scope::All => true,
            Scope::Cluster => !seen.namespaced,
            Scope::Namespaced => seen.namespaced,
        };
        scope
            && has(&self.operations, seen.operation)
            && has(&self.groups, &facts.group)
            && has(&self.versions, &facts.version)
            && self.resources.iter().any(|(resource, subresource)| {
                (resource == "*" || *resource == *facts.plural)
                    && (subresource == "*" || subresource == seen.subresource)
            })
            && (self.names.is_empty() || self.names.iter().any(|name| name == seen.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(rule: Value, operation: &str, subresource: &str, expect: bool) {
        let seen = Seen { operation, subresource, namespaced: true, name: "web" };
        let pods = facts::resource("", "v1", "pods").expect("pods");
        assert_eq!(Rule::read(&rule).matches(seen, pods), expect, "{rule} {operation} {subresource}");
    }

    #[test]
    fn rules_choose_requests() {
        let rule = |operations: Value, resources: Value, scope: &str| json!({"operations": operations, "apiGroups": [""], "apiVersions": ["*"], "resources": resources, "scope": scope});
        check(rule(json!(["CREATE"]), json!(["pods"]), "*"), "CREATE", "", true);
        check(rule(json!(["CREATE"]), json!(["pods"]), "*"), "UPDATE", "", false);
        check(rule(json!(["*"]), json!(["pods"]), "*"), "CREATE", "exec", false);
        check(rule(json!(["*"]), json!(["pods/*"]), "*"), "CONNECT", "exec", true);
        check(rule(json!(["*"]), json!(["*/exec"]), "*"), "CONNECT", "exec", true);
        check(rule(json!(["*"]), json!(["*"]), "*"), "UPDATE", "status", false);
        check(rule(json!(["*"]), json!(["*/*"]), "*"), "UPDATE", "status", true);
        check(rule(json!(["*"]), json!(["pods"]), "Cluster"), "CREATE", "", false);
        check(rule(json!(["*"]), json!(["pods"]), "Namespaced"), "CREATE", "", true);
        let mut named = rule(json!(["*"]), json!(["pods"]), "*");
        named["resourceNames"] = json!(["db"]);
        check(named.clone(), "CREATE", "", false);
        named["resourceNames"] = json!(["db", "web"]);
        check(named, "CREATE", "", true);
    }
}
