//! A small HTTPS server of a test's own: an issuer of tokens, a webhook, whoever the server under test calls.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use pki::{Authority, Leaf, Pair, PrivateKey, San, Subject};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// How long its certificates are good.
const LIFE: Duration = Duration::from_secs(365 * 86_400);

type Answer = dyn Fn(http::Request<Bytes>) -> http::Response<Bytes> + Send + Sync;

/// A server on a loopback port, with an authority of its own. It stops when dropped.
pub struct Https {
    url: String,
    authority: String,
    serving: JoinHandle<()>,
}

impl Https {
    /// Starts it; `answer` gets its address first and then answers every request.
    pub async fn start<A>(answer: impl FnOnce(&str) -> A) -> Self
    where
        A: Fn(http::Request<Bytes>) -> http::Response<Bytes> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let now = Timestamp::now();
        let authority =
            Authority::new("tests", PrivateKey::generate().expect("a key"), now, LIFE).expect("an authority");
        let key = PrivateKey::generate().expect("a key");
        let leaf = Leaf::server(Subject::new("server", []), vec![San::host("127.0.0.1")], LIFE);
        let certificate = authority.issue(&leaf, &key.public(), now).expect("a certificate");
        let pair = Pair { chain_pem: certificate.to_pem(), key_pem: key.to_pem().to_owned() };
        let authority = authority.certificate().to_pem();
        // Clients are asked for nothing: an API server that aggregates shows a certificate of an authority of its own.
        let mut tls = (*pki::server_config(&pair, "").expect("TLS")).clone();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let answer: Arc<Answer> = Arc::new(answer(&url));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer) = (acceptor.clone(), Arc::clone(&answer));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| exchange(Arc::clone(&answer), request));
                    let connection = hyper::server::conn::http1::Builder::new();
                    // A client that goes away in the middle is the client's affair.
                    let _ = connection.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { url, authority, serving }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The authority of its certificate, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// A kubeconfig that names it, as webhooks are configured by file.
    pub fn kubeconfig(&self, path: &str) -> String {
        let encoded = STANDARD.encode(&self.authority);
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{server: '{}{path}', certificate-authority-data: '{encoded}'}}}}], \
             users: [{{name: u, user: {{}}}}]}}",
            self.url,
        )
    }
}

impl Drop for Https {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn exchange(
    answer: Arc<Answer>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Full<Bytes>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(answer(http::Request::from_parts(parts, body)).map(Full::new))
}
