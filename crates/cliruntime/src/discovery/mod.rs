//! What a server serves: groups, versions and resources, asked for in two requests where the server can answer so.

pub mod cache;
mod fetch;

pub use fetch::{PATIENCE, fetch};

use serde::{Deserialize, Deserializer};

/// A resource of one version.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    pub group: String,
    pub version: String,
    /// The plural name, as it stands in paths.
    pub resource: String,
    pub singular: String,
    pub kind: String,
    pub namespaced: bool,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub verbs: Vec<String>,
}

impl Mapping {
    pub fn api_version(&self) -> String {
        facts::api_version(&self.group, &self.version)
    }

    /// `deployments.apps`, as messages name it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.resource.clone() } else { format!("{}.{}", self.resource, self.group) }
    }

    /// `deployment.apps`, as `-o name` and lists of several kinds name it.
    pub fn kind_name(&self) -> String {
        let kind = self.kind.to_lowercase();
        if self.group.is_empty() { kind } else { format!("{kind}.{}", self.group) }
    }

    /// The path of the collection, or of one object, or of a part of it.
    pub fn path(&self, namespace: &str, name: &str, subresource: &str) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if self.namespaced && !namespace.is_empty() {
            path += &format!("/namespaces/{}", segment(namespace));
        }
        path += &format!("/{}", self.resource);
        if !name.is_empty() {
            path += &format!("/{}", segment(name));
        }
        if !subresource.is_empty() {
            path += &format!("/{subresource}");
        }
        path
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

/// What Go escapes in the value of a query.
const QUERY: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Escapes what may not stand in a path.
pub fn segment(text: &str) -> String {
    const ESCAPED: &percent_encoding::AsciiSet = &QUERY.remove(b':');
    percent_encoding::utf8_percent_encode(text, ESCAPED).to_string()
}

/// A query of `name=value` pairs; those without a value are left out.
pub fn query(pairs: &[(&str, &str)]) -> String {
    whole_query(pairs.iter().copied().filter(|(_, value)| !value.is_empty()).collect())
}

/// A query of all of these pairs: an empty word of a command is a word.
pub fn whole_query(mut pairs: Vec<(&str, &str)>) -> String {
    // In the order of their names, and with a plus for a space, as Go writes them. Stable: words of a command stay as they are.
    pairs.sort_by_key(|(name, _)| *name);
    let parts: Vec<String> = pairs
        .into_iter()
        .map(|(name, value)| {
            format!("{name}={}", percent_encoding::utf8_percent_encode(value, QUERY).to_string().replace("%20", "+"))
        })
        .collect();
    if parts.is_empty() { String::new() } else { format!("?{}", parts.join("&")) }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Group {
    pub name: String,
    /// In the server's order of preference.
    pub versions: Vec<String>,
    pub preferred: String,
}

/// What a server serves.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Discovery {
    pub groups: Vec<Group>,
    /// Subresources have a slash in their name; in the order of groups and versions.
    pub resources: Vec<Mapping>,
    /// Groups whose servers do not answer, with the reason.
    pub failed: Vec<(String, String)>,
    /// Whether it was asked for just now.
    pub fresh: bool,
}

impl Discovery {
    /// Resources themselves, without subresources: of each group the preferred version first.
    pub fn ordered(&self) -> impl Iterator<Item = &Mapping> {
        self.groups.iter().flat_map(move |group| {
            let others = group.versions.iter().filter(move |version| **version != group.preferred);
            std::iter::once(&group.preferred).chain(others).flat_map(move |version| {
                self.resources.iter().filter(move |mapping| {
                    mapping.group == group.name && mapping.version == *version && !mapping.resource.contains('/')
                })
            })
        })
    }

    /// What a word means: a plural, a singular, a kind or a short name, with or without a version and a group.
    pub fn resource(&self, word: &str) -> Option<&Mapping> {
        let lower = word.to_lowercase();
        let parts: Vec<&str> = lower.splitn(3, '.').collect();
        if let [name, version, group] = parts[..]
            && let Some(found) = self.named(name, Some(group), Some(version))
        {
            return Some(found);
        }
        let (name, group) = lower.split_once('.').map_or((&*lower, None), |(name, group)| (name, Some(group)));
        self.named(name, group, None).or_else(|| {
            let (kind, group) = word.split_once('.').map_or((word, None), |(kind, group)| (kind, Some(group)));
            // A kind may be written small.
            let named = |mapping: &&Mapping| mapping.kind == kind || mapping.kind.to_lowercase() == kind;
            self.ordered().find(|mapping| named(mapping) && group.is_none_or(|group| mapping.group == group))
        })
    }

