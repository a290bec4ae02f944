//! Requests that somebody else answers: a node's kubelet, a pod, a Service. Passed through byte by byte, upgrades included.
//!
//! `exec`, `attach` and `port-forward` switch protocols (WebSocket or SPDY): once the other side agrees, this is only a
//! pair of pipes. Nothing of the stream is understood here, so nothing of it can be got wrong.

mod target;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use http::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use http::{Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use machinery::gvk::GroupResource;
use machinery::rest::{Body, Payload, Response};
use machinery::status::{ApiError, Reason};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::rest::{Api, Call};
pub use target::Target;

/// How long the other side may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// The most bytes of a kubelet's refusal that clients are told.
const REFUSAL: usize = 2048;

/// Headers that are about one connection only.
const HOP_BY_HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"];

/// How the API server shows itself to kubelets.
pub struct Proxy {
    tls: TlsConnector,
}

impl Proxy {
    /// With the client certificate that kubelets know, and the authority that signs theirs.
    pub fn new(config: Arc<rustls::ClientConfig>) -> Self {
        Self { tls: TlsConnector::from(config) }
    }

    /// Passes a request on, and its answer back.
    pub async fn pass(
        &self,
        api: &Api,
        call: &Call<'_>,
        upgrade: Option<OnUpgrade>,
        body: Body,
    ) -> Result<Response, ApiError> {
        // A pod or a Service that was acknowledged before this request is found, however far behind the caches are.
        api.caches.settle().await?;
        let target = Target::of(api, call)?;
        let away = |error: &dyn std::fmt::Display| {
            let message =
                format!("error trying to reach service: dial {} {}: {error}", target.authority, call.info.name);
            ApiError::new(Reason::ServiceUnavailable, message)
        };
        let connected = tokio::time::timeout(CONNECT, TcpStream::connect(&target.authority)).await;
        let stream = connected.map_err(|_| away(&"timed out"))?.map_err(|error| away(&error))?;
        // Interactive streams are small writes; waiting to fill packets would make them sluggish.
        stream.set_nodelay(true).map_err(|error| away(&error))?;
        let request = self.request(call, &target, body).await?;
        if !target.tls {
            return exchange(stream, request, upgrade).await;
        }
        let name = ServerName::try_from(target.host.clone()).map_err(|error| away(&error))?;
        let stream = self.tls.connect(name, stream).await.map_err(|error| away(&error))?;
        let answer = exchange(stream, request, upgrade).await?;
        if call.info.resource == "pods" && call.info.subresource == "log" && !answer.status().is_success() {
            return Err(refusal(call, answer).await);
        }
        Ok(answer)
    }

    async fn request(
        &self,
        call: &Call<'_>,
        target: &Target,
        body: Body,
    ) -> Result<http::Request<Full<Bytes>>, ApiError> {
        let uri: Uri = target.path.parse().map_err(|_| ApiError::bad_request("the path cannot be passed on"))?;
        let body = match body {
            Body::Empty => Bytes::new(),
            body => crate::rest::read_bytes(body).await?,
        };
        let mut request = http::Request::new(Full::new(body));
        *request.method_mut() = call.method.clone();
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        copy_headers(call.headers, headers);
        // Our own credentials are in TLS; the client's are for us and go no further.
        for name in ["authorization", "impersonate-user", "impersonate-group", "impersonate-uid"] {
            headers.remove(name);
        }
        if let Some(protocol) = call.headers.get(UPGRADE) {
            headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
            headers.insert(UPGRADE, protocol.clone());
        }
        let host = HeaderValue::from_str(&target.authority).map_err(ApiError::internal)?;
        headers.insert(HOST, host);
        Ok(request)
    }
}

fn copy_headers(from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from {
        if !HOP_BY_HOP.contains(&name.as_str()) && name != UPGRADE && name != HOST {
            to.append(name.clone(), value.clone());
        }
    }
}

async fn exchange<S>(
    stream: S,
    request: http::Request<Full<Bytes>>,
    upgrade: Option<OnUpgrade>,
) -> Result<Response, ApiError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let broken = |error: hyper::Error| {
        ApiError::new(Reason::ServiceUnavailable, format!("error trying to reach service: {error}"))
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a proxied connection ended");
        }
    });
    let is_head = request.method() == Method::HEAD;
    let wants_upgrade = request.headers().contains_key(UPGRADE);
    let mut response = sender.send_request(request).await.map_err(broken)?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let far = hyper::upgrade::on(&mut response);
        let near = upgrade.ok_or_else(|| ApiError::bad_request("Upgrade request required"))?;
        let record = crate::gates::context::record();
        tokio::spawn(async move {
            pipe(near, far).await;
            // The audit log learns of the end of the connection when the last one lets go of its record.
            drop(record);
        });
        let mut answer = Response::new(Payload::Empty);
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        copy_headers(response.headers(), answer.headers_mut());
        for name in [CONNECTION, UPGRADE] {
            if let Some(value) = response.headers().get(&name) {
                answer.headers_mut().insert(name, value.clone());
            }
        }
        return Ok(answer);
    }
    let (parts, incoming) = response.into_parts();
    let payload = if is_head { Payload::Empty } else { Payload::Stream(pieces(incoming, sender)) };
    let mut answer = Response::new(payload);
    *answer.status_mut() = parts.status;
    copy_headers(&parts.headers, answer.headers_mut());
    answer.headers_mut().remove(HeaderName::from_static("content-length"));
    if wants_upgrade {
        // Whoever wanted another protocol and did not get it may have sent more already: none of it is read as anything.
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(answer)
}

/// A kubelet says in plain text why it shows no log; clients are told so in a `Status`.
async fn refusal(call: &Call<'_>, answer: Response) -> ApiError {
    let (parts, payload) = answer.into_parts();
    let mut text = Vec::new();
    if let Payload::Stream(mut pieces) = payload {
        while let Some(Ok(piece)) = pieces.next().await {
            text.extend_from_slice(&piece);
            if text.len() >= REFUSAL {
                break;
            }
        }
    }
    text.truncate(REFUSAL);
    let text = String::from_utf8_lossy(&text).trim_end().to_owned();
    match parts.status {
        StatusCode::BAD_REQUEST => ApiError::bad_request(text),
        StatusCode::NOT_FOUND => ApiError::not_found(&GroupResource::new("", "pods"), &call.info.name),
        StatusCode::INTERNAL_SERVER_ERROR => ApiError::internal(text),
        _ => ApiError::unavailable(text),
    }
}

/// The body as it comes. The sender is kept, for dropping it would end the connection.
fn pieces(
    incoming: Incoming,
    sender: http1::SendRequest<Full<Bytes>>,
) -> futures::stream::BoxStream<'static, Result<Bytes, std::io::Error>> {
    let data = incoming.into_data_stream().map_err(std::io::Error::other);
    data.map(move |piece| {
        let _ = &sender;
        piece
    })
    .boxed()
}

/// Copies both ways until either side is done.
async fn pipe(near: OnUpgrade, far: OnUpgrade) {
    let (near, far): (Upgraded, Upgraded) = match tokio::try_join!(near, far) {
        Ok(ends) => ends,
        Err(error) => {
            tracing::debug!(%error, "a protocol switch failed");
            return;
        }
    };
    let (mut near, mut far) = (TokioIo::new(near), TokioIo::new(far));
    if let Err(error) = tokio::io::copy_bidirectional(&mut near, &mut far).await {
        tracing::debug!(%error, "a proxied stream ended");
    }
}
