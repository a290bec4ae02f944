//! Another server that answers for a group version: how it is reached, and what it has said about itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use http::StatusCode;
use http::header::{ACCEPT, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use hyper::upgrade::OnUpgrade;
use machinery::rest::{Body, Payload, Response, User};
use parking_lot::RwLock;
use rustls::ClientConfig;
use tokio::sync::{Notify, watch};

use crate::documents::Published;
use crate::service::{ApiService, Reference};
use crate::sources::Sources;

/// Where an exchange goes, and whom it is with.
pub struct Target {
    /// `address:port`.
    pub authority: String,
    /// The name that the server's certificate must have.
    pub server_name: String,
    /// Whom to believe, and what to show.
    pub tls: Arc<ClientConfig>,
}

/// Who carries requests to other servers. What comes back is not read further than its head.
pub trait Transport: Send + Sync + 'static {
    /// Sends a request, and returns the answer when it begins, or why there is none, in the words of Go's clients.
    fn exchange<'a>(
        &'a self,
        target: &'a Target,
        request: http::Request<Body>,
        upgrade: Option<OnUpgrade>,
    ) -> BoxFuture<'a, Result<Response, String>>;
}

/// A server that another group version is passed on to.
pub struct Backend {
    /// The APIService, as it was when its spec last changed.
    pub service: ApiService,
    pub(crate) sources: Arc<Sources>,
    pub(crate) transport: Arc<dyn Transport>,
    reference: Reference,
    tls: Result<Arc<ClientConfig>, String>,
    available: AtomicBool,
    /// Something about it has changed that is worth a look.
    pub(crate) changed: Notify,
    /// How often it came to be reachable.
    pub(crate) came_back: watch::Sender<u64>,
    pub(crate) published: RwLock<Arc<Published>>,
}

/// A question that is not a client's.
pub(crate) struct Question<'a> {
    pub path: &'a str,
    pub user: &'a User,
    pub accept: &'a str,
    /// The tag of the answer that is known already.
    pub known: Option<&'a str>,
    /// The most bytes that are read; 0 leaves the body alone.
    pub limit: usize,
    /// How long all of it may take.
    pub patience: Duration,
}

pub(crate) struct Answered {
    pub status: StatusCode,
    pub kind: String,
    pub tag: String,
    pub body: Bytes,
}

impl Backend {
    /// The server of an APIService that is not local, believed by what that one says and shown `identity`.
    pub(crate) fn new(
        service: ApiService,
        reference: Reference,
        identity: Option<&pki::Pair>,
        sources: Arc<Sources>,
        transport: Arc<dyn Transport>,
    ) -> Self {
        Self {
            tls: tls(&reference, identity),
            available: AtomicBool::new(service.available),
            service,
            reference,
            sources,
            transport,
            changed: Notify::new(),
            came_back: watch::Sender::new(0),
            published: RwLock::default(),
        }
    }

    /// The Service that answers.
    pub fn reference(&self) -> &Reference {
        &self.reference
    }

    /// Whether it is said to be reachable.
    pub fn is_available(&self) -> bool {
        self.available.load(Ordering::Relaxed)
    }

    pub(crate) fn set_available(&self, available: bool) {
        if !self.available.swap(available, Ordering::Relaxed) && available {
            self.came_back.send_modify(|count| *count += 1);
        }
    }

    /// Why it cannot be believed whatever it shows, if so.
    pub(crate) fn trust(&self) -> Result<(), &str> {
        self.tls.as_ref().map(|_| ()).map_err(String::as_str)
    }

    /// An address of it.
    pub(crate) fn target(&self) -> Result<Target, String> {
        let tls = self.tls.clone()?;
        let (service, slices) = self.sources.service(&self.reference);
        let service = service.ok_or_else(|| format!("service {:?} not found", self.reference.name))?;
        let pick = |count| rand::random_range(0..count);
        let authority = rules::services::resolve(&service, &slices, self.reference.port, pick)?;
        Ok(Target { authority, server_name: self.reference.server_name(), tls })
    }

    pub(crate) async fn ask(&self, question: Question<'_>) -> Result<Answered, String> {
        let target = self.target()?;
        self.ask_at(&target, question).await
    }

    /// Asks, and reads the answer as far as the question wants.
    pub(crate) async fn ask_at(&self, target: &Target, question: Question<'_>) -> Result<Answered, String> {
        let late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)";
        let asked = tokio::time::timeout(question.patience, self.exchange(target, &question));
        asked.await.unwrap_or_else(|_| Err(late.to_owned()))
    }

    async fn exchange(&self, target: &Target, question: &Question<'_>) -> Result<Answered, String> {
        let mut request = http::Request::new(Body::Empty);
        *request.uri_mut() = question.path.parse().map_err(|_| format!("{:?} is no path", question.path))?;
        let headers = request.headers_mut();
        crate::forward::identify(headers, question.user);
        for (name, text) in [(ACCEPT, question.accept), (IF_NONE_MATCH, question.known.unwrap_or_default())] {
            if let Some(value) = HeaderValue::from_str(text).ok().filter(|_| !text.is_empty()) {
                headers.insert(name, value);
            }
        }
        let (parts, payload) = self.transport.exchange(target, request, None).await?.into_parts();
        let body = if question.limit == 0 { Bytes::new() } else { read(payload, question.limit).await? };
        let text = |name| header(&parts.headers, name).to_owned();
        Ok(Answered { status: parts.status, kind: text(CONTENT_TYPE), tag: text(ETAG), body })
    }
}

fn header(headers: &HeaderMap, name: http::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The whole of an answer, if it is not too long.
pub async fn read(payload: Payload, limit: usize) -> Result<Bytes, String> {
    let mut pieces = match payload {
        Payload::Bytes(bytes) => return Ok(bytes),
        Payload::Stream(pieces) => pieces,
        _ => return Ok(Bytes::new()),
    };
    let mut whole = BytesMut::new();
    while let Some(piece) = pieces.next().await {
        whole.extend_from_slice(&piece.map_err(|error| error.to_string())?);
        if whole.len() > limit {
            return Err(format!("the answer is longer than {limit} bytes"));
        }
    }
    Ok(whole.freeze())
}

/// TLS with the other server: verified by what the APIService says, and with the certificate that says who asks.
fn tls(reference: &Reference, identity: Option<&pki::Pair>) -> Result<Arc<ClientConfig>, String> {
    let believed = if reference.insecure {
        pki::Believed::Everybody
    } else {
        match reference.authorities.as_deref() {
            Some(pem) => pki::Believed::Authorities(pem),
            None => pki::Believed::System,
        }
    };
    pki::outgoing_config(believed, identity).map_err(|error| match error {
        pki::Error::NotPem("certificate") if reference.authorities.is_some() => {
            "unable to load root certificates: unable to parse bytes as PEM block".to_owned()
        }
        other => other.to_string(),
    })
}
