//! Untyped calls, for what works on every kind alike: garbage collection, namespace deletion, custom resources.

use futures::stream::BoxStream;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::codec::typed;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::answer::{self, Event, List, Reader};
use crate::client::{Client, JSON, value_reader, with_query};
use crate::error::Error;
use crate::original::{Original, Originals};
use crate::params::{DeleteOptions, ListParams, Patch, WatchParams};
use crate::path;

/// The server sends metadata alone to whom this says; others get whole objects, whose rest is skipped when decoding.
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// A resource by name: group, version and plural.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvr {
    pub group: String,
    /// For example `v1`.
    pub version: String,
    pub resource: String,
}

impl Gvr {
    /// From its three parts.
    pub fn new(group: impl Into<String>, version: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }
}

/// For messages.
const METADATA: &str = "an object's metadata";

/// An object of any kind, of which only `metadata` is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Partial {
    /// Empty where a list or a server leaves it out.
    #[serde(default)]
    pub api_version: String,
    /// Empty where a list or a server leaves it out; over the wire it may be `PartialObjectMetadata`.
    #[serde(default)]
    pub kind: String,
    #[serde(default)]
    pub metadata: ObjectMeta,
}

/// Calls on one resource. An empty namespace is the cluster scope, or all namespaces.
#[derive(Debug, Clone)]
pub struct Dynamic {
    client: Client,
    resource: Gvr,
}

impl Dynamic {
    pub(crate) fn new(client: Client, resource: Gvr) -> Self {
        Self { client, resource }
    }

    /// The resource these calls are about.
    pub fn resource(&self) -> &Gvr {
        &self.resource
    }

    fn place(&self, namespace: &str) -> String {
        path::collection(&self.resource.group, &self.resource.version, namespace, &self.resource.resource)
    }

    pub async fn get(&self, namespace: &str, name: &str) -> Result<Value, Error> {
        self.get_as(namespace, name, JSON, value_reader()).await
    }

    /// One part of an object: `scale`, `status`.
    pub async fn get_subresource(&self, namespace: &str, name: &str, subresource: &str) -> Result<Value, Error> {
        let path = path::item(self.place(namespace), name, subresource);
        value_reader().one(self.client.call(Method::GET, path, None).await?).await
    }

    pub async fn get_metadata(&self, namespace: &str, name: &str) -> Result<Partial, Error> {
        self.get_as(namespace, name, PARTIAL, partial_reader()).await
    }

    async fn get_as<T: for<'de> Deserialize<'de> + Send + Sync + 'static>(
        &self,
        namespace: &str,
        name: &str,
        accept: &'static str,
        reader: Reader<T>,
    ) -> Result<T, Error> {
        let path = path::item(self.place(namespace), name, "");
        reader.one(self.client.call_accepting(Method::GET, path, None, accept).await?).await
    }

    /// One page of objects.
    pub async fn list(&self, namespace: &str, params: &ListParams) -> Result<List<Value>, Error> {
        let path = with_query(self.place(namespace), &params.query());
        value_reader().list(self.client.call(Method::GET, path, None).await?).await
    }

    /// One page of metadata.
    pub async fn list_metadata(&self, namespace: &str, params: &ListParams) -> Result<List<Partial>, Error> {
        let path = with_query(self.place(namespace), &params.query());
        partial_reader().list(self.client.call_accepting(Method::GET, path, None, PARTIAL_LIST).await?).await
    }

    /// Changes as they happen.
    pub async fn watch(
        &self,
        namespace: &str,
        params: &WatchParams,
    ) -> Result<BoxStream<'static, Result<Event<Value>, Error>>, Error> {
        let path = with_query(self.place(namespace), &params.query());
        value_reader().watch(self.client.call(Method::GET, path, None).await?).await
    }

    /// Changes of metadata as they happen.
    pub async fn watch_metadata(
        &self,
        namespace: &str,
        params: &WatchParams,
    ) -> Result<BoxStream<'static, Result<Event<Partial>, Error>>, Error> {
        let path = with_query(self.place(namespace), &params.query());
        partial_reader().watch(self.client.call_accepting(Method::GET, path, None, PARTIAL).await?).await
    }

    /// As [`Dynamic::list_metadata`], with objects that are not read yet.
    pub async fn list_metadata_originals(&self, namespace: &str, params: &ListParams) -> Result<List<Original>, Error> {
        let path = with_query(self.place(namespace), &params.query());
        let response = self.client.call_accepting(Method::GET, path, None, PARTIAL_LIST).await?;
        Originals::of("", METADATA).list(response).await
    }

    /// As [`Dynamic::watch_metadata`], with objects that are not read yet.
    pub async fn watch_metadata_originals(
        &self,
        namespace: &str,
        params: &WatchParams,
    ) -> Result<BoxStream<'static, Result<Event<Original>, Error>>, Error> {
        let path = with_query(self.place(namespace), &params.query());
        let response = self.client.call_accepting(Method::GET, path, None, PARTIAL).await?;
        answer::watch(Originals::of("", METADATA), response).await
    }

    pub async fn create(&self, namespace: &str, object: &Value) -> Result<Value, Error> {
        let body = self.client.encode(object)?;
        value_reader().one(self.client.call(Method::POST, self.place(namespace), Some((JSON, body))).await?).await
    }

    /// Replaces an object, or with a subresource that part of it.
    pub async fn update(&self, namespace: &str, object: &Value, subresource: &str) -> Result<Value, Error> {
        let name = object["metadata"]["name"].as_str().ok_or(Error::Unnamed("object"))?;
        let path = path::item(self.place(namespace), name, subresource);
        let body = self.client.encode(object)?;
        value_reader().one(self.client.call(Method::PUT, path, Some((JSON, body))).await?).await
    }

    /// Changes an object in part, or with a subresource that part of it.
    pub async fn patch(&self, namespace: &str, name: &str, subresource: &str, patch: &Patch) -> Result<Value, Error> {
        self.client.patch_at(path::item(self.place(namespace), name, subresource), patch, value_reader()).await
    }

    pub async fn delete(&self, namespace: &str, name: &str, options: &DeleteOptions) -> Result<(), Error> {
        self.client.delete_at(path::item(self.place(namespace), name, ""), options).await
    }

    /// Deletes every object that the list would show.
    pub async fn delete_collection(
        &self,
        namespace: &str,
        params: &ListParams,
        options: &DeleteOptions,
    ) -> Result<(), Error> {
        self.client.delete_at(with_query(self.place(namespace), &params.query()), options).await
    }
}

pub(crate) fn partial_reader() -> Reader<Partial> {
    Reader {
        what: METADATA,
        api_version: "",
        shared: |object| {
            let mut partial: Partial = typed::from_slice(&object.unmanaged_metadata(), ("", ""))?;
            partial.metadata.resource_version = Some(object.revision().to_string());
            Ok(partial)
        },
        trim: |partial| partial.metadata.managed_fields = None,
    }
}
