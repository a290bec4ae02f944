//! What a set of controllers needs to know about its cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use informer::Clock;
use ipnet::IpNet;

/// Where volumes of the local-path provisioner are, on every node.
pub const LOCAL_PATH_ROOT: &str = "/var/lib/trireme/local-path";

/// Makes the client of a controller from its name: `deployment-controller` acts as
/// `system:serviceaccount:kube-system:deployment-controller`, with that account's role and no more.
pub type Clients = Arc<dyn Fn(&str) -> Client + Send + Sync>;

/// The configuration of a set of controllers.
#[derive(Clone)]
pub struct Config {
    /// One client per identity.
    pub clients: Clients,
    /// The client behind the shared caches (`system:kube-controller-manager`).
    pub informers: Client,
    /// As `--controllers`: `*` is all that are on by default, `foo` adds one, `-foo` leaves one out.
    pub controllers: Vec<String>,
    pub clock: Arc<dyn Clock>,
    /// The certificates, in PEM, with which pods check the API server. Without them none are published.
    pub cluster_ca: Option<String>,
    /// Signs certificates. Without one the requests stay pending.
    pub signer: Option<Arc<dyn Signer>>,
    /// Signs the tokens in Secrets of service accounts. Without one such Secrets stay empty.
    pub tokens: Option<Arc<dyn TokenSigner>>,
    /// The addresses of pods and services.
    pub network: Network,
    /// How long a node may be silent before it is taken for lost.
    pub node_monitor_grace_period: Duration,
    /// Where the local-path provisioner puts volumes on a node.
    pub local_path_root: String,
}

impl Config {
    /// A configuration with upstream's defaults.
    pub fn new(clients: Clients, informers: Client, clock: Arc<dyn Clock>) -> Self {
        Self {
            clients,
            informers,
            controllers: vec!["*".to_owned()],
            clock,
            cluster_ca: None,
            signer: None,
            tokens: None,
            network: Network::default(),
            node_monitor_grace_period: Duration::from_secs(50),
            local_path_root: LOCAL_PATH_ROOT.to_owned(),
        }
    }
}

impl fmt::Debug for Config {
    /// Never the clients' credentials or the signer's key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("controllers", &self.controllers)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

/// The addresses of pods and services.
#[derive(Debug, Clone)]
pub struct Network {
    /// Ranges of pod addresses, at most one per family. Empty: nodes get no ranges from here.
    pub cluster_cidrs: Vec<IpNet>,
    /// Ranges of service addresses.
    pub service_cidrs: Vec<IpNet>,
    /// The size of a node's IPv4 range.
    pub node_bits_v4: u8,
    /// The size of a node's IPv6 range.
    pub node_bits_v6: u8,
}

impl Default for Network {
    fn default() -> Self {
        Self { cluster_cidrs: Vec::new(), service_cidrs: Vec::new(), node_bits_v4: 24, node_bits_v6: 64 }
    }
}

/// Turns certificate requests into certificates.
pub trait Signer: Send + Sync + 'static {
    /// Signs a PEM request for these usages; answers the PEM chain.
    fn sign(&self, request: &[u8], usages: &[String], lifetime: Duration) -> Result<String, String>;

    /// What a PEM request asks for.
    fn inspect(&self, request: &[u8]) -> Result<CertificateRequest, String>;
}

/// Turns claims into tokens.
pub trait TokenSigner: Send + Sync + 'static {
    /// The claims as a JWT that the API server believes.
    fn sign(&self, claims: &serde_json::Value) -> Result<String, String>;
}

/// The parts of a certificate request that signers judge.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    pub common_name: String,
    pub organizations: Vec<String>,
    /// For which host names.
    pub dns_names: Vec<String>,
    pub addresses: Vec<String>,
    /// For which mail addresses.
    pub emails: Vec<String>,
    pub uris: Vec<String>,
}
