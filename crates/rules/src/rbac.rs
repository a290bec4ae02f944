//! One rule of a role: what it allows, what it covers, how upstream writes it.

use std::collections::BTreeMap;

use machinery::{Value, value};
use serde_json::json;

/// A `PolicyRule`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// The verbs, or `*`.
    pub verbs: Vec<String>,
    /// The API groups, or `*`.
    pub groups: Vec<String>,
    /// `resource`, `resource/subresource`, `*/subresource` or `*`.
    pub resources: Vec<String>,
    /// Names of objects; none is all.
    pub names: Vec<String>,
    /// Paths, in a rule that is not about resources.
    pub urls: Vec<String>,
}

impl Rule {
    /// From a role's tree.
    pub fn of(tree: &Value) -> Self {
        let strings = |key: &str| value::list(tree, key).iter().filter_map(Value::as_str).map(str::to_owned).collect();
        Self {
            verbs: strings("verbs"),
            groups: strings("apiGroups"),
            resources: strings("resources"),
            names: strings("resourceNames"),
            urls: strings("nonResourceURLs"),
        }
    }

    /// The rules that allow everything.
    pub fn everything() -> [Self; 2] {
        let all = || vec!["*".to_owned()];
        [
            Self { verbs: all(), groups: all(), resources: all(), ..Self::default() },
            Self { verbs: all(), urls: all(), ..Self::default() },
        ]
    }

    /// Whether it allows a verb on a resource, or on one of its objects.
    pub fn allows_resource(&self, verb: &str, group: &str, resource: &str, subresource: &str, name: &str) -> bool {
        has(&self.verbs, verb)
            && has(&self.groups, group)
            && self.resources.iter().any(|word| matches(word, resource, subresource))
            && (self.names.is_empty() || self.names.iter().any(|known| known == name))
    }

    /// Whether it allows a verb on a path that is no resource.
    pub fn allows_path(&self, verb: &str, path: &str) -> bool {
        has(&self.verbs, verb) && covers_url(&self.urls, path)
    }

    /// As `SelfSubjectRulesReview` lists it.
    pub fn to_value(&self) -> Value {
        let mut tree = json!({"verbs": self.verbs});
        let lists = [
            ("apiGroups", &self.groups),
            ("resources", &self.resources),
            ("resourceNames", &self.names),
            ("nonResourceURLs", &self.urls),
        ];
        for (key, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            tree[key] = json!(list);
        }
        tree
    }

    /// The rule taken apart: one verb on one resource (of one name) or one path each.
    fn parts(&self) -> Vec<Self> {
        let one = |text: &String| vec![text.clone()];
        let mut parts = Vec::new();
        for verb in &self.verbs {
            for group in &self.groups {
                for resource in &self.resources {
                    let part =
                        Self { verbs: one(verb), groups: one(group), resources: one(resource), ..Self::default() };
                    match self.names.as_slice() {
                        [] => parts.push(part),
                        names => parts.extend(names.iter().map(|name| Self { names: one(name), ..part.clone() })),
                    }
                }
            }
            parts.extend(self.urls.iter().map(|url| Self { verbs: one(verb), urls: one(url), ..Self::default() }));
        }
        parts
    }

    /// Whether whoever has this rule has the part too.
    fn covers(&self, part: &Self) -> bool {
        let names = match part.names.as_slice() {
            [] => self.names.is_empty(),
            names => self.names.is_empty() || names.iter().all(|name| self.names.contains(name)),
        };
        names
            && part.verbs.iter().all(|verb| has(&self.verbs, verb))
            && part.groups.iter().all(|group| has(&self.groups, group))
            && part.resources.iter().all(|resource| covers_resource(&self.resources, resource))
            && part.urls.iter().all(|url| covers_url(&self.urls, url))
    }

    /// As refusals write it.
    fn describe(&self) -> String {
        let fields = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let written: Vec<String> = fields
            .into_iter()
            .filter(|(_, list)| !list.is_empty())
            .map(|(field, list)| format!("{field}:{}", quoted(list)))
            .collect();
        format!("{{{}}}", written.join(", "))
    }
}

/// What of `wanted` is not covered by `held`, taken apart.
pub fn uncovered<'a>(held: impl Iterator<Item = &'a Rule> + Clone, wanted: &[Rule]) -> Vec<Rule> {
    wanted.iter().flat_map(Rule::parts).filter(|part| !held.clone().any(|rule| rule.covers(part))).collect()
}

/// What of `wanted` is not covered by `held`, as upstream lists it: verbs of a resource together, in order.
pub fn missing<'a>(held: impl Iterator<Item = &'a Rule> + Clone, wanted: &[Rule]) -> Vec<String> {
    let parts = uncovered(held, wanted);
    let mut by_subject: BTreeMap<[Vec<String>; 4], Rule> = BTreeMap::new();
    for part in parts {
        // A path is listed once per verb.
        let apart = if part.urls.is_empty() { Vec::new() } else { [&part.urls[..], &part.verbs[..]].concat() };
        let subject = [part.groups.clone(), part.resources.clone(), part.names.clone(), apart];
        match by_subject.get_mut(&subject) {
            Some(rule) => rule.verbs.extend(part.verbs),
            None => {
                by_subject.insert(subject, part);
            }
        }
    }
    let mut described: Vec<String> = by_subject.values().map(Rule::describe).collect();
    described.sort();
    described
}

