//! Connections, by TLS unless the caller said otherwise: who the server must prove to be, and who we prove to be.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ResolvesClientCert, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::tunnel::Proxy;
use crate::config::{self, Config, Credentials, Dial, Dials, Trust};
use crate::error::Error;

/// From address to ready connection, handshake included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The same where another server can be tried instead.
const HURRIED_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens TLS connections for the pool.
#[derive(Clone)]
pub(crate) struct Connector {
    tcp: HttpConnector,
    tls: TlsConnector,
    name: Option<ServerName<'static>>,
    credentials: Credentials,
    timeout: Duration,
    dials: Option<Dials>,
    proxy: Option<Proxy>,
}

impl Connector {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(config::Error::Tls)?
            .dangerous()
            .with_custom_certificate_verifier(verifier(&config.trust, &provider)?);
        let resolver: Arc<dyn ResolvesClientCert> = config.credentials.resolver();
        let mut tls = builder.with_client_cert_resolver(resolver);
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let name = match &config.server_name {
            None => None,
            Some(name) => {
                let parsed = ServerName::try_from(name.clone());
                Some(parsed.map_err(|_| config::Error::ServerName { name: name.clone() })?)
            }
        };
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(config.keepalive));
        let (tls, credentials) = (TlsConnector::from(Arc::new(tls)), config.credentials.clone());
        let proxy = config.proxy.as_deref().and_then(Proxy::parse);
        Ok(Self { tcp, tls, name, credentials, timeout: CONNECT_TIMEOUT, dials: config.dials.clone(), proxy })
    }
}

impl Connector {
    /// One that gives up sooner.
    pub(crate) fn hurried(&self) -> Self {
        let mut tcp = self.tcp.clone();
        tcp.set_connect_timeout(Some(HURRIED_TIMEOUT));
        Self { tcp, timeout: HURRIED_TIMEOUT, ..self.clone() }
    }

    /// One whose connections speak nothing but HTTP/1.1, which alone can be left for another protocol.
    pub(crate) fn only_http1(&self) -> Self {
        let mut tls = ClientConfig::clone(self.tls.config());
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { tls: TlsConnector::from(Arc::new(tls)), ..self.clone() }
    }
}

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future = Pin<Box<dyn Future<Output = Result<Stream, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let name = match &self.name {
            Some(name) => Ok(name.clone()),
            // An IPv6 address stands in brackets in an address and without them in a certificate.
            None => ServerName::try_from(uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned()),
        };
        let plain = uri.scheme() == Some(&http::uri::Scheme::HTTP);
        let dials = self.dials.clone();
        let begun = Instant::now();
        let proxy = self.proxy.clone();
        let tcp = self.tcp.call(proxy.as_ref().map_or_else(|| uri.clone(), |proxy| proxy.uri.clone()));
        let tcp = async move {
            let mut stream = tcp.await?.into_inner();
            if let Some(proxy) = proxy {
                proxy.open(&mut stream, &uri).await?;
            }
            Ok::<_, Self::Error>(stream)
        };
        if plain {
            return Box::pin(async move {
                let stream = tcp.await?;
                note(dials.as_ref(), &stream, begun.elapsed(), Duration::ZERO);
                Ok(Stream::Plain(TokioIo::new(stream)))
            });
        }
        let tls = self.tls.clone();
        let (credentials, timeout) = (self.credentials.clone(), self.timeout);
        Box::pin(async move {
            let name = name?;
            // Certificates on disk may have been renewed since the last connection.
            credentials.refresh_certificate().await?;
            let connect = async {
                let tcp = tcp.await?;
                let dialed = begun.elapsed();
                let stream = tls.connect(name, tcp).await?;
                note(dials.as_ref(), stream.get_ref().0, dialed, begun.elapsed().saturating_sub(dialed));
                Ok::<_, Self::Error>(stream)
            };
            let stream = tokio::time::timeout(timeout, connect).await??;
            Ok(Stream::Tls(Box::new(TokioIo::new(stream))))
        })
    }
}

/// Tells of a connection that was made.
fn note(dials: Option<&Dials>, stream: &TcpStream, dial: Duration, handshake: Duration) {
    if let Some(dials) = dials {
        let address = stream.peer_addr().map(|address| address.to_string()).unwrap_or_default();
        dials.lock().push(Dial { address, dial, handshake });
    }
}

/// An established connection that knows what was negotiated.
pub(crate) enum Stream {
    Tls(Box<TokioIo<TlsStream<TcpStream>>>),
    Plain(TokioIo<TcpStream>),
}

/// Does the same with either kind of connection.
macro_rules! either {
    ($stream:expr, $io:ident => $what:expr) => {
        match $stream.get_mut() {
            Stream::Tls(io) => {
                let $io = Pin::new(&mut **io);
                $what
            }
            Stream::Plain(io) => {
                let $io = Pin::new(io);
                $what
            }
        }
    };
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Plain(tcp) => tcp.inner().connected(),
            Self::Tls(tls) => {
                let (tcp, session) = tls.inner().get_ref();
                let connected = tcp.connected();
                if session.alpn_protocol() == Some(b"h2") { connected.negotiated_h2() } else { connected }
            }
        }
    }
}

impl Read for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        either!(self, io => io.poll_read(cx, buf))
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, io => io.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, io => io.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, io => io.poll_shutdown(cx))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tls(tls) => tls.is_write_vectored(),
            Self::Plain(tcp) => tcp.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, io => io.poll_write_vectored(cx, bufs))
    }
}

fn verifier(trusted: &Trust, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, Error> {
    let bundle = match trusted {
        // Any certificate will do, as long as its holder proves to hold it.
        Trust::Insecure => {
            let proof = trust::Proof::Checked(provider.signature_verification_algorithms);
            return Ok(trust::verifier(trust::Everybody, proof));
        }
        Trust::Bundle(bundle) => bundle.clone(),
        Trust::System => config::system_bundle()?,
    };
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(bundle);
    if added == 0 {
        return Err(config::Error::NoAuthority.into());
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider)).build();
    Ok(verifier.map_err(|error| config::Error::Authority(error.to_string()))?)
}
