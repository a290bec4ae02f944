//! Requests that somebody else answers: a node's kubelet, a pod, a Service. Passed through byte by byte, upgrades included.
//!
//! `exec`, `attach` and `port-forward` switch protocols (WebSocket or SPDY): once the other side agrees, this is only a
//! pair of pipes. Nothing of the stream is understood here, so nothing of it can be got wrong. The one exception are pages
//! that come through `proxy`, whose links are led back through it (`rewrite`).
//!
//! Kubelets must prove to be the node's, and are shown who asks. What runs in pods proves nothing and is shown nothing.

mod exchange;
mod rewrite;
mod target;

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use gates::outbound;
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, HeaderValue, LOCATION, SEC_WEBSOCKET_EXTENSIONS,
    SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{Method, StatusCode, Uri};
use hyper::upgrade::OnUpgrade;
use machinery::Value;
use machinery::gvk::GroupResource;
use machinery::rest::{Body, Payload, Peer, Pieces, Response};
use machinery::status::{ApiError, Reason};
use rest::{Api, Call};
use tokio_rustls::TlsConnector;

use crate::messages::of_log;
use exchange::exchange;
pub(crate) use exchange::{Exchanged, Sent, Stream, begin, copy_headers, dial, hold, sent};
use rewrite::{Links, Page, joined};
pub use target::{Speaks, Target};

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// How long a part of the control plane may take to say how it is.
const PROBE: Duration = Duration::from_secs(20);

/// The most bytes of a kubelet's refusal, or of a part's word about itself, that clients get to see.
const REFUSAL: usize = 2048;

/// What an answer through the proxy does not tell: another origin's pages are for the API server to let in, not for a pod.
const CORS: [&str; 4] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

/// How the API server speaks to others.
pub struct Proxy {
    /// To kubelets, with the client certificate that they know.
    kubelets: TlsConnector,
    /// To everybody else who speaks TLS.
    others: TlsConnector,
    /// At which of a node's addresses.
    addresses: Vec<String>,
}

/// Which of a node's addresses its kubelet is asked at, by default.
pub const ADDRESSES: [&str; 3] = ["InternalIP", "ExternalIP", "Hostname"];

/// Whose request is passed on.
pub struct Client<'a> {
    pub peer: &'a Peer,
    /// What it calls this server.
    pub host: &'a str,
    /// Its connection, if it wants to use it for something else.
    pub upgrade: Option<OnUpgrade>,
}

impl Proxy {
    /// With the client certificate that kubelets know, and the authority that signs theirs.
    pub fn new(kubelets: Arc<rustls::ClientConfig>, addresses: Vec<String>) -> Result<Self, pki::Error> {
        let others = pki::careless_client_config()?;
        Ok(Self { kubelets: TlsConnector::from(kubelets), others: TlsConnector::from(others), addresses })
    }

    /// Passes a request on, and its answer back.
    pub async fn pass(&self, api: &Api, call: &Call<'_>, client: Client<'_>, body: Body) -> Result<Response, ApiError> {
        // A pod or a Service that was acknowledged before this request is found, however far behind the caches are.
        api.caches.settle().await?;
        let target = Target::of(api, call, &self.addresses)?;
        let subresource = call.info.subresource.as_str();
        let links = (subresource == "proxy").then(|| Links {
            prefix: call.info.path.trim_end_matches('/').strip_suffix(&tail_of(call)).unwrap_or_default().to_owned(),
            backend: target.authority.clone(),
            host: client.host.to_owned(),
        });
        let upgrades = call.headers.contains_key(UPGRADE);
        if links.is_some() && !upgrades && is_nowhere(call) {
            return Ok(to_the_root(call));
        }
        let mut request = request(call, &target, &client, links.as_ref(), body)?;
        hold(&mut request, call.exchange.record.clone());
        let stream = self.connect(&target).await.map_err(unreachable)?;
        let is_log = call.info.resource == "pods" && subresource == "log";
        let answer = exchange(stream, request, if is_log { None } else { client.upgrade.clone() }).await;
        let answer = answer.map_err(unreachable)?;
        match links {
            _ if is_log && !answer.status().is_success() => Err(refusal(call, answer).await),
            _ if is_log => Ok(of_log(call.method, call.headers, client.upgrade, answer)),
            Some(links) if answer.status() != StatusCode::SWITCHING_PROTOCOLS => Ok(led_back(answer, links)),
            _ => Ok(answer),
        }
    }