/// A list of strings as Go's `%q` writes it.
pub fn quoted(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|text| format!("{text:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

fn has(list: &[String], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

/// Whether a rule's word for resources means this one.
fn matches(word: &str, resource: &str, subresource: &str) -> bool {
    if word == "*" {
        return true;
    }
    match (word.split_once('/'), subresource) {
        (None, "") => word == resource,
        (Some((of, sub)), subresource) if !subresource.is_empty() => {
            sub == subresource && (of == "*" || of == resource)
        }
        _ => false,
    }
}

fn covers_resource(held: &[String], wanted: &str) -> bool {
    has(held, wanted)
        || wanted.split_once('/').is_some_and(|(_, sub)| held.iter().any(|word| word.strip_prefix("*/") == Some(sub)))
}

fn covers_url(held: &[String], wanted: &str) -> bool {
    held.iter().any(|url| match url.strip_suffix('*') {
        Some(_) => wanted.starts_with(url.trim_end_matches('*')),
        None => url == wanted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        // verbs groups resources [names], or verbs /paths
        let words: Vec<Vec<String>> =
            text.split(' ').map(|list| list.split(',').map(|word| word.replace("core", "")).collect()).collect();
        match words.as_slice() {
            [verbs, urls] => Rule { verbs: verbs.clone(), urls: urls.clone(), ..Rule::default() },
            [verbs, groups, resources, names @ ..] => Rule {
                verbs: verbs.clone(),
                groups: groups.clone(),
                resources: resources.clone(),
                names: names.concat(),
                ..Rule::default()
            },
            _ => panic!("{text}"),
        }
    }

    #[test]
    fn rules_allow_what_they_say_and_no_more() {
        // rule; verb group resource[/subresource] [name]; allowed
        for (given, asked, allowed) in [
            ("get core pods", "get core pods x", true),
            ("get core pods", "list core pods", false),
            ("get core pods", "get core pods/log x", false),
            ("get core pods/log", "get core pods/log x", true),
            ("get core pods/log", "get core pods x", false),
            ("get core */log", "get core pods/log x", true),
            ("get core */log", "get core pods/exec x", false),
            ("* * *", "frobnicate any things/deep x", true),
            ("get * pods", "get apps pods", true),
            ("get apps pods", "get core pods", false),
            ("get core pods a,b", "get core pods b", true),
            ("get core pods a,b", "get core pods c", false),
            ("get core pods a,b", "list core pods", false),
            ("get /healthz", "get core pods", false),
        ] {
            let words: Vec<&str> = asked.split(' ').map(|word| if word == "core" { "" } else { word }).collect();
            let (resource, subresource) = words[2].split_once('/').unwrap_or((words[2], ""));
            let name = words.get(3).copied().unwrap_or_default();
            let answer = rule(given).allows_resource(words[0], words[1], resource, subresource, name);
            assert_eq!(answer, allowed, "{given} ▸ {asked}");
        }
        for (given, path, allowed) in [
            ("get /healthz", "/healthz", true),
            ("get /healthz", "/healthz/etcd", false),
            ("get /healthz/*", "/healthz/etcd", true),
            ("get *", "/anything", true),
            ("post *", "/anything", false),
        ] {
            assert_eq!(rule(given).allows_path("get", path), allowed, "{given} ▸ {path}");
        }
    }

    #[test]
    fn what_is_not_held_is_listed_as_upstream_lists_it() {
        let check = |held: &[&str], wanted: &[&str], expect: &[&str]| {
            let held: Vec<Rule> = held.iter().map(|text| rule(text)).collect();
            let wanted: Vec<Rule> = wanted.iter().map(|text| rule(text)).collect();
            assert_eq!(missing(held.iter(), &wanted), expect, "{held:?} {wanted:?}");
        };
        check(&["* * *"], &["get,list core pods", "get apps deployments/scale x"], &[]);
        check(&["* * *"], &["get /x"], &[r#"{NonResourceURLs:["/x"], Verbs:["get"]}"#]);
        check(&["get /x*"], &["get /x/y"], &[]);
        check(&["get core pods", "list core pods"], &["get,list core pods"], &[]);
        check(&["get core */log"], &["get core pods/log"], &[]);
        check(&["get core pods x"], &["get core pods"], &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get"]}"#]);
        check(&["get core pods"], &["get core pods x"], &[]);
        check(
            &["get core pods"],
            &["get,list,watch core pods,secrets"],
            &[
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}"#,
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list" "watch"]}"#,
            ],
        );
    }
}
