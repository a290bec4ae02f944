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

/// Certificates for some names, and one for all others.
#[derive(Debug)]
pub struct ByName {
    pub default: Arc<Shown>,
    pub named: Vec<Named>,
}

/// A certificate for clients that ask for one of these names.
#[derive(Debug)]
pub struct Named {
    /// In small letters; `*.example.com` is every name with one more part.
    pub names: Vec<String>,
    pub shown: Arc<Shown>,
}

impl ByName {
    /// The same server, which shows the certificate for the name that a client asks for.
    pub fn served(self: Arc<Self>, config: &ServerConfig) -> Arc<ServerConfig> {
        let mut config = config.clone();
        config.cert_resolver = self;
        Arc::new(config)
    }

    fn shown(&self, name: Option<&str>) -> &Arc<Shown> {
        let Some(name) = name.map(str::to_ascii_lowercase) else { return &self.default };
        let wildcard = name.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        let with = |wanted: &String| self.named.iter().find(|named| named.names.contains(wanted));
        let found = with(&name).or_else(|| wildcard.as_ref().and_then(with));
        found.map_or(&self.default, |named| &named.shown)
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown(hello.server_name()).0.read().clone())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_is_asked_for_chooses() {
        let directory = tempfile::tempdir().expect("a directory");
        let options = pki::Options {
            now: "2026-01-01T00:00:00Z".parse().expect("a time"),
            service_address: [10, 96, 0, 1].into(),
            cluster_domain: "cluster.local".to_owned(),
            hosts: Vec::new(),
        };
        let keys = pki::Cluster::ensure(directory.path(), &options).expect("a PKI");
        let shown = || Shown::new(&keys.server).expect("a certificate");
        let named =
            |names: &[&str]| Named { names: names.iter().map(|name| (*name).to_owned()).collect(), shown: shown() };
        let all = ByName { default: shown(), named: vec![named(&["*.example.com"]), named(&["a.example.com", "b"])] };
        for (asked, want) in [
            (None, &all.default),
            (Some("a.example.com"), &all.named[1].shown),
            (Some("A.Example.com"), &all.named[1].shown),
            (Some("c.example.com"), &all.named[0].shown),
            (Some("c.d.example.com"), &all.default),
            (Some("b"), &all.named[1].shown),
        ] {
            assert!(Arc::ptr_eq(all.shown(asked), want), "{asked:?}");
        }
    }
}
