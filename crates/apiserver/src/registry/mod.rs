//! Which resources are served, where they are stored, and by which strategy.
//!
//! What a resource *is* comes from the table of API facts; what the table cannot say is the [`Strategy`] of its kind.

pub mod deprecation;
pub mod internal;
pub mod kinds;
pub mod strategy;

use std::collections::HashMap;
use std::sync::Arc;

use facts::Resource as Facts;
use machinery::gvk::GroupResource;
use machinery::object::FieldPaths;
use machinery::status::ApiError;

use crate::cache::{Cache, Caches};
pub use kinds::strategy;
pub use strategy::{Grace, NameRule, Strategy};

/// One stored resource, in all its versions.
pub struct Resource {
    /// Group and plural, as error messages name it.
    pub name: GroupResource,
    /// The version it is stored in.
    pub storage: &'static Facts,
    /// Beginning of its keys in the store, with a trailing slash.
    pub prefix: String,
    /// The rules of its kind.
    pub strategy: &'static dyn Strategy,
    /// Its objects.
    pub cache: Arc<Cache>,
    /// Seconds after which its objects expire by themselves.
    pub ttl: Option<u64>,
}

impl Resource {
    /// The key of an object in the cache: `namespace/name`, or the name alone.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.storage.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }
}

/// A resource as one of its versions serves it.
#[derive(Clone)]
pub struct Served {
    /// The version asked for.
    pub facts: &'static Facts,
    /// The resource behind it; `None` for reviews and other resources that are never stored.
    pub resource: Option<Arc<Resource>>,
}

/// Every served resource.
pub struct Registry {
    /// By plural; few plurals are in several groups or versions.
    served: HashMap<&'static str, Vec<Served>>,
    stored: Vec<Arc<Resource>>,
    stored_by_plural: HashMap<&'static str, Vec<Arc<Resource>>>,
}

/// Which group versions are served: the stable ones, and what `--runtime-config` says.
#[derive(Debug, Clone, Default)]
pub struct RuntimeConfig {
    entries: Vec<(String, bool)>,
}

impl RuntimeConfig {
    /// Reads `api/all=true`, `api/beta=true`, `group/version=true`, comma separated.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut entries = Vec::new();
        for entry in text.split(',').filter(|entry| !entry.is_empty()) {
            let (name, value) = entry.split_once('=').unwrap_or((entry, "true"));
            let on = match value {
                "true" | "" => true,
                "false" => false,
                other => return Err(format!("invalid value {other:?} of runtime-config {name:?}: use true or false")),
            };
            entries.push((name.to_owned(), on));
        }
        Ok(Self { entries })
    }

    /// Whether a version of a group is served.
    pub fn serves(&self, group: &str, version: &facts::Version) -> bool {
        let exact = facts::api_version(group, &version.name);
        let class = match version.stability {
            facts::Stability::Stable => "api/ga",
            facts::Stability::Beta => "api/beta",
            facts::Stability::Alpha => "api/alpha",
        };
        // The most precise entry decides.
        let entry = |name: &str| self.entries.iter().rev().find(|(key, _)| key == name).map(|(_, on)| *on);
        entry(&exact).or_else(|| entry(class)).or_else(|| entry("api/all")).unwrap_or(version.default_on)
    }
}

impl Registry {
    /// The `(prefix, selectable fields)` of every stored resource, which the caches are made of.
    pub fn layout(config: &RuntimeConfig) -> Vec<(String, FieldPaths)> {
        let mut layout: Vec<(String, FieldPaths)> = Vec::new();
        for facts in enabled(config).filter(|facts| is_stored(facts)) {
            let prefix = prefix(facts);
            if !layout.iter().any(|(known, _)| *known == prefix) {
                layout.push((prefix, FieldPaths::new(kinds::strategy(&facts.group, &facts.kind).fields())));
            }
        }
        layout
    }

