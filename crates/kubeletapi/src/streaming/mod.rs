//! Exec, attach and port-forward.
//!
//! The runtime has a streaming server of its own, on this machine, and says at which address it will serve a request. It
//! speaks SPDY/3.1 and the older WebSocket channels:
//!
//! ```text
//! client                                     here              runtime
//! SPDY/3.1                                   bytes as they are SPDY/3.1
//! WebSocket v1 to v4, binary or base64       bytes as they are the same
//! WebSocket v5.channel.k8s.io                translate         SPDY/3.1, v4.channel.k8s.io
//! WebSocket SPDY/3.1+portforward.k8s.io      tunnel            SPDY/3.1, portforward.k8s.io
//! ```
//! What is understood here is only what the runtime does not understand itself.

mod dial;
mod target;
mod translate;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use machinery::query::Query;
use websocket::channels::{OVER_SPDY, Streams, VERSION_HEADER, WITH_END_OF_INPUT};
use websocket::tunnel;

use super::Inner;
use super::answer::{self, Answer};
use super::route::Place;
use dial::Dialed;
pub use target::What;

const IN_THE_RUNTIME: HeaderValue = HeaderValue::from_static(OVER_SPDY);
const SPDY: HeaderValue = HeaderValue::from_static("SPDY/3.1");
/// Longest refusal of the runtime that is passed on.
const LONGEST_REFUSAL: usize = 64 << 10;

/// Answers a request for a stream.
pub async fn answer(inner: &Inner, what: What, place: &Place, query: &Query, request: Request<Incoming>) -> Answer {
    match serve(inner, what, place, query, request).await {
        Ok(answer) => answer,
        Err(error) => answer::text(error.status(), error.to_string()),
    }
}

/// Why there is no stream.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The pod, the container or the runtime is not as it has to be.
    #[error(transparent)]
    Target(#[from] target::Error),
    /// The client did not ask to switch protocols.
    #[error("Upgrade request required")]
    NoUpgrade,
    /// The client's handshake is none.
    #[error("unable to upgrade: not a valid websocket handshake")]
    Handshake,
    /// The runtime cannot be talked to.
    #[error(transparent)]
    Dial(#[from] dial::Error),
    #[error("{}", super::TOO_MANY)]
    TooMany,
}

impl Error {
    fn status(&self) -> StatusCode {
        match self {
            Self::Target(error) => error.status(),
            Self::Handshake => StatusCode::BAD_REQUEST,
            Self::TooMany => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoUpgrade | Self::Dial(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// How the two sides are joined.
enum Join {
    Bytes,
    Tunnel,
    Translation(Streams),
}

async fn serve(
    inner: &Inner,
    what: What,
    place: &Place,
    query: &Query,
    mut request: Request<Incoming>,
) -> Result<Answer, Error> {
    let permit = inner.streams.clone().try_acquire_owned().map_err(|_| Error::TooMany)?;
    let headers = request.headers().clone();
    let is_websocket = websocket::is_wanted(&headers);
    let offered = websocket::offered(&headers);
    let tunnelled = tunnel::inside(&offered);
    let tunnels = is_websocket && what == What::PortForward && !tunnelled.is_empty();
    let goal = target::Goal::of(what, query, is_websocket && !tunnels)?;
    let (address, streams) = target::address(inner, place, goal).await?;
    let protocol = headers.get(UPGRADE).filter(|_| headers.contains_key(CONNECTION)).ok_or(Error::NoUpgrade)?;
    let client = request.extensions_mut().remove::<OnUpgrade>().ok_or(Error::NoUpgrade)?;

    let mut ours = HeaderMap::new();
    let (join, dialed) = match streams {
        _ if tunnels => {
            for protocol in tunnelled {
                ours.append(VERSION_HEADER, HeaderValue::from_str(protocol).map_err(|_| Error::Handshake)?);
            }
            (Join::Tunnel, dial::dial(&address, Method::POST, SPDY, ours).await?)
        }
        Some(streams) if is_websocket && offered.contains(&WITH_END_OF_INPUT) => {
            ours.insert(VERSION_HEADER, IN_THE_RUNTIME);
            (Join::Translation(streams), dial::dial(&address, Method::POST, SPDY, ours).await?)
        }
        _ => {
            let method = request.method().clone();
            (Join::Bytes, dial::dial(&address, method, protocol.clone(), dial::passable(&headers)).await?)
        }
    };
    let (far_headers, far) = match dialed {
        Dialed::Switched(headers, far) => (headers, far),
        Dialed::Refused(response) => return Ok(refused(*response).await),
    };
    let answer = switch(&join, &headers, &far_headers)?;
    let stop = inner.stop.clone();
    tokio::spawn(async move {
        let _permit = permit;
        tokio::select! {
            () = carry(join, client, TokioIo::new(far)) => {}
            () = stop.cancelled() => {}
        }
    });
    Ok(answer)
}

async fn carry(join: Join, client: OnUpgrade, mut far: TokioIo<hyper::upgrade::Upgraded>) {
    let mut near = match client.await {
        Ok(near) => TokioIo::new(near),
        Err(error) => {
            tracing::debug!(%error, "a client did not switch protocols");
            return;
        }
    };
    let ended = match join {
        Join::Bytes => tokio::io::copy_bidirectional(&mut near, &mut far).await.map(drop).map_err(Into::into),
        Join::Tunnel => tunnel::run(near, far).await,
        Join::Translation(streams) => translate::run(near, far, streams).await,
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a stream ended");
    }
}

/// The answer that switches protocols with the client.
fn switch(join: &Join, asked: &HeaderMap, runtime: &HeaderMap) -> Result<Answer, Error> {
    let mut answer = Answer::new(answer::full(Bytes::new()));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    let chosen = match join {
        Join::Bytes => {
            headers.extend(dial::passable(runtime));
            headers.insert(UPGRADE, runtime.get(UPGRADE).or(asked.get(UPGRADE)).cloned().ok_or(Error::NoUpgrade)?);
            return Ok(answer);
        }
        Join::Tunnel => {
            let inside = runtime.get(VERSION_HEADER).and_then(|version| version.to_str().ok()).unwrap_or_default();
            tunnel::outside(inside)
        }
        Join::Translation(_) => WITH_END_OF_INPUT.to_owned(),
    };
    let text = |text: String| HeaderValue::try_from(text).map_err(|_| Error::Handshake);
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, text(websocket::accept(asked).ok_or(Error::Handshake)?)?);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, text(chosen)?);
    Ok(answer)
}

/// The runtime's refusal, as the client would have got it from the runtime itself.
async fn refused(response: http::Response<Incoming>) -> Answer {
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, LONGEST_REFUSAL).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut answer = Answer::new(answer::full(body));
    *answer.status_mut() = parts.status;
    *answer.headers_mut() = dial::passable(&parts.headers);
    answer
}
