//! What clients are told there is: discovery and OpenAPI of the built-in kinds, and of those that definitions make.
//!
//! Definitions come in bursts of hundreds, and documents are long: both are put together when somebody asks, of parts that are kept. What
//! OpenAPI says of a definition is the long part: it is made in the background ([`Published::prepare`]), so that who asks first need not wait for all of it.
//! Where definitions come faster than that, who serves them lends a hand ([`Published::catch_up`]): never are more than a few left to be made.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use aggregator::GroupVersion;
use apiextensions::Definition;
use apiextensions::definition::compare_versions;
use facts::{Group, Made, Resource, Stability, Version};
use parking_lot::{Mutex, RwLock};

use crate::discovery::Discovery;
use crate::openapi::{BuiltIn, Custom, Customs, OpenApi};

/// So many definitions may be left to be made: a client that comes just then makes them in a few milliseconds.
const BACKLOG: usize = 8;
/// So many are made by who serves a definition: few have as many versions.
const AT_ONCE: usize = 4;

/// The documents, and what they are made from.
pub struct Published {
    built_in: Arc<BuiltIn>,
    definitions: RwLock<Definitions>,
    discovery: Remembered<Discovery>,
    openapi: Remembered<OpenApi>,
    /// What OpenAPI is to say of these is still to be made, oldest first.
    unprepared: Mutex<VecDeque<Weak<Custom>>>,
    /// Whether documents are being prepared.
    preparing: AtomicBool,
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
    /// The versions that are served of each, by its name.
    all: BTreeMap<String, Vec<Arc<Custom>>>,
    changes: u64,
}

impl Definitions {
    fn customs(&self) -> impl Iterator<Item = &Arc<Custom>> {
        self.all.values().flatten()
    }

    /// Adds a definition; its versions.
    fn insert(&mut self, definition: &Definition, generation: i64) -> &[Arc<Custom>] {
        let served = definition.versions.iter().filter(|version| version.served);
        let tell = |version: &Arc<apiextensions::Version>| {
            let made = Some(Made::unasked());
            let resource = Resource { verbs: definition.offered(), made, ..Resource::clone(&version.resource) };
            let (source, selectable) = (format!("{}/{generation}", definition.uid), version.selectable.clone());
            let props = version.props();
            let schema = move || Some(props()).filter(|schema| schema.is_object());
            Arc::new(Custom::new(resource, Box::new(schema), selectable, source))
        };
        self.changes += 1;
        let versions = self.all.entry(definition.name.clone()).or_default();
        *versions = served.map(tell).collect();
        versions
    }
}

impl Published {
    /// Of the built-in groups alone.
    pub fn new(built_in: Vec<Group>) -> Self {
        Self {
            built_in: BuiltIn::new(built_in, release(rules::names::VERSION)),
            definitions: RwLock::default(),
            discovery: Remembered::default(),
            openapi: Remembered::default(),
            unprepared: Mutex::default(),
            preparing: AtomicBool::new(false),
        }
    }

    /// Tells of a definition from now on.
    pub fn insert(&self, definition: &Definition, generation: i64) {
        let mut definitions = self.definitions.write();
        let versions = definitions.insert(definition, generation);
        self.unprepared.lock().extend(versions.iter().map(Arc::downgrade));
    }

    /// Tells of a definition no more.
    pub fn remove(&self, name: &str) {
        let mut definitions = self.definitions.write();
        definitions.changes += u64::from(definitions.all.remove(name).is_some());
    }

