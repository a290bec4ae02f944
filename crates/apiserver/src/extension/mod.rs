//! Custom resources: follows the definitions, and serves what they make.
//!
//! One task sees every change of a definition. It first serves what the definition makes ([`Installed`]) and only then says in its status that it is
//! established, so that whoever waits for that can use it at once. A definition that goes takes its objects with it ([`cleanup`]).
//!
//! What is served changes when the definition does: watches that are open then are ended, and their clients come back to the new schema. A definition
//! that goes ends them last: whoever watches hears of every object that goes with it.
//!
//! What schemas mean is found out for those that are used, and dropped for those that nobody has used for long ([`warm`]).

mod cleanup;
mod published;
mod strategy;
mod warm;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use aggregator::Aggregator;
use apiextensions::Definition;
use apiextensions::definition::{CLEANUP, Conditions, accept_names, approval, condition_is};
use machinery::gvk::GroupResource;
use machinery::object::FieldPaths;
use machinery::status::ApiError;
use machinery::{Value, value};
use rest::Api;
use rest::admission::webhooks::Services;
use rest::registry::{Converter, Form, Resource, Served, Shared};
use serde_json::json;
use storage::cache::{Cache, Filter, Start, Subscription};
use tokio::task::JoinHandle;

use crate::loopback::Loopback;
use cleanup::Cleanups;
pub use published::Published;
use strategy::Custom;
use warm::{Stored, Warm};

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// The condition of a definition that would not be accepted today.
const VIOLATED: &str = "NonStructuralSchema";

/// When a definition that could not be served or written is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Serves what the definitions in the store make, and follows them from then on. The task ends with the server's caches.
pub async fn start(
    api: &Arc<Api>,
    loopback: Loopback,
    published: Arc<Published>,
    aggregator: Arc<Aggregator>,
) -> JoinHandle<()> {
    let (installed, known, cleanups, warm, follows) = Default::default();
    let mut extension = Extension { installed, known, published, aggregator, cleanups, loopback, warm, follows };
    // Whoever connects first finds everything that was served before.
    extension.round(api).await;
    let api = Arc::downgrade(api);
    tokio::spawn(async move { extension.follow(api).await })
}

struct Extension {
    /// By the name of the definition.
    installed: HashMap<String, Installed>,
    /// Every definition as it was last seen. Definitions are long and many, so only what others need of them is kept.
    known: HashMap<String, Known>,
    published: Arc<Published>,
    /// Keeps an APIService for each group version.
    aggregator: Arc<Aggregator>,
    cleanups: Cleanups,
    loopback: Loopback,
    warm: Arc<Warm>,
    /// Whether what was there at the start is served: nothing but that is waited for then.
    follows: bool,
}

/// A definition that was seen.
struct Known {
    revision: u64,
    /// Its group, and the names that it has.
    names: Value,
    /// Whether nothing is left to be done about it.
    settled: bool,
}

/// A definition that is served.
struct Installed {
    definition: Arc<Definition>,
    /// Tells what decides what is served from what decided it before.
    made_from: [u8; 32],
    prefix: String,
    source: Arc<Stored>,
}

/// What of a definition decides what is served, but for whether it is on its way out: objects can still be read then as before.
fn decisive(definition: &Value) -> [u8; 32] {
    let mut text = String::new();
    for path in ["metadata.uid", "spec", "status.acceptedNames"] {
        text.push_str(&value::at(definition, path).map(Value::to_string).unwrap_or_default());
        text.push('\n');
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, text.as_bytes()).as_ref());
    digest
}

/// What other definitions of a group need to know of one.
fn names(definition: &Value) -> Value {
    let at = |path: &str| value::at(definition, path).cloned().unwrap_or_default();
    json!({"spec": {"group": at("spec.group")}, "status": {"acceptedNames": at("status.acceptedNames")}})
}

impl Extension {
    async fn follow(&mut self, api: Weak<Api>) {
        self.follows = true;
        while let Some(mut changes) = subscribe(&api).await {
            loop {
                // Seen together is served together.
                while changes.live.try_recv().is_ok() {}
                let Some(api) = api.upgrade() else { return };
                let settled = api.caches.settle().await.is_ok() && self.round(&api).await;
                drop(api);
                let goes_on = tokio::select! {
                    change = changes.live.recv() => change.is_some(),
                    () = self.warm.changed() => true,
                    () = tokio::time::sleep(RETRY), if !settled => true,
                };
                if !goes_on {
                    break;
                }
            }
        }
    }

