//! The network transport: multiplexed HTTP/2 connections where the server speaks it, pooled HTTP/1.1 ones elsewhere.
//!
//! Where the servers of a cluster are known ([`backends`](super::backends)), any of them will do: a request that certainly never left, and one that changes
//! nothing, goes to the next when one fails. A write that may have arrived is not sent twice; the next one goes elsewhere.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use http_body_util::{BodyExt as _, BodyStream, Full};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use machinery::rest::{Body, Payload, Request, Response};

use super::backends::{Backend, Backends};
use super::lanes::{Lanes, Ticket};
use super::tls::Connector;
use super::upgrade::{self, Upgrade};
use crate::answer;
use crate::config::{self, Config, Credentials, Impersonate};
use crate::error::Error;
use crate::metrics;

/// Room for a burst of events on each watch, so that one slow watch never starves the others on the connection.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 64 << 20;
/// A dead peer is noticed after the interval plus the timeout, watches included: at leisure where there is only one, and quickly where others are.
const PING_ALONE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(15));
const PING_AMONG: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3));
/// How often a request that the server turned away unprocessed is sent again.
const MAX_RETRIES: u32 = 10;
/// The longest wait that a server can impose between two tries.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);

/// A pool of connections to one server, or to several of which any will do.
pub(crate) struct Https {
    backends: Backends<Lanes<Pool<Connector, Full<Bytes>>>>,
    connector: Connector,
    scheme: Scheme,
    /// What stands before `/api`, without a slash at its end.
    prefix: String,
    credentials: Credentials,
    impersonation: HeaderMap,
    timeout: Duration,
}

impl Https {
    pub(crate) fn new(config: Config) -> Result<Self, Error> {
        let server: Uri = config.server.parse().map_err(|_| config::Error::Server { server: config.server.clone() })?;
        let usable = |scheme: &&Scheme| **scheme == Scheme::HTTPS || (config.allows_plain && **scheme == Scheme::HTTP);
        let scheme = server.scheme().filter(usable).cloned();
        let (Some(scheme), Some(authority)) = (scheme, server.authority().cloned()) else {
            return Err(config::Error::Server { server: config.server.clone() }.into());
        };
        let impersonation = config.impersonate.as_ref().map_or_else(|| Ok(HeaderMap::new()), impersonation)?;
        let connector = Connector::new(&config)?;
        let alone = connector.clone();
        Ok(Self {
            backends: Backends::new(authority, Lanes::new(move || pool(alone.clone(), PING_ALONE))),
            connector,
            scheme,
            prefix: server.path().trim_end_matches('/').to_owned(),
            credentials: config.credentials,
            impersonation,
            timeout: config.timeout,
        })
    }

    /// The server that is asked next.
    pub(crate) fn server(&self) -> Authority {
        self.backends
            .round()
            .next()
            .map_or_else(|| Authority::from_static("nobody"), |backend| backend.authority.clone())
    }

    /// Any of these servers will do, besides the one that was configured.
    pub(crate) fn set_servers(&self, servers: &[Authority]) {
        self.backends.set(servers, || {
            let connector = self.connector.hurried();
            Lanes::new(move || pool(connector.clone(), PING_AMONG))
        });
    }

    /// Later requests use new connections; answers that are under way end on the old ones.
    pub(crate) fn reconnect(&self) {
        for backend in self.backends.round() {
            backend.lanes.renew();
        }
    }

    pub(crate) async fn send(&self, request: Request) -> Result<Response, Error> {
        let (mut head, body) = request.into_parts();
        head.extensions.clear();
        head.headers.extend(self.impersonation.clone());
        let body = match body {
            Body::Empty => Bytes::new(),
            Body::Bytes(bytes) => bytes,
            Body::Value(value) => Bytes::from(serde_json::to_vec(&value).map_err(Error::Encode)?),
            Body::Incoming(pieces) => answer::collect(Payload::Stream(pieces)).await?,
        };
        let harmless = matches!(head.method, Method::GET | Method::HEAD);
        let mut round = self.backends.round();
        let mut backend = round.next().ok_or(config::Error::NoAuthority)?;
        loop {
            match self.exchange(&backend, &head, &body).await {
                Ok(answer) => {
                    self.backends.answered(&backend);
                    return Ok(answer);
                }
                Err((error, unsent)) => {
                    self.backends.failed(&backend);
                    match round.next() {
                        Some(next) if unsent || (harmless && error.is_unreachable()) => backend = next,
                        _ => return Err(error),
                    }
                }
            }
        }
    }