    /// The group versions of definitions.
    pub fn group_versions(&self) -> BTreeSet<GroupVersion> {
        let definitions = self.definitions.read();
        definitions
            .customs()
            .map(|custom| GroupVersion::new(&*custom.resource().group, &*custom.resource().version))
            .collect()
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
            definitions.customs().for_each(|custom| customs.insert(custom.clone()));
            let mut openapi = OpenApi::new(self.built_in.clone(), self.groups(&definitions), customs);
            if let Some(before) = before {
                openapi.keep(before);
            }
            openapi
        })
    }

    /// Begins to make what OpenAPI says of the definitions, unless that is under way.
    pub fn prepare(self: &Arc<Self>) {
        if self.left() == 0 || self.preparing.swap(true, Ordering::AcqRel) {
            return;
        }
        let published = Arc::downgrade(self);
        let built_in = self.built_in.clone();
        tokio::spawn(async move {
            threads::heavy::run(threads::heavy::HEAVY, || built_in.prepare()).await;
            while Self::prepare_all(&published).await {
                let Some(published) = published.upgrade() else { return };
                published.preparing.store(false, Ordering::Release);
                // Whoever came between the last look and this found it under way.
                if published.left() == 0 || published.preparing.swap(true, Ordering::AcqRel) {
                    return;
                }
            }
        });
    }

    /// How many definitions are left to be made.
    fn left(&self) -> usize {
        self.unprepared.lock().len()
    }

    /// Makes what is to be made, one part at a time, so that requests need not wait for long; false if nobody wants it any more.
    async fn prepare_all(published: &Weak<Self>) -> bool {
        loop {
            let Some(published) = published.upgrade() else { return false };
            if !published.prepare_one().await {
                return true;
            }
        }
    }

    /// Makes the oldest part that is to be made; whether there was one.
    async fn prepare_one(&self) -> bool {
        let Some(next) = self.unprepared.lock().pop_front() else { return false };
        if let Some(custom) = next.upgrade() {
            threads::heavy::run(threads::heavy::HEAVY, || custom.prepare()).await;
        }
        true
    }

    /// Makes some of what is to be made if more than a few are left: more than a definition brings, so that they do not become more, and not all, since
    /// after a start there may be thousands.
    pub async fn catch_up(&self) {
        for _ in 0..AT_ONCE {
            if self.left() <= BACKLOG || !self.prepare_one().await {
                return;
            }
        }
    }

    /// The built-in groups, then those of definitions by name, the best version of each first.
    fn groups(&self, definitions: &Definitions) -> Vec<Group> {
        let mut custom: BTreeMap<&str, BTreeMap<&str, Vec<Resource>>> = BTreeMap::new();
        for resource in definitions.customs().map(|custom| custom.resource()) {
            let group = custom.entry(&resource.group).or_default();
            group.entry(&resource.version).or_default().push(resource.clone());
        }
        let mut groups = self.built_in.groups().to_vec();
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

/// A version as OpenAPI names it: `1.37` for `v1.37.0`.
fn release(version: &str) -> &str {
    let version = version.trim_start_matches('v');
    version.rsplit_once('.').map_or(version, |(release, _)| release)
}

fn of(name: &str, mut resources: Vec<Resource>) -> Version {
    resources.sort_by(|a, b| a.plural.cmp(&b.plural));
    let stability = Stability::of(name);
    Version { name: name.to_owned().into(), stability, default_on: true, resources: resources.into() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn documents_name_the_release_and_no_patch_of_it() {
        let published = Published::new(Vec::new());
        let document = published.openapi().v2(crate::openapi::Form::V2Json).bytes();
        let document: serde_json::Value = serde_json::from_slice(&document).expect("JSON");
        let (major, minor) = (&rules::names::VERSION[1..2], rules::names::VERSION.split('.').nth(1).expect("a minor"));
        assert_eq!(document["info"]["version"], format!("{major}.{minor}"));
    }

    #[tokio::test]
    async fn a_schema_is_read_once_and_no_more_than_a_few_are_left_to_be_read() {
        let published = Published::new(Vec::new());
        let reads = Arc::new(AtomicUsize::new(0));
        let add = |name: &str| {
            let resource = Resource::new("example.com", "v1".to_owned(), "tabs", "Tab");
            let counted = reads.clone();
            let schema = move || {
                counted.fetch_add(1, Ordering::Relaxed);
                None
            };
            let custom = Arc::new(Custom::new(resource, Box::new(schema), Vec::new(), name.to_owned()));
            published.unprepared.lock().push_back(Arc::downgrade(&custom));
            custom
        };
        let kept: Vec<_> = (0..BACKLOG + AT_ONCE + 1).map(|number| add(&number.to_string())).collect();
        drop(add("gone"));
        for left in [BACKLOG + 2, BACKLOG, BACKLOG] {
            published.catch_up().await;
            assert_eq!(published.left(), left);
        }
        assert_eq!(reads.load(Ordering::Relaxed), AT_ONCE + 2);
        let published = Arc::new(published);
        published.prepare();
        while published.preparing.load(Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
        assert_eq!(reads.load(Ordering::Relaxed), kept.len());
        kept.iter().for_each(|custom| custom.prepare());
        assert_eq!(reads.load(Ordering::Relaxed), kept.len(), "all forms are there");
    }
}
