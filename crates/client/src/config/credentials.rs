//! Who we are: a client certificate, a bearer token, or both, from memory, from files that change, or from a plugin.
//!
//! Sources that can change are read again: tokens after a minute or a refusal, certificates before each new connection.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderValue;
use parking_lot::{Mutex, RwLock};
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, SignatureScheme, client};

use super::exec::{self, Plugin};
use super::{Error, certificates, read};

/// Projected tokens are renewed well before they expire, so a minute of staleness is harmless.
const TOKEN_AGE: Duration = Duration::from_secs(60);

/// An identity, shared by all connections of a client.
#[derive(Clone, Default)]
pub struct Credentials {
    certificate: Arc<Certificate>,
    token: Arc<Token>,
}

/// The client certificate in use, and where it comes from.
#[derive(Default)]
struct Certificate {
    current: RwLock<Option<Arc<CertifiedKey>>>,
    files: Option<(PathBuf, PathBuf)>,
}

#[derive(Default)]
enum Token {
    #[default]
    None,
    Fixed(HeaderValue),
    File {
        path: PathBuf,
        read: Mutex<Option<(Instant, HeaderValue)>>,
    },
    Plugin(Box<exec::Runner>),
}

impl Credentials {
    pub fn token(token: &str) -> Result<Self, Error> {
        Ok(Self { token: Arc::new(Token::Fixed(bearer(token)?)), ..Self::default() })
    }

    /// A bearer token in a file, read again as it changes.
    pub fn token_file(path: impl Into<PathBuf>) -> Self {
        Self { token: Arc::new(Token::File { path: path.into(), read: Mutex::default() }), ..Self::default() }
    }

    /// Whatever a plugin says.
    pub fn plugin(plugin: Plugin) -> Self {
        Self { token: Arc::new(Token::Plugin(Box::new(exec::Runner::new(plugin)))), ..Self::default() }
    }

    /// A client certificate (leaf first) and its key, in PEM.
    pub fn certificate(chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        Self::default().and_certificate(chain, key)
    }

    /// A client certificate and its key in files, read again before each connection.
    pub fn certificate_files(chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::default().and_certificate_files(chain, key)
    }

    /// Adds a client certificate.
    pub fn and_certificate(self, chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        let current = RwLock::new(Some(certified(chain, key)?));
        Ok(Self { certificate: Arc::new(Certificate { current, files: None }), ..self })
    }

    /// Adds a client certificate in files.
    pub fn and_certificate_files(self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Result<Self, Error> {
        let (chain, key) = (chain.into(), key.into());
        let current = RwLock::new(Some(certified(&read(&chain)?, &read(&key)?)?));
        Ok(Self { certificate: Arc::new(Certificate { current, files: Some((chain, key)) }), ..self })
    }

    /// The `Authorization` header, if there is to be one.
    pub(crate) async fn bearer(&self) -> Result<Option<HeaderValue>, Error> {
        match &*self.token {
            Token::None => Ok(None),
            Token::Fixed(token) => Ok(Some(token.clone())),
            Token::File { path, read } => {
                if let Some((at, token)) = &*read.lock()
                    && at.elapsed() < TOKEN_AGE
                {
                    return Ok(Some(token.clone()));
                }
                let text = tokio::fs::read_to_string(path).await;
                let text = text.map_err(|source| Error::Read { path: path.clone(), source })?;
                let token = bearer(text.trim())?;
                *read.lock() = Some((Instant::now(), token.clone()));
                Ok(Some(token))
            }
            Token::Plugin(runner) => match runner.credential().await?.token {
                None => Ok(None),
                Some(token) => bearer(&token).map(Some),
            },
        }
    }

    /// The server did not accept the token: whatever was remembered of it is forgotten.
    pub(crate) fn refused(&self) {
        match &*self.token {
            Token::None | Token::Fixed(_) => {}
            Token::File { read, .. } => *read.lock() = None,
            Token::Plugin(runner) => runner.forget(),
        }
    }

    /// Reads a certificate that may have changed.
    pub(crate) async fn refresh_certificate(&self) -> Result<(), Error> {
        let renewed = if let Some((chain, key)) = &self.certificate.files {
            Some(certified(&read(chain)?, &read(key)?)?)
        } else if let Token::Plugin(runner) = &*self.token {
            match runner.credential().await?.certificate {
                None => None,
                Some((chain, key)) => Some(certified(chain.as_bytes(), key.as_bytes())?),
            }
        } else {
            None
        };
        if let Some(renewed) = renewed {
            *self.certificate.current.write() = Some(renewed);
        }
        Ok(())
    }

    pub(crate) fn resolver(&self) -> Arc<dyn ResolvesClientCert> {
        Arc::clone(&self.certificate) as Arc<dyn ResolvesClientCert>
    }
}

impl fmt::Debug for Credentials {
    /// Says of which kind they are and nothing more.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(")?;
        fmt::Debug::fmt(&*self.certificate, f)?;
        f.write_str(match &*self.token {
            Token::None => ")",
            Token::Fixed(_) => ", token)",
            Token::File { .. } => ", token file)",
            Token::Plugin(_) => ", plugin)",
        })
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.current.read().is_some() { "certificate" } else { "no certificate" })
    }
}

impl client::ResolvesClientCert for Certificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.current.read().clone()
    }

    fn has_certs(&self) -> bool {
        self.current.read().is_some()
    }
}

fn certified(chain: &[u8], key: &[u8]) -> Result<Arc<CertifiedKey>, Error> {
    let chain = certificates("client certificate", chain)?;
    let pem = |message: String| Error::Pem { what: "client key", message };
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| pem(error.to_string()))?;
    let key = ring::sign::any_supported_type(&key).map_err(|error| pem(error.to_string()))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(pem("private key does not match public key".to_owned()))
        }
        _ => Ok(Arc::new(certified)),
    }
}

fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Error::Token)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_token_file_is_read_again_after_a_refusal() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        std::fs::write(&path, "one\n").expect("a file");
        let credentials = Credentials::token_file(&path);
        let token = async || credentials.bearer().await.expect("a token").expect("some token");
        assert_eq!(token().await, "Bearer one");
        std::fs::write(&path, "two\n").expect("a file");
        assert_eq!(token().await, "Bearer one");
        credentials.refused();
        assert_eq!(token().await, "Bearer two");
        assert!(!format!("{credentials:?}").contains("two"));
    }

    #[test]
    fn what_is_no_header_or_no_key_is_refused() {
        assert!(Credentials::token("a\nb").is_err());
        assert!(Credentials::certificate(b"", b"").is_err());
    }
}
