//! Which resources are served, where they are stored, and by which strategy.
//!
//! What a resource *is* comes from the table of API facts; what the table cannot say is the [`Strategy`] of its kind.
//!
//! # Kinds that come and go
//!
//! Built-in kinds are there from the start to the end, and [`Registry::stored`] hands out references to them. Others are added while the server runs:
//!
//! 1. make the [`facts::Resource`] of each version (`facts::Resource::new`), in an `Arc`; the stored version is one of these same `Arc`s, because a
//!    conversion is left out where the two are one;
//! 2. open the [`Cache`] of its prefix, which reads what the store has of it;
//! 3. make a [`Resource`] of these and of a strategy of its own (`Shared::Made`), one for each version if each has rules of its own;
//! 4. call [`Registry::add`]. From then on [`Registry::get`] finds it, so gates, `rest`, admission and the watch cache treat it as any other.
//!
//! A changed definition is added again, and [`Registry::remove`] takes it away. Requests under way hold what they found, so nothing changes under
//! them. A lookup of a built-in kind takes no lock; one of another kind takes a lock that is held for the lookup alone.

mod converter;
mod custom;
mod form;

use std::collections::HashMap;
use std::sync::Arc;

use facts::Resource as Facts;
use kinds::place::{is_stored, prefix, storage_version};
pub use kinds::strategy::{Grace, NameRule, Strategy};
pub use kinds::{Shared, strategy};
use machinery::gvk::GroupResource;
use machinery::object::FieldPaths;
use machinery::status::ApiError;
use parking_lot::RwLock;
use storage::cache::{Cache, Caches, Keeping};

pub use converter::Converter;
use custom::Custom;
pub use form::Form;

/// One stored resource, in all its versions.
pub struct Resource {
    /// Group and plural, as error messages name it.
    pub name: GroupResource,
    /// The version it is stored in.
    pub storage: Shared<Facts>,
    /// Beginning of its keys in the store, with a trailing slash.
    pub prefix: String,
    /// The rules of its kind.
    pub strategy: Shared<dyn Strategy>,
    pub cache: Arc<Cache>,
    /// Seconds after which its objects expire by themselves.
    pub ttl: Option<u64>,
    /// How a version of a custom resource differs from what is stored. Each version is then a resource of its own, on one cache, and trees are
    /// in that version.
    pub form: Option<Arc<Form>>,
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
    pub facts: Shared<Facts>,
    /// The resource behind it; `None` for reviews and other resources that are never stored.
    pub resource: Option<Arc<Resource>>,
}

pub struct Registry {
    /// By plural; few plurals are in several groups or versions.
    served: HashMap<&'static str, Vec<Arc<Served>>>,
    stored: Vec<Arc<Resource>>,
    stored_by_plural: HashMap<&'static str, Vec<Arc<Resource>>>,
    custom: RwLock<Custom>,
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
    /// The prefix of every stored resource, and how its objects are kept, which the caches are made of.
    pub fn layout(config: &RuntimeConfig) -> Vec<(String, Keeping)> {
        let mut layout: Vec<(String, Keeping)> = Vec::new();
        for facts in enabled(config).filter(|facts| is_stored(facts)) {
            let prefix = prefix(facts);
            if !layout.iter().any(|(known, _)| *known == prefix) {
                let strategy = kinds::strategy(&facts.group, &facts.kind);
                let storage = storage_version(facts);
                let fields = FieldPaths::new(strategy.fields());
                let fields = fields.settling(move |object| kinds::convert::to_storage(storage, object));
                layout.push((prefix, Keeping { fields, packed: strategy.flags().is_long }));
            }
        }
        layout
    }

