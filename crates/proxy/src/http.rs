//! A small HTTP server for the pages of a node's parts: a few connections at a time, one answer each.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Load balancers and scrapers ask a few at a time; whoever opens more waits.
const CONNECTIONS: usize = 64;
/// A client that does not ask in time gives up its place.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long an address that is taken is left alone.
const AGAIN: Duration = Duration::from_secs(5);

pub type Answer = Response<Full<Bytes>>;

/// An answer in JSON.
pub fn json(ok: bool, headers: &[(&'static str, String)], body: String) -> Answer {
    let status = if ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut builder = Response::builder().status(status);
    builder = builder.header("Content-Type", "application/json").header("X-Content-Type-Options", "nosniff");
    for (name, value) in headers {
        builder = builder.header(*name, value);
    }
    builder.body(Full::new(Bytes::from(body))).expect("every header is a constant or a number")
}

/// Figures, as Prometheus reads them.
pub fn figures(body: String) -> Answer {
    let builder = Response::builder().header("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    builder.body(Full::new(Bytes::from(body))).expect("the header is a constant")
}

/// A word or two.
pub fn text(body: &'static str) -> Answer {
    let builder = Response::builder().header("Content-Type", "text/plain; charset=utf-8");
    let builder = builder.header("X-Content-Type-Options", "nosniff");
    builder.body(Full::new(Bytes::from(body))).expect("the header is a constant")
}

/// The answer to a path nobody knows.
pub fn not_found() -> Answer {
    let builder = Response::builder().status(StatusCode::NOT_FOUND);
    builder.body(Full::new(Bytes::from_static(b"404 page not found\n"))).expect("there is no header")
}

/// Answers by path at an address, for ever; while that is taken by somebody else, it is tried again.
pub async fn serve_at(address: SocketAddr, respond: impl Fn(&str) -> Answer + Send + Sync + 'static) {
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(error) => tracing::warn!(%address, %error, "cannot serve pages; trying again"),
        }
        tokio::time::sleep(AGAIN).await;
    };
    serve(listener, respond).await;
}

/// Answers by path, for ever.
pub async fn serve(listener: TcpListener, respond: impl Fn(&str) -> Answer + Send + Sync + 'static) {
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let respond = Arc::new(respond);
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            // Out of file descriptors, most likely: the next connection is no better before others end.
            Err(_) => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let respond = respond.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: Request<Incoming>| {
                let answer = respond(request.uri().path());
                async move { Ok::<_, Infallible>(answer) }
            });
            let io = TokioIo::new(stream);
            let connection = hyper::server::conn::http1::Builder::new().keep_alive(false).serve_connection(io, service);
            let _ = tokio::time::timeout(PATIENCE, connection).await;
            drop(permit);
        });
    }
}
