//! What the aggregator reads: the watch caches of APIServices, Services and EndpointSlices. Nothing is copied, and Services are
//! looked at only for APIServices that name one.

use std::sync::Arc;

use machinery::Value;
use machinery::selector::field::FieldSelector;
use machinery::selector::label::LabelSelector;
use storage::cache::{Cache, Caches, Filter, Scope, Start, Subscription, event_for};
use store::Store;

use crate::service::Reference;

const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Where it is read from.
pub struct Sources {
    /// All caches, for their revision.
    pub caches: Arc<Caches>,
    /// What is below them.
    pub store: Arc<dyn Store>,
    pub api_services: Arc<Cache>,
    pub services: Arc<Cache>,
    pub slices: Arc<Cache>,
}

/// What happens to some objects.
pub(crate) struct Changes {
    subscription: Subscription,
    filter: Filter,
}

impl Changes {
    /// Waits for a change; false when there will be none, because the reader was too slow or the server stops.
    pub async fn next(&mut self) -> bool {
        // The cache tells more than it was asked for.
        while let Some(change) = self.subscription.live.recv().await {
            if event_for(&self.filter, &change).is_some() {
                return true;
            }
        }
        false
    }
}

impl Sources {
    /// The Service that is referred to, and the slices of its endpoints.
    pub(crate) fn service(&self, reference: &Reference) -> (Option<Value>, Vec<Value>) {
        let service = self.services.get(&key(reference)).map(|service| service.to_value());
        let (slices, _) = self.slices.list(&of_service(reference), None, 0);
        (service, slices.iter().map(|slice| slice.to_value()).collect())
    }

    /// Changes of the Service and of its endpoints from now on; nothing when the server stops.
    pub(crate) async fn follow_service(&self, reference: &Reference) -> Option<[Changes; 2]> {
        let one = Scope::Key(key(reference).into());
        let one = Filter::new(one, LabelSelector::everything(), FieldSelector::everything());
        let slices = of_service(reference);
        Some([
            Changes { subscription: self.follow(&self.services, &one, Start::Now).await?, filter: one },
            Changes { subscription: self.follow(&self.slices, &slices, Start::Now).await?, filter: slices },
        ])
    }

    /// All APIServices, and their changes from then on; nothing when the server stops.
    pub(crate) async fn follow_api_services(&self) -> Option<Subscription> {
        self.follow(&self.api_services, &Filter::everything(), Start::Everything).await
    }

    async fn follow(&self, cache: &Arc<Cache>, filter: &Filter, start: Start) -> Option<Subscription> {
        let subscribed = cache.subscribe(&*self.store, filter, start, self.caches.revision()).await.ok()?;
        // The caches of a server that stops are closed, and so is everything that they gave out.
        (!subscribed.live.is_closed()).then_some(subscribed)
    }
}

fn key(reference: &Reference) -> String {
    format!("{}/{}", reference.namespace, reference.name)
}

fn of_service(reference: &Reference) -> Filter {
    let labels = LabelSelector::from_labels([(SERVICE_NAME, reference.name.as_str())]);
    Filter::new(Scope::Namespace(reference.namespace.as_str().into()), labels, FieldSelector::everything())
}