    fn named(&self, name: &str, group: Option<&str>, version: Option<&str>) -> Option<&Mapping> {
        let of_version = |mapping: &&Mapping| version.is_none_or(|version| mapping.version == version);
        let fits = |mapping: &&Mapping| mapping.is_called(name);
        let short = |mapping: &&Mapping| mapping.short_names.iter().any(|short| short == name);
        let exact = |mapping: &&Mapping| group.is_none_or(|group| mapping.group == group);
        // A group may be cut short, where no other is called so.
        let prefix = |mapping: &&Mapping| group.is_some_and(|group| mapping.group.starts_with(group));
        let all = || self.ordered().filter(of_version);
        all()
            .find(|mapping| fits(mapping) && exact(mapping))
            .or_else(|| all().find(|mapping| fits(mapping) && prefix(mapping)))
            .or_else(|| all().find(|mapping| short(mapping) && exact(mapping)))
            .or_else(|| all().find(|mapping| short(mapping) && prefix(mapping)))
    }

    /// Other resources that a short name could mean as well, in their order.
    pub fn also_meant(&self, word: &str) -> Vec<String> {
        let mut found: Vec<(&str, &str)> = Vec::new();
        for mapping in self.ordered().filter(|mapping| mapping.short_names.iter().any(|short| short == word)) {
            let named = (mapping.resource.as_str(), mapping.group.as_str());
            if !found.contains(&named) {
                found.push(named);
            }
        }
        let shown = |(resource, group): &(&str, &str)| match *group {
            "" => (*resource).to_owned(),
            group => format!("{resource}.{group}"),
        };
        found.iter().skip(1).map(shown).collect()
    }

    /// The resource of a kind. Without a version it is the preferred one.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<&Mapping> {
        let (group, version) = match api_version.split_once('/') {
            Some((group, version)) => (group, version),
            None => ("", api_version),
        };
        self.ordered().find(|mapping| {
            mapping.kind == kind && mapping.group == group && (version.is_empty() || mapping.version == version)
        })
    }

    /// The resource of a kind in a group, in the preferred version.
    pub fn group_kind(&self, group: &str, kind: &str) -> Option<&Mapping> {
        self.ordered().find(|mapping| mapping.kind == kind && mapping.group == group)
    }

    /// Resources of a category such as `all`.
    pub fn category(&self, name: &str) -> Vec<&Mapping> {
        let mut found: Vec<&Mapping> = Vec::new();
        for mapping in self.ordered().filter(|mapping| mapping.categories.iter().any(|known| known == name)) {
            if !found.iter().any(|other| other.group == mapping.group && other.resource == mapping.resource) {
                found.push(mapping);
            }
        }
        found
    }

    /// Whether a resource has a subresource.
    pub fn has_subresource(&self, mapping: &Mapping, subresource: &str) -> bool {
        let name = format!("{}/{subresource}", mapping.resource);
        self.resources
            .iter()
            .any(|other| other.resource == name && other.group == mapping.group && other.version == mapping.version)
    }
}

impl Mapping {
    /// Whether this is its plural or its singular.
    fn is_called(&self, name: &str) -> bool {
        self.resource == name || (!self.resource.contains('/') && self.singular_name() == name)
    }

    fn singular_name(&self) -> String {
        if self.singular.is_empty() { self.kind.to_lowercase() } else { self.singular.clone() }
    }
}

/// An `APIResourceList`.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Resources {
    #[serde(deserialize_with = "or_default")]
    resources: Vec<Entry>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Entry {
    name: String,
    singular_name: String,
    namespaced: bool,
    group: String,
    version: String,
    kind: String,
    #[serde(deserialize_with = "or_default")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    categories: Vec<String>,
    #[serde(deserialize_with = "or_default")]
    verbs: Vec<String>,
}

impl Entry {
    /// As it stands in the list of this version.
    fn mapping(self, group: &str, version: &str) -> Mapping {
        // A subresource may be of another group than what it belongs to.
        let keep = self.name.contains('/');
        let or = |own: String, listed: &str| if keep || own.is_empty() { listed.to_owned() } else { own };
        Mapping {
            group: or(self.group, group),
            version: or(self.version, version),
            resource: self.name,
            singular: self.singular_name,
            kind: self.kind,
            namespaced: self.namespaced,
            short_names: self.short_names,
            categories: self.categories,
            verbs: self.verbs,
        }
    }
}

