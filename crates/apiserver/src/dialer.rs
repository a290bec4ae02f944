//! How the aggregator reaches other servers: over TLS connections that are kept for the next request.
//!
//! A connection carries one exchange at a time. When an answer has been read to its end the connection is idle, and whoever asks the same server next
//! takes it, unless it was idle for too long. A server may close an idle connection at any time: a request that has not been sent, or that
//! changes nothing and has no body, is then sent again on a new one, as Go's clients do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aggregator::{Target, Transport};
use futures::future::BoxFuture;
use http::Method;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, UPGRADE};
use hyper::client::conn::http1::SendRequest;
use hyper::upgrade::OnUpgrade;
use machinery::rest::{Body, Response};
use parking_lot::Mutex;
use rustls::ClientConfig;
use tokio_rustls::TlsConnector;

use crate::proxy::{self, Exchanged, Sent};

/// Connections to one server that are kept while nobody uses them.
const MAX_IDLE: usize = 32;
/// How long they are kept: less than upstream's servers, which close theirs after 90 seconds.
const IDLE: Duration = Duration::from_secs(60);

/// Carries the aggregator's requests to other servers.
#[derive(Default)]
pub struct Dialer {
    idle: Arc<Mutex<HashMap<Server, Vec<Idle>>>>,
}

/// Whom a connection is with, and what was shown and believed when it was made.
#[derive(Clone)]
struct Server {
    authority: String,
    name: String,
    tls: Arc<ClientConfig>,
}

impl PartialEq for Server {
    fn eq(&self, other: &Self) -> bool {
        (&self.authority, &self.name) == (&other.authority, &other.name) && Arc::ptr_eq(&self.tls, &other.tls)
    }
}

impl Eq for Server {}

impl std::hash::Hash for Server {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.authority.hash(state);
    }
}

struct Idle {
    sender: SendRequest<Sent>,
    since: Instant,
}

impl Dialer {
    /// A connection that is idle and still open.
    fn take(&self, server: &Server) -> Option<SendRequest<Sent>> {
        let mut all = self.idle.lock();
        let kept = all.get_mut(server)?;
        while let Some(idle) = kept.pop() {
            if idle.sender.is_ready() && idle.since.elapsed() < IDLE {
                return Some(idle.sender);
            }
        }
        None
    }

    async fn connect(server: &Server) -> Result<SendRequest<Sent>, String> {
        let tls = TlsConnector::from(server.tls.clone());
        let stream = proxy::dial(&server.authority, &server.name, Some(&tls)).await;
        proxy::begin(stream.map_err(|error| error.to_string())?).await.map_err(|error| error.to_string())
    }

    async fn send(
        &self,
        server: &Server,
        mut request: http::Request<Sent>,
        repeatable: bool,
    ) -> Result<(SendRequest<Sent>, http::Response<hyper::body::Incoming>), String> {
        if let Some(mut sender) = self.take(server) {
            let again = repeatable.then(|| copy(&request));
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((sender, response)),
                Err(mut failed) => match failed.take_message().or(again) {
                    Some(unsent) => request = unsent,
                    None => return Err(failed.into_error().to_string()),
                },
            }
        }
        let mut sender = Self::connect(server).await?;
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        Ok((sender, response))
    }
}

/// The same request without its body.
fn copy(request: &http::Request<Sent>) -> http::Request<Sent> {
    let mut again = http::Request::new(proxy::sent(Body::Empty));
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.headers_mut() = request.headers().clone();
    *again.extensions_mut() = request.extensions().clone();
    again
}

/// Keeps a connection for the next request, and forgets those that were kept for too long.
async fn keep(all: Arc<Mutex<HashMap<Server, Vec<Idle>>>>, server: Server, mut sender: SendRequest<Sent>) {
    // The end of the answer is read before the connection is ready for another request.
    if sender.ready().await.is_err() {
        return;
    }
    let mut all = all.lock();
    all.retain(|_, kept| {
        kept.retain(|idle| !idle.sender.is_closed() && idle.since.elapsed() < IDLE);
        !kept.is_empty()
    });
    let kept = all.entry(server).or_default();
    if kept.len() < MAX_IDLE {
        kept.push(Idle { sender, since: Instant::now() });
    }
}

/// A request as it is sent to the other server.
fn outgoing(target: &Target, request: http::Request<Body>) -> Result<http::Request<Sent>, String> {
    let (parts, body) = request.into_parts();
    let comes = matches!(body, Body::Incoming(_));
    let mut request = http::Request::new(proxy::sent(body));
    *request.method_mut() = parts.method;
    *request.uri_mut() = parts.uri;
    *request.extensions_mut() = parts.extensions;
    let headers = request.headers_mut();
    proxy::copy_headers(&parts.headers, headers);
    if !comes {
        // The length of what is at hand is hyper's to say.
        headers.remove(CONTENT_LENGTH);
    }
    if let Some(protocol) = parts.headers.get(UPGRADE) {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        headers.insert(UPGRADE, protocol.clone());
    }
    headers.insert(HOST, HeaderValue::try_from(&target.authority).map_err(|error| error.to_string())?);
    Ok(request)
}

