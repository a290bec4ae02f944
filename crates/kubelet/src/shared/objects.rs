//! The config maps, secrets, trust bundles and claims that pods of this node refer to, each watched by itself for as long as a pod needs it.
//!
//! A node may read only what its pods refer to, so there is no watch on all of them. When one changes, the pods that hold
//! it are on_change. Trust bundles are chosen by their labels, so pods hold all of those, under the empty name.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Kind, List, ListParams, WatchParams};
use informer::{Informer, Informers, Item, Key, Source, Stream, struct_events, structs};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// How long a pod waits for the first answer about an object.
const FIRST_ANSWER: Duration = Duration::from_secs(10);

/// Called with the uid of a pod that holds an object that changed.
pub type OnChange = Arc<dyn Fn(&str) + Send + Sync>;

/// One object, listed and watched by its name; without a name, all of the kind.
struct One<K> {
    client: Client,
    key: Key,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: Kind> Source for One<K> {
    type Object = K;

    fn name(&self) -> String {
        format!("{}/{}", K::URL_PATH_SEGMENT, self.key)
    }

    async fn list(&self, params: ListParams) -> Result<List<Item<K>>, client::Error> {
        let params = ListParams { field_selector: self.selector(), ..params };
        Ok(structs(self.client.list::<K>(&self.key.namespace, &params).await?))
    }

    async fn watch(&self, params: WatchParams) -> Result<Stream<K>, client::Error> {
        let params = WatchParams { field_selector: self.selector(), ..params };
        Ok(struct_events(self.client.watch::<K>(&self.key.namespace, &params).await?))
    }
}

impl<K> One<K> {
    fn selector(&self) -> String {
        if self.key.name.is_empty() { String::new() } else { format!("metadata.name={}", self.key.name) }
    }
}

struct Held<K> {
    informer: Informer<K>,
    holders: Arc<Mutex<HashSet<String>>>,
    until: CancellationToken,
}

/// Objects of one kind.
pub struct Objects<K> {
    informers: Informers,
    held: Mutex<HashMap<Key, Held<K>>>,
    on_change: OnChange,
}

impl<K: Kind> Objects<K> {
    /// Watches through these informers' client.
    pub fn new(informers: Informers, on_change: OnChange) -> Self {
        Self { informers, held: Mutex::default(), on_change }
    }

    /// Makes a pod hold exactly these objects of its namespace.
    pub fn hold<'a>(&self, pod: &str, namespace: &str, names: impl IntoIterator<Item = &'a String>) {
        let keys: HashSet<Key> = names.into_iter().map(|name| Key::new(namespace, name)).collect();
        let mut held = self.held.lock();
        for key in &keys {
            let entry = held.entry(key.clone()).or_insert_with(|| self.watch(key));
            entry.holders.lock().insert(pod.to_owned());
        }
        held.retain(|key, entry| {
            let mut holders = entry.holders.lock();
            if !keys.contains(key) {
                holders.remove(pod);
            }
            if holders.is_empty() {
                entry.until.cancel();
            }
            !holders.is_empty()
        });
    }

    /// The pod holds nothing any more.
    pub fn release(&self, pod: &str) {
        self.hold(pod, "", []);
    }

    /// The object, if it is there. It must be held.
    pub async fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        let key = Key::new(namespace, name);
        let informer = self.held.lock().get(&key).map(|held| held.informer.clone())?;
        // An API server that does not answer must not stop the pod for ever: it is asked again with the next try.
        let _ = tokio::time::timeout(FIRST_ANSWER, informer.synced()).await;
        informer.get(&key)
    }

    /// All objects of the kind, once they are known. They must be held.
    pub async fn all(&self) -> Option<Vec<Arc<K>>> {
        let informer = self.held.lock().get(&Key::cluster("")).map(|held| held.informer.clone())?;
        tokio::time::timeout(FIRST_ANSWER, informer.synced()).await.ok()?;
        Some(informer.list())
    }

    fn watch(&self, key: &Key) -> Held<K> {
        let source = One { client: self.informers.client().clone(), key: key.clone(), kind: std::marker::PhantomData };
        let until = CancellationToken::new();
        let informer = self.informers.spawn_until(source, &until);
        let holders: Arc<Mutex<HashSet<String>>> = Arc::default();
        let (on_change, concerned) = (self.on_change.clone(), holders.clone());
        informer.subscribe(move |_| {
            let pods: Vec<String> = concerned.lock().iter().cloned().collect();
            pods.iter().for_each(|pod| on_change(pod));
        });
        Held { informer, holders, until }
    }
}