    /// What somebody at a port of this machine answers to a GET over TLS, or why nothing good came of it, as upstream's
    /// probes say it.
    pub async fn probe(&self, port: u16, path: &str) -> Result<String, String> {
        let host = "127.0.0.1".to_owned();
        let target = Target { speaks: Speaks::Tls, authority: format!("{host}:{port}"), host, path: path.to_owned() };
        let failed = |why: &str| format!("Get \"https://{}{path}\": {why}", target.authority);
        let timed = tokio::time::timeout(PROBE, self.get(&target, REFUSAL)).await;
        let late = || failed("context deadline exceeded (Client.Timeout exceeded while awaiting headers)");
        match timed.map_err(|_| late())? {
            Ok((status, body)) if status.is_success() => Ok(body),
            Ok((status, _)) => Err(format!("HTTP probe failed with statuscode: {}", status.as_u16())),
            Err(why) => Err(failed(&why)),
        }
    }

    /// What a kubelet answers to a GET, up to `limit` bytes.
    pub async fn ask_kubelet(&self, node: &Value, path: &str, limit: usize) -> Result<String, String> {
        let target = Target::kubelet(node, path.to_owned(), &self.addresses).map_err(|error| error.message)?;
        let (status, text) = self.get(&target, limit).await?;
        if status.is_success() { Ok(text) } else { Err(format!("the kubelet answers {status}")) }
    }

    async fn get(&self, target: &Target, limit: usize) -> Result<(StatusCode, String), String> {
        let stream = self.connect(target).await.map_err(|error| error.to_string())?;
        let mut request = http::Request::new(sent(Body::Empty));
        *request.uri_mut() = Uri::try_from(&target.path).map_err(|error| error.to_string())?;
        let host = HeaderValue::try_from(&target.authority).map_err(|error| error.to_string())?;
        request.headers_mut().insert(HOST, host);
        let answer = exchange(stream, request, None).await.map_err(|error| error.to_string())?;
        let (parts, payload) = answer.into_parts();
        Ok((parts.status, beginning(payload, limit).await))
    }

    async fn connect(&self, target: &Target) -> Result<Box<dyn Stream>, outbound::Error> {
        let tls = match target.speaks {
            Speaks::Plain => None,
            Speaks::Tls => Some(&self.others),
            Speaks::Kubelet => Some(&self.kubelets),
        };
        dial(&target.authority, &target.host, tls).await
    }
}

/// What follows `/proxy` in the path, without a slash at its end.
fn tail_of(call: &Call<'_>) -> String {
    call.info.tail.iter().map(|segment| format!("/{segment}")).collect()
}

/// Whether a page is asked for at a path that has not even a slash: its links would lead astray.
fn is_nowhere(call: &Call<'_>) -> bool {
    call.info.tail.is_empty() && !call.info.path.ends_with('/') && matches!(*call.method, Method::GET | Method::HEAD)
}

/// Sends the client to the path with a slash at its end.
fn to_the_root(call: &Call<'_>) -> Response {
    let query = call.query.to_text();
    let mark = if query.is_empty() { "" } else { "?" };
    let path = percent_encoding::utf8_percent_encode(&call.info.path, target::WHOLE_PATH);
    let mut answer = Response::new(Payload::Empty);
    *answer.status_mut() = StatusCode::MOVED_PERMANENTLY;
    if let Ok(location) = HeaderValue::try_from(format!("{path}/{mark}{query}")) {
        answer.headers_mut().insert(LOCATION, location);
    }
    answer
}

fn unreachable(why: impl std::fmt::Display) -> ApiError {
    ApiError::new(Reason::ServiceUnavailable, format!("error trying to reach service: {why}"))
}

