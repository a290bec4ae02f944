//! Where an informer's objects come from: the API through the client, or a test.

use std::fmt::Debug;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use client::{Client, Dynamic, Event, Kind, List, ListParams, Original, Partial, Undecodable, WatchParams};
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cache::Entry;
use crate::{Filter, Item};

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
pub type Stream<K> = BoxStream<'static, Result<Event<Item<K>>, client::Error>>;

/// A page of objects that are kept as structs.
pub fn structs<K>(list: List<K>) -> List<Item<K>> {
    list.map(|object| Ok(Arc::new(Item::Struct(object))))
}

/// Events of objects that are kept as structs.
pub fn struct_events<K: Send + Sync + 'static>(
    events: impl futures::Stream<Item = Result<Event<K>, client::Error>> + Send + 'static,
) -> Stream<K> {
    events.map(|event| event.map(|event| event.map(|object| Ok(Arc::new(Item::Struct(object)))))).boxed()
}

/// The largest struct of a kind that is kept as such.
const SMALL: usize = 1_024;

/// Whether of a kind texts are kept. A struct's own size says how much its text grows when it is read: a field that is not set takes room in it. So it
/// is large structs whose texts are kept, and those that hold schemas, which are larger than anything. Nodes are an exception: controllers look at all of
/// them, and each tells of itself every few seconds. So are volumes: for a claim all of them are looked at, and the scheduler holds their structs anyway.
fn are_texts<K: Kind>() -> bool {
    match K::KIND {
        "Node" | "PersistentVolume" => false,
        "CustomResourceDefinition" => true,
        _ => size_of::<K>() > SMALL,
    }
}

/// An object of a kind in the form in which it is kept.
fn kept<K: Kind>(original: Arc<Original>) -> Result<Arc<Item<K>>, Undecodable> {
    let original = Arc::unwrap_or_clone(original);
    Ok(Arc::new(if are_texts::<K>() {
        Item::Text(original, Original::read::<K>)
    } else {
        Item::Struct(Arc::new(original.read()?))
    }))
}

/// Lists and watches one set of objects.
pub trait Source: Send + Sync + 'static {
    type Object: Cached;

    /// What they are called, in logs and metrics.
    fn name(&self) -> String;

    fn list(&self, params: ListParams) -> impl Future<Output = Result<List<Item<Self::Object>>, client::Error>> + Send;

    /// Changes from `params.resource_version` on, or from nothing when the initial events are asked for.
    fn watch(&self, params: WatchParams) -> impl Future<Output = Result<Stream<Self::Object>, client::Error>> + Send;
}

/// The events of one watch, of whatever kind.
pub(crate) type AnyStream = BoxStream<'static, Result<Event<dyn Entry>, client::Error>>;

/// A [`Source`] of whatever kind.
pub(crate) trait AnySource: Send + Sync {
    fn name(&self) -> String;

    fn list(&self, params: ListParams) -> BoxFuture<'_, Result<List<dyn Entry>, client::Error>>;

    fn watch(&self, params: WatchParams) -> BoxFuture<'_, Result<AnyStream, client::Error>>;
}

impl<S: Source> AnySource for S {
    fn name(&self) -> String {
        Source::name(self)
    }

    fn list(&self, params: ListParams) -> BoxFuture<'_, Result<List<dyn Entry>, client::Error>> {
        Source::list(self, params).map(|list| list.map(|list| list.map(entry))).boxed()
    }

    fn watch(&self, params: WatchParams) -> BoxFuture<'_, Result<AnyStream, client::Error>> {
        let entries = |event: Result<Event<Item<S::Object>>, _>| event.map(|event| event.map(entry));
        Source::watch(self, params).map(move |stream| stream.map(|stream| stream.map(entries).boxed())).boxed()
    }
}

fn entry<K: Cached>(item: Arc<Item<K>>) -> Result<Arc<dyn Entry>, Undecodable> {
    Ok(item)
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

    async fn list(&self, params: ListParams) -> Result<List<Item<K>>, client::Error> {
        let params = ListParams {
            label_selector: self.filter.label_selector.clone(),
            field_selector: self.filter.field_selector.clone(),
            ..params
        };
        Ok(self.client.list_originals::<K>(&self.filter.namespace, &params).await?.map(kept))
    }

    async fn watch(&self, params: WatchParams) -> Result<Stream<K>, client::Error> {
        let params = WatchParams {
            label_selector: self.filter.label_selector.clone(),
            field_selector: self.filter.field_selector.clone(),
            ..params
        };
        let stream = self.client.watch_originals::<K>(&self.filter.namespace, &params).await?;
        Ok(stream.map(|event| event.map(|event| event.map(kept))).boxed())
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
    fn of(partial: Partial) -> Self {
        let mut meta = partial.metadata;
        // Labels and annotations are most of the metadata, and no graph of owners needs them.
        (meta.labels, meta.annotations) = (None, None);
        Self { meta }
    }

    fn kept(original: Arc<Original>) -> Result<Arc<Item<Self>>, Undecodable> {
        let read = |original: &Original| original.read_metadata().map(Self::of);
        Ok(Arc::new(Item::Text(Arc::unwrap_or_clone(original), read)))
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

    async fn list(&self, params: ListParams) -> Result<List<Item<Metadata>>, client::Error> {
        Ok(self.0.list_metadata_originals("", &params).await?.map(Metadata::kept))
    }

    async fn watch(&self, params: WatchParams) -> Result<Stream<Metadata>, client::Error> {
        let stream = self.0.watch_metadata_originals("", &params).await?;
        Ok(stream.map(|event| event.map(|event| event.map(Metadata::kept))).boxed())
    }
}
