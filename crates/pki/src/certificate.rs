//! Reads a certificate: who it is, until when, and where it may be used.

use der::{Decode as _, Encode as _};
use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, SubjectAltName};
use x509_cert::time::Time;

use crate::error::Error;
use crate::key::{PublicKey, pem};
use crate::subject::{San, Subject};
use crate::usage::Usage;

/// A certificate's content and its bytes. Reading it verifies nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Whom it is about.
    pub subject: Subject,
    /// Where it may be used.
    pub sans: Vec<San>,
    /// The issuer's number for it, big-endian without leading zeros.
    pub serial: Vec<u8>,
    /// Not valid before.
    pub not_before: Timestamp,
    /// Not valid after.
    pub not_after: Timestamp,
    /// The extended uses it is restricted to; empty is unrestricted.
    pub extended_usages: Vec<Usage>,
    /// The key that it vouches for.
    pub public_key: PublicKey,
    /// Whether it may vouch for others.
    pub is_authority: bool,
    der: Vec<u8>,
}

impl Certificate {
    /// From DER.
    pub fn from_der(bytes: &[u8]) -> Result<Self, Error> {
        const WHAT: &str = "certificate";
        let parsed = x509_cert::Certificate::from_der(bytes).map_err(Error::der(WHAT))?;
        let content = parsed.tbs_certificate();
        let sans = content.get_extension::<SubjectAltName>().map_err(Error::der(WHAT))?;
        let constraints = content.get_extension::<BasicConstraints>().map_err(Error::der(WHAT))?;
        let usages = content.get_extension::<ExtendedKeyUsage>().map_err(Error::der(WHAT))?;
        Ok(Self {
            subject: Subject::decode(content.subject().iter())?,
            sans: sans.iter().flat_map(|(_, names)| &names.0).filter_map(San::decode).collect(),
            serial: content.serial_number().as_bytes().to_vec(),
            not_before: timestamp(content.validity().not_before),
            not_after: timestamp(content.validity().not_after),
            extended_usages: usages.iter().flat_map(|(_, usages)| &usages.0).copied().map(Usage::Extended).collect(),
            public_key: PublicKey(content.subject_public_key_info().clone()),
            is_authority: constraints.is_some_and(|(_, constraints)| constraints.ca),
            der: bytes.to_vec(),
        })
    }

    /// The first certificate in PEM.
    pub fn from_pem(text: &str) -> Result<Self, Error> {
        let der = CertificateDer::from_pem_slice(text.as_bytes()).map_err(|_| Error::NotPem("certificate"))?;
        Self::from_der(&der)
    }

    /// As DER.
    pub fn to_der(&self) -> &[u8] {
        &self.der
    }

    /// As PEM.
    pub fn to_pem(&self) -> String {
        pem("CERTIFICATE", &self.der)
    }

    /// Whether this key signed it.
    pub fn verify_signed_by(&self, key: &PublicKey) -> Result<(), Error> {
        let parsed = x509_cert::Certificate::from_der(&self.der).map_err(Error::der("certificate"))?;
        let content = parsed.tbs_certificate().to_der().map_err(Error::der("certificate"))?;
        key.verify("certificate", parsed.signature_algorithm(), &content, parsed.signature().raw_bytes())
    }
}

fn timestamp(time: Time) -> Timestamp {
    let seconds = i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}
