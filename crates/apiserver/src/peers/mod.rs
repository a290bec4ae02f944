//! Requests that another server of the cluster answers, because this one does not have the resource: while servers of two versions run, or with other
//! `--runtime-config`s. Upstream's mixed version proxy (`UnknownVersionInteroperabilityProxy`, on since v1.36).
//!
//! Who there is, and where, is said by the servers' own Leases; what each of them has, by its discovery, which is read when it comes, or comes back. A request is passed
//! on at most once: the header [`PROXIED`] says that it was. The other server learns on whose behalf it is asked from headers that it believes by this server's
//! front-proxy certificate, and judges the request by all its gates again.
//!
//! Custom resources and those of aggregated servers are in the store, which all servers share: what this server knows of them is all that there is to know.

mod known;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use aggregator::{Aggregator, Target, forward};
use bytes::Bytes;
use figures::Counter;
use gates::Exchange;
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use machinery::Value;
use machinery::rest::{Body, Payload, Response, User};
use machinery::selector::{FieldSelector, LabelSelector};
use machinery::status::ApiError;
use parking_lot::{Mutex, RwLock};
use rest::Api;
use rustls::ClientConfig;
use storage::Lookup as _;
use storage::cache::{Filter, Scope, Start, Subscription};

use crate::aggregation;
use crate::dialer::Dialer;
use crate::discovery::Document;
use crate::servers::identity;
use known::{Known, Lease, Wanted};

/// Says that a request was passed on by another server, and must not be again.
pub(crate) const PROXIED: HeaderName = HeaderName::from_static("x-kubernetes-peer-proxied");
/// What a server has itself, without what its peers have; servers of before know only the second.
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList;profile=nopeer,\
                         application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
/// Of a server's discovery, all of it.
const MAX_DOCUMENT: usize = 16 << 20;
/// What every server's certificate is good for, at whatever address its peers reach it.
const SERVER_NAME: &str = "kubernetes.default.svc";
const PATIENCE: Duration = Duration::from_secs(10);
/// When a peer that could not be asked is asked again: so soon, and later and later.
const AGAIN: Duration = Duration::from_secs(1);
const LAST_AGAIN: Duration = Duration::from_secs(30);

static REROUTED: Counter = Counter::new(
    "apiserver_rerouted_request_total",
    "[ALPHA] Total number of requests that were proxied to a peer kube-apiserver because the local apiserver was not capable of serving it, broken down by 'group', 'version', and 'resource' indicating the GVR of the request. If all three are empty (\"\"), the request is a discovery request.",
    &["code", "group", "version", "resource"],
);
static SYNC_ERRORS: Counter = Counter::new(
    "apiserver_peer_discovery_sync_errors_total",
    "[ALPHA] Total number of errors encountered while syncing discovery information from a peer kube-apiserver",
    &["type"],
);

/// The other servers, and what they have.
pub(crate) struct Peers {
    /// The name of this server's own Lease.
    own: String,
    tls: Arc<ClientConfig>,
    dialer: Dialer,
    aggregator: Arc<Aggregator>,
    known: RwLock<Known>,
    /// How often what is known has changed.
    generation: AtomicU64,
    /// Discovery with what peers have in it, and what it was made of.
    merged: Mutex<Option<(String, u64, Document)>>,
}

impl Peers {
    /// Nobody is known yet. Others are believed by `authority`, and shown `identity`.
    pub(crate) fn new(
        place: crate::bootstrap::Place,
        authority: &str,
        identity: &pki::Pair,
        aggregator: Arc<Aggregator>,
    ) -> Result<Self, pki::Error> {
        Ok(Self {
            own: identity::name_at(std::net::SocketAddr::new(place.advertise, place.port)),
            tls: pki::outgoing_config(pki::Believed::Authorities(authority), Some(identity))?,
            dialer: Dialer::default(),
            aggregator,
            known: RwLock::default(),
            generation: AtomicU64::new(0),
            merged: Mutex::default(),
        })
    }

