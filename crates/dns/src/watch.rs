//! Keeps the zone what the API says it is.
//!
//! The informers' handlers change the zone themselves, so a name answers as soon as its Service is known. A Service's
//! entry depends on its slices too, and different tasks report the two: whoever computes an entry holds one
//! lock while reading the caches and writing the zone, so the last to write has seen everything.

use std::sync::Arc;

use informer::{Change, Informer, Informers, Key};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use parking_lot::{Mutex, RwLock};

use crate::zone::{Entry, Zone};

const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
/// The index of slices by their Service.
const BY_SERVICE: &str = "dns-service";

pub struct Sources {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    namespaces: Informer<Namespace>,
}

struct Builder {
    services: Informer<Service>,
    slices: Informer<EndpointSlice>,
    zone: Arc<RwLock<Zone>>,
    building: Mutex<()>,
}

impl Sources {
    /// Starts to keep the zone.
    pub fn feed(informers: &Informers, of_namespaces: &Informers, zone: Arc<RwLock<Zone>>) -> Self {
        let services = informers.of::<Service>();
        let slices = informers.of::<EndpointSlice>();
        let namespaces = of_namespaces.of::<Namespace>();
        slices.add_index(BY_SERVICE, |slice| service_of(slice).map(|key| key.to_string()).into_iter().collect());
        let builder = Arc::new(Builder {
            services: services.clone(),
            slices: slices.clone(),
            zone: zone.clone(),
            building: Mutex::new(()),
        });
        let build = builder.clone();
        services.subscribe(move |change| build.service(&Key::of(&change.object().metadata)));
        slices.subscribe(move |change: &Change<EndpointSlice>| {
            let before = change.before().and_then(|slice| service_of(slice));
            let after = change.after().and_then(|slice| service_of(slice));
            before.iter().for_each(|key| builder.service(key));
            after.iter().filter(|after| before.as_ref() != Some(after)).for_each(|key| builder.service(key));
        });
        namespaces.subscribe(move |change| {
            let name = change.object().metadata.name.as_deref().unwrap_or_default();
            zone.write().set_namespace(name, change.after().is_some());
        });
        Self { services, slices, namespaces }
    }

    /// Resolves when the zone is complete.
    pub async fn synced(&self) {
        self.services.synced().await;
        self.slices.synced().await;
        self.namespaces.synced().await;
    }
}

impl Builder {
    fn service(&self, key: &Key) {
        let _building = self.building.lock();
        let entry = self.services.get(key).and_then(|service| {
            let slices = self.slices.by_index(BY_SERVICE, &key.to_string());
            Entry::of(&service, slices.iter().map(Arc::as_ref))
        });
        self.zone.write().set_service(&key.namespace, &key.name, entry);
    }
}

fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME_LABEL)?;
    Some(Key::new(slice.metadata.namespace.clone()?, name.clone()))
}
