//! TLS, HTTP/1.1 and HTTP/2: connections in, requests to the service.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use informer::Clock;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::answer::{self, Answer};

/// How long a client may take over its TLS handshake and over a request's headers.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long requests under way may take when the server stops.
const DRAIN: Duration = Duration::from_secs(5);
/// The most connections at once.
const MAX_CONNECTIONS: usize = 2_000;
/// The most bytes of a request's headers.
const MAX_HEADERS: u32 = 64 << 10;
/// Requests at once on one HTTP/2 connection.
const MAX_STREAMS: u32 = 250;

/// What a client said of itself in TLS.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// Certificates for the first of which an authority vouches, and that the client holds.
    pub certificates: Arc<[CertificateDer<'static>]>,
    /// It showed one that nobody vouches for: it may bring something else, such as a token, and is nobody otherwise.
    pub doubtful: bool,
}

impl Shown {
    fn of(certificates: &[CertificateDer<'_>], reception: &pki::Reception, clock: &dyn Clock) -> Self {
        match reception.believes(certificates, clock.now()) {
            Ok(()) => {
                let certificates = certificates.iter().map(|one| one.clone().into_owned()).collect();
                Self { certificates, doubtful: false }
            }
            Err(why) => {
                tracing::debug!(%why, "a client's certificate is not believed");
                Self { certificates: Arc::default(), doubtful: true }
            }
        }
    }
}

pub trait Service: Send + Sync + 'static {
    /// Answers the request of whoever showed this.
    fn answer(&self, shown: &Shown, request: Request<Incoming>) -> impl Future<Output = Answer> + Send;
}

/// Serves until it is stopped, then lets requests under way finish.
pub async fn listen<S: Service>(
    socket: TcpListener,
    tls: watch::Receiver<pki::Reception>,
    service: Arc<S>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: a moment later there may be some again.
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let reception = tls.borrow().clone();
        let (service, clock, stop) = (service.clone(), clock.clone(), stop.clone());
        connections.spawn(async move {
            let _place = place;
            if let Err(error) = connection(stream, (reception, clock), service, stop).await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        tracing::debug!("connections still open after the grace period are cut");
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn connection<S: Service>(
    stream: TcpStream,
    (reception, clock): (pki::Reception, Arc<dyn Clock>),
    service: Arc<S>,
    stop: CancellationToken,
) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    let acceptor = TlsAcceptor::from(reception.config.clone());
    let tls = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await??;
    let shown = Shown::of(tls.get_ref().1.peer_certificates().unwrap_or_default(), &reception, &*clock);
    let service = service_fn(move |request: Request<Incoming>| {
        let (service, shown) = (service.clone(), shown.clone());
        async move {
            let only_head = request.method() == http::Method::HEAD;
            let answer = service.answer(&shown, request).await;
            Ok::<_, Infallible>(if only_head { common::without_body(answer, answer::full("")) } else { answer })
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(PATIENCE).max_buf_size(MAX_HEADERS as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADERS)
        .max_pending_accept_reset_streams(50)
        .keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(tls), service);
    tokio::pin!(connection);
    tokio::select! {
        served = connection.as_mut() => return served,
        () = stop.cancelled() => {}
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}