    /// Appends what is counted, for scrapers.
    pub(crate) fn figures(text: &mut String) {
        figures::write(&[&REROUTED as &dyn figures::Family, &SYNC_ERRORS], text);
    }

    /// Whether a peer is to answer a request that this server cannot.
    pub(crate) fn answers(&self, exchange: &Exchange) -> bool {
        let info = &exchange.info;
        !is_proxied(exchange) && self.known.read().serves(&info.group, &info.version, &info.resource)
    }

    /// Passes a request on to a peer that has its resource.
    pub(crate) async fn pass(&self, exchange: &mut Exchange, body: Body) -> Result<Response, ApiError> {
        let info = exchange.info.clone();
        let chosen = {
            let known = self.known.read();
            let addresses = known.addresses(&info.group, &info.version, &info.resource);
            (!addresses.is_empty()).then(|| addresses[rand::random_range(0..addresses.len())].to_owned())
        };
        let Some(authority) = chosen else {
            return Err(ApiError::unavailable("Error getting ip and port info of the remote server while proxying"));
        };
        exchange.parts.headers.insert(PROXIED, HeaderValue::from_static("true"));
        let target = self.target(authority);
        let request = aggregation::forwarded(exchange, body);
        tracing::debug!(path = info.path, peer = target.authority, "a request that another server answers");
        let answer = match forward::pass(&self.dialer, &target, request, None).await {
            Ok(answer) => answer,
            Err(why) => unreachable(&why),
        };
        REROUTED.increment(&[answer.status().as_str(), &info.group, &info.version, &info.resource]);
        Ok(answer)
    }

    fn target(&self, authority: String) -> Target {
        Target { authority, server_name: SERVER_NAME.to_owned(), tls: self.tls.clone() }
    }

    /// This server's discovery with the group versions that only peers have, for clients that did not come by a peer.
    pub(crate) fn discovery(&self, exchange: &Exchange, own: Document) -> Document {
        let generation = self.generation.load(Ordering::Acquire);
        let asked = exchange.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        if is_proxied(exchange) || asked.contains("profile=nopeer") || self.known.read().is_empty() {
            return own;
        }
        let mut merged = self.merged.lock();
        if let Some((tag, of, document)) = &*merged
            && *tag == own.etag
            && *of == generation
        {
            return document.clone();
        }
        let document = self.merge(&own).unwrap_or_else(|| own.clone());
        *merged = Some((own.etag.clone(), generation, document.clone()));
        document
    }

    fn merge(&self, own: &Document) -> Option<Document> {
        let mut tree: Value = serde_json::from_slice(&own.body).ok()?;
        let place = |group: &str, version: &str| self.aggregator.place(group, version);
        let entries = self.known.read().beyond(&tree, place);
        if entries.is_empty() {
            return None;
        }
        aggregator::discovery::merge_aggregated(&mut tree, &entries, place);
        Some(Document::new(tree.to_string()))
    }

    /// Follows who comes and goes, until the caches end.
    pub(crate) async fn run(self: Arc<Self>, api: std::sync::Weak<Api>) {
        while let Some(mut leases) = follow(&api).await {
            let mut wanted = Wanted::new(&self.own);
            leases.initial.iter().for_each(|lease| wanted.take(&Lease::read(&lease.to_value())));
            let mut pause = AGAIN;
            loop {
                let Some(all) = api.upgrade() else { return };
                let failed = self.refresh(&all, &wanted).await;
                drop(all);
                let change = if failed {
                    tokio::select! {
                        change = leases.live.recv() => change,
                        () = tokio::time::sleep(pause) => {
                            if pause < LAST_AGAIN && pause * 2 >= LAST_AGAIN {
                                tracing::warn!("another server of the cluster does not say what it has: requests for that are not passed on");
                            }
                            pause = LAST_AGAIN.min(pause * 2);
                            continue;
                        }
                    }
                } else {
                    pause = AGAIN;
                    leases.live.recv().await
                };
                let Some(change) = change else { break };
                match (&change.new, &change.old) {
                    (Some(lease), _) => wanted.take(&Lease::read(&lease.to_value())),
                    (None, Some(lease)) => wanted.remove(&lease.meta().name),
                    (None, None) => {}
                }
            }
        }
    }