    /// Looks at every definition that changed, or for which something is left to be done; whether nothing is.
    async fn round(&mut self, api: &Arc<Api>) -> bool {
        let Some(resource) = api.registry.stored(GROUP, PLURAL) else { return true };
        let (all, _) = resource.cache.list(&Filter::everything(), None, 0);
        let there: HashSet<&str> = all.iter().map(|object| &*object.meta().name).collect();
        let gone: Vec<String> = self.known.keys().filter(|name| !there.contains(name.as_str())).cloned().collect();
        for name in &gone {
            self.known.remove(name);
            self.uninstall(api, name);
        }
        let mut settled = true;
        for object in &all {
            let name = object.meta().name.to_string();
            let known = self.known.get(&name);
            if known.is_some_and(|known| known.settled && known.revision == object.revision()) {
                continue;
            }
            let before = object.to_value();
            let after = self.decided(&name, &before, &api.now());
            let served = self.serve(api, resource, &before, &after).await;
            if let Err(error) = &served {
                tracing::warn!(%error, definition = name, "a custom resource cannot be served");
                settled = false;
            }
            // Who waits for a name looks again whenever anything changes.
            let done = served.is_ok() && condition_is(&after, "NamesAccepted", "True");
            let known = Known { revision: object.revision(), names: names(&after), settled: done };
            self.known.insert(name, known);
            if self.follows {
                self.published.catch_up().await;
            }
        }
        self.aggregator.set_custom(self.published.group_versions());
        self.cool(api, resource);
        settled
    }

    /// Forgets what schemas mean that nobody has used for long, if there are many: their definitions are served anew.
    fn cool(&mut self, api: &Api, resource: &Arc<Resource>) {
        for name in warm::cold(self.installed.iter().map(|(name, installed)| (name.as_str(), &*installed.source))) {
            let (Some(installed), Some(object)) = (self.installed.get(&name), resource.cache.get(&name)) else {
                continue;
            };
            let tree = object.to_value();
            // One that has changed meanwhile is served anew for that.
            if installed.made_from == decisive(&tree)
                && let Some(cache) = api.registry.custom(&installed.definition.group, &installed.definition.plural)
                && let Some((definition, source)) = self.offer(api, resource, &tree, &cache.cache)
            {
                let (made_from, prefix) = (installed.made_from, installed.prefix.clone());
                self.installed.insert(name, Installed { definition, made_from, prefix, source });
            }
        }
    }

    /// A definition with what is to be said of it, given the names that others have.
    fn decided(&self, name: &str, definition: &Value, now: &str) -> Value {
        let mut definition = definition.clone();
        approval(&mut definition, now);
        let named = value::at(&definition, "spec.names") == value::at(&definition, "status.acceptedNames");
        if !named || !condition_is(&definition, "Established", "True") {
            let others = self.known.iter().filter(|(other, _)| *other != name).map(|(_, other)| &other.names);
            accept_names(&mut definition, others, now);
        }
        // What is written here is judged then: only what was stored before may be otherwise, until it is put right.
        let violated =
            value::list(&definition, "status.conditions").iter().any(|condition| condition["type"] == VIOLATED);
        if violated || !self.known.contains_key(name) {
            let found = kinds::structural_violations(&definition);
            let mut conditions = Conditions::of(&mut definition, now);
            match found {
                Some((status, reason, message)) => conditions.set(VIOLATED, status, reason, &message),
                None => conditions.remove(VIOLATED),
            }
        }
        definition
    }

    /// Serves what a definition makes, and writes what is to be said of it.
    async fn serve(
        &mut self,
        api: &Arc<Api>,
        resource: &Arc<Resource>,
        before: &Value,
        after: &Value,
    ) -> Result<(), ApiError> {
        let name = value::text(after, "metadata.name");
        let accepted = condition_is(after, "NamesAccepted", "True") || condition_is(after, "Established", "True");
        if accepted {
            self.install(api, resource, after).await?;
        } else {
            self.uninstall(api, name);
        }
        if after != before {
            // What was decided is for the definition as it was seen; another comes with a change of its own.
            self.loopback.update(resource, after.clone(), "status").await?;
        }
        let leaving = value::at(after, "metadata.deletionTimestamp").is_some();
        let held = value::list(after, "metadata.finalizers").iter().any(|finalizer| finalizer == CLEANUP);
        if leaving && held {
            let uid = value::text(after, "metadata.uid").to_owned();
            cleanup::begin(&self.cleanups, api, &self.loopback, resource, name, &uid);
        }
        Ok(())
    }