    /// One request to one server, as often as it is too busy; why there is no answer, and whether the request certainly never left.
    async fn exchange(
        &self,
        backend: &Backend<Lanes<Pool<Connector, Full<Bytes>>>>,
        head: &http::request::Parts,
        body: &Bytes,
    ) -> Result<Response, (Error, bool)> {
        let sent = |error: Error| (error, false);
        let uri = self.uri(&backend.authority, &head.uri).map_err(sent)?;
        let mut headers = head.headers.clone();
        let mut tries = 0;
        let (pool, ticket) = backend.lanes.take();
        loop {
            if let Some(token) = self.bearer().await.map_err(sent)? {
                headers.insert(AUTHORIZATION, token);
            }
            let mut attempt = http::Request::new(Full::new(body.clone()));
            *attempt.method_mut() = head.method.clone();
            *attempt.uri_mut() = uri.clone();
            *attempt.headers_mut() = headers.clone();
            let begun = Instant::now();
            let answer = tokio::time::timeout(self.timeout, pool.request(attempt)).await;
            let code = answer.as_ref().ok().and_then(|answer| answer.as_ref().ok()).map(http::Response::status);
            metrics::answered(&head.method, backend.authority.as_str(), code, begun.elapsed(), body.len());
            let answer = answer.map_err(|_| sent(Error::Timeout(self.timeout)))?;
            let answer = answer.map_err(|error| {
                let unsent = error.is_connect();
                (Error::transport(error), unsent)
            })?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                self.credentials.refused();
            }
            match retry_after(&answer) {
                // Turned away by flow control before anything was done: sending it again is always safe.
                Some(wait) if tries < MAX_RETRIES => {
                    tries += 1;
                    metrics::retried(&head.method, backend.authority.as_str(), answer.status());
                    // The answer is read so that an HTTP/1.1 connection can be used again.
                    let _ = http_body_util::Limited::new(answer.into_body(), 1 << 20).collect().await;
                    tokio::time::sleep(wait).await;
                }
                _ => return Ok(answer.map(|body| stream(body, ticket))),
            }
        }
    }

    /// Asks the server to speak another protocol on a connection of its own. The request names the protocol in its headers.
    pub(crate) async fn upgrade(&self, request: http::Request<()>) -> Result<Upgrade, Error> {
        let (mut head, ()) = request.into_parts();
        let authority = self.server();
        let uri = self.uri(&authority, &head.uri)?;
        head.headers.extend(self.impersonation.clone());
        if let Some(token) = self.bearer().await? {
            head.headers.insert(AUTHORIZATION, token);
        }
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| config::Error::Token)?;
        head.headers.insert(http::header::HOST, host);
        head.uri = Uri::from(uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
        let exchange = upgrade::exchange(self.connector.only_http1(), uri, head);
        tokio::time::timeout(self.timeout, exchange).await.map_err(|_| Error::Timeout(self.timeout))?
    }

    /// The token to send. Whoever gives it has no more time than the request.
    async fn bearer(&self) -> Result<Option<HeaderValue>, Error> {
        let token = tokio::time::timeout(self.timeout, self.credentials.bearer()).await;
        Ok(token.map_err(|_| Error::Timeout(self.timeout))??)
    }

    /// The whole address of a path of the API.
    fn uri(&self, authority: &Authority, path: &Uri) -> Result<Uri, Error> {
        let path_and_query = path.path_and_query().map_or("/", PathAndQuery::as_str);
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(authority.clone());
        Ok(if self.prefix.is_empty() {
            uri.path_and_query(path_and_query)
        } else {
            uri.path_and_query(format!("{}{path_and_query}", self.prefix))
        }
        .build()?)
    }
}

fn pool(connector: Connector, (interval, timeout): (Duration, Duration)) -> Pool<Connector, Full<Bytes>> {
    Pool::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(90))
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(interval)
        .http2_keep_alive_timeout(timeout)
        .build(connector)
}

fn retry_after(answer: &http::Response<hyper::body::Incoming>) -> Option<Duration> {
    if answer.status() != StatusCode::TOO_MANY_REQUESTS {
        return None;
    }
    let seconds: u64 = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

/// The answer's body. The ticket is given back when it was read, or is dropped.
fn stream(body: hyper::body::Incoming, ticket: Ticket) -> Payload {
    let frames = TryStreamExt::map_err(BodyStream::new(body), io::Error::other);
    // Trailers carry nothing for us.
    let data = frames.try_filter_map(move |frame| {
        let _held = &ticket;
        std::future::ready(Ok(frame.into_data().ok()))
    });
    Payload::Stream(data.boxed())
}

fn impersonation(who: &Impersonate) -> Result<HeaderMap, Error> {
    let value =
        |text: &str| HeaderValue::from_str(text).map_err(|_| config::Error::Impersonate { name: text.to_owned() });
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static("impersonate-user"), value(&who.user)?);
    for group in &who.groups {
        headers.append(HeaderName::from_static("impersonate-group"), value(group)?);
    }
    Ok(headers)
}
