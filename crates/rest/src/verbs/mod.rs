//! The generic REST flow: one code path for every resource, a [`Strategy`](crate::registry::Strategy) for what differs.
//!
//! [`Api::serve`] takes a request that has passed the gates and answers it. One file per verb; `commit` is the only one
//! that touches the store. Nothing here knows a kind by its name: what differs is asked of its strategy, and what is more than a change of an object is in
//! `actions` and `allocation`.

pub mod author;
pub(crate) mod body;
pub mod commit;
mod create;
mod delete;
mod form;
mod list;
mod managed;
pub(crate) mod options;
pub mod past;
mod patch;
mod read;
mod review;
mod scale;
mod subresources;
mod type_meta;
pub(crate) mod update;
mod watch;

use std::sync::Arc;

use common::Clock;
use gates::authentication::service_accounts::ServiceAccounts;
use gates::{Exchange, RequestInfo, forms};
use http::{HeaderMap, Method, StatusCode};
use machinery::gvk::GroupResource;
use machinery::object::Object;
use machinery::query::Query;
use machinery::rest::{Body, Payload, Response, User};
use machinery::status::ApiError;
use machinery::{Value, names};
use storage::cache::Caches;
use store::Store;

use self::author::Target;
use crate::admission::Admission;
use crate::allocation::Allocator;
use crate::metrics::Metrics;
use crate::registry::{Registry, Resource, Served};

pub use body::{check_kind, package};
pub use past::AsOf;
pub use patch::is_apply;
pub use review::{read_review, user_info};
pub use scale::scale_of;
pub use watch::Watched;

/// Everything the verbs work on.
pub struct Api {
    /// Which resources there are.
    pub registry: Arc<Registry>,
    pub caches: Arc<Caches>,
    /// Where they are durable.
    pub store: Arc<dyn Store>,
    /// What may change or refuse a write.
    pub admission: Admission,
    /// Cluster IPs and node ports.
    pub allocator: Allocator,
    /// Tokens of service accounts.
    pub service_accounts: Arc<ServiceAccounts>,
    pub clock: Clock,
    /// The shortest time, in seconds, that a watch lives when the client does not say; up to twice as long, so that not all end at once.
    pub shortest_watch: u64,
    pub metrics: Metrics,
}

/// One request to one resource, past the gates.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The whole of it.
    pub exchange: &'a Exchange,
    /// What it is about.
    pub info: &'a RequestInfo,
    pub query: &'a Query,
    pub headers: &'a HeaderMap,
    pub method: &'a Method,
    pub user: &'a Arc<User>,
    /// The resource in the version asked for.
    pub served: &'a Served,
    pub resource: &'a Arc<Resource>,
    /// What may be done to it, or to the subresource that is asked for; none if there is no such subresource.
    pub verbs: Option<facts::Verbs>,
}

impl<'a> Call<'a> {
    /// Of an exchange about this resource.
    pub fn new(
        exchange: &'a Exchange,
        served: &'a Served,
        resource: &'a Arc<Resource>,
        verbs: Option<facts::Verbs>,
    ) -> Self {
        Self {
            info: &exchange.info,
            query: exchange.query(),
            headers: exchange.headers(),
            method: &exchange.parts.method,
            user: &exchange.user,
            exchange,
            served,
            resource,
            verbs,
        }
    }

    /// Tells the client something besides the answer.
    fn warn(&self, text: impl Into<String>) {
        self.exchange.notes.warn(text);
    }