    async fn install(&mut self, api: &Arc<Api>, resource: &Arc<Resource>, tree: &Value) -> Result<(), ApiError> {
        let name = value::text(tree, "metadata.name");
        let made_from = decisive(tree);
        let leaving = value::at(tree, "metadata.deletionTimestamp").is_some();
        let established = condition_is(tree, "Established", "True");
        let known = self.installed.get(name).filter(|known| known.made_from == made_from);
        let stays = |known: &Definition| known.terminating == leaving && known.established == established;
        if known.is_some_and(|known| stays(&known.definition)) {
            return Ok(());
        }
        let changed = known.is_none();
        let Some(prefix) = prefix(tree) else { return Ok(()) };
        let cache = api.caches.open(&prefix, FieldPaths::default()).await?;
        let Some((definition, source)) = self.offer(api, resource, tree, &cache) else {
            self.uninstall(api, name);
            api.caches.close(&prefix);
            return Ok(());
        };
        if changed {
            // Who has a watch open would hear of objects in a form that is no longer served.
            cache.end_watches();
        }
        if established {
            let generation = value::int(tree, "metadata.generation").unwrap_or(0);
            self.published.insert(&definition, generation);
            self.published.prepare();
        } else {
            self.published.remove(name);
        }
        self.installed.insert(name.to_owned(), Installed { definition, made_from, prefix, source });
        Ok(())
    }

    /// Serves the versions of a definition from now on.
    fn offer(
        &self,
        api: &Api,
        resource: &Arc<Resource>,
        tree: &Value,
        cache: &Arc<Cache>,
    ) -> Option<(Arc<Definition>, Arc<Stored>)> {
        let source = Arc::new(Stored::new(resource.clone(), value::text(tree, "metadata.name"), self.warm.clone()));
        let age = prose::of("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
            .and_then(|prose| prose.fields().find(|(field, _)| *field == "creationTimestamp"))
            .map(|(_, text)| text.into_owned())
            .unwrap_or_default();
        let definition = Arc::new(Definition::read(tree, source.clone(), &age)?);
        let prefix = prefix(tree)?;
        let converter = Converter::of(&definition, Services::of(&api.registry)).map(Arc::new);
        let make = |version: &Arc<apiextensions::Version>| {
            Arc::new(Resource {
                name: GroupResource::new(&definition.group, &definition.plural),
                storage: Shared::Made(version.resource.clone()),
                prefix: prefix.clone(),
                strategy: Shared::Made(Arc::new(Custom::new(version.clone()))),
                cache: cache.clone(),
                ttl: None,
                form: Some(Arc::new(Form::new(definition.clone(), version.clone(), converter.clone()))),
            })
        };
        let storage = definition.storage().map(make)?;
        let serve = |version: &Arc<apiextensions::Version>| Served {
            facts: Shared::Made(version.resource.clone()),
            resource: Some(make(version)),
        };
        let served = definition.versions.iter().filter(|version| version.served).map(serve).collect();
        api.registry.add_versions(storage, served);
        Some((definition, source))
    }

    fn uninstall(&mut self, api: &Api, name: &str) {
        let Some(installed) = self.installed.remove(name) else { return };
        api.registry.remove(&installed.definition.group, &installed.definition.plural);
        api.caches.close(&installed.prefix);
        self.published.remove(name);
    }
}

/// What the keys of a definition's objects begin with; nothing before it has names.
fn prefix(definition: &Value) -> Option<String> {
    let plural = value::text(definition, "status.acceptedNames.plural");
    (!plural.is_empty()).then(|| format!("/registry/{}/{plural}/", value::text(definition, "spec.group")))
}

/// Changes of definitions from now on; nothing when the server is gone or stops.
async fn subscribe(api: &Weak<Api>) -> Option<Subscription> {
    let api = api.upgrade()?;
    let resource = api.registry.stored(GROUP, PLURAL)?;
    let everything = Filter::everything();
    let subscribed =
        resource.cache.subscribe(&*api.store, &everything, Start::Now, api.caches.revision()).await.ok()?;
    // The caches of a server that stops are closed, and so is everything that they gave out.
    (!subscribed.live.is_closed()).then_some(subscribed)
}