    /// Reads what those have who are new, and forgets those who are gone; whether somebody could not be asked.
    async fn refresh(&self, api: &Api, wanted: &Wanted) -> bool {
        let (gone, new) = self.known.write().changed(wanted);
        let mut failed = false;
        let mut learned = gone;
        for lease in new {
            match self.ask(&lease.address).await {
                Ok(mut documents) => {
                    documents
                        .iter_mut()
                        .for_each(|document| known::leave_out(document, |gv| shared(api, &self.aggregator, gv)));
                    self.known.write().learn(lease, &documents);
                    learned = true;
                }
                Err(why) => {
                    SYNC_ERRORS.increment(&["fetch_discovery"]);
                    tracing::debug!(
                        peer = lease.name,
                        address = lease.address,
                        why,
                        "what another server has is not known yet"
                    );
                    failed = true;
                }
            }
        }
        if learned {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
        failed
    }

    /// What a server has: the documents of both roots.
    async fn ask(&self, address: &str) -> Result<Vec<Value>, String> {
        let target = self.target(address.to_owned());
        let user = User::new(crate::loopback::NAME, []);
        let mut documents = Vec::new();
        for root in ["/api", "/apis"] {
            let mut headers = http::HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(DISCOVERY));
            headers.insert(PROXIED, HeaderValue::from_static("true"));
            let uri = http::Uri::from_static(root);
            let request = forward::question(&uri, &headers, &user);
            let answer = forward::pass(&self.dialer, &target, request, Some(PATIENCE)).await?;
            REROUTED.increment(&[answer.status().as_str(), "", "", ""]);
            if answer.status() != StatusCode::OK {
                return Err(format!("discovery request failed with status: {}", answer.status().as_u16()));
            }
            let read = tokio::time::timeout(PATIENCE, forward::read(answer.into_body(), MAX_DOCUMENT)).await;
            let body: Bytes = read.map_err(|_| "context deadline exceeded".to_owned())??;
            documents.push(serde_json::from_slice(&body).map_err(|error| error.to_string())?);
        }
        Ok(documents)
    }
}

/// The Leases by which servers say that they are there.
async fn follow(api: &std::sync::Weak<Api>) -> Option<Subscription> {
    let api = api.upgrade()?;
    let leases = api.registry.objects("coordination.k8s.io", "leases")?;
    let labels = LabelSelector::from_labels([identity::COMPONENT]);
    let filter = Filter::new(Scope::Namespace("kube-system".into()), labels, FieldSelector::everything());
    let subscribed = leases.subscribe(&*api.store, &filter, Start::Everything, api.caches.revision()).await.ok()?;
    (!subscribed.live.is_closed()).then_some(subscribed)
}

/// Whether a group version is one that the store has for all servers: of custom resources, or of an aggregated server.
fn shared(api: &Api, aggregator: &Aggregator, (group, version): (&str, &str)) -> bool {
    if aggregator.backend(&format!("/apis/{group}/{version}/")).is_some() {
        return true;
    }
    let Some(definitions) = api.registry.objects("apiextensions.k8s.io", "customresourcedefinitions") else {
        return false;
    };
    let (all, _) = definitions.list(&Filter::everything(), None, 0);
    all.iter().any(|definition| machinery::value::text(&definition.to_value(), "spec.group") == group)
}

fn is_proxied(exchange: &Exchange) -> bool {
    exchange.headers().get(PROXIED).is_some_and(|value| value == "true")
}

/// As Go's servers say what went wrong.
fn unreachable(why: &str) -> Response {
    let mut response = Response::new(Payload::Bytes(format!("{why}\n").into()));
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
