//! Wires the controllers: their identities, the cluster's networks, and the authority that signs certificate requests.

use std::sync::Arc;
use std::time::Duration;

use controllers::{CertificateRequest, Cidr, Config, Network, Signer};
use informer::clock;
use jiff::Timestamp;
use pki::{Leaf, Request, San, Usage};

use super::identity::Identities;
use crate::cli::Server as Options;
use crate::component::Components;

/// Starts the controllers.
pub fn start(components: &mut Components, options: &Options, identities: &Identities, keys: &Arc<pki::Cluster>) {
    let (identities, keys) = (identities.clone(), Arc::clone(keys));
    let service_cidrs = Cidr::parse(&options.service_cluster_ip_range).into_iter().collect();
    components.start("kube-controller-manager", move |stop| {
        let accounts = identities.clone();
        let clients = Arc::new(move |name: &str| accounts.controller(name));
        let mut config = Config::new(clients, identities.component("kube-controller-manager"), clock::Real::shared());
        config.cluster_ca = Some(keys.authority_pem());
        config.signer = Some(Arc::new(AuthoritySigner(Arc::clone(&keys))));
        config.network = Network { service_cidrs: Vec::clone(&service_cidrs), ..Network::default() };
        async move { Ok(controllers::run(config, stop).await?) }
    });
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
