//! The aggregator's place in the server: which requests it gets, and the documents that are merged from what
//! this server and the others have.
//!
//! As long as no other server answers for anything, documents are this server's own and nothing is merged.

use std::sync::{Arc, LazyLock};

use aggregator::{Aggregator, Backend, Forward, discovery, openapi};
use bytes::Bytes;
use futures::future::BoxFuture;
use gates::Exchange;
use http::header::{CONTENT_TYPE, HeaderValue};
use machinery::Value;
use machinery::rest::{Body, Peer, Response};
use machinery::status::ApiError;
use parking_lot::Mutex;

use crate::discovery::{Document, Root, etag};
use crate::loopback::Loopback;
use crate::openapi::{Assembled, Form, OpenApi};
use crate::proxy;

impl aggregator::Loopback for Loopback {
    fn send(&self, method: http::Method, path: String, object: Value) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move { self.send(method, &path, "application/json", Body::Value(object)).await.map(drop) })
    }
}

/// A client's request as it is passed on to another server.
pub(crate) fn forwarded(exchange: &mut Exchange, body: Body) -> Forward<'_> {
    if let Body::Value(_) = body {
        let json = HeaderValue::from_static("application/json");
        exchange.parts.headers.entry(CONTENT_TYPE).or_insert(json);
    }
    machinery::rest::name_trace(&mut exchange.parts.headers, exchange.trace.context());
    let mut held = http::Request::new(());
    proxy::hold(&mut held, exchange.record.clone());
    let upgrade = exchange.upgrade.take();
    let exchange = &*exchange;
    Forward {
        method: exchange.parts.method.clone(),
        uri: &exchange.parts.uri,
        headers: exchange.headers(),
        user: &exchange.user,
        peer: match &exchange.peer {
            Peer::Remote { address, .. } => Some(*address),
            Peer::InProcess(_) => None,
        },
        audit_id: Some(exchange.audit_header()),
        // However long it is: the other server says how much it takes.
        body,
        upgrade,
        long_running: exchange.info.is_long_running(),
        extensions: held.into_parts().0.extensions,
    }
}

/// The aggregator, and the documents that were merged last.
pub struct Aggregation {
    /// Which server answers for what.
    pub aggregator: Arc<Aggregator>,
    discovery: [Merged; 2],
    v2: [Merged<Assembled>; 2],
    v3: Merged,
}

/// A document, and what it was merged from: the tag of this server's own, and the generation of the others'.
type Merged<T = Document> = Mutex<Option<(String, u64, T)>>;

impl Aggregation {
    /// With nothing merged yet.
    pub fn new(aggregator: Arc<Aggregator>) -> Self {
        let (discovery, v2, v3) = Default::default();
        Self { aggregator, discovery, v2, v3 }
    }

    /// Whether this server itself answers for a group version that others may take over.
    pub fn offers(&self, group: &str, version: &str) -> bool {
        self.aggregator.offers(group, version)
    }

