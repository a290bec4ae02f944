//! Follows the metadata of every resource, and notices when custom ones come and go.

use std::collections::HashMap;
use std::sync::Arc;

use informer::{AllMetadata, Cached, Change, Informer, Informers, Key, Metadata};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::graph::Place;
use super::reconcile::Shared;
use crate::common::discovery::{Resource, discover};
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};
use crate::metrics;

/// Resources that nothing owns and that would only fill the graph.
const IGNORED: [(&str, &str); 2] = [("", "events"), ("events.k8s.io", "events")];

/// All the caches of metadata. Cheap to clone.
#[derive(Clone)]
pub(super) struct Monitors {
    inner: Arc<Inner>,
}

struct Inner {
    tools: Tools,
    informers: Informers,
    shared: Arc<Shared>,
    running: Mutex<HashMap<(String, String), Monitor>>,
    resources: Mutex<Vec<Resource>>,
    changed: Arc<Notify>,
    synced: watch::Sender<bool>,
}

struct Monitor {
    informer: Informer<Metadata>,
    version: String,
    /// Ends the watch when the resource goes.
    _stop: DropGuard,
}

impl Monitors {
    pub(super) fn new(context: &Context, shared: Arc<Shared>) -> Self {
        let changed = Arc::new(Notify::new());
        let custom = context.informers.of::<CustomResourceDefinition>();
        let aggregated = context.informers.of::<APIService>();
        let (by_custom, by_aggregated) = (changed.clone(), changed.clone());
        // What a definition says matters only once it is served, and that it is changes its status: every change is a reason to look.
        custom.subscribe(move |_| by_custom.notify_one());
        aggregated.subscribe(move |_| by_aggregated.notify_one());
        Self {
            inner: Arc::new(Inner {
                tools: context.tools.clone(),
                informers: context.informers.clone(),
                shared,
                running: Mutex::default(),
                resources: Mutex::default(),
                changed,
                synced: watch::Sender::new(false),
            }),
        }
    }

    /// Keeps the set of watches equal to the set of resources. Never ends.
    pub(super) async fn follow(&self) {
        let mut backoff = informer::Backoff::reflector();
        loop {
            match discover(&self.inner.tools.client).await {
                Ok(discovered) => {
                    backoff.reset();
                    let partial = !discovered.failures.is_empty();
                    metrics::GARBAGE_ERRORS.add(&[], usize::from(partial));
                    self.adjust(discovered.resources, partial);
                    self.all_synced().await;
                    self.inner.synced.send_replace(true);
                    if partial {
                        self.inner.tools.clock.sleep(backoff.delay()).await;
                        continue;
                    }
                }
                Err(error) => {
                    metrics::GARBAGE_ERRORS.increment(&[]);
                    tracing::debug!(%error, "cannot discover the resources; trying again");
                    self.inner.tools.clock.sleep(backoff.delay()).await;
                    continue;
                }
            }
            self.inner.changed.notified().await;
        }
    }

    /// Resolves when the graph holds everything that there was at the beginning.
    pub(super) async fn synced(&self) {
        // The sender lives as long as `self`.
        let _ = self.inner.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// The resource of a reference's kind.
    pub(super) fn resource(&self, owner: &OwnerReference) -> Option<Resource> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        let resources = self.inner.resources.lock();
        resources.iter().find(|resource| resource.gvr.group == group && resource.kind == owner.kind).cloned()
    }

    /// Starts and stops watches. If some groups did not answer, nothing is stopped: they may just be down.
    fn adjust(&self, resources: Vec<Resource>, partial: bool) {
        let followed = |resource: &&Resource| {
            let ignored = IGNORED.contains(&(resource.gvr.group.as_str(), resource.gvr.resource.as_str()));
            !ignored && resource.can(&["list", "watch", "delete"])
        };
        let id = |resource: &Resource| (resource.gvr.group.clone(), resource.gvr.resource.clone());
        let mut gone = Vec::new();
        {
            let mut running = self.inner.running.lock();
            if !partial {
                let wanted: Vec<_> = resources.iter().filter(followed).map(id).collect();
                running.retain(|id, monitor| {
                    let stays = wanted.contains(id);
                    if !stays {
                        gone.extend(monitor.informer.list());
                    }
                    stays
                });
            }
            for resource in resources.iter().filter(followed) {
                let known = running.get(&id(resource));
                if known.is_none_or(|known| known.version != resource.gvr.version) {
                    running.insert(id(resource), self.start(resource));
                }
            }
        }
        *self.inner.resources.lock() = resources;
        for object in gone {
            let look = self.inner.shared.graph.lock().remove(object.meta().uid());
            self.inner.shared.enqueue(look);
        }
    }

    fn start(&self, resource: &Resource) -> Monitor {
        let stop = CancellationToken::new();
        let source = AllMetadata(self.inner.tools.client.dynamic(&resource.gvr));
        let informer = self.inner.informers.spawn_until(source, &stop);
        let (gvr, kind): (_, Arc<str>) = (Arc::new(resource.gvr.clone()), resource.kind.as_str().into());
        let shared = self.inner.shared.clone();
        informer.subscribe(move |change| {
            let meta = change.object().meta();
            let look = match change {
                Change::Deleted(_) => shared.graph.lock().remove(meta.uid()),
                Change::Added(_) | Change::Modified { .. } => {
                    let place = Place { gvr: gvr.clone(), kind: kind.clone(), key: Key::of(meta) };
                    shared.graph.lock().put(place, meta)
                }
            };
            shared.enqueue(look);
        });
        Monitor { informer, version: resource.gvr.version.clone(), _stop: stop.drop_guard() }
    }

    async fn all_synced(&self) {
        let informers: Vec<Informer<Metadata>> =
            self.inner.running.lock().values().map(|monitor| monitor.informer.clone()).collect();
        for informer in informers {
            informer.synced().await;
        }
    }
}