    /// Everything that the configuration serves, on these caches.
    pub fn new(config: &RuntimeConfig, caches: &Caches, event_ttl: u64) -> Self {
        let mut by_prefix: HashMap<String, Arc<Resource>> = HashMap::new();
        let mut registry = Self { served: HashMap::new(), stored: Vec::new(), stored_by_plural: HashMap::new() };
        for facts in enabled(config) {
            let resource = is_stored(facts).then(|| {
                let prefix = prefix(facts);
                let make = || {
                    let storage = storage_version(facts);
                    let resource = Arc::new(Resource {
                        name: GroupResource::new(&*storage.group, &*storage.plural),
                        storage,
                        cache: caches.get(&prefix).expect("the caches were laid out from the same facts"),
                        strategy: kinds::strategy(&storage.group, &storage.kind),
                        ttl: (storage.kind == "Event").then_some(event_ttl),
                        prefix: prefix.clone(),
                    });
                    registry.stored.push(resource.clone());
                    registry.stored_by_plural.entry(&storage.plural).or_default().push(resource.clone());
                    resource
                };
                by_prefix.entry(prefix.clone()).or_insert_with(make).clone()
            });
            registry.served.entry(&facts.plural).or_default().push(Served { facts, resource });
        }
        registry
    }

    /// The resource at this group, version and plural.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Result<&Served, ApiError> {
        let mut served = self.served.get(plural).into_iter().flatten();
        served
            .find(|served| served.facts.group == group && served.facts.version == version)
            .ok_or_else(ApiError::no_such_path)
    }

    /// The stored resource of this group and plural, in whatever version.
    pub fn stored(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.stored_by_plural.get(plural)?.iter().find(|resource| resource.name.group == group)
    }

    /// Every version in which a stored resource is served, whatever its group there.
    pub fn versions(&self, resource: &Arc<Resource>) -> impl Iterator<Item = &'static Facts> {
        let served = self.served.get(&*resource.storage.plural).into_iter().flatten();
        served
            .filter(|served| served.resource.as_ref().is_some_and(|stored| Arc::ptr_eq(stored, resource)))
            .map(|served| served.facts)
    }

    /// Every stored resource.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.stored.iter()
    }
}

fn enabled(config: &RuntimeConfig) -> impl Iterator<Item = &'static Facts> {
    facts::groups().iter().flat_map(move |group| {
        group
            .versions
            .iter()
            .filter(move |version| config.serves(&group.name, version))
            .flat_map(|version| version.resources.iter())
    })
}

/// Where every built-in resource is kept, and the group and the plural that it is kept as.
pub(crate) fn prefixes() -> impl Iterator<Item = (String, (&'static str, &'static str))> {
    let versions = facts::groups().iter().flat_map(|group| group.versions.iter());
    versions.flat_map(|version| version.resources.iter()).filter(|facts| is_stored(facts)).map(|facts| {
        let storage = storage_version(facts);
        (prefix(facts), (&*storage.group, &*storage.plural))
    })
}

/// Reviews and bindings are asked and answered, never kept; component statuses are made up on the spot.
fn is_stored(facts: &Facts) -> bool {
    facts.verbs.has("get") && facts.plural != "componentstatuses"
}

/// The version an object is stored in: the preferred one of its group, except where upstream stores another.
fn storage_version(facts: &'static Facts) -> &'static Facts {
    match (&*facts.group, &*facts.plural) {
        ("events.k8s.io", "events") => facts::resource("", "v1", "events").unwrap_or(facts),
        (group, plural) => facts::groups()
            .iter()
            .find(|candidate| candidate.name == group)
            .and_then(|group| {
                group
                    .versions
                    .iter()
                    .find_map(|version| version.resources.iter().find(|candidate| candidate.plural == plural))
            })
            .unwrap_or(facts),
    }
}

/// Where upstream keeps the resource in etcd.
fn prefix(facts: &Facts) -> String {
    let path = match (&*facts.group, &*facts.plural) {
        ("", "replicationcontrollers") => "controllers",
        ("", "endpoints") => "services/endpoints",
        ("", "nodes") => "minions",
        ("", "services") => "services/specs",
        ("networking.k8s.io", "ingresses") => "ingress",
        (group @ ("apiextensions.k8s.io" | "apiregistration.k8s.io"), plural) => {
            return format!("/registry/{group}/{plural}/");
        }
        (_, plural) => plural,
    };
    format!("/registry/{path}/")
}
