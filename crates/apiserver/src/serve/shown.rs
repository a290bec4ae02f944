//! A certificate that is shown to whoever connects, and can become another one while the server runs. Connections that there are keep the old one.

use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ServerConfig, SignatureScheme};

/// The certificate in use.
#[derive(Debug)]
pub struct Shown(RwLock<Arc<CertifiedKey>>);

impl Shown {
    pub fn new(pair: &pki::Pair) -> Result<Arc<Self>, pki::Error> {
        Ok(Arc::new(Self(RwLock::new(certified(pair)?))))
    }

    /// Shows this one from now on.
    pub fn show(&self, pair: &pki::Pair) -> Result<(), pki::Error> {
        *self.0.write() = certified(pair)?;
        Ok(())
    }

    /// The same server, which shows this certificate, whichever it is at the time.
    pub fn served(self: &Arc<Self>, config: &ServerConfig) -> Arc<ServerConfig> {
        let mut config = config.clone();
        config.cert_resolver = self.clone();
        Arc::new(config)
    }

    /// The same client, which shows this certificate, whichever it is at the time.
    pub fn sent(self: &Arc<Self>, config: &ClientConfig) -> Arc<ClientConfig> {
        let mut config = config.clone();
        config.client_auth_cert_resolver = self.clone();
        Arc::new(config)
    }
}

fn certified(pair: &pki::Pair) -> Result<Arc<CertifiedKey>, pki::Error> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pair.chain_pem.as_bytes()).collect();
    let chain = chain.map_err(|_| pki::Error::NotPem("certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).map_err(|_| pki::Error::NotPem("private key"))?;
    let key = ring::sign::any_supported_type(&key).map_err(|error| pki::Error::Tls(error.to_string()))?;
    Ok(Arc::new(CertifiedKey::new(chain, key)))
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

impl ResolvesClientCert for Shown {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}
