//! What the two writers of EndpointSlices share: which slices are whose, how planned changes are written, and what is counted of it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use client::{Client, DeleteOptions};
use figures::{Counter, Gauge, Histogram};
use informer::{Change, Informer, Key};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use parking_lot::Mutex;

use super::batch;
use super::meta::MetaExt;
use super::pod_control::namespace_ends;
use crate::context::Context;
use crate::inputs::Inputs;

pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";
pub const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";

#[derive(Debug, Default, PartialEq)]
pub struct Plan {
    pub create: Vec<EndpointSlice>,
    pub update: Vec<EndpointSlice>,
    pub delete: Vec<Arc<EndpointSlice>>,
}

impl Plan {
    /// How many slices change.
    pub fn changes(&self) -> usize {
        self.create.len() + self.update.len() + self.delete.len()
    }
}

/// The families that a writer counts in.
pub struct Figures {
    pub added: &'static Histogram,
    pub removed: &'static Histogram,
    pub endpoints: &'static Gauge,
    pub slices: &'static Gauge,
    pub desired: &'static Gauge,
    pub changes: &'static Counter,
}

/// What one Service amounts to: endpoints, slices, and slices that would be enough.
#[derive(Debug, Clone, Copy, Default)]
struct Amount {
    endpoints: usize,
    slices: usize,
    desired: usize,
}

/// The amounts of all Services, and their sums.
#[derive(Debug, Default)]
struct Books {
    of: HashMap<Key, Amount>,
    total: Amount,
}

/// The slices of one writer.
pub struct Slices {
    client: Client,
    informer: Informer<EndpointSlice>,
    manager: &'static str,
    figures: Figures,
    books: Mutex<Books>,
}

impl Slices {
    /// Reads them; a slice that changes brings a turn for its Service.
    pub fn new(context: &Context, inputs: &mut Inputs, manager: &'static str, figures: Figures) -> Self {
        let informer = inputs.watch(move |change: &Change<EndpointSlice>| {
            let both = change.before().into_iter().chain(change.after());
            both.filter_map(|slice| owner(slice, manager)).collect::<Vec<_>>()
        });
        // The index is called after the manager: both writers share the cache.
        informer
            .add_index(manager, move |slice| owner(slice, manager).map(|key| key.to_string()).into_iter().collect());
        Self { client: context.tools.client.clone(), informer, manager, figures, books: Mutex::default() }
    }

    /// The slices of a Service.
    pub fn of(&self, service: &Key) -> Vec<Arc<EndpointSlice>> {
        self.informer.by_index(self.manager, &service.to_string())
    }

    /// Carries a plan out. `existing` is what it was made for, `desired` how many slices would be enough.
    pub async fn apply(
        &self,
        service: &Key,
        existing: &[Arc<EndpointSlice>],
        plan: &Plan,
        desired: usize,
    ) -> Result<(), client::Error> {
        self.count(service, existing, plan, desired);
        let changed = |operation: &'static str| move |()| self.figures.changes.increment(&[operation]);
        let created = batch::all(&plan.create, |slice| async {
            match self.client.create(slice).await {
                Err(error) if namespace_ends(&error) => Ok(()),
                answer => answer.map(drop).map(changed("create")),
            }
        });
        let updated = batch::all(&plan.update, |slice| async {
            self.client.update(slice).await.map(drop).map(changed("update"))
        });
        let deleted = batch::all(&plan.delete, |slice| async {
            let (namespace, name) = (slice.metadata.namespace(), slice.metadata.name());
            match self.client.delete::<EndpointSlice>(namespace, name, &DeleteOptions::default()).await {
                Err(error) if error.is_not_found() => Ok(()),
                answer => answer.map(changed("delete")),
            }
        });
        let (created, updated, deleted) = futures::join!(created, updated, deleted);
        created.and(updated).and(deleted)
    }

    /// A Service is gone, or has no slices of this writer any more.
    pub fn forget(&self, service: &Key) {
        self.note(service, None);
    }

    fn count(&self, service: &Key, existing: &[Arc<EndpointSlice>], plan: &Plan, desired: usize) {
        let gone = |slice: &EndpointSlice| plan.delete.iter().any(|known| known.metadata.name == slice.metadata.name);
        let changed = |slice: &EndpointSlice| plan.update.iter().any(|new| new.metadata.name == slice.metadata.name);
        let kept = existing.iter().map(|slice| &**slice).filter(|slice| !gone(slice) && !changed(slice));
        let after: Vec<&EndpointSlice> = kept.chain(&plan.create).chain(&plan.update).collect();
        let (mut added, mut removed) = (0, 0);
        if plan.changes() > 0 {
            let before: HashSet<String> = existing.iter().flat_map(|slice| endpoints(slice)).map(identity).collect();
            let now: HashSet<String> = after.iter().flat_map(|slice| endpoints(slice)).map(identity).collect();
            (added, removed) = (now.difference(&before).count(), before.difference(&now).count());
        }
        self.figures.added.observe(&[], added as f64);
        self.figures.removed.observe(&[], removed as f64);
        let endpoints = after.iter().map(|slice| endpoints(slice).count()).sum();
        self.note(service, Some(Amount { endpoints, slices: after.len(), desired }));
    }

    fn note(&self, service: &Key, amount: Option<Amount>) {
        let mut books = self.books.lock();
        let before = match amount {
            Some(amount) => books.of.insert(service.clone(), amount),
            None => books.of.remove(service),
        }
        .unwrap_or_default();
        let now = amount.unwrap_or_default();
        let total = &mut books.total;
        total.endpoints = total.endpoints + now.endpoints - before.endpoints;
        total.slices = total.slices + now.slices - before.slices;
        total.desired = total.desired + now.desired - before.desired;
        self.figures.endpoints.set(&[], total.endpoints as f64);
        self.figures.slices.set(&[], total.slices as f64);
        self.figures.desired.set(&[], total.desired as f64);
    }
}

/// The Service of a slice of this manager.
fn owner(slice: &EndpointSlice, manager: &str) -> Option<Key> {
    let meta = &slice.metadata;
    let name = meta.label(SERVICE_LABEL).filter(|_| meta.label(MANAGED_BY_LABEL) == Some(manager))?;
    Some(Key::new(meta.namespace(), name))
}

fn endpoints(slice: &EndpointSlice) -> impl Iterator<Item = &Endpoint> {
    slice.endpoints.iter().flatten()
}

/// An endpoint is the same one as long as its address and its pod are.
pub fn identity(endpoint: &Endpoint) -> String {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.as_deref()).unwrap_or_default();
    format!("{:?} {uid}", endpoint.addresses)
}
