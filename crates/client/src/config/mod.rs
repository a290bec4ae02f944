//! Where the server is, whom to trust there, and who we are.

mod credentials;
mod exec;
mod kubeconfig;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

pub use credentials::Credentials;
pub use exec::{Interactive, Plugin};

/// How long a server may take to begin its answer. Requests are bounded by a minute on the server's side.
const TIMEOUT: Duration = Duration::from_secs(75);

/// HTTP/1.1 watches have no pings: a dead peer is left to TCP to notice.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Where every pod finds its service account.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that it names cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The kubeconfig is not one.
    #[error("{} is not a kubeconfig: {message}", path.display())]
    Kubeconfig {
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// A context, cluster or user that the kubeconfig names is not in it.
    #[error("kubeconfig has no {what} \"{name}\"")]
    Missing {
        /// `context`, `cluster` or `user`.
        what: &'static str,
        name: String,
    },
    /// Only `https://host[:port][/path]` is an API server.
    #[error("\"{server}\" is not the address of an API server: https://host:port is expected")]
    Server { server: String },
    /// `tls-server-name` is neither a host name nor an address.
    #[error("\"{name}\" is not a TLS server name")]
    ServerName { name: String },
    /// A certificate or a key is not PEM of the expected kind.
    #[error("{what} is not usable: {message}")]
    Pem { what: &'static str, message: String },
    /// There is nobody to trust.
    #[error("no certificate authority to verify the server with")]
    NoAuthority,
    /// The certificate authorities cannot be used.
    #[error("certificate authority is not usable: {0}")]
    Authority(String),
    #[error("TLS cannot be set up: {0}")]
    Tls(#[source] rustls::Error),
    /// A token that cannot be sent.
    #[error("bearer token is not usable as a header")]
    Token,
    /// A name that cannot be sent.
    #[error("\"{name}\" cannot be impersonated")]
    Impersonate { name: String },
    /// The credential plugin failed.
    #[error("getting credentials: {message}")]
    Plugin { message: String },
    /// Not inside a pod.
    #[error("not in a cluster: {0} is not set")]
    NotInCluster(&'static str),
}

/// Whom to believe to be the server.
#[derive(Debug, Clone, Default)]
pub enum Trust {
    /// The authorities of the operating system.
    #[default]
    System,
    Bundle(Vec<CertificateDer<'static>>),
    Insecure,
}

impl Trust {
    /// The authorities in PEM.
    pub fn bundle(pem: &[u8]) -> Result<Self, Error> {
        certificates("certificate authority", pem).map(Self::Bundle)
    }
}

/// Act as somebody else, where that is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Impersonate {
    pub user: String,
    pub groups: Vec<String>,
}

/// A connection that was made, and how long that took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dial {
    /// Where the server was found.
    pub address: String,
    pub dial: Duration,
    /// Nothing where nothing is encrypted.
    pub handshake: Duration,
}

/// Connections as they are made, for whoever wants to know.
pub type Dials = std::sync::Arc<parking_lot::Mutex<Vec<Dial>>>;

/// All a client needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// `https://host:port`, with a path where the API is behind one.
    pub server: String,
    /// The name in the server's certificate, where it is not the host of `server`.
    pub server_name: Option<String>,
    pub trust: Trust,
    pub credentials: Credentials,
    /// Whom to act as.
    pub impersonate: Option<Impersonate>,
    /// The namespace that commands without one mean.
    pub namespace: String,
    /// How long the server may take to begin its answer.
    pub timeout: Duration,
    /// Whether `http://` will do, as behind a proxy on this machine. Only people ask for that.
    pub allows_plain: bool,
    /// How often TCP asks whether the server is still there.
    pub keepalive: Duration,
    /// `http://host:port` or `socks5://host:port` of a proxy in between.
    pub proxy: Option<String>,
    /// Where connections are told of, as they are made.
    pub dials: Option<Dials>,
}

impl Config {
    /// A server with the system's trust and no credentials.
    pub fn new(server: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            server_name: None,
            trust: Trust::System,
            credentials: Credentials::default(),
            impersonate: None,
            namespace: "default".to_owned(),
            timeout: TIMEOUT,
            allows_plain: false,
            keepalive: KEEPALIVE,
            proxy: None,
            dials: None,
        }
    }

    /// From a kubeconfig's current context.
    pub fn from_kubeconfig(path: impl AsRef<Path>) -> Result<Self, Error> {
        kubeconfig::load(path.as_ref(), None)
    }

    /// From a context of a kubeconfig.
    pub fn from_kubeconfig_context(path: impl AsRef<Path>, context: &str) -> Result<Self, Error> {
        kubeconfig::load(path.as_ref(), Some(context))
    }

    /// From a pod's environment and service account.
    pub fn in_cluster() -> Result<Self, Error> {
        let variable = |name: &'static str| std::env::var(name).map_err(|_| Error::NotInCluster(name));
        let (host, port) = (variable("KUBERNETES_SERVICE_HOST")?, variable("KUBERNETES_SERVICE_PORT")?);
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        let directory = Path::new(SERVICE_ACCOUNT);
        let mut config = Self::new(format!("https://{host}:{port}"));
        config.trust = Trust::bundle(&read(&directory.join("ca.crt"))?)?;
        config.credentials = Credentials::token_file(directory.join("token"));
        if let Ok(namespace) = std::fs::read_to_string(directory.join("namespace")) {
            config.namespace = namespace.trim().to_owned();
        }
        Ok(config)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| Error::Pem { what, message: error.to_string() })?;
    if certificates.is_empty() {
        return Err(Error::Pem { what, message: "it holds no certificate".to_owned() });
    }
    Ok(certificates)
}

/// The operating system's authorities.
pub(crate) fn system_bundle() -> Result<Vec<CertificateDer<'static>>, Error> {
    let path = std::env::var_os("SSL_CERT_FILE").unwrap_or_else(|| "/etc/ssl/certs/ca-certificates.crt".into());
    certificates("system certificate authorities", &read(Path::new(&path))?)
}