impl Transport for Dialer {
    fn exchange<'a>(
        &'a self,
        target: &'a Target,
        request: http::Request<Body>,
        upgrade: Option<OnUpgrade>,
    ) -> BoxFuture<'a, Result<Response, String>> {
        Box::pin(async move {
            let server = Server {
                authority: target.authority.clone(),
                name: target.server_name.clone(),
                tls: target.tls.clone(),
            };
            let changes_nothing = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
            let repeatable = changes_nothing && matches!(request.body(), Body::Empty);
            let request = outgoing(target, request)?;
            let exchanged = Exchanged::of(&request);
            let (sender, response) = self.send(&server, request, repeatable).await?;
            let all = self.idle.clone();
            let over = move || drop(tokio::spawn(keep(all, server, sender)));
            exchanged.answer(response, upgrade, over).map_err(|error| error.to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::StreamExt as _;
    use machinery::rest::Payload;
    use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    /// A server that says how long the body was, counts its connections, and closes each after so many answers.
    async fn server(answers: usize) -> (Target, Arc<AtomicUsize>) {
        let (now, year) = (jiff::Timestamp::now(), Duration::from_secs(365 * 86_400));
        let key = pki::PrivateKey::generate().expect("a key");
        let authority = pki::Authority::new("others", key, now, year).expect("an authority");
        let key = pki::PrivateKey::generate().expect("a key");
        let leaf = pki::Leaf::server(pki::Subject::new("api", []), vec![pki::San::host("localhost")], year);
        let certificate = authority.issue(&leaf, &key.public(), now).expect("a certificate");
        let pair = pki::Pair { chain_pem: certificate.to_pem(), key_pem: key.to_pem().to_owned() };
        let pem = authority.certificate().to_pem();
        let mut tls = rustls::ServerConfig::clone(&pki::server_config(&pair, &pem).expect("TLS"));
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let authority = listener.local_addr().expect("an address").to_string();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut stream = BufReader::new(acceptor.accept(stream).await.expect("TLS"));
                    for _ in 0..answers {
                        let mut lines = Vec::new();
                        while !lines.ends_with(b"\r\n\r\n") {
                            if !stream.read_until(b'\n', &mut lines).await.is_ok_and(|read| read > 0) {
                                return;
                            }
                        }
                        let lines = String::from_utf8_lossy(&lines).to_lowercase();
                        let declared = lines.lines().find_map(|line| line.strip_prefix("content-length:"));
                        let length = declared.map_or(0, |declared| declared.trim().parse().expect("a number"));
                        let read = tokio::io::copy(&mut (&mut stream).take(length), &mut tokio::io::sink()).await;
                        let body = read.expect("a body").to_string();
                        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                        stream.write_all(answer.as_bytes()).await.expect("an answer");
                        stream.flush().await.expect("an answer");
                    }
                });
            }
        });
        let tls = pki::outgoing_config(pki::Believed::Authorities(&pem), None).expect("TLS");
        (Target { authority, server_name: "localhost".to_owned(), tls }, connections)
    }

    async fn ask(dialer: &Dialer, target: &Target, method: Method, body: Body, length: Option<usize>) -> String {
        let mut request = http::Request::new(body);
        *request.method_mut() = method;
        if let Some(length) = length {
            request.headers_mut().insert(CONTENT_LENGTH, length.into());
        }
        let answer = dialer.exchange(target, request, None).await.expect("an answer");
        let Payload::Stream(pieces) = answer.into_body() else { panic!("a stream") };
        let all: Vec<Bytes> = pieces.map(|piece| piece.expect("a piece")).collect().await;
        String::from_utf8(all.concat()).expect("text")
    }

    async fn idle(dialer: &Dialer) {
        testkit::eventually("the connection is kept", async {
            while dialer.idle.lock().values().all(Vec::is_empty) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    #[tokio::test]
    async fn a_connection_is_used_again_and_bodies_are_not_held() {
        let (dialer, (target, connections)) = (Dialer::default(), server(usize::MAX).await);
        for _ in 0..3 {
            assert_eq!(ask(&dialer, &target, Method::GET, Body::Empty, None).await, "0");
            idle(&dialer).await;
        }
        // Far more than any request that this server reads itself.
        let piece = Bytes::from(vec![b'x'; 1 << 20]);
        let pieces = futures::stream::iter((0..16).map(move |_| Ok(piece.clone()))).boxed();
        let answer = ask(&dialer, &target, Method::POST, Body::Incoming(pieces), Some(16 << 20)).await;
        assert_eq!((answer.as_str(), connections.load(Ordering::SeqCst)), ("16777216", 1));
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_meanwhile_is_replaced() {
        let (dialer, (target, connections)) = (Dialer::default(), server(1).await);
        for at in 1..=4 {
            assert_eq!(ask(&dialer, &target, Method::GET, Body::Empty, None).await, "0");
            assert_eq!(connections.load(Ordering::SeqCst), at);
            testkit::eventually("the other side closes it", async {
                while dialer.idle.lock().values().flatten().any(|idle| !idle.sender.is_closed()) {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
    }
}
