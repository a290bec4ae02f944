//! Where an informer's objects come from: the API through the client, or a test.

use std::fmt::Debug;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use client::{Client, Dynamic, Event, Kind, List, ListParams, Partial, WatchParams};
use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::Filter;

/// Something with metadata that can be kept in a cache.
pub trait Cached: Debug + Send + Sync + 'static {
    /// Name, uid, owners and the like.
    fn meta(&self) -> &ObjectMeta;
}

impl<K: Kind> Cached for K {
    fn meta(&self) -> &ObjectMeta {
        self.metadata()
    }
}

/// The events of one watch.
pub type Stream<K> = BoxStream<'static, Result<Event<K>, client::Error>>;

/// Lists and watches one set of objects.
pub trait Source: Send + Sync + 'static {
    type Object: Cached;

    /// What they are called, in logs and metrics.
    fn name(&self) -> String;

    fn list(&self, params: ListParams) -> impl Future<Output = Result<List<Self::Object>, client::Error>> + Send;

    /// Changes from `params.resource_version` on, or from nothing when the initial events are asked for.
    fn watch(&self, params: WatchParams) -> impl Future<Output = Result<Stream<Self::Object>, client::Error>> + Send;
}

/// The objects of one kind that pass a filter, through the client.
pub(crate) struct Objects<K> {
    client: Client,
    filter: Filter,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Objects<K> {
    pub(crate) fn new(client: Client, filter: Filter) -> Self {
        Self { client, filter, kind: PhantomData }
    }
}

impl<K: Kind> Source for Objects<K> {
    type Object = K;

    fn name(&self) -> String {
        K::URL_PATH_SEGMENT.to_owned()
    }

    async fn list(&self, params: ListParams) -> Result<List<K>, client::Error> {
        let params = ListParams {
            label_selector: self.filter.label_selector.clone(),
            field_selector: self.filter.field_selector.clone(),
            ..params
        };
        self.client.list::<K>(&self.filter.namespace, &params).await
    }

    async fn watch(&self, params: WatchParams) -> Result<Stream<K>, client::Error> {
        let params = WatchParams {
            label_selector: self.filter.label_selector.clone(),
            field_selector: self.filter.field_selector.clone(),
            ..params
        };
        self.client.watch::<K>(&self.filter.namespace, &params).await
    }
}

/// An object of any kind, of which only names, owners, finalizers and deletion are kept.
#[derive(Debug)]
pub struct Metadata {
    meta: ObjectMeta,
}

impl Cached for Metadata {
    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }
}

impl Metadata {
    fn shared(partial: Arc<Partial>) -> Arc<Self> {
        let mut meta = Arc::unwrap_or_clone(partial).metadata;
        // Labels and annotations are most of the metadata, and no graph of owners needs them.
        (meta.labels, meta.annotations) = (None, None);
        Arc::new(Self { meta })
    }
}

/// The metadata of all objects of a resource, whatever its kind, through the client.
#[derive(Debug)]
pub struct AllMetadata(pub Dynamic);

impl Source for AllMetadata {
    type Object = Metadata;

    fn name(&self) -> String {
        self.0.resource().resource.clone()
    }

    async fn list(&self, params: ListParams) -> Result<List<Metadata>, client::Error> {
        Ok(self.0.list_metadata("", &params).await?.map(|object| Ok(Metadata::shared(object))))
    }

    async fn watch(&self, params: WatchParams) -> Result<Stream<Metadata>, client::Error> {
        let stream = self.0.watch_metadata("", &params).await?;
        Ok(stream.map(|event| event.map(|event| event.map(|object| Ok(Metadata::shared(object))))).boxed())
    }
}
