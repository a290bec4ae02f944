//! The aggregator's place in the server: how it reaches others, which requests it gets, and the documents that are merged from what
//! this server and the others have.
//!
//! As long as no other server answers for anything, documents are this server's own and nothing is merged.

use std::sync::{Arc, LazyLock};

use aggregator::{Aggregator, Backend, Forward, Target, Transport, discovery, openapi};
use bytes::Bytes;
use futures::future::BoxFuture;
use gates::Exchange;
use gates::body::read_bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue, UPGRADE};
use http_body_util::Full;
use hyper::upgrade::OnUpgrade;
use machinery::Value;
use machinery::rest::{Body, Peer, Response};
use machinery::status::ApiError;
use parking_lot::Mutex;
use tokio_rustls::TlsConnector;

use crate::discovery::{Document, Root};
use crate::loopback::Loopback;
use crate::openapi::OpenApi;
use crate::proxy;

/// Carries the aggregator's requests to other servers.
pub struct Dialer;

impl Transport for Dialer {
    fn exchange<'a>(
        &'a self,
        target: &'a Target,
        request: http::Request<Bytes>,
        upgrade: Option<OnUpgrade>,
    ) -> BoxFuture<'a, Result<Response, String>> {
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let mut request = http::Request::new(Full::new(body));
            *request.method_mut() = parts.method;
            *request.uri_mut() = parts.uri;
            *request.extensions_mut() = parts.extensions;
            let headers = request.headers_mut();
            proxy::copy_headers(&parts.headers, headers);
            // The body is whole by now, and its length is hyper's to say.
            headers.remove(http::header::CONTENT_LENGTH);
            if let Some(protocol) = parts.headers.get(UPGRADE) {
                headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
                headers.insert(UPGRADE, protocol.clone());
            }
            let host = HeaderValue::try_from(&target.authority).map_err(|error| error.to_string())?;
            headers.insert(HOST, host);
            let tls = TlsConnector::from(target.tls.clone());
            let stream = proxy::dial(&target.authority, &target.server_name, Some(&tls)).await;
            let stream = stream.map_err(|error| error.to_string())?;
            proxy::exchange(stream, request, upgrade).await.map_err(|error| error.to_string())
        })
    }
}

impl aggregator::Loopback for Loopback {
    fn send(&self, method: http::Method, path: String, object: Value) -> BoxFuture<'_, Result<(), ApiError>> {
        Box::pin(async move { self.send(method, &path, "application/json", Body::Value(object)).await.map(drop) })
    }
}

/// A document of OpenAPI version 3 in both forms, which have one tag.
pub struct Schemas {
    pub json: Document,
    pub protobuf: Document,
}

/// The aggregator, and the documents that were merged last.
pub struct Aggregation {
    /// Which server answers for what.
    pub aggregator: Arc<Aggregator>,
    discovery: [Merged; 2],
    v2: Merged,
    v2_protobuf: Merged,
    v3: Merged,
}

/// A document, and what it was merged from: the tag of this server's own, and the generation of the others'.
type Merged = Mutex<Option<(String, u64, Document)>>;

impl Aggregation {
    /// With nothing merged yet.
    pub fn new(aggregator: Arc<Aggregator>) -> Self {
        let (discovery, v2, v2_protobuf, v3) = Default::default();
        Self { aggregator, discovery, v2, v2_protobuf, v3 }
    }

    /// Whether this server itself answers for a group version that others may take over.
    pub fn offers(&self, group: &str, version: &str) -> bool {
        self.aggregator.offers(group, version)
    }

