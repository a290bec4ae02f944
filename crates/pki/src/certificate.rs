//! Reads a certificate: who it is, until when, and where it may be used.

use der::asn1::AnyRef;
use der::{Decode as _, Encode as _, Reader as _, SliceReader, Tag, Tagged as _};
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
    pub not_before: Timestamp,
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
    pub fn from_der(bytes: &[u8]) -> Result<Self, Error> {
        const WHAT: &str = "certificate";
        let parsed = x509_cert::Certificate::from_der(bytes).or_else(|error| match since_1970(bytes) {
            Some(later) => x509_cert::Certificate::from_der(&later),
            None => Err(error),
        });
        let parsed = parsed.map_err(Error::der(WHAT))?;
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

    pub fn to_der(&self) -> &[u8] {
        &self.der
    }

    pub fn to_pem(&self) -> String {
        certificate_pem(&self.der)
    }

    /// Whether this key signed it.
    pub fn verify_signed_by(&self, key: &PublicKey) -> Result<(), Error> {
        let parsed = x509_cert::Certificate::from_der(&self.der).map_err(Error::der("certificate"))?;
        let content = parsed.tbs_certificate().to_der().map_err(Error::der("certificate"))?;
        key.verify("certificate", parsed.signature_algorithm(), &content, parsed.signature().raw_bytes())
    }
}

/// The certificates of a bundle in PEM, each as DER. Whether they are any is not looked at.
pub fn certificates_in(pem: &str) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).flatten().map(|der| der.to_vec()).collect()
}

/// A certificate in PEM.
pub fn certificate_pem(der: &[u8]) -> String {
    pem("CERTIFICATE", der)
}

/// A certificate with its earlier times moved to 1970, where time begins for `der`. For Go it begins in the year 1, and certificates whose makers set
/// no time are from then. `None` if it has no such times.
fn since_1970(bytes: &[u8]) -> Option<Vec<u8>> {
    let certificate = AnyRef::from_der(bytes).ok()?;
    let content = SliceReader::new(certificate.value()).ok()?.decode::<AnyRef<'_>>().ok()?;
    let mut fields = SliceReader::new(content.value()).ok()?;
    let mut later = bytes.to_vec();
    while !fields.is_finished() {
        let field = fields.decode::<AnyRef<'_>>().ok()?;
        let mut times = SliceReader::new(field.value()).ok()?;
        while let Ok(time) = times.decode::<AnyRef<'_>>() {
            let text = time.value();
            if field.tag() == Tag::Sequence && time.tag() == Tag::GeneralizedTime && text.get(..4)? < b"1970".as_slice()
            {
                // Both are slices of the same bytes.
                let at = text.as_ptr() as usize - bytes.as_ptr() as usize;
                later[at..at + 4].copy_from_slice(b"1970");
            }
        }
    }
    (later != bytes).then_some(later)
}

fn timestamp(time: Time) -> Timestamp {
    let seconds = i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Valid from the beginning of Go's time to its beginning.
    const TIMELESS: &str = "-----BEGIN CERTIFICATE-----
MIIBBDCBt6ADAgECAgEAMAUGAytlcDAQMQ4wDAYDVQQDEwVyb290MTAiGA8wMDAx
MDEwMTAwMDAwMFoYDzAwMDEwMTAxMDAwMDAwWjAQMQ4wDAYDVQQDEwVyb290MTAq
MAUGAytlcAMhAAJQKZzDtxfpMtG8iG75DpiF6wi75XMCjnPUg/Kgwe4eozIwMDAP
BgNVHRMBAf8EBTADAQH/MB0GA1UdDgQWBBS7+U5DopdSUFARhbj7VWQZs4txRDAF
BgMrZXADQQC7JFUNcUpq9xqltFQBe1wmZnXiEq/5n6CfGv0i2yyvZfYj2T/+GIxP
lW2L0sz8h4lVupxAS1A8HVVV3RXm8MwM
-----END CERTIFICATE-----
";

    #[test]
    fn certificates_from_before_1970_are_read() {
        let certificate = Certificate::from_pem(TIMELESS).expect("a certificate");
        assert!(certificate.is_authority);
        assert_eq!((certificate.subject.common_name.as_str(), certificate.not_after), ("root1", Timestamp::UNIX_EPOCH));
        assert_eq!(certificate.to_pem(), TIMELESS);
        assert!(Certificate::from_der(&certificate.to_der()[..100]).is_err());
    }
}
