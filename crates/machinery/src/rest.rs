//! A request and its answer, whatever transport carried them.
//!
//! The HTTPS listener and the in-process client both hand a [`Request`] to a [`Handler`] and get a [`Response`] whose
//! [`Payload`] is not encoded yet: the listener encodes it as the client asked, the in-process client shares it as it is.
//! So an in-process call skips encoding and no gate.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::Value;

use crate::object::Object;
use crate::status::ApiError;

/// A request. Its extensions carry the [`Peer`].
pub type Request = http::Request<Body>;

pub type Response = http::Response<Payload>;

/// Whoever answers requests: the API server's whole chain of gates.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request. Failures are answers too (a `Status` payload), so this cannot fail.
    fn handle(&self, request: Request) -> BoxFuture<'_, Response>;
}

/// Names a trace to whoever gets a request with these headers; they stay as they are where there is none.
pub fn name_trace(headers: &mut http::HeaderMap, context: hops::Context) {
    if !context.is_none()
        && let Ok(value) = http::HeaderValue::try_from(context.header())
    {
        headers.insert(http::HeaderName::from_static(hops::TRACEPARENT), value);
    }
}

/// Who is at the other end of the transport, as far as the transport can tell.
#[derive(Debug, Clone)]
pub enum Peer {
    Remote {
        address: SocketAddr,
        /// The certificates it proved to hold and an authority vouches for (DER, leaf first); empty without a client certificate.
        certificates: Arc<[Bytes]>,
        /// It showed a certificate that is not to be believed.
        doubtful: bool,
    },
    /// A component in this very process, with the identity it was wired with.
    InProcess(Arc<User>),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// For example `system:kube-scheduler`.
    pub name: String,
    /// Unique over time, where the authenticator knows one.
    pub uid: String,
    /// All groups, `system:authenticated` included.
    pub groups: Vec<String>,
    /// What else the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user with groups; `system:authenticated` is added, as for every authenticated identity.
    pub fn new<'a>(name: impl Into<String>, groups: impl IntoIterator<Item = &'a str>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().map(str::to_owned).collect();
        if !groups.iter().any(|group| group == "system:authenticated") {
            groups.push("system:authenticated".to_owned());
        }
        Self { name: name.into(), groups, ..Self::default() }
    }
}

/// Bytes as they come.
pub type Pieces = BoxStream<'static, Result<Bytes, std::io::Error>>;

/// What a request carries.
pub enum Body {
    Empty,
    /// An object that never was encoded.
    Value(Value),
    /// Bytes at hand, in the request's content type.
    Bytes(Bytes),
    /// Bytes still on the wire: read only after the gates that need no body let the request pass.
    Incoming(Pieces),
}

/// What an answer carries, before encoding.
pub enum Payload {
    Empty,
    /// Bytes in the content type that the answer's headers name.
    Bytes(Bytes),
    /// An object that lives nowhere: a `Status`, a review, a discovery document.
    Value(Value),
    Object(Arc<Object>),
    List(List),
    /// Changes, as they happen.
    Watch(BoxStream<'static, WatchEvent>),
    /// Bytes as they come, for proxied answers and logs.
    Stream(Pieces),
}

/// A collection of stored objects.
#[derive(Debug, Clone)]
pub struct List {
    /// `apiVersion` of the list.
    pub api_version: String,
    /// `kind` of the list, such as `PodList`.
    pub kind: String,
    /// The revision the list is exact for.
    pub revision: u64,
    /// Where the next page starts.
    pub next: Option<String>,
    /// How many items follow this page, where known.
    pub remaining: Option<u64>,
    /// The items, ordered by namespace and name.
    pub items: Vec<Arc<Object>>,
}

/// One event of a watch.
#[derive(Debug, Clone)]
pub enum WatchEvent {
    /// The object came to be, or came to match the selector.
    Added(Arc<Object>),
    Modified(Arc<Object>),
    /// The object went, or stopped to match; its last state, with the revision of its going.
    Deleted(Arc<Object>),
    /// Everything up to this revision has been sent.
    Bookmark {
        revision: u64,
        /// Whether it ends the initial events of a streaming list.
        initial_events_end: bool,
    },
    /// The watch ends with this error.
    Error(ApiError),
}