/// What is null is as if it were not there.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(group: &str, version: &str, resource: &str, kind: &str, short: &str) -> Mapping {
        Mapping {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: resource.to_owned(),
            singular: kind.to_lowercase(),
            kind: kind.to_owned(),
            short_names: short.split_whitespace().map(str::to_owned).collect(),
            namespaced: true,
            ..Mapping::default()
        }
    }

    fn discovery() -> Discovery {
        let group = |name: &str, versions: &[&str]| Group {
            name: name.to_owned(),
            versions: versions.iter().map(|version| (*version).to_owned()).collect(),
            preferred: versions[0].to_owned(),
        };
        Discovery {
            groups: vec![
                group("", &["v1"]),
                group("apps", &["v1"]),
                group("autoscaling", &["v2", "v1"]),
                group("events.k8s.io", &["v1"]),
                group("example.com", &["v1"]),
            ],
            resources: vec![
                mapping("", "v1", "pods", "Pod", "po"),
                mapping("", "v1", "pods/status", "Pod", ""),
                mapping("", "v1", "events", "Event", "ev"),
                mapping("apps", "v1", "deployments", "Deployment", "deploy"),
                mapping("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa"),
                mapping("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", "hpa"),
                mapping("events.k8s.io", "v1", "events", "Event", "ev"),
                Mapping { singular: "resource".to_owned(), ..mapping("example.com", "v1", "resources", "Thing", "") },
            ],
            ..Discovery::default()
        }
    }

    #[test]
    fn queries_are_in_the_order_of_names_and_words_of_a_command_as_they_were_typed() {
        let words = vec![("stdin", "true"), ("command", "sh"), ("command", "-c"), ("command", "")];
        assert_eq!(whole_query(words), "?command=sh&command=-c&command=&stdin=true");
        assert_eq!(query(&[("stdin", "true"), ("container", ""), ("command", "sh")]), "?command=sh&stdin=true");
        assert_eq!(query(&[("limit", "")]), "");
    }

    #[test]
    fn words_mean_what_they_mean_to_upstream() {
        let discovery = discovery();
        for (word, expected) in [
            ("pods", Some("v1 pods")),
            ("Pod", Some("v1 pods")),
            ("po", Some("v1 pods")),
            ("deploy", Some("apps/v1 deployments")),
            ("deployments.apps", Some("apps/v1 deployments")),
            ("deployments.v1.apps", Some("apps/v1 deployments")),
            ("deployments.ap", Some("apps/v1 deployments")),
            ("hpa", Some("autoscaling/v2 horizontalpodautoscalers")),
            ("hpa.v1.autoscaling", Some("autoscaling/v1 horizontalpodautoscalers")),
            ("hpa.autoscal", Some("autoscaling/v2 horizontalpodautoscalers")),
            ("HorizontalPodAutoscaler.autoscaling", Some("autoscaling/v2 horizontalpodautoscalers")),
            ("events", Some("v1 events")),
            ("events.events.k8s.io", Some("events.k8s.io/v1 events")),
            ("thing.example.com", Some("example.com/v1 resources")),
            ("deployments.other", None),
            ("foo", None),
        ] {
            let found =
                discovery.resource(word).map(|mapping| format!("{} {}", mapping.api_version(), mapping.resource));
            assert_eq!(found.as_deref(), expected, "{word}");
        }
    }

    #[test]
    fn a_short_name_that_means_several_things_is_noticed() {
        assert_eq!(discovery().also_meant("ev"), ["events.events.k8s.io"]);
        for plain in ["po", "hpa", "pods"] {
            assert_eq!(discovery().also_meant(plain), [""; 0], "{plain}");
        }
    }

    #[test]
    fn paths_are_escaped() {
        let pods = mapping("", "v1", "pods", "Pod", "");
        assert_eq!(pods.path("a", "b c", "log"), "/api/v1/namespaces/a/pods/b%20c/log");
        let roles = mapping("rbac.authorization.k8s.io", "v1", "roles", "Role", "");
        assert_eq!(roles.path("", "system:x", ""), "/apis/rbac.authorization.k8s.io/v1/roles/system:x");
        assert_eq!(query(&[("a", "b=c"), ("d", "")]), "?a=b%3Dc");
    }
}
