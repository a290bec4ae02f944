//! Connecting to the runtime's streaming server, which listens on this machine.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// How long the runtime may take to accept a connection and to switch protocols.
const PATIENCE: Duration = Duration::from_secs(30);

/// Headers that are about one connection only, or about who asks.
const NOT_PASSED: [&str; 11] = [
    "authorization",
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Why the runtime cannot be talked to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its address cannot be used.
    #[error("the runtime's streaming address {0:?} cannot be used")]
    Address(String),
    /// It cannot be reached.
    #[error("error dialing backend: {0}")]
    Connect(#[source] std::io::Error),
    #[error("error dialing backend: {0}")]
    Http(#[from] hyper::Error),
    /// It does not answer.
    #[error("error dialing backend: timed out")]
    Silence,
}

/// What the runtime answered.
pub enum Dialed {
    /// It switched protocols: its headers, and the connection.
    Switched(HeaderMap, Upgraded),
    Refused(Box<Response<Incoming>>),
}

/// Asks the runtime to switch to `protocol`, with these headers.
pub async fn dial(address: &str, method: Method, protocol: HeaderValue, headers: HeaderMap) -> Result<Dialed, Error> {
    tokio::time::timeout(PATIENCE, exchange(address, method, protocol, headers)).await.map_err(|_| Error::Silence)?
}

async fn exchange(address: &str, method: Method, protocol: HeaderValue, headers: HeaderMap) -> Result<Dialed, Error> {
    let unusable = || Error::Address(address.to_owned());
    let uri: Uri = address.parse().map_err(|_| unusable())?;
    // The runtime is on this machine: TLS would protect the stream from nobody.
    let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(unusable)?;
    let place = (authority.host().trim_matches(['[', ']']), authority.port_u16().unwrap_or(80));
    let stream = TcpStream::connect(place).await.map_err(Error::Connect)?;
    // Keystrokes are small; waiting to fill packets would make them sluggish.
    stream.set_nodelay(true).map_err(Error::Connect)?;
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method;
    *request.uri_mut() =
        uri.path_and_query().map(|path| path.as_str()).unwrap_or("/").parse().map_err(|_| unusable())?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(HOST, HeaderValue::from_str(authority.as_str()).map_err(|_| unusable())?);
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    request.headers_mut().insert(UPGRADE, protocol);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "a connection to the runtime ended");
        }
    });
    let mut response = sender.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(Dialed::Refused(Box::new(response)));
    }
    let upgraded = hyper::upgrade::on(&mut response).await?;
    Ok(Dialed::Switched(response.headers().clone(), upgraded))
}

/// Headers without those that belong to one connection.
pub fn passable(headers: &HeaderMap) -> HeaderMap {
    let kept = headers.iter().filter(|(name, _)| !NOT_PASSED.contains(&name.as_str()));
    kept.map(|(name, value): (&HeaderName, &HeaderValue)| (name.clone(), value.clone())).collect()
}