    /// The schemas of a group version that is offered, by its path below `/openapi/v3`.
    pub fn offered_document(&self, path: &str) -> Option<&'static Schemas> {
        static SCHEMAS: LazyLock<Schemas> = LazyLock::new(|| {
            let tree = resourcemetrics::documents::openapi();
            let json = Document::new(tree.to_string());
            let protobuf = Document { body: OpenApi::encode_v3(&tree).into(), etag: json.etag.clone() };
            Schemas { json, protobuf }
        });
        let fits = path == resourcemetrics::documents::openapi_path()
            && self.offers(resourcemetrics::GROUP, resourcemetrics::VERSION);
        fits.then(|| &*SCHEMAS)
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
        let mut body = body;
        if let Body::Value(_) = body {
            let json = HeaderValue::from_static("application/json");
            exchange.parts.headers.entry(CONTENT_TYPE).or_insert(json);
        }
        if let Some(record) = &exchange.record {
            body = record.sent(exchange.headers(), body).await?;
        }
        let mut held = http::Request::new(());
        proxy::hold(&mut held, exchange.record.clone());
        let upgrade = exchange.upgrade.take();
        let audit_id = HeaderValue::from_str(exchange.audit_id()).ok();
        let request = Forward {
            method: exchange.parts.method.clone(),
            uri: &exchange.parts.uri,
            headers: exchange.headers(),
            user: &exchange.user,
            peer: match &exchange.peer {
                Peer::Remote { address, .. } => Some(*address),
                Peer::InProcess(_) => None,
            },
            audit_id: audit_id.as_ref(),
            body: read_bytes(body).await?,
            upgrade,
            long_running: exchange.info.is_long_running(),
            extensions: held.into_parts().0.extensions,
        };
        Ok(backend.forward(request).await)
    }

    pub fn aggregated(&self, root: Root, own: &Document) -> Document {
        let entries = self.aggregator.entries();
        if root == Root::Api || entries.is_empty() {
            return own.clone();
        }
        // Two versions of the document differ in their first words, and so in their tags.
        let beta = own.body.windows(8).take(128).any(|word| word == b"v2beta1\"");
        self.merged(&self.discovery[usize::from(beta)], own, Document::new, |document| {
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

    /// OpenAPI version 2 in JSON.
    pub fn openapi_v2(&self, own: &OpenApi) -> Document {
        if !self.aggregator.has_backends() {
            return own.v2_json().clone();
        }
        self.merged(&self.v2, own.v2_json(), Document::new, |document| self.merge_v2(document))
    }

    /// OpenAPI version 2 in protobuf.
    pub fn openapi_v2_protobuf(&self, own: &OpenApi) -> Document {
        if !self.aggregator.has_backends() {
            return own.v2_protobuf().clone();
        }
        let encode = |json: String| {
            let tree: Value = serde_json::from_str(&json).unwrap_or_default();
            Document::new(OpenApi::encode_v2(&tree))
        };
        self.merged(&self.v2_protobuf, own.v2_json(), encode, |document| self.merge_v2(document))
    }

    /// The root of OpenAPI version 3.
    pub fn openapi_v3(&self, own: &OpenApi) -> Document {
        let offered = self.offered_document(&resourcemetrics::documents::openapi_path());
        if !self.aggregator.has_backends() && offered.is_none() {
            return own.root().clone();
        }
        self.merged(&self.v3, own.root(), Document::new, |document| {
            if let Some(offered) = offered {
                let path = resourcemetrics::documents::openapi_path();
                let address = format!("/openapi/v3/{path}?hash={}", offered.json.etag);
                document["paths"][path] = serde_json::json!({"serverRelativeURL": address});
            }
            for paths in self.aggregator.openapi_v3() {
                openapi::merge_v3_root(document, &paths);
            }
        })
    }

    fn merge_v2(&self, document: &mut Value) {
        for other in self.aggregator.openapi_v2() {
            openapi::merge_v2(document, &other);
        }
    }

    fn merged(
        &self,
        known: &Merged,
        own: &Document,
        finish: impl FnOnce(String) -> Document,
        change: impl FnOnce(&mut Value),
    ) -> Document {
        // Looked at before the documents are: a change in between makes them be merged once more, and not once less.
        let generation = self.aggregator.generation();
        let mut known = known.lock();
        if let Some((tag, merged_at, document)) = &*known
            && (tag, *merged_at) == (&own.etag, generation)
        {
            return document.clone();
        }
        let Ok(mut tree) = serde_json::from_slice(&own.body) else { return own.clone() };
        change(&mut tree);
        let document = finish(tree.to_string());
        *known = Some((own.etag.clone(), generation, document.clone()));
        document
    }
}
