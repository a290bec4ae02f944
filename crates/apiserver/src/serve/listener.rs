//! TLS, HTTP/1.1 and HTTP/2: connections in, requests to the handler.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use common::Clock;
use futures::{StreamExt as _, TryStreamExt as _};
use gates::Asked;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use machinery::rest::{Body, Handler, Peer, Request};
use rustls::pki_types::CertificateDer;
use threads::heavy;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::body::Answer;
use super::cork::Cork;
use super::encode::{encode, weight};
use super::settings::Settings;

/// How long a client may take over its TLS handshake and over a request's headers.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests under way may take when the server stops.
const DRAIN: Duration = Duration::from_secs(5);
/// The most connections at once.
const MAX_CONNECTIONS: usize = 20_000;
/// The most bytes of a request's headers.
const MAX_HEADERS: u32 = 256 * 1024;

/// A bound port, not yet served.
pub struct Listener {
    socket: TcpListener,
    tls: pki::Reception,
    settings: Settings,
}

impl Listener {
    /// Binds the address; port 0 takes any.
    pub async fn bind(address: SocketAddr, tls: pki::Reception, settings: Settings) -> std::io::Result<Self> {
        Ok(Self { socket: TcpListener::bind(address).await?, tls, settings })
    }

    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until it is stopped, then lets requests under way finish.
    pub async fn serve(self, handler: Arc<dyn Handler>, clock: Clock, mut stop: watch::Receiver<bool>) {
        let door = Door { tls: self.tls, handler, clock, settings: Arc::new(self.settings) };
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
                Some(_) = connections.join_next() => continue,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: a moment later there may be some again.
                    tracing::warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let Ok(place) = places.clone().try_acquire_owned() else { continue };
            let (door, stop) = (door.clone(), stop.clone());
            connections.spawn(async move {
                let _place = place;
                if let Err(error) = connection(stream, address, door, stop).await {
                    tracing::debug!(%address, %error, "connection ended");
                }
            });
        }
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            tracing::debug!("connections still open after the grace period are cut");
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What is behind a connection.
#[derive(Clone)]
struct Door {
    tls: pki::Reception,
    handler: Arc<dyn Handler>,
    clock: Clock,
    settings: Arc<Settings>,
}

impl Door {
    /// Who comes from an address and showed these certificates.
    fn peer(&self, address: SocketAddr, shown: &[CertificateDer<'_>]) -> Peer {
        let believed = if shown.is_empty() { Ok(()) } else { self.tls.believes(shown, (self.clock)()) };
        if let Err(why) = believed {
            tracing::debug!(%address, %why, "a client's certificate is not believed");
            return Peer::Remote { address, certificates: Arc::default(), doubtful: true };
        }
        let certificates = shown.iter().map(|certificate| Bytes::copy_from_slice(certificate)).collect();
        Peer::Remote { address, certificates, doubtful: false }
    }
}

async fn connection(
    stream: TcpStream,
    address: SocketAddr,
    door: Door,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let acceptor = TlsAcceptor::from(door.tls.config.clone());
    let tls = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await??;
    let peer = door.peer(address, tls.get_ref().1.peer_certificates().unwrap_or_default());
    let (max_streams, enough) = (door.settings.max_streams, Arc::new(Notify::new()));
    let told = enough.clone();
    let many_streams = tls.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request: http::Request<Incoming>| {
        let (door, peer) = (door.clone(), peer.clone());
        // So that connections that live for ever are shared out over servers again.
        if request.version() == http::Version::HTTP_2 && rand::random_bool(door.settings.goaway_chance) {
            told.notify_one();
        }
        async move { Ok::<_, std::convert::Infallible>(exchange(&door, peer, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(MAX_HEADERS as usize)
        .keep_alive(true);
    builder
        .http2()
        .timer(TokioTimer::new())
        // Watches are many streams on one connection: small windows would make them wait for each other.
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .max_concurrent_streams(max_streams)
        .max_header_list_size(MAX_HEADERS)
        .max_pending_accept_reset_streams(50)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let cork = Cork::new(tls, many_streams);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(cork.clone()), service);
    tokio::pin!(connection);
    tokio::select! {
        served = cork.drive(connection.as_mut()) => return served,
        _ = stop.wait_for(|stop| *stop) => {}
        () = enough.notified() => {}
    }
    connection.as_mut().graceful_shutdown();
    cork.drive(connection).await
}

/// One request and its answer.
async fn exchange(door: &Door, peer: Peer, request: http::Request<Incoming>) -> http::Response<Answer> {
    let headers = &door.settings.headers;
    let origin = headers.origin(request.headers());
    let mut answer = match &origin {
        // A page asks whether it may ask: there is nobody to let in yet.
        Some(_) if request.method() == http::Method::OPTIONS => preflight(),
        _ => answer(door, peer, request).await,
    };
    headers.write(origin, answer.headers_mut());
    answer
}

fn preflight() -> http::Response<Answer> {
    let mut answer = http::Response::new(Answer::Full(None));
    *answer.status_mut() = http::StatusCode::NO_CONTENT;
    answer
}

async fn answer(door: &Door, peer: Peer, request: http::Request<Incoming>) -> http::Response<Answer> {
    let Door { handler, clock, .. } = door;
    let (mut parts, incoming) = request.into_parts();
    // Read once, for the gates and for the answer.
    let asked = Asked::of(&parts);
    parts.extensions.insert(peer);
    parts.extensions.insert(asked.clone());
    let only_head = parts.method == http::Method::HEAD;
    let body = if hyper::body::Body::is_end_stream(&incoming) { Body::Empty } else { later(incoming) };
    let response = handler.handle(Request::from_parts(parts, body)).await;
    let answer = heavy::run(weight(&asked, &response), || encode(&asked, response, clock)).await;
    if only_head { common::without_body(answer, Answer::Full(None)) } else { answer }
}

/// A body that is read when somebody asks for it.
fn later(incoming: Incoming) -> Body {
    Body::Incoming(incoming.into_data_stream().map_err(std::io::Error::other).boxed())
}