    /// An object that this request writes.
    pub(crate) fn writes(&self, resource: &'a Arc<Resource>, key: &'a str) -> Target<'a> {
        Target::of(self.exchange, resource, key)
    }

    /// The key of the named object in the cache.
    pub(crate) fn key(&self) -> String {
        self.resource.key(&self.info.namespace, &self.info.name)
    }

    /// Whether somebody else answers it: a kubelet, a pod, a Service.
    pub fn connects(&self) -> bool {
        let connecting = matches!(self.info.subresource.as_str(), "log" | "exec" | "attach" | "portforward" | "proxy");
        connecting && self.served.facts.subresource(&self.info.subresource).is_some()
    }

    /// Whether the answer will be a table.
    fn wants_table(&self) -> bool {
        let forms = self.exchange.forms();
        let accepted = if self.is_custom() { forms.custom_objects() } else { forms.objects() };
        accepted.is_ok_and(|accepted| accepted.shape == forms::Shape::Table)
    }

    /// Whether a definition made the resource.
    fn is_custom(&self) -> bool {
        self.served.facts.ty.is_none()
    }

    pub(crate) fn not_found(&self) -> ApiError {
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
        let custom = call.is_custom();
        // Upstream routes everything below a custom resource to one place, which speaks of the object.
        let below = custom && !call.info.subresource.is_empty();
        let verbs = call.verbs.ok_or_else(|| if below { call.not_found() } else { ApiError::no_such_path() })?;
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
        if !custom && !call.connects() {
            let collection = matches!(call.info.verb, "list" | "watch") && call.info.tail.is_empty();
            call.exchange.forms().routed(if collection { forms::COLLECTIONS } else { forms::OBJECTS })?;
        }
        match call.info.verb {
            _ if call.connects() => {}
            "watch" => drop(call.exchange.forms().events(custom)?),
            _ if custom => drop(call.exchange.forms().custom_objects()?),
            _ => drop(call.exchange.forms().objects()?),
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
        if !call.served.facts.namespaced
            && !call.info.namespace.is_empty()
            && !call.resource.strategy.flags().is_namespace
        {
            return Err(ApiError::no_such_path());
        }
        if !call.info.subresource.is_empty() {
            return Box::pin(self.serve_subresource(&call, body)).await;
        }
        // What changes something is long to tell and lies on the heap: on the stack every gate around it would hold room for all of it, and
        // a deeply nested body needs that room.
        let answered = match call.info.verb {
            "get" => self.get(&call).await,
            "list" => self.list(&call).await,
            "watch" => self.watch(&call).await,
            "create" => Box::pin(self.create(&call, body)).await,
            "update" => Box::pin(self.update(&call, body)).await,
            "patch" => Box::pin(self.patch(&call, body)).await,
            "delete" => Box::pin(self.delete(&call, body)).await,
            "deletecollection" => Box::pin(self.delete_collection(&call, body)).await,
            _ => Err(ApiError::method_not_allowed()),
        };
        let mut answer = answered?;
        if let Some(form) = &call.resource.form {
            answer.extensions_mut().insert(Columns(form.version.clone()));
        }
        if let Some(as_of) = self.as_of(&call).await {
            answer.extensions_mut().insert(as_of);
        }
        Ok(answer)
    }

    /// The current time as objects carry it.
    pub fn now(&self) -> String {
        machinery::time::format((self.clock)())
    }
}

/// The columns of a custom resource: an extension of an answer, for those who want a table of it.
#[derive(Debug, Clone)]
pub struct Columns(pub Arc<apiextensions::Version>);

/// An answer with one stored object.
pub(crate) fn object_response(status: StatusCode, object: Arc<Object>) -> Response {
    response(status, Payload::Object(object))
}

/// An answer with a tree.
pub fn value_response(status: StatusCode, value: Value) -> Response {
    response(status, Payload::Value(value))
}

pub fn response(status: StatusCode, payload: Payload) -> Response {
    let mut response = Response::new(payload);
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    /// The texts between quotes in a source, up to its tests.
    fn literals(source: &str) -> impl Iterator<Item = &str> {
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        code.flat_map(|line| line.split('"').skip(1).step_by(2))
    }

    #[test]
    fn nothing_here_knows_a_kind_by_its_name() {
        let mut names: BTreeSet<&str> = facts::resources().map(|facts| &*facts.plural).collect();
        names.extend(facts::resources().map(|facts| &*facts.kind));
        let (mut found, mut seen) = (Vec::new(), 0);
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/verbs")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("the sources") {
                let file = entry.expect("an entry").path();
                if file.is_dir() {
                    folders.push(file);
                    continue;
                }
                let source = fs::read_to_string(&file).expect("a source");
                seen += literals(&source).count();
                let named = literals(&source).filter(|literal| names.contains(literal));
                found.extend(named.map(|name| format!("{}: {name:?}", file.display())));
            }
        }
        assert!(seen > 200, "only {seen} texts were found");
        assert!(found.is_empty(), "what is special about a kind is a hook of its strategy:\n{}", found.join("\n"));
        assert_eq!(literals("let a = f(\"pods\", 1);\n// \"no\"").collect::<Vec<_>>(), ["pods"]);
    }
}