fn request(
    call: &Call<'_>,
    target: &Target,
    client: &Client<'_>,
    links: Option<&Links>,
    body: Body,
) -> Result<http::Request<Sent>, ApiError> {
    let uri: Uri = target.path.parse().map_err(|_| ApiError::bad_request("the path cannot be passed on"))?;
    let mut request = http::Request::new(sent(body));
    *request.method_mut() = call.method.clone();
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    copy_headers(call.headers, headers);
    // Our own credentials are in TLS; the client's are for us and go no further.
    for name in ["authorization", "impersonate-user", "impersonate-group", "impersonate-uid"] {
        headers.remove(name);
    }
    let mut host = target.authority.as_str();
    if let Some(links) = links {
        if !client.host.is_empty() {
            host = client.host;
        }
        let text = |text: String| HeaderValue::try_from(text).map_err(|_| ApiError::bad_request("odd path"));
        let path = target.path_only();
        let slash = if path.ends_with('/') { "/" } else { "" };
        headers.insert(&FORWARDED_URI, text(format!("{}{slash}", joined(&links.prefix, path)))?);
        if let Peer::Remote { address, .. } = client.peer {
            let mut through: Vec<String> =
                headers.get_all(&FORWARDED_FOR).iter().filter_map(|by| by.to_str().ok()).map(str::to_owned).collect();
            through.push(address.ip().to_string());
            headers.insert(&FORWARDED_FOR, text(through.join(", "))?);
        }
    }
    match call.headers.get(UPGRADE) {
        // A kubelet shows a log as it is, whatever the client wants to be shown it as.
        _ if call.info.subresource == "log" => {
            for name in [SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_EXTENSIONS] {
                headers.remove(name);
            }
        }
        Some(protocol) => {
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(UPGRADE, protocol.clone());
        }
        None => {}
    }
    headers.insert(HOST, HeaderValue::from_str(host).map_err(ApiError::internal)?);
    Ok(request)
}

/// An answer whose links lead back through the proxy.
fn led_back(answer: Response, links: Links) -> Response {
    let (mut parts, payload) = answer.into_parts();
    for name in CORS {
        parts.headers.remove(name);
    }
    let header = |name| parts.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
    let location = header(LOCATION);
    if !location.is_empty() {
        if let Some(link) = links.rewrite(location).and_then(|link| HeaderValue::try_from(link).ok()) {
            parts.headers.insert(LOCATION, link);
        }
        return Response::from_parts(parts, payload);
    }
    let is_page = header(CONTENT_TYPE).split(';').next().unwrap_or_default().trim() == "text/html";
    let page = Page::new(links, header(CONTENT_ENCODING)).filter(|_| is_page);
    let payload = match (payload, page) {
        (Payload::Stream(pieces), Some(page)) => {
            parts.headers.remove(CONTENT_ENCODING);
            Payload::Stream(rewritten(pieces, page))
        }
        (payload, _) => payload,
    };
    Response::from_parts(parts, payload)
}

fn rewritten(pieces: Pieces, page: Page) -> Pieces {
    let written = futures::stream::unfold(Some((pieces, page)), |state| async move {
        let (mut pieces, mut page) = state?;
        match pieces.next().await {
            Some(Ok(piece)) => Some((page.push(&piece), Some((pieces, page)))),
            Some(Err(error)) => Some((Err(error), None)),
            None => Some((page.finish(), None)),
        }
    });
    written.boxed()
}

/// The first lines of a text.
async fn beginning(payload: Payload, limit: usize) -> String {
    let mut text = Vec::new();
    if let Payload::Stream(mut pieces) = payload {
        while let Some(Ok(piece)) = pieces.next().await {
            text.extend_from_slice(&piece);
            if text.len() >= limit {
                break;
            }
        }
    }
    text.truncate(limit);
    String::from_utf8_lossy(&text).trim_end().to_owned()
}

/// A kubelet says in plain text why it shows no log; clients get that in a `Status`.
async fn refusal(call: &Call<'_>, answer: Response) -> ApiError {
    let (parts, payload) = answer.into_parts();
    let text = beginning(payload, REFUSAL).await;
    match parts.status {
        StatusCode::BAD_REQUEST => ApiError::bad_request(text),
        StatusCode::NOT_FOUND => ApiError::not_found(&GroupResource::new("", "pods"), &call.info.name),
        StatusCode::INTERNAL_SERVER_ERROR => ApiError::internal(text),
        _ => ApiError::unavailable(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_does_not_answer_is_told_in_gos_words() {
        let proxy = Proxy::new(pki::careless_client_config().expect("TLS"), Vec::new()).expect("a proxy");
        let port = |listener: &std::net::TcpListener| listener.local_addr().expect("an address").port();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let closed = port(&listener);
        drop(listener);
        let why = proxy.probe(closed, "/healthz").await.expect_err("nobody is there");
        let at = format!("127.0.0.1:{closed}");
        assert_eq!(why, format!("Get \"https://{at}/healthz\": dial tcp {at}: connect: connection refused"));
    }
}
