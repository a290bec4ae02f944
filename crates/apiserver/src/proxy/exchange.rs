//! One exchange with somebody else, over a connection of its own: dialled, sent, and piped where both sides switch protocols.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use gates::audit::Record;
use gates::outbound::{Error, dial_failure, tls_failure};
use http::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use http::{Method, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use machinery::rest::{Body, Payload, Pieces, Response};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long the other side may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Headers that are about one connection only.
const HOP_BY_HOP: [&str; 7] =
    ["connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"];

/// A connection to the other side.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// What is sent to the other side: bytes at hand, or as they come from the client.
pub(crate) type Sent = UnsyncBoxBody<Bytes, std::io::Error>;

/// A body on its way to the other side. What comes from the client is passed on as it comes, however long it is.
pub(crate) fn sent(body: Body) -> Sent {
    let whole = |bytes: Bytes| Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    match body {
        Body::Empty => whole(Bytes::new()),
        Body::Bytes(bytes) => whole(bytes),
        Body::Value(tree) => whole(tree.to_string().into()),
        Body::Incoming(pieces) => StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync(),
    }
}

/// What is written about a request, which ends with its connection and not with its answer.
#[derive(Clone)]
struct Held(#[allow(dead_code, reason = "held, not read")] Arc<Record>);

/// Lets a request hold on to its record for as long as its connection is used.
pub(crate) fn hold<B>(request: &mut http::Request<B>, record: Option<Arc<Record>>) {
    if let Some(record) = record {
        request.extensions_mut().insert(Held(record));
    }
}

/// Connects, in time; with TLS where there is some, to a server of this name.
pub(crate) async fn dial(authority: &str, name: &str, tls: Option<&TlsConnector>) -> Result<Box<dyn Stream>, Error> {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let failed = |error: std::io::Error| dial_failure(authority, host, &error);
    let dialled = async {
        let stream = TcpStream::connect(authority).await.map_err(failed)?;
        // Interactive streams are small writes; waiting to fill packets would make them sluggish.
        stream.set_nodelay(true).map_err(failed)?;
        let Some(tls) = tls else { return Ok(Box::new(stream) as Box<dyn Stream>) };
        let name = ServerName::try_from(name.to_owned()).map_err(|error| failed(std::io::Error::other(error)))?;
        let stream = tls.connect(name, stream).await.map_err(|error| tls_failure(&error))?;
        Ok(Box::new(stream) as Box<dyn Stream>)
    };
    let late = || Err(failed(std::io::ErrorKind::TimedOut.into()));
    tokio::time::timeout(CONNECT, dialled).await.unwrap_or_else(|_| late())
}

/// Copies what is not about one connection only.
pub(crate) fn copy_headers(from: &HeaderMap, to: &mut HeaderMap) {
    for (name, value) in from {
        if !HOP_BY_HOP.contains(&name.as_str()) && name != UPGRADE && name != HOST {
            to.append(name.clone(), value.clone());
        }
    }
}

/// Sends a request, and returns the answer when it begins. `upgrade` is the client's connection, which the two sides get when they
/// agree on another protocol.
pub(crate) async fn exchange(
    stream: Box<dyn Stream>,
    request: http::Request<Sent>,
    upgrade: Option<OnUpgrade>,
) -> Result<Response, Error> {
    let mut sender = begin(stream).await?;
    let exchanged = Exchanged::of(&request);
    let response = sender.send_request(request).await.map_err(broken)?;
    exchanged.answer(response, upgrade, || drop(sender))
}

fn broken(error: hyper::Error) -> Error {
    Error::Connection(error.to_string())
}

/// Begins to speak HTTP on a connection.
pub(crate) async fn begin(stream: Box<dyn Stream>) -> Result<SendRequest<Sent>, Error> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a proxied connection ended");
        }
    });
    Ok(sender)
}

/// What has to be known of a request when its answer comes.
pub(crate) struct Exchanged {
    record: Option<Held>,
    is_head: bool,
    wants_upgrade: bool,
}

impl Exchanged {
    pub(crate) fn of(request: &http::Request<Sent>) -> Self {
        Self {
            record: request.extensions().get::<Held>().cloned(),
            is_head: request.method() == Method::HEAD,
            wants_upgrade: request.headers().contains_key(UPGRADE),
        }
    }

    /// The answer, whose body comes as it is read. `over` is told when that has come to its end, and so the connection is free again; it has not
    /// if `over` is dropped before.
    pub(crate) fn answer(
        self,
        mut response: http::Response<Incoming>,
        upgrade: Option<OnUpgrade>,
        over: impl FnOnce() + Send + 'static,
    ) -> Result<Response, Error> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return self.switched(&mut response, upgrade);
        }
        let (parts, incoming) = response.into_parts();
        let payload = if self.is_head { Payload::Empty } else { Payload::Stream(pieces(incoming, over)) };
        let mut answer = Response::new(payload);
        *answer.status_mut() = parts.status;
        copy_headers(&parts.headers, answer.headers_mut());
        answer.headers_mut().remove(HeaderName::from_static("content-length"));
        if self.wants_upgrade {
            // Whoever wanted another protocol and did not get it may have sent more already: none of it is read as anything.
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(answer)
    }

    /// Both sides get each other's connection.
    fn switched(self, response: &mut http::Response<Incoming>, upgrade: Option<OnUpgrade>) -> Result<Response, Error> {
        let far = hyper::upgrade::on(&mut *response);
        let near = upgrade.ok_or_else(|| Error::Connection("Upgrade request required".to_owned()))?;
        tokio::spawn(async move {
            pipe(near, far).await;
            // The audit log learns of the end of the connection when the last one lets go of its record.
            drop(self.record);
        });
        let mut answer = Response::new(Payload::Empty);
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        copy_headers(response.headers(), answer.headers_mut());
        for name in [CONNECTION, UPGRADE] {
            if let Some(value) = response.headers().get(&name) {
                answer.headers_mut().insert(name, value.clone());
            }
        }
        Ok(answer)
    }
}

/// The body as it comes. What `over` holds is kept until then, for dropping the sender would end the connection.
fn pieces(incoming: Incoming, over: impl FnOnce() + Send + 'static) -> Pieces {
    let data = incoming.into_data_stream().map_err(std::io::Error::other);
    stream::unfold((data, Some(over)), |(mut data, mut over)| async move {
        match data.next().await {
            Some(piece) => Some((piece, (data, over))),
            None => {
                if let Some(over) = over.take() {
                    over();
                }
                None
            }
        }
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
