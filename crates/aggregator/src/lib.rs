//! The aggregator: which server answers for a version of a group (`apiregistration.k8s.io`).
//!
//! ```text
//! APIServices ──watch cache──► Aggregator ─► backend of /apis/GROUP/VERSION ─► Backend::forward ──TLS, front-proxy headers──► Service
//!      ▲                           │
//!      └── through the gates ──────┴─ per backend: availability (`keep`), discovery and OpenAPI (`documents`)
//! ```
//! Local APIServices are kept for what this server has itself ([`registration`]). For every other one there is a [`Backend`], with
//! tasks of its own that check it, read what it publishes, and wait for nobody else: a server that hangs delays only what is
//! asked of it. What is said about backends is written through the gates, as by anybody, under the name that upstream's server has.
//!
//! Nothing here opens a connection: whoever has the aggregator brings the [`Transport`], and the [`Loopback`] that writes go by.

mod availabilities;
mod availability;
mod backend;
pub mod discovery;
mod documents;
pub mod forward;
mod keep;
pub mod openapi;
pub mod priorities;
pub mod registration;
mod service;
mod sources;
mod writes;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::Clock;
use machinery::Value;
use machinery::object::Object;
use parking_lot::{Mutex, RwLock};
use serde_json::Map;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

pub use backend::{Backend, Target, Transport};
pub use forward::Forward;
pub use machinery::gvk::GroupVersion;
pub use priorities::Priority;
pub use service::{ApiService, Reference};
pub use sources::Sources;
pub use writes::Loopback;

use availabilities::Availabilities;
use registration::Wanted;
use writes::Writer;

/// The APIService that the core group's requests go by.
const CORE: &str = "v1.";

/// What an aggregator is made of.
pub struct Settings {
    pub sources: Sources,
    /// How it reaches other servers.
    pub transport: Arc<dyn Transport>,
    /// The certificate by which other servers know it.
    pub identity: Option<pki::Pair>,
    /// The group versions that are built in.
    pub built_in: Vec<GroupVersion>,
    /// Those that this server answers for as long as no other server does.
    pub offered: Vec<Offered>,
    pub clock: Clock,
}

/// A group version that this server has, and that any other server may take over: whoever gives its APIService a Service.
#[derive(Debug, Clone)]
pub struct Offered {
    pub of: GroupVersion,
    pub priority: Priority,
    /// Its `APIVersionDiscovery`.
    pub document: Value,
}

/// All APIServices, and what follows from them.
pub struct Aggregator {
    sources: Arc<Sources>,
    transport: Arc<dyn Transport>,
    identity: Option<pki::Pair>,
    clock: Clock,
    offered: Vec<Offered>,
    services: RwLock<BTreeMap<String, ApiService>>,
    /// By the name of the APIService; only those that are not local.
    backends: RwLock<HashMap<String, Kept>>,
    wanted: Mutex<Wanted>,
    /// Names that have to be looked at.
    pending: Mutex<BTreeSet<String>>,
    look: Notify,
    generation: AtomicU64,
    availabilities: Availabilities,
}

