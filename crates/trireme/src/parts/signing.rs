//! What controllers sign with: certificate requests with the cluster's authority, tokens of service accounts with its key.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use controllers::{CertificateRequest, Signer, TokenSigner};
use jiff::Timestamp;
use pki::{Certificate, Leaf, PrivateKey, Request, San, Usage};
use serde_json::{Value, json};

use crate::component::Failure;

/// The keys of a cluster, as far as its controllers have them.
#[derive(Clone, Default)]
pub struct Signing {
    pub certificates: Option<Arc<dyn Signer>>,
    /// Signs the tokens in Secrets of service accounts.
    pub tokens: Option<Arc<dyn TokenSigner>>,
    /// What pods check the API server with, in PEM.
    pub bundle: Option<String>,
}

/// Files with keys, as upstream's controller manager takes them.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Files {
    /// Certificates, in PEM, with which pods check the API server.
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
    /// Key, in PEM, that signs the tokens in Secrets of service accounts.
    #[arg(long, value_name = "FILE")]
    service_account_private_key_file: Option<PathBuf>,
    /// Certificate, in PEM, of the authority that signs certificate requests.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_key_file")]
    cluster_signing_cert_file: Option<PathBuf>,
    /// Key, in PEM, of the authority that signs certificate requests.
    #[arg(long, value_name = "FILE", requires = "cluster_signing_cert_file")]
    cluster_signing_key_file: Option<PathBuf>,
}

impl Signing {
    /// With a cluster's own keys.
    pub fn of_cluster(keys: &Arc<pki::Cluster>) -> Self {
        Self {
            bundle: Some(keys.authority_pem()),
            certificates: Some(Arc::new(OwnAuthority(Arc::clone(keys)))),
            tokens: Some(Arc::new(OwnTokens(Arc::clone(keys)))),
        }
    }

    /// With the keys in files.
    pub fn of_files(files: &Files) -> Result<Self, Failure> {
        let mut signing = Self::default();
        if let Some(file) = &files.root_ca_file {
            signing.bundle = Some(read(file)?);
        }
        if let Some(file) = &files.service_account_private_key_file {
            signing.tokens = Some(Arc::new(TokenKey(key(file)?)));
        }
        if let (Some(certificate), Some(file)) = (&files.cluster_signing_cert_file, &files.cluster_signing_key_file) {
            let certificate = Certificate::from_pem(&read(certificate)?)
                .map_err(|error| format!("{}: {error}", certificate.display()))?;
            signing.certificates = Some(Arc::new(FileAuthority(pki::Authority::from_parts(certificate, key(file)?))));
        }
        Ok(signing)
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()).into())
}

fn key(file: &Path) -> Result<PrivateKey, Failure> {
    PrivateKey::from_pem(&read(file)?).map_err(|error| format!("{}: {error}", file.display()).into())
}

/// Signs with the cluster's authority.
struct OwnAuthority(Arc<pki::Cluster>);

impl Signer for OwnAuthority {
    fn sign(&self, request: &[u8], usages: &[String], lifetime: Duration) -> Result<String, String> {
        sign(&self.0.authority, request, usages, lifetime)
    }

    fn inspect(&self, request: &[u8]) -> Result<CertificateRequest, String> {
        inspect(request)
    }
}

/// Signs with an authority from files.
struct FileAuthority(pki::Authority);

impl Signer for FileAuthority {
    fn sign(&self, request: &[u8], usages: &[String], lifetime: Duration) -> Result<String, String> {
        sign(&self.0, request, usages, lifetime)
    }

    fn inspect(&self, request: &[u8]) -> Result<CertificateRequest, String> {
        inspect(request)
    }
}

fn sign(authority: &pki::Authority, request: &[u8], usages: &[String], lifetime: Duration) -> Result<String, String> {
    let request = parse(request)?;
    let usages: Result<Vec<Usage>, _> = usages.iter().map(|usage| usage.parse()).collect();
    let leaf = Leaf {
        subject: request.subject,
        sans: request.sans,
        usages: usages.map_err(|error| error.to_string())?,
        lifetime,
    };
    let issued = authority.issue(&leaf, &request.public_key, Timestamp::now());
    issued.map(|certificate| certificate.to_pem()).map_err(|error| error.to_string())
}

fn inspect(request: &[u8]) -> Result<CertificateRequest, String> {
    let request = parse(request)?;
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

fn parse(request: &[u8]) -> Result<Request, String> {
    let text = str::from_utf8(request).map_err(|error| error.to_string())?;
    Request::from_pem(text).map_err(|error| error.to_string())
}

/// Signs tokens with the cluster's key.
struct OwnTokens(Arc<pki::Cluster>);

impl TokenSigner for OwnTokens {
    fn sign(&self, claims: &Value) -> Result<String, String> {
        token(&self.0.service_account_key, claims)
    }
}

/// Signs tokens with a key from a file.
struct TokenKey(PrivateKey);

impl TokenSigner for TokenKey {
    fn sign(&self, claims: &Value) -> Result<String, String> {
        token(&self.0, claims)
    }
}

fn token(key: &PrivateKey, claims: &Value) -> Result<String, String> {
    let header = json!({"alg": key.jws_algorithm(), "kid": key.public().key_id()});
    let signed = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims.to_string()));
    let signature = key.sign_jws(signed.as_bytes()).map_err(|error| error.to_string())?;
    Ok(format!("{signed}.{}", BASE64.encode(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_signed_with_the_key_they_name() {
        let key = PrivateKey::generate().expect("a key");
        let token = token(&key, &json!({"iss": "kubernetes/serviceaccount"})).expect("a token");
        let (signed, signature) = token.rsplit_once('.').expect("three parts");
        let signature = BASE64.decode(signature).expect("base64");
        assert!(key.public().verify_jws(key.jws_algorithm(), signed.as_bytes(), &signature));
        let header = signed.split('.').next().expect("a header");
        let header: Value = serde_json::from_slice(&BASE64.decode(header).expect("base64")).expect("JSON");
        assert_eq!(header["kid"], key.public().key_id());
    }
}
