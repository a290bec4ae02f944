//! Wires the controllers: their identities, the cluster's networks, and the authority that signs certificate requests.

use std::sync::Arc;
use std::time::Duration;

use controllers::{CertificateRequest, Cidr, Config, Signer};
use informer::clock;
use jiff::Timestamp;
use pki::{Leaf, Request, San, Usage};
use tokio_util::sync::CancellationToken;

use super::{Identities, run_elected};
use crate::component::Failure;

/// What the controllers are told by their administrator.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Controllers to run: `*` is all that are on by default, `name` adds one, `-name` leaves one out.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "*", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// Addresses for pods; each node gets a part of them.
    #[arg(long, value_name = "CIDR", default_value = "10.244.0.0/16")]
    pub cluster_cidr: String,
    /// How many seconds a node may be silent before it is taken for lost.
    #[arg(long, value_name = "SECONDS", default_value_t = 50)]
    pub node_monitor_grace_period: u64,
}

/// The authority that signs certificate requests, and what pods check the API server with.
#[derive(Clone)]
pub struct Authority {
    /// Signs.
    pub signer: Arc<dyn Signer>,
    /// In PEM.
    pub bundle: String,
}

/// Runs the controllers until told to stop.
pub async fn run(
    options: Options,
    service_range: Option<String>,
    identities: Identities,
    authority: Option<Authority>,
    contested: bool,
    stop: CancellationToken,
) -> Result<(), Failure> {
    let clock = clock::Real::shared();
    let accounts = identities.clone();
    let clients = Arc::new(move |name: &str| accounts.controller(name));
    let mut config = Config::new(clients, identities.component(NAME), clock.clone());
    config.controllers = options.controllers;
    config.node_monitor_grace_period = Duration::from_secs(options.node_monitor_grace_period);
    config.network.cluster_cidrs = vec![range("cluster-cidr", &options.cluster_cidr)?];
    config.network.service_cidrs = match service_range {
        None => Vec::new(),
        Some(text) => vec![range("service-cluster-ip-range", &text)?],
    };
    if let Some(authority) = authority {
        config.cluster_ca = Some(authority.bundle);
        config.signer = Some(authority.signer);
    }
    let run = async |stop| Ok(controllers::run(config, stop).await?);
    run_elected(NAME, contested, &identities, clock, stop, run).await
}

const NAME: &str = "kube-controller-manager";

fn range(option: &str, text: &str) -> Result<Cidr, Failure> {
    Cidr::parse(text).ok_or_else(|| format!("--{option}: \"{text}\" is not a range such as 10.244.0.0/16").into())
}

impl Authority {
    /// The cluster's own.
    pub fn of_cluster(keys: &Arc<pki::Cluster>) -> Self {
        Self { bundle: keys.authority_pem(), signer: Arc::new(AuthoritySigner(Arc::clone(keys))) }
    }
}

/// Signs with the cluster's authority.
struct AuthoritySigner(Arc<pki::Cluster>);

impl Signer for AuthoritySigner {
    fn sign(&self, request: &[u8], usages: &[String], lifetime: Duration) -> Result<String, String> {
        let request = read(request)?;
        let usages: Result<Vec<Usage>, _> = usages.iter().map(|usage| usage.parse()).collect();
        let leaf = Leaf {
            subject: request.subject,
            sans: request.sans,
            usages: usages.map_err(|error| error.to_string())?,
            lifetime,
        };
        let issued = self.0.authority.issue(&leaf, &request.public_key, Timestamp::now());
        issued.map(|certificate| certificate.to_pem()).map_err(|error| error.to_string())
    }

    fn inspect(&self, request: &[u8]) -> Result<CertificateRequest, String> {
        let request = read(request)?;
        let mut found = CertificateRequest {
            common_name: request.subject.common_name,
            organizations: request.subject.organizations,
            ..CertificateRequest::default()
        };
        for name in request.sans {
            match name {
                San::Dns(name) => found.dns_names.push(name),
                San::Ip(address) => found.addresses.push(address.to_string()),
                San::Uri(uri) => found.uris.push(uri),
                San::Email(address) => found.emails.push(address),
            }
        }
        Ok(found)
    }
}

fn read(request: &[u8]) -> Result<Request, String> {
    let text = str::from_utf8(request).map_err(|error| error.to_string())?;
    Request::from_pem(text).map_err(|error| error.to_string())
}