/// A backend and the task that looks after it.
struct Kept {
    backend: Arc<Backend>,
    task: JoinHandle<()>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Aggregator {
    /// An aggregator that does not look at anything yet.
    pub fn new(settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            sources: Arc::new(settings.sources),
            transport: settings.transport,
            identity: settings.identity,
            clock: settings.clock,
            services: RwLock::default(),
            backends: RwLock::default(),
            wanted: Mutex::new(Wanted::new(settings.built_in, &settings.offered)),
            offered: settings.offered,
            pending: Mutex::default(),
            look: Notify::new(),
            generation: AtomicU64::new(0),
            availabilities: Availabilities::new(),
        })
    }

    /// Starts to follow APIServices, and returns when those that are built in are there. The task ends with the caches.
    pub async fn start(self: &Arc<Self>, loopback: Arc<dyn Loopback>) -> JoinHandle<()> {
        let writer = Writer(loopback);
        let (ready, registered) = tokio::sync::oneshot::channel();
        let aggregator = self.clone();
        let task = tokio::spawn(async move { aggregator.run(writer, ready).await });
        // Dropped without a word when the server stops meanwhile.
        let _ = registered.await;
        task
    }

    /// The group versions of custom resources that are served, all of them: each has an APIService from now on, and no other has
    /// one that this server made.
    pub fn set_custom(&self, all: impl IntoIterator<Item = GroupVersion>) {
        let mut wanted = self.wanted.lock();
        let first = !wanted.knows_custom();
        let mut names = wanted.set_custom(all);
        drop(wanted);
        if first {
            // Those of before that nobody had counted may have gone.
            names.extend(self.services.read().keys().cloned());
        }
        self.look_at(names);
    }

    fn look_at(&self, names: impl IntoIterator<Item = String>) {
        let mut pending = self.pending.lock();
        pending.extend(names);
        if !pending.is_empty() {
            self.look.notify_one();
        }
    }

    /// Who else answers a request for this path, if it is not this server.
    pub fn backend(&self, path: &str) -> Option<Arc<Backend>> {
        let backends = self.backends.read();
        if backends.is_empty() {
            return None;
        }
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let name = match (segments.next()?, segments.next(), segments.next()) {
            ("apis", Some(group), Some(version)) => format!("{version}.{group}"),
            ("api", ..) => CORE.to_owned(),
            _ => return None,
        };
        backends.get(&name).map(|kept| kept.backend.clone())
    }

    /// The backend that has a document of OpenAPI version 3.
    pub fn backend_of_openapi(&self, path: &str) -> Option<Arc<Backend>> {
        let backends = self.backends.read();
        let mut all = backends.values().map(|kept| &kept.backend);
        all.find(|backend| backend.published.read().v3.contains_key(path)).cloned()
    }

    /// How often something has changed that documents are made of: the same number means the same documents.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn now(&self) -> String {
        (self.clock)().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether other servers answer for anything.
    pub fn has_backends(&self) -> bool {
        !self.backends.read().is_empty()
    }

    /// Whether this server itself answers for a group version that it offers.
    pub fn offers(&self, group: &str, version: &str) -> bool {
        self.offered().any(|offered| offered.of.group == group && offered.of.version == version)
    }

    fn offered(&self) -> impl Iterator<Item = &Offered> {
        let is_local = |service: Option<&ApiService>| service.is_some_and(|service| service.remote.is_none());
        self.offered.iter().filter(move |offered| is_local(self.services.read().get(&registration::name(&offered.of))))
    }

    /// What discovery shows besides what is stored here: what other servers have, and what is offered.
    pub fn entries(&self) -> Vec<discovery::Entry> {
        let backends = self.backends.read();
        let all = backends.values().filter(|kept| !kept.backend.service.group.is_empty());
        let offered = self.offered().map(|Offered { of, document, .. }| discovery::Entry {
            group: of.group.clone(),
            version: of.version.clone(),
            priority: self.place(&of.group, &of.version),
            document: document.clone(),
        });
        all.map(|kept| kept.backend.entry()).chain(offered).collect()
    }

    /// Where a group version of this server comes in discovery: as its APIService says.
    pub fn place(&self, group: &str, version: &str) -> Priority {
        if group == priorities::REGISTRATION.0 {
            return priorities::REGISTRATION.1;
        }
        let services = self.services.read();
        let declared = services.get(&format!("{version}.{group}")).map(|service| service.priority);
        declared.or_else(|| priorities::built_in(group, version)).unwrap_or(priorities::CUSTOM)
    }

    /// What other servers add to OpenAPI version 2, in the order of their names.
    pub fn openapi_v2(&self) -> Vec<Arc<Value>> {
        self.published(|published| published.v2.clone()).into_iter().flatten().collect()
    }

    /// What other servers add to the root of OpenAPI version 3.
    pub fn openapi_v3(&self) -> Vec<Map<String, Value>> {
        self.published(|published| published.v3.clone())
    }

    fn published<T>(&self, of: impl Fn(&documents::Published) -> T) -> Vec<T> {
        let backends = self.backends.read();
        let mut all: Vec<&Arc<Backend>> = backends.values().map(|kept| &kept.backend).collect();
        all.sort_by(|a, b| a.service.name.cmp(&b.service.name));
        all.iter().map(|backend| of(&backend.published.read())).collect()
    }

    /// Appends what is counted, for scrapers.
    pub fn figures(&self, text: &mut String) {
        self.availabilities.write(text);
    }

    /// Takes in an APIService as it is now, or its end.
    fn apply(self: &Arc<Self>, name: &str, object: Option<&Arc<Object>>, writer: &Writer) {
        let tree = object.map(|object| object.to_value());
        let new = tree.as_ref().map(ApiService::read);
        let mut services = self.services.write();
        let old = match new.clone() {
            Some(new) => services.insert(name.to_owned(), new),
            None => services.remove(name),
        };
        drop(services);
        match (&new, &tree) {
            (Some(new), Some(tree)) => {
                let reason = service::condition(tree).and_then(|condition| condition["reason"].as_str());
                let was = old.as_ref().is_some_and(|old| old.available);
                self.availabilities.tell(name, was, new.available, reason);
            }
            _ => self.availabilities.forget(name),
        }
        let spec = |service: &ApiService| ApiService { available: false, ..service.clone() };
        let same = old.as_ref().map(spec) == new.as_ref().map(spec);
        if same {
            if let (Some(kept), Some(new)) = (self.backends.read().get(name), &new) {
                kept.backend.set_available(new.available);
                kept.backend.changed.notify_one();
            }
            return;
        }
        let kept = new.and_then(|new| self.keep(new, writer));
        let mut backends = self.backends.write();
        match kept {
            Some(kept) => backends.insert(name.to_owned(), kept),
            None => backends.remove(name),
        };
        drop(backends);
        self.changed();
    }

    /// A backend for an APIService that is not local, and the task that looks after it.
    fn keep(self: &Arc<Self>, service: ApiService, writer: &Writer) -> Option<Kept> {
        let reference = service.remote.clone()?;
        let identity = self.identity.as_ref();
        let backend = Backend::new(service, reference, identity, self.sources.clone(), self.transport.clone());
        // What was read of the same server is shown until it is read anew.
        if let Some(had) = self.backends.read().get(&backend.service.name) {
            *backend.published.write() = had.backend.published.read().clone();
        }
        let backend = Arc::new(backend);
        let task = tokio::spawn(keep::run(Arc::downgrade(self), backend.clone(), writer.clone()));
        Some(Kept { backend, task })
    }
}
