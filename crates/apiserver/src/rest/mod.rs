//! The generic REST flow: one code path for every resource, a [`Strategy`](crate::registry::Strategy) for what differs.
//!
//! [`Api::serve`] takes a request that has passed the gates and answers it. One file per verb; `storage` is the only one
//! that touches the store, `subresources` has the verbs that are not plain reads and writes of the object.

mod allocation;
mod body;
mod create;
mod delete;
mod eviction;
mod list;
mod managed;
mod options;
mod patch;
mod read;
mod review;
mod scale;
pub mod storage;
mod subresources;
mod token;
mod update;
mod watch;

use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};
use jiff::Timestamp;
use machinery::gvk::GroupResource;
use machinery::object::Object;
use machinery::rest::{Body, Payload, Response, User};
use machinery::status::ApiError;
use machinery::{Value, names};
use store::Store;

use crate::admission::Admission;
use crate::cache::Caches;
use crate::gates::authentication::service_accounts::ServiceAccounts;
use crate::metrics::Metrics;
use crate::query::Query;
use crate::registry::{Registry, Resource, Served};
use crate::route::RequestInfo;
use crate::serve::negotiate;

pub use allocation::{Allocator, Cidr};
pub(crate) use body::unreadable_kind;
pub use body::{MAX_BODY, check_kind, decode, package, read_bytes};
pub use patch::is_apply;
pub use review::read_review;
pub use scale::scale_of;
pub use update::{keep, keep_object_meta};
pub use watch::Watched;

/// The time, injected so that tests can set it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Everything the verbs work on.
pub struct Api {
    /// Which resources there are.
    pub registry: Registry,
    /// Their objects.
    pub caches: Arc<Caches>,
    /// Where they are durable.
    pub store: Arc<dyn Store>,
    /// What may change or refuse a write.
    pub admission: Admission,
    /// Cluster IPs and node ports.
    pub allocator: Allocator,
    /// Tokens of service accounts.
    pub service_accounts: Arc<ServiceAccounts>,
    /// The time.
    pub clock: Clock,
    /// What is counted.
    pub metrics: Metrics,
}

/// One request to one resource, past the gates.
pub struct Call<'a> {
    /// What it is about.
    pub info: &'a RequestInfo,
    /// Its parameters.
    pub query: &'a Query,
    /// Its headers.
    pub headers: &'a HeaderMap,
    /// Its method.
    pub method: &'a Method,
    /// Who asks.
    pub user: &'a Arc<User>,
    /// The resource in the version asked for.
    pub served: &'a Served,
    /// The stored resource.
    pub resource: &'a Arc<Resource>,
}

impl Call<'_> {
    /// The key of the named object in the cache.
    fn key(&self) -> String {
        self.resource.key(&self.info.namespace, &self.info.name)
    }

    /// Whether somebody else answers it: a kubelet, a pod, a Service.
    pub fn connects(&self) -> bool {
        let connecting = matches!(self.info.subresource.as_str(), "log" | "exec" | "attach" | "portforward" | "proxy");
        connecting && self.served.facts.subresource(&self.info.subresource).is_some()
    }

    fn not_found(&self) -> ApiError {
        ApiError::not_found(&self.subject(), &self.info.name)
    }

    /// What errors are about: events are stored in one group, and asked for in two.
    fn subject(&self) -> GroupResource {
        GroupResource::new(&*self.served.facts.group, &self.resource.name.resource)
    }
}

impl Api {
    /// Answers a request to a stored resource.
    pub async fn serve(&self, call: Call<'_>, body: Body) -> Result<Response, ApiError> {
        let verbs = match call.info.subresource.as_str() {
            "" => call.served.facts.verbs,
            name => call.served.facts.subresource(name).ok_or_else(ApiError::no_such_path)?.verbs,
        };
        // Collections take new objects and named objects are changed, never the other way round.
        let misplaced = call.info.subresource.is_empty()
            && match call.info.verb {
                "create" => !call.info.name.is_empty(),
                "update" | "patch" => call.info.name.is_empty(),
                _ => false,
            };
        if misplaced || !verbs.has(call.info.verb) || *call.method == Method::HEAD {
            return Err(ApiError::method_not_allowed());
        }
        // Routes of custom resources produce whatever can be negotiated; those that connect, whatever the other side says.
        if call.served.facts.ty.is_some() && !call.connects() {
            let collection = matches!(call.info.verb, "list" | "watch") && call.info.tail.is_empty();
            negotiate::routed(call.headers, if collection { negotiate::COLLECTIONS } else { negotiate::OBJECTS })?;
        }
        match call.info.verb {
            _ if call.connects() => {}
            "watch" => drop(negotiate::accepted_stream(call.headers)?),
            _ => drop(negotiate::accepted(call.headers, true)?),
        }
        let wrong = match call.info.verb {
            "get" | "delete" | "patch" => names::is_path_segment_name(&call.info.name),
            _ => Vec::new(),
        };
        if !wrong.is_empty() {
            let message = format!("Name parameter invalid: {:?}: {}", call.info.name, wrong.join(";"));
            return Err(ApiError::bad_request(message));
        }
        if call.served.facts.namespaced
            && call.info.namespace.is_empty()
            && !call.info.name.is_empty()
            && !matches!(call.info.verb, "list" | "watch" | "deletecollection")
        {
            return Err(ApiError::no_such_path());
        }
        if !call.served.facts.namespaced && !call.info.namespace.is_empty() && call.info.resource != "namespaces" {
            return Err(ApiError::no_such_path());
        }
        if !call.info.subresource.is_empty() {
            return Box::pin(self.serve_subresource(&call, body)).await;
        }
        // What changes something is long to tell and lies on the heap: on the stack every gate around it would hold room for all of it, and
        // a deeply nested body needs that room.
        match call.info.verb {
            "get" => self.get(&call).await,
            "list" => self.list(&call).await,
            "watch" => self.watch(&call).await,
            "create" => Box::pin(self.create(&call, body)).await,
            "update" => Box::pin(self.update(&call, body)).await,
            "patch" => Box::pin(self.patch(&call, body)).await,
            "delete" => Box::pin(self.delete(&call, body)).await,
            "deletecollection" => Box::pin(self.delete_collection(&call, body)).await,
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    /// The current time as objects carry it.
    pub fn now(&self) -> String {
        machinery::time::format((self.clock)())
    }
}

/// An answer with one stored object.
fn object_response(status: StatusCode, object: Arc<Object>) -> Response {
    response(status, Payload::Object(object))
}

/// An answer with a tree.
pub fn value_response(status: StatusCode, value: Value) -> Response {
    response(status, Payload::Value(value))
}

/// An answer.
pub fn response(status: StatusCode, payload: Payload) -> Response {
    let mut response = Response::new(payload);
    *response.status_mut() = status;
    response
}
