//! The typed calls. Each builds one request, sends it through the transport and reads the answer.

use std::any::TypeId;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::uri::Authority;
use http::{HeaderValue, Method};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::codec::typed;
use machinery::object::Object;
use machinery::rest::{Body, Handler, Request, Response, User};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answer::{self, Event, List, Reader};
use crate::config::Config;
use crate::dynamic::{Dynamic, Gvr};
use crate::error::Error;
use crate::guard::{self, Guard};
use crate::original::{Original, Originals};
use crate::params::{DeleteOptions, ListParams, Patch, WatchParams};
use crate::path::{self, Query};
use crate::tally;
use crate::transport::{Transport, Upgrade};

/// A request under way. On the heap, and without its type: what is called for every kind is compiled for every kind, in each crate anew, and all of the way of a
/// request would be part of that.
pub(crate) type Calling<'a> = BoxFuture<'a, Result<Response, Error>>;

pub(crate) const JSON: &str = "application/json";

/// Any built-in kind with `metadata`.
pub trait Kind:
    k8s_openapi::Resource
    + k8s_openapi::Metadata<Ty = ObjectMeta>
    + Serialize
    + DeserializeOwned
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Kind for K where
    K: k8s_openapi::Resource
        + k8s_openapi::Metadata<Ty = ObjectMeta>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
        + Send
        + Sync
        + 'static
{
}

/// A client of one API server with one identity. Cheap to clone.
///
/// Namespaces are `""` for cluster-scoped kinds; objects carry their own in `metadata`. Typed objects come without `managedFields`: no part
/// reads them, they are often half of the text, and the server keeps the record of whoever sends none back. [`Dynamic`] shows them.
#[derive(Clone)]
pub struct Client {
    transport: Arc<Transport>,
    agent: HeaderValue,
    guard: Option<Arc<dyn Guard>>,
}

impl Debug for Client {
    /// Names the transport and never its credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("transport", &*self.transport).finish_non_exhaustive()
    }
}

impl Client {
    /// A client inside the API server's process, with this identity.
    pub fn in_process(handler: Arc<dyn Handler>, user: User) -> Self {
        Self::new(Transport::in_process(handler, user))
    }

    /// A client over HTTPS. Connects with the first call.
    pub fn https(config: Config) -> Result<Self, Error> {
        Ok(Self::new(Transport::https(config)?))
    }

    fn new(transport: Transport) -> Self {
        Self { transport: Arc::new(transport), agent: HeaderValue::from_static(DEFAULT_AGENT), guard: None }
    }

    /// The same client under another user agent. What stands before its first slash is the manager of the fields it writes.
    pub fn with_user_agent(mut self, agent: &str) -> Self {
        // A name that is no header value would be our own typo; the default still says who we are.
        if let Ok(agent) = HeaderValue::from_str(agent) {
            self.agent = agent;
        }
        self
    }

    /// Later calls use new connections: a connection keeps the certificate that it was made with, so whoever renews the
    /// certificate says so here. Watches that are open end by themselves.
    pub fn reconnect(&self) {
        self.transport.reconnect();
    }

    /// Any of these servers (`host:port`) will do from now on, besides the one that was configured. What is no address is left out.
    pub fn set_servers(&self, servers: &[String]) {
        let servers: Vec<Authority> = servers.iter().filter_map(|server| server.parse().ok()).collect();
        self.transport.set_servers(&servers);
    }

    /// The same client, whose writes are sent only while the guard holds. Reads are not asked about.
    pub fn with_guard(mut self, guard: Arc<dyn Guard>) -> Self {
        self.guard = Some(guard);
        self
    }

    pub async fn get<K: Kind>(&self, namespace: &str, name: &str) -> Result<K, Error> {
        let response = self.call(Method::GET, path::item(place::<K>(namespace), name, ""), None).await?;
        reader::<K>().one(response).await
    }

    /// One page of objects; an empty namespace is all of them.
    pub async fn list<K: Kind>(&self, namespace: &str, params: &ListParams) -> Result<List<K>, Error> {
        let response = self.call(Method::GET, with_query(place::<K>(namespace), &params.query()), None).await?;
        reader::<K>().list(response).await
    }