    /// Everything that the configuration serves, on these caches.
    pub fn new(config: &RuntimeConfig, caches: &Caches, event_ttl: u64) -> Self {
        let mut by_prefix: HashMap<String, Arc<Resource>> = HashMap::new();
        let mut registry = Self {
            served: HashMap::new(),
            stored: Vec::new(),
            stored_by_plural: HashMap::new(),
            custom: RwLock::default(),
        };
        for facts in enabled(config) {
            let resource = is_stored(facts).then(|| {
                let prefix = prefix(facts);
                let make = || {
                    let storage = storage_version(facts);
                    let resource = Arc::new(Resource {
                        name: GroupResource::new(&*storage.group, &*storage.plural),
                        storage: storage.into(),
                        cache: caches.get(&prefix).expect("the caches were laid out from the same facts"),
                        strategy: kinds::strategy(&storage.group, &storage.kind).into(),
                        ttl: kinds::strategy(&storage.group, &storage.kind).flags().expires.then_some(event_ttl),
                        prefix: prefix.clone(),
                        form: None,
                    });
                    registry.stored.push(resource.clone());
                    registry.stored_by_plural.entry(&storage.plural).or_default().push(resource.clone());
                    resource
                };
                by_prefix.entry(prefix.clone()).or_insert_with(make).clone()
            });
            let served = Arc::new(Served { facts: facts.into(), resource });
            registry.served.entry(&facts.plural).or_default().push(served);
        }
        registry
    }

    /// Serves a kind in these versions from now on, in place of what was added under its group and plural before. What is built in stays.
    pub fn add(&self, resource: Arc<Resource>, versions: impl IntoIterator<Item = Shared<Facts>>) {
        let serve = |facts| Served { facts, resource: Some(resource.clone()) };
        self.custom.write().add(resource.clone(), versions.into_iter().map(serve).collect());
    }

    /// As [`Registry::add`], of versions each of which has rules of its own. `resource` is the one that is stored.
    pub fn add_versions(&self, resource: Arc<Resource>, versions: Vec<Served>) {
        self.custom.write().add(resource, versions);
    }

    /// Serves a kind that was added no longer. Who has it in hand keeps it: its cache is closed by whoever opened it.
    pub fn remove(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        self.custom.write().remove(group, plural)
    }

    /// The resource at this group, version and plural.
    pub fn get(&self, group: &str, version: &str, plural: &str) -> Result<Arc<Served>, ApiError> {
        let built_in = self.built_in(group, version, plural).cloned();
        built_in.or_else(|| self.custom.read().get(group, version, plural)).ok_or_else(ApiError::no_such_path)
    }

