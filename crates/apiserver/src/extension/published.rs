//! What clients are told there is: discovery and OpenAPI of the built-in kinds, and of those that definitions make.
//!
//! Definitions come in bursts of hundreds, and documents are long: both are made when somebody asks, and what has not changed since they were last made
//! is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use aggregator::GroupVersion;
use apiextensions::Definition;
use apiextensions::definition::compare_versions;
use facts::{Group, Resource, Stability, Version};
use parking_lot::{Mutex, RwLock};

use crate::discovery::Discovery;
use crate::openapi::{Custom, Customs, OpenApi};

/// The documents, and what they are made from.
pub struct Published {
    built_in: Vec<Group>,
    definitions: RwLock<Definitions>,
    discovery: Remembered<Discovery>,
    openapi: Remembered<OpenApi>,
}

/// What was made last, and after how many changes of definitions.
struct Remembered<T>(Mutex<Option<(u64, Arc<T>)>>);

impl<T> Default for Remembered<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Remembered<T> {
    /// What was made after this many changes; `make` is told what was made before.
    fn after(&self, changes: u64, make: impl FnOnce(Option<&T>) -> T) -> Arc<T> {
        let mut made = self.0.lock();
        match &*made {
            Some((at, known)) if *at == changes => known.clone(),
            before => {
                let new = Arc::new(make(before.as_ref().map(|(_, before)| &**before)));
                *made = Some((changes, new.clone()));
                new
            }
        }
    }
}

#[derive(Default)]
struct Definitions {
    /// By name, with the generation of each.
    all: BTreeMap<String, (Arc<Definition>, i64)>,
    changes: u64,
}

impl Published {
    /// Of the built-in groups alone.
    pub fn new(built_in: Vec<Group>) -> Self {
        Self {
            built_in,
            definitions: RwLock::default(),
            discovery: Remembered::default(),
            openapi: Remembered::default(),
        }
    }

    /// Tells of a definition from now on.
    pub fn insert(&self, definition: Arc<Definition>, generation: i64) {
        let mut definitions = self.definitions.write();
        definitions.changes += 1;
        definitions.all.insert(definition.name.clone(), (definition, generation));
    }

    /// Tells of a definition no more.
    pub fn remove(&self, name: &str) {
        let mut definitions = self.definitions.write();
        definitions.changes += u64::from(definitions.all.remove(name).is_some());
    }

    /// The group versions of definitions.
    pub fn group_versions(&self) -> BTreeSet<GroupVersion> {
        let definitions = self.definitions.read();
        let all = definitions.all.values().flat_map(|(definition, _)| {
            let served = definition.versions.iter().filter(|version| version.served);
            served.map(|version| GroupVersion::new(&*definition.group, &*version.name))
        });
        all.collect()
    }

    /// The documents of discovery.
    pub fn discovery(&self) -> Arc<Discovery> {
        let definitions = self.definitions.read();
        self.discovery.after(definitions.changes, |_| Discovery::new(self.groups(&definitions)))
    }

    /// The documents of OpenAPI.
    pub fn openapi(&self) -> Arc<OpenApi> {
        let definitions = self.definitions.read();
        self.openapi.after(definitions.changes, |before| {
            let mut customs = Customs::default();
            for (definition, generation) in definitions.all.values() {
                for version in definition.versions.iter().filter(|version| version.served) {
                    let custom = Custom {
                        schema: Some(version.props()).filter(|schema| schema.is_object()),
                        preserve_unknown: false,
                        selectable: version.selectable.clone(),
                        source: format!("{}/{generation}", definition.uid),
                    };
                    customs.insert(&version.resource, custom);
                }
            }
            let mut openapi = OpenApi::with_customs(self.groups(&definitions), customs, rules::names::VERSION);
            if let Some(before) = before {
                openapi.keep(before);
            }
            openapi
        })
    }

    /// The built-in groups, then those of definitions by name, the best version of each first.
    fn groups(&self, definitions: &Definitions) -> Vec<Group> {
        let mut custom: BTreeMap<&str, BTreeMap<&str, Vec<Resource>>> = BTreeMap::new();
        for (definition, _) in definitions.all.values() {
            for version in definition.versions.iter().filter(|version| version.served) {
                let resource = Resource { verbs: definition.offered(), ..Resource::clone(&version.resource) };
                let group = custom.entry(&definition.group).or_default();
                group.entry(&version.name).or_default().push(resource);
            }
        }
        let mut groups = self.built_in.clone();
        for (name, versions) in custom {
            let mut made: Vec<Version> =
                versions.into_iter().map(|(version, resources)| of(version, resources)).collect();
            made.sort_by(|a, b| compare_versions(&b.name, &a.name));
            match groups.iter_mut().find(|group| group.name == name) {
                Some(group) => {
                    made.retain(|version| !group.versions.iter().any(|known| known.name == version.name));
                    group.versions = group.versions.iter().cloned().chain(made).collect();
                }
                None => groups.push(Group { name: name.to_owned().into(), versions: made.into() }),
            }
        }
        groups
    }
}

fn of(name: &str, mut resources: Vec<Resource>) -> Version {
    resources.sort_by(|a, b| a.plural.cmp(&b.plural));
    let stability = Stability::of(name);
    Version { name: name.to_owned().into(), stability, default_on: true, resources: resources.into() }
}
