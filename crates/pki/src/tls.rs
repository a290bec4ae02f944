//! Both sides of TLS: one certificate to show, and the authorities whose certificates are believed.

use std::path::PathBuf;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::cluster::Pair;
use crate::error::Error;
use crate::handshake::Handshake;
use crate::trust::{trusting, trusting_everybody};

/// TLS 1.3 and 1.2, HTTP/2 and HTTP/1.1. A client may show a certificate, which then must verify against `client_authority`
/// (PEM), or come without one and be refused later. Without an authority no client is asked for one.
pub fn server_config(pair: &Pair, client_authority: &str) -> Result<Arc<ServerConfig>, Error> {
    let handshake = Handshake::default();
    let clients = if client_authority.is_empty() { None } else { Some(believing(client_authority, &handshake)?) };
    serving(pair, clients, &handshake)
}

/// Believes clients for whom one of the authorities (PEM) vouches, and lets those in who show nothing.
pub(crate) fn believing(authorities: &str, handshake: &Handshake) -> Result<Arc<dyn ClientCertVerifier>, Error> {
    WebPkiClientVerifier::builder_with_provider(roots(authorities)?, Arc::new(handshake.provider()))
        .allow_unauthenticated()
        .build()
        .map_err(refused)
}

/// A server that asks clients for certificates if there is somebody to look at them.
pub(crate) fn serving(
    pair: &Pair,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    handshake: &Handshake,
) -> Result<Arc<ServerConfig>, Error> {
    let (chain, key) = parse(pair)?;
    let config = ServerConfig::builder_with_provider(Arc::new(handshake.provider()))
        .with_protocol_versions(handshake.versions())
        .map_err(refused)?;
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(clients) => config.with_client_cert_verifier(clients),
    };
    let mut config = config.with_single_cert(chain, key).map_err(refused)?;
    config.alpn_protocols = handshake.protocols();
    Ok(Arc::new(config))
}

/// A client that shows this certificate to servers which `server_authority` (PEM) vouches for.
pub fn client_config(pair: &Pair, server_authority: &str) -> Result<Arc<ClientConfig>, Error> {
    let (chain, key) = parse(pair)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .with_root_certificates(roots(server_authority)?)
        .with_client_auth_cert(chain, key)
        .map_err(refused)?;
    Ok(Arc::new(config))
}

/// A client that shows nothing, and takes whatever a server shows.
pub fn careless_client_config() -> Result<Arc<ClientConfig>, Error> {
    outgoing_config(Believed::Everybody, None)
}

/// Whom a client takes for the server that it wants to speak to.
#[derive(Debug, Clone, Copy)]
pub enum Believed<'a> {
    /// Whom these authorities vouch for, in PEM.
    Authorities(&'a str),
    /// Whom the authorities of this machine vouch for.
    System,
    Everybody,
}

/// A client that believes these, and shows a certificate if it is given one.
pub fn outgoing_config(believed: Believed<'_>, shown: Option<&Pair>) -> Result<Arc<ClientConfig>, Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(refused)?;
    let builder = match believed {
        Believed::Authorities(pem) => builder.dangerous().with_custom_certificate_verifier(trusting(pem)?),
        Believed::Everybody => builder.dangerous().with_custom_certificate_verifier(trusting_everybody()),
        Believed::System => builder.with_root_certificates(system_roots()),
    };
    let config = match shown {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let (chain, key) = parse(pair)?;
            builder.with_client_auth_cert(chain, key).map_err(refused)?
        }
    };
    Ok(Arc::new(config))
}

/// Where systems keep the authorities they trust.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The authorities that this machine trusts, or those of the file that `SSL_CERT_FILE` names. One odd certificate among them
/// does not spoil the others.
pub fn system_roots() -> RootCertStore {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let usual = SYSTEM_ROOTS.iter().map(PathBuf::from);
    let files: Vec<PathBuf> = named.map_or_else(|| usual.collect(), |file| vec![file]);
    let pem = files.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem).flatten() {
        let _ = roots.add(certificate);
    }
    roots
}

fn parse(pair: &Pair) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.chain_pem.as_bytes()).collect();
    let chain = chain.map_err(|_| Error::NotPem("certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).map_err(|_| Error::NotPem("private key"))?;
    Ok((chain, key))
}

fn roots(authority: &str) -> Result<Arc<RootCertStore>, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(certificate.map_err(|_| Error::NotPem("certificate"))?).map_err(refused)?;
    }
    Ok(Arc::new(roots))
}

fn refused(error: impl std::fmt::Display) -> Error {
    Error::Tls(error.to_string())
}
