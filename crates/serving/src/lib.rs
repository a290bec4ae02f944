//! The HTTPS side door of a component: figures and health, for whoever the API server vouches for.
//!
//! ```text
//! TLS ─► listener ─► who: certificate, token (TokenReview) or nobody ─► may they: SubjectAccessReview ─► page
//! ```
//! The scheduler and the controllers are clients of the API and have no users of their own; so who somebody is and what they
//! may read is asked of the API server, by the same rules and with the same answers as of any other request. Probes of
//! health need no permission: whoever runs the process must be able to ask them.
//!
//! [`serve`], [`Reviewer`] and the shapes of answers are for other servers of the same kind, such as the kubelet's.
//!
//! Deliberately absent: an unencrypted port, profiles of the process, identities from the headers of a proxy.

mod answer;
mod authority;
mod cache;
mod health;
mod listener;
mod pages;
mod review;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use informer::Clock;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use answer::{Answer, about, figures, full, json, page, scraped, text, typed};
pub use authority::Trust;
pub use health::{Check, Probes};
pub use listener::{Service, Shown};
pub use pages::{Figures, Pages};
pub use review::{Lives, Reviewer, Unidentified};

/// How long a certificate that nobody else signed is good for.
const OWN_LIFETIME: Duration = Duration::from_secs(365 * 86_400);

/// Why a component cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be had.
    #[error("failed to create listener: failed to listen on {address}: {source}")]
    Listen {
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The certificates cannot be used.
    #[error("serving certificate: {0}")]
    Certificate(#[from] pki::Error),
}

/// What a component's endpoint needs.
pub struct Config {
    /// Where to listen; port 0 takes any.
    pub address: SocketAddr,
    /// What to show to clients.
    pub certificate: pki::Pair,
    /// What it takes part in of TLS.
    pub handshake: pki::Handshake,
    /// Whose certificates are believed.
    pub trust: Trust,
    /// Asks the API server about tokens, and reads whose certificates it believes.
    pub authentication: Client,
    /// Asks the API server about permissions.
    pub authorization: Client,
    /// Paths that need no permission; a `*` at the end stands for anything.
    pub always_allowed: Vec<String>,
    pub clock: Arc<dyn Clock>,
    /// What there is to see.
    pub pages: Pages,
}

pub async fn start(config: Config) -> Result<Running, Error> {
    let failed = |source| Error::Listen { address: config.address, source };
    let socket = TcpListener::bind(config.address).await.map_err(failed)?;
    let stop = CancellationToken::new();
    let clock = config.clock.clone();
    let tls =
        authority::follow(config.trust, (config.certificate, config.handshake), &config.authentication, stop.clone())?;
    let reviewer = Reviewer::new(config.authentication, config.clock, Lives::DELEGATED);
    let reviewer = reviewer.with_access_through(config.authorization);
    let service = Arc::new(pages::Guarded::new(reviewer, config.always_allowed, config.pages));
    serve(socket, tls, service, clock, stop).map_err(failed)
}

/// Serves at a socket that listens already, until `stop`; connections made after the TLS side changed see the new one.
pub fn serve<S: Service>(
    socket: TcpListener,
    tls: watch::Receiver<pki::Reception>,
    service: Arc<S>,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) -> std::io::Result<Running> {
    let address = socket.local_addr()?;
    let task = tokio::spawn(listener::listen(socket, tls, service, clock, stop.clone()));
    Ok(Running { address, stop, task })
}

/// An endpoint that serves. Dropping it stops it at once.
pub struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops it; requests under way may finish.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // It only ends by itself, so there is nothing to learn from how it ended.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A certificate for where nobody provides one: of an authority that is forgotten at once, so clients cannot verify it and are
/// told by its name whose it is.
pub fn own_certificate(host: &str, address: SocketAddr, now: Timestamp) -> Result<pki::Pair, Error> {
    let name = format!("{host}@{}", now.as_second());
    let authority = pki::Authority::new(
        &format!("{host}-ca@{}", now.as_second()),
        pki::PrivateKey::generate()?,
        now,
        OWN_LIFETIME,
    )?;
    let key = pki::PrivateKey::generate()?;
    let mut names = vec![pki::San::host(host), pki::San::host("localhost"), pki::San::host("127.0.0.1")];
    if !address.ip().is_unspecified() {
        names.push(pki::San::Ip(address.ip()));
    }
    names.sort();
    names.dedup();
    let leaf = pki::Leaf::server(pki::Subject::new(name, []), names, OWN_LIFETIME);
    let certificate = authority.issue(&leaf, &key.public(), now)?;
    let chain_pem = format!("{}{}", certificate.to_pem(), authority.certificate().to_pem());
    Ok(pki::Pair { chain_pem, key_pem: key.to_pem().to_owned() })
}