    /// Changes as they happen. The stream ends when the server ends it, or after its first error.
    pub async fn watch<K: Kind>(
        &self,
        namespace: &str,
        params: &WatchParams,
    ) -> Result<BoxStream<'static, Result<Event<K>, Error>>, Error> {
        let response = self.call(Method::GET, with_query(place::<K>(namespace), &params.query()), None).await?;
        reader::<K>().watch(response).await
    }

    /// As [`Client::list`], with objects that are not read yet.
    pub async fn list_originals<K: Kind>(&self, namespace: &str, params: &ListParams) -> Result<List<Original>, Error> {
        let response = self.call(Method::GET, with_query(place::<K>(namespace), &params.query()), None).await?;
        Originals::of(K::API_VERSION, K::KIND).list(response).await
    }

    /// As [`Client::watch`], with objects that are not read yet.
    pub async fn watch_originals<K: Kind>(
        &self,
        namespace: &str,
        params: &WatchParams,
    ) -> Result<BoxStream<'static, Result<Event<Original>, Error>>, Error> {
        let response = self.call(Method::GET, with_query(place::<K>(namespace), &params.query()), None).await?;
        answer::watch(Originals::of(K::API_VERSION, K::KIND), response).await
    }

    /// Creates an object; the answer is the object as stored.
    pub async fn create<K: Kind>(&self, object: &K) -> Result<K, Error> {
        let body = self.encode(object)?;
        let response = self.call(Method::POST, place::<K>(namespace_of(object)), Some((JSON, body))).await?;
        reader::<K>().one(response).await
    }

    /// Replaces an object; with `metadata.resourceVersion` only if that is still its version.
    pub async fn update<K: Kind>(&self, object: &K) -> Result<K, Error> {
        self.put(object, "").await
    }

    /// Replaces an object's status and nothing else.
    pub async fn update_status<K: Kind>(&self, object: &K) -> Result<K, Error> {
        self.put(object, "status").await
    }

    async fn put<K: Kind>(&self, object: &K, subresource: &str) -> Result<K, Error> {
        let name = object.metadata().name.as_deref().ok_or(Error::Unnamed(K::KIND))?;
        let path = path::item(place::<K>(namespace_of(object)), name, subresource);
        let response = self.call(Method::PUT, path, Some((JSON, self.encode(object)?))).await?;
        reader::<K>().one(response).await
    }

    /// Changes an object in part.
    pub async fn patch<K: Kind>(&self, namespace: &str, name: &str, patch: &Patch) -> Result<K, Error> {
        self.patch_at(path::item(place::<K>(namespace), name, ""), patch, reader::<K>()).await
    }

    /// Changes an object's status in part.
    pub async fn patch_status<K: Kind>(&self, namespace: &str, name: &str, patch: &Patch) -> Result<K, Error> {
        self.patch_at(path::item(place::<K>(namespace), name, "status"), patch, reader::<K>()).await
    }

    pub(crate) async fn patch_at<T: DeserializeOwned + Send + Sync + 'static>(
        &self,
        path: String,
        patch: &Patch,
        reader: Reader<T>,
    ) -> Result<T, Error> {
        let body = self.encode(patch.body())?;
        let path = with_query(path, &patch.query());
        let response = self.call(Method::PATCH, path, Some((patch.content_type(), body))).await?;
        reader.one(response).await
    }

    /// Deletes an object, or starts to where it has finalizers or a grace period.
    pub async fn delete<K: Kind>(&self, namespace: &str, name: &str, options: &DeleteOptions) -> Result<(), Error> {
        self.delete_at(path::item(place::<K>(namespace), name, ""), options).await
    }

    /// Deletes every object that the list would show.
    pub async fn delete_collection<K: Kind>(
        &self,
        namespace: &str,
        params: &ListParams,
        options: &DeleteOptions,
    ) -> Result<(), Error> {
        self.delete_at(with_query(place::<K>(namespace), &params.query()), options).await
    }

    pub(crate) async fn delete_at(&self, path: String, options: &DeleteOptions) -> Result<(), Error> {
        let body = self.encode(&options.body())?;
        let response = self.call(Method::DELETE, path, Some((JSON, body))).await?;
        // The answer is read to its end so that an HTTP/1.1 connection can be used again.
        match answer::ok(response).await? {
            payload @ machinery::rest::Payload::Stream(_) => answer::collect(payload).await.map(drop),
            _ => Ok(()),
        }
    }

    /// Posts to a subresource: `binding`, `eviction`, `token`.
    pub async fn create_subresource<K: Kind, B: Serialize, R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        namespace: &str,
        name: &str,
        subresource: &str,
        body: &B,
    ) -> Result<R, Error> {
        self.send_subresource(Method::POST, path::item(place::<K>(namespace), name, subresource), body).await
    }

    /// Replaces a subresource: `finalize`, `approval`, `scale`.
    pub async fn update_subresource<K: Kind, B: Serialize, R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        namespace: &str,
        name: &str,
        subresource: &str,
        body: &B,
    ) -> Result<R, Error> {
        self.send_subresource(Method::PUT, path::item(place::<K>(namespace), name, subresource), body).await
    }

    async fn send_subresource<B: Serialize, R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        method: Method,
        path: String,
        body: &B,
    ) -> Result<R, Error> {
        let response = self.call(method, path, Some((JSON, self.encode(body)?))).await?;
        any_reader().one(response).await
    }

    /// Reads a subresource: `scale`.
    pub async fn get_subresource<K: Kind, R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        namespace: &str,
        name: &str,
        subresource: &str,
    ) -> Result<R, Error> {
        let path = path::item(place::<K>(namespace), name, subresource);
        any_reader().one(self.call(Method::GET, path, None).await?).await
    }

    /// Posts an object that is answered and not stored, such as a `TokenReview`.
    pub async fn post<B: Serialize, R: DeserializeOwned + Send + Sync + 'static>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<R, Error> {
        let response = self.call(Method::POST, path.to_owned(), Some((JSON, self.encode(body)?))).await?;
        any_reader().one(response).await
    }

    /// Untyped calls on a resource.
    pub fn dynamic(&self, resource: &Gvr) -> Dynamic {
        Dynamic::new(self.clone(), resource.clone())
    }

    /// The bytes at a path, such as `/readyz` or `/version`.
    pub async fn raw(&self, path: &str) -> Result<Bytes, Error> {
        let request = self.builder(Method::GET, path).header(ACCEPT, "*/*").body(Body::Empty)?;
        answer::collect(answer::ok(self.send(request).await?).await?).await
    }

    /// A request of the caller's own making; only identity and user agent are added. Failures of the server are answers here.
    pub async fn request(&self, mut request: Request) -> Result<Response, Error> {
        request.headers_mut().entry(USER_AGENT).or_insert_with(|| self.agent.clone());
        self.send(request).await
    }

    /// Asks the server to speak another protocol, which the request's headers name; only identity and user agent are added.
    pub async fn upgrade(&self, mut request: http::Request<()>) -> Result<Upgrade, Error> {
        request.headers_mut().entry(USER_AGENT).or_insert_with(|| self.agent.clone());
        self.transport.upgrade(request).await
    }

    async fn send(&self, mut request: Request) -> Result<Response, Error> {
        if let Some(guard) = &self.guard {
            guard::check(&**guard, &mut request)?;
        }
        let write = tally::Write::of(&request);
        let answer = self.transport.send(request).await?;
        if let Some(write) = write.filter(|_| answer.status().is_success()) {
            write.count();
        }
        Ok(answer)
    }

    pub(crate) fn encode(&self, object: &impl Serialize) -> Result<Body, Error> {
        self.transport.encode(object)
    }

    pub(crate) fn call(&self, method: Method, path: String, body: Option<(&'static str, Body)>) -> Calling<'_> {
        self.call_accepting(method, path, body, JSON)
    }

    pub(crate) fn call_accepting(
        &self,
        method: Method,
        path: String,
        body: Option<(&'static str, Body)>,
        accept: &'static str,
    ) -> Calling<'_> {
        Box::pin(async move {
            let mut builder = self.builder(method, &path).header(ACCEPT, accept);
            let body = match body {
                None => Body::Empty,
                Some((content_type, body)) => {
                    builder = builder.header(CONTENT_TYPE, content_type);
                    body
                }
            };
            self.send(builder.body(body)?).await
        })
    }

    fn builder(&self, method: Method, path: &str) -> http::request::Builder {
        http::Request::builder().method(method).uri(path).header(USER_AGENT, self.agent.clone())
    }
}

const DEFAULT_AGENT: &str = concat!("trireme/", env!("CARGO_PKG_VERSION"));

/// Where a kind lives. A namespace given for a cluster-scoped kind means nothing, as with kubectl.
fn place<K: Kind>(namespace: &str) -> String {
    let namespaced = TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>();
    path::collection(K::GROUP, K::VERSION, if namespaced { namespace } else { "" }, K::URL_PATH_SEGMENT)
}

fn namespace_of<K: Kind>(object: &K) -> &str {
    object.metadata().namespace.as_deref().unwrap_or_default()
}

pub(crate) fn with_query(path: String, query: &Query) -> String {
    format!("{path}{query}")
}

pub(crate) fn reader<K: Kind>() -> Reader<K> {
    Reader {
        what: K::KIND,
        api_version: K::API_VERSION,
        shared: |object: &Object| {
            let mut typed: K = typed::from_slice(&object.unmanaged(), (K::API_VERSION, K::KIND))?;
            typed.metadata_mut().resource_version = Some(object.revision().to_string());
            Ok(typed)
        },
        trim: |object| object.metadata_mut().managed_fields = None,
    }
}

fn any_reader<T: DeserializeOwned>() -> Reader<T> {
    Reader { what: "the subresource", api_version: "", shared: |object| object.decode(), trim: |_| () }
}

/// A tree, `resourceVersion` included.
pub(crate) fn value_reader() -> Reader<Value> {
    Reader { what: "an object", api_version: "", shared: |object| Ok(object.to_value()), trim: |_| () }
}