    /// The schemas of a group version that is offered, by its path below `/openapi/v3`.
    pub(crate) fn offered_document(&self, form: Form, path: &str) -> Option<&'static Assembled> {
        static SCHEMAS: LazyLock<[Assembled; 2]> = LazyLock::new(|| {
            let tree = resourcemetrics::documents::openapi();
            let etag = etag(tree.to_string().as_bytes());
            [Form::V3Json, Form::V3Protobuf].map(|form| Assembled::of(form, &tree, etag.clone()))
        });
        let fits = path == resourcemetrics::documents::openapi_path()
            && self.offers(resourcemetrics::GROUP, resourcemetrics::VERSION);
        fits.then(|| &SCHEMAS[usize::from(form != Form::V3Json)])
    }

    /// Who else answers a request, if it is not this server.
    pub fn backend(&self, path: &str) -> Option<Arc<Backend>> {
        if !self.aggregator.has_backends() {
            return None;
        }
        match path.strip_prefix("/openapi/v3/") {
            Some(document) => self.aggregator.backend_of_openapi(document),
            None => self.aggregator.backend(path),
        }
    }

    /// Passes a request on, and its answer back.
    pub async fn forward(backend: &Backend, exchange: &mut Exchange, body: Body) -> Result<Response, ApiError> {
        Ok(backend.forward(forwarded(exchange, body)).await)
    }

    pub fn aggregated(&self, root: Root, own: &Document) -> Document {
        let entries = self.aggregator.entries();
        if root == Root::Api || entries.is_empty() {
            return own.clone();
        }
        // Two versions of the document differ in their first words, and so in their tags.
        let beta = own.body.windows(8).take(128).any(|word| word == b"v2beta1\"");
        self.changed(&self.discovery[usize::from(beta)], own, |document| {
            discovery::merge_aggregated(document, &entries, |group, version| self.aggregator.place(group, version));
        })
    }

    /// The list of groups.
    pub fn group_list(&self, own: Bytes) -> Bytes {
        let entries = self.aggregator.entries();
        let tree = if entries.is_empty() { None } else { serde_json::from_slice(&own).ok() };
        let Some(mut tree) = tree else { return own };
        discovery::merge_groups(&mut tree, &entries, |group, version| self.aggregator.place(group, version));
        tree.to_string().into()
    }

    /// A group, which this server may have too.
    pub fn group(&self, name: &str, own: Option<Bytes>) -> Option<Bytes> {
        let entries = self.aggregator.entries();
        if entries.is_empty() {
            return own;
        }
        let tree = own.as_ref().and_then(|own| serde_json::from_slice(own).ok());
        let merged =
            discovery::merge_group(tree, name, &entries, |group, version| self.aggregator.place(group, version));
        merged.map(|group| group.to_string().into())
    }

    /// OpenAPI version 2.
    pub(crate) fn openapi_v2(&self, form: Form, own: &OpenApi) -> Assembled {
        if !self.aggregator.has_backends() {
            return own.v2(form).clone();
        }
        let known = &self.v2[usize::from(form != Form::V2Json)];
        self.merged(known, &own.v2_tag(), || {
            let others = self.aggregator.openapi_v2();
            let path = |group: &str, version: &str| format!("/apis/{group}/{version}/");
            let open = |group: &str, version: &str| self.aggregator.backend(&path(group, version)).is_some();
            own.v2_changed(form, open, |tree| others.iter().for_each(|other| openapi::merge_v2(tree, other)))
        })
    }

    /// The root of OpenAPI version 3.
    pub fn openapi_v3(&self, own: &OpenApi) -> Document {
        let offered = self.offered_document(Form::V3Json, &resourcemetrics::documents::openapi_path());
        if !self.aggregator.has_backends() && offered.is_none() {
            return own.root().clone();
        }
        self.changed(&self.v3, own.root(), |document| {
            if let Some(offered) = offered {
                let path = resourcemetrics::documents::openapi_path();
                let address = format!("/openapi/v3/{path}?hash={}", offered.etag);
                document["paths"][path] = serde_json::json!({"serverRelativeURL": address});
            }
            for paths in self.aggregator.openapi_v3() {
                openapi::merge_v3_root(document, &paths);
            }
        })
    }

    /// A document of this server with a change, if it was not made before.
    fn changed(&self, known: &Merged, own: &Document, change: impl FnOnce(&mut Value)) -> Document {
        self.merged(known, &own.etag, || {
            let Ok(mut tree) = serde_json::from_slice(&own.body) else { return own.clone() };
            change(&mut tree);
            Document::new(tree.to_string())
        })
    }

    /// What was merged with this tag of this server's own and this generation of the others', or is now.
    fn merged<T: Clone>(&self, known: &Merged<T>, tag: &str, merge: impl FnOnce() -> T) -> T {
        // Looked at before the documents are: a change in between makes them be merged once more, and not once less.
        let generation = self.aggregator.generation();
        let mut known = known.lock();
        if let Some((merged_from, merged_at, document)) = &*known
            && (merged_from.as_str(), *merged_at) == (tag, generation)
        {
            return document.clone();
        }
        let document = merge();
        *known = Some((tag.to_owned(), generation, document.clone()));
        document
    }
}
