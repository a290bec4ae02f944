//! Caches of what is only counted, begun when a quota first names it.
//!
//! Only metadata is kept. A cache that was begun stays: its kind was limited once and may be again, and there are no more of them than kinds.

use std::collections::HashMap;
use std::sync::Arc;

use client::Client;
use informer::{AllMetadata, Informer, Informers, Key, Metadata, WorkQueue};
use k8s_openapi::api::core::v1::ResourceQuota;
use parking_lot::Mutex;

use super::reconcile::follow;
use crate::Error;
use crate::common::discovery::discover;

/// The caches, by plural and group.
pub(super) struct Others {
    informers: Informers,
    quotas: Informer<ResourceQuota>,
    queue: WorkQueue<Key>,
    running: Mutex<HashMap<(String, String), Informer<Metadata>>>,
}

impl Others {
    pub(super) fn new(informers: Informers, quotas: Informer<ResourceQuota>, queue: WorkQueue<Key>) -> Arc<Self> {
        Arc::new(Self { informers, quotas, queue, running: Mutex::default() })
    }

    /// How many there are in a namespace; `None` if there is no such resource.
    pub(super) async fn count(
        &self,
        client: &Client,
        plural: &str,
        group: &str,
        namespace: &str,
    ) -> Result<Option<usize>, Error> {
        let id = (plural.to_owned(), group.to_owned());
        let known = self.running.lock().get(&id).cloned();
        let informer = match known {
            Some(known) => known,
            None => {
                let resources = discover(client).await?.resources;
                let found =
                    resources.into_iter().find(|found| found.gvr.resource == plural && found.gvr.group == group);
                let Some(resource) = found.filter(|found| found.namespaced && found.can(&["list", "watch"])) else {
                    return Ok(None);
                };
                // Another worker may have begun it while the server was asked.
                self.running
                    .lock()
                    .entry(id)
                    .or_insert_with(|| self.begin(AllMetadata(self.informers.client().dynamic(&resource.gvr))))
                    .clone()
            }
        };
        if !informer.has_synced() {
            return Err(Error::Waiting(format!("{plural} are not all known yet")));
        }
        Ok(Some(informer.count_in(namespace)))
    }

    fn begin(&self, source: AllMetadata) -> Informer<Metadata> {
        let informer = self.informers.spawn(source);
        follow(&self.quotas, &informer, &self.queue, |_, _| false);
        informer
    }
}
