//! The server's side of TLS: one certificate to show, and the authorities whose client certificates are believed.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::cluster::Pair;
use crate::error::Error;

/// TLS 1.3 and 1.2, HTTP/2 and HTTP/1.1. A client may show a certificate, which then must verify against `client_authority`
/// (PEM), or come without one and be told later that it is nobody.
pub fn server_config(pair: &Pair, client_authority: &str) -> Result<Arc<ServerConfig>, Error> {
    let refused = |error: &dyn std::fmt::Display| Error::Tls(error.to_string());
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.chain_pem.as_bytes()).collect();
    let chain = chain.map_err(|_| Error::NotPem("certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).map_err(|_| Error::NotPem("private key"))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(client_authority.as_bytes()) {
        let certificate = certificate.map_err(|_| Error::NotPem("certificate"))?;
        roots.add(certificate).map_err(|error| refused(&error))?;
    }
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .map_err(|error| refused(&error))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(&error))?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(|error| refused(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
