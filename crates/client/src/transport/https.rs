//! The network transport: multiplexed HTTP/2 connections where the server speaks it, pooled HTTP/1.1 ones elsewhere.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::header::{AUTHORIZATION, RETRY_AFTER};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri};
use http_body_util::{BodyExt as _, BodyStream, Full};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use machinery::rest::{Body, Payload, Request, Response};

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
/// A dead peer is noticed after the interval plus the timeout, watches included.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// How often a request that the server turned away unprocessed is sent again.
const MAX_RETRIES: u32 = 10;
/// The longest wait that a server can impose between two tries.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);

/// A pool of connections to one server.
pub(crate) struct Https {
    lanes: Lanes<Pool<Connector, Full<Bytes>>>,
    /// For connections that leave HTTP.
    connector: Connector,
    scheme: Scheme,
    authority: Authority,
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
        Ok(Self {
            connector: connector.only_http1(),
            lanes: Lanes::new(move || pool(connector.clone())),
            scheme,
            authority,
            prefix: server.path().trim_end_matches('/').to_owned(),
            credentials: config.credentials,
            impersonation,
            timeout: config.timeout,
        })
    }

    pub(crate) fn server(&self) -> &Authority {
        &self.authority
    }

    /// Later requests use new connections; answers that are under way end on the old ones.
    pub(crate) fn reconnect(&self) {
        self.lanes.renew();
    }

    pub(crate) async fn send(&self, request: Request) -> Result<Response, Error> {
        let (mut head, body) = request.into_parts();
        head.uri = self.uri(&head.uri)?;
        head.extensions.clear();
        head.headers.extend(self.impersonation.clone());
        let body = match body {
            Body::Empty => Bytes::new(),
            Body::Bytes(bytes) => bytes,
            Body::Value(value) => Bytes::from(serde_json::to_vec(&value).map_err(Error::Encode)?),
            Body::Incoming(pieces) => answer::collect(Payload::Stream(pieces)).await?,
        };
        let mut tries = 0;
        let (pool, ticket) = self.lanes.take();
        loop {
            if let Some(token) = self.credentials.bearer().await? {
                head.headers.insert(AUTHORIZATION, token);
            }
            let mut attempt = http::Request::new(Full::new(body.clone()));
            *attempt.method_mut() = head.method.clone();
            *attempt.uri_mut() = head.uri.clone();
            *attempt.headers_mut() = head.headers.clone();
            let begun = Instant::now();
            let answer = tokio::time::timeout(self.timeout, pool.request(attempt)).await;
            let code = answer.as_ref().ok().and_then(|answer| answer.as_ref().ok()).map(http::Response::status);
            metrics::answered(&head.method, self.authority.as_str(), code, begun.elapsed(), body.len());
            let answer = answer.map_err(|_| Error::Timeout(self.timeout))?.map_err(Error::transport)?;
            if answer.status() == StatusCode::UNAUTHORIZED {
                self.credentials.refused();
            }
            match retry_after(&answer) {
                // Turned away by flow control before anything was done: sending it again is always safe.
                Some(wait) if tries < MAX_RETRIES => {
                    tries += 1;
                    metrics::retried(&head.method, self.authority.as_str(), answer.status());
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
        let uri = self.uri(&head.uri)?;
        head.headers.extend(self.impersonation.clone());
        if let Some(token) = self.credentials.bearer().await? {
            head.headers.insert(AUTHORIZATION, token);
        }
        let host = HeaderValue::from_str(self.authority.as_str()).map_err(|_| config::Error::Token)?;
        head.headers.insert(http::header::HOST, host);
        head.uri = Uri::from(uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
        let exchange = upgrade::exchange(self.connector.clone(), uri, head);
        tokio::time::timeout(self.timeout, exchange).await.map_err(|_| Error::Timeout(self.timeout))?
    }

    /// The whole address of a path of the API.
    fn uri(&self, path: &Uri) -> Result<Uri, Error> {
        let path_and_query = path.path_and_query().map_or("/", PathAndQuery::as_str);
        let uri = Uri::builder().scheme(self.scheme.clone()).authority(self.authority.clone());
        Ok(if self.prefix.is_empty() {
            uri.path_and_query(path_and_query)
        } else {
            uri.path_and_query(format!("{}{path_and_query}", self.prefix))
        }
        .build()?)
    }
}

fn pool(connector: Connector) -> Pool<Connector, Full<Bytes>> {
    Pool::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(90))
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
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