    /// The resource whose objects are of this kind.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Served>> {
        let built_in = facts::kind(group, version, kind);
        let built_in = built_in.and_then(|facts| self.built_in(group, version, &facts.plural).cloned());
        built_in.or_else(|| self.custom.read().kind(group, version, kind))
    }

    fn built_in(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        let mut served = self.served.get(plural)?.iter();
        served.find(|served| served.facts.group == group && served.facts.version == version)
    }

    /// The stored resource of a built-in kind, by group and plural, in whatever version.
    pub fn stored(&self, group: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.stored_by_plural.get(plural)?.iter().find(|resource| resource.name.group == group)
    }

    /// The resource of a kind that was added, in the version that is stored.
    pub fn custom(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        self.custom.read().stored(group, plural)
    }

    /// Every version in which a stored resource is served, whatever its group there.
    pub fn versions(&self, resource: &Arc<Resource>) -> Vec<Shared<Facts>> {
        if let Shared::Made(_) = resource.storage {
            return self.custom.read().versions(resource);
        }
        let served = self.served.get(&*resource.storage.plural).into_iter().flatten();
        served
            .filter(|served| served.resource.as_ref().is_some_and(|stored| Arc::ptr_eq(stored, resource)))
            .map(|served| served.facts.clone())
            .collect()
    }

    /// Every stored resource: the built-in ones in the order of discovery, then the others.
    pub fn all(&self) -> Vec<Arc<Resource>> {
        let mut all = self.stored.clone();
        all.extend(self.custom.read().all());
        all
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
pub fn prefixes() -> impl Iterator<Item = (String, (&'static str, &'static str))> {
    let versions = facts::groups().iter().flat_map(|group| group.versions.iter());
    versions.flat_map(|version| version.resources.iter()).filter(|facts| is_stored(facts)).map(|facts| {
        let storage = storage_version(facts);
        (prefix(facts), (&*storage.group, &*storage.plural))
    })
}

/// The beginnings of the keys of objects that are packed in memory.
pub fn packed() -> Vec<String> {
    let is_long = |&(group, plural): &(&str, &str)| {
        let resource = facts::groups().iter().filter(|of| of.name == group).flat_map(|of| &of.versions);
        let mut resource = resource.flat_map(|version| &version.resources).filter(|facts| facts.plural == plural);
        resource.any(|facts| kinds::strategy(&facts.group, &facts.kind).flags().is_long)
    };
    let mut packed: Vec<String> = prefixes().filter(|(_, of)| is_long(of)).map(|(prefix, _)| prefix).collect();
    packed.dedup();
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_are_packed() {
        assert_eq!(packed(), ["/registry/apiextensions.k8s.io/customresourcedefinitions/"]);
    }

    /// A kind `Ship` of the group `harbour.example`, served in these versions and stored in the first.
    fn ship(versions: &[&str], cache: Arc<Cache>) -> (Arc<Resource>, Vec<Shared<Facts>>) {
        let make = |version: &&str| {
            let facts = Facts::new("harbour.example", version.to_string(), "ships", "Ship");
            Shared::from(Arc::new(facts))
        };
        let versions: Vec<Shared<Facts>> = versions.iter().map(make).collect();
        let resource = Resource {
            name: GroupResource::new("harbour.example", "ships"),
            storage: versions[0].clone(),
            prefix: "/registry/harbour.example/ships/".to_owned(),
            strategy: Shared::Made(Arc::new(kinds::strategy::Plain)),
            cache,
            ttl: None,
            form: None,
        };
        (Arc::new(resource), versions)
    }

    #[tokio::test]
    async fn a_kind_comes_and_goes_while_who_has_it_keeps_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let store = store::embedded::Embedded::open(directory.path(), Default::default()).expect("a store");
        let config = RuntimeConfig::default();
        let caches = Caches::start(store, Registry::layout(&config)).await.expect("caches");
        let registry = Registry::new(&config, &caches, 3600);
        let cache = caches.get("/registry/pods/").expect("the cache of pods");
        let find = |version: &str| registry.get("harbour.example", version, "ships").ok();
        let built_in = registry.all().len();
        assert!(find("v1").is_none());

        let (resource, versions) = ship(&["v1", "v1beta1"], cache.clone());
        registry.add(resource.clone(), versions);
        let found = find("v1beta1").expect("a served version");
        assert!(found.resource.as_ref().is_some_and(|stored| Arc::ptr_eq(stored, &resource)));
        let by_kind = registry.kind("harbour.example", "v1", "Ship").expect("the kind");
        assert!(std::ptr::eq(&*by_kind.facts, &*resource.storage), "nothing is converted from the stored version");
        let versions = registry.versions(&resource);
        assert_eq!(versions.iter().map(|facts| &*facts.version).collect::<Vec<_>>(), ["v1", "v1beta1"]);
        assert_eq!(registry.all().len(), built_in + 1);
        assert!(registry.get("other.example", "v1", "ships").is_err(), "the group counts");

        let (changed, versions) = ship(&["v1"], cache);
        registry.add(changed.clone(), versions);
        assert!(find("v1beta1").is_none(), "a version that is no longer served");
        assert_eq!(registry.all().len(), built_in + 1, "one takes the place of the other");
        assert_eq!(found.facts.version, "v1beta1", "who found it before keeps it");

        let removed = registry.remove("harbour.example", "ships").expect("a kind to remove");
        assert!(Arc::ptr_eq(&removed, &changed));
        assert!(find("v1").is_none() && registry.kind("harbour.example", "v1", "Ship").is_none());
        assert_eq!(registry.all().len(), built_in);
        assert!(registry.remove("", "pods").is_none(), "what is built in stays");
        caches.stop();
    }
}
