//! Certificate signing requests (PKCS#10): made by kubelets, signed by the authority once they are approved.

use der::asn1::{BitString, OctetString, SetOfVec};
use der::oid::AssociatedOid as _;
use der::{Any, Decode as _, Encode as _, Sequence};
use rustls_pki_types::pem::PemObject as _;
use x509_cert::AlgorithmIdentifier;
use x509_cert::SubjectPublicKeyInfo;
use x509_cert::attr::{Attribute, Attributes};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::name::RdnSequence;
use x509_cert::request::{CertReq, ExtensionReq, Version};

use crate::error::Error;
use crate::key::{PrivateKey, PublicKey, pem};
use crate::subject::{San, Subject};

/// What somebody asks to be certified, and proof that they hold the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Whom it is about.
    pub subject: Subject,
    /// Where it is to be used.
    pub sans: Vec<San>,
    pub public_key: PublicKey,
    der: Vec<u8>,
}

#[derive(Sequence)]
struct Content {
    version: Version,
    subject: RdnSequence,
    public_key: SubjectPublicKeyInfo,
    #[asn1(context_specific = "0", tag_mode = "IMPLICIT")]
    attributes: Attributes,
}

#[derive(Sequence)]
struct Signed {
    content: Any,
    algorithm: AlgorithmIdentifier,
    signature: BitString,
}

const WHAT: &str = "certificate signing request";

impl Request {
    /// A request for this key.
    pub fn new(subject: &Subject, sans: &[San], key: &PrivateKey) -> Result<Self, Error> {
        let mut attributes = Attributes::default();
        if !sans.is_empty() {
            let names = SubjectAltName(sans.iter().map(San::encode).collect::<Result<_, _>>()?);
            let bytes = names.to_der().and_then(OctetString::new).map_err(Error::der(WHAT))?;
            let extension = Extension { extn_id: SubjectAltName::OID, critical: false, extn_value: bytes };
            let attribute = Attribute::try_from(ExtensionReq(vec![extension])).map_err(Error::der(WHAT))?;
            attributes.insert(attribute).map_err(Error::der(WHAT))?;
        }
        let sign = |message: &[u8]| key.sign(message);
        Self::from_der(&signed(subject.encode()?, attributes, key.public().0, key.algorithm(), sign)?)
    }

    /// Reads a request in PEM and verifies that its maker holds the key.
    pub fn from_pem(text: &str) -> Result<Self, Error> {
        let der = rustls_pki_types::CertificateSigningRequestDer::from_pem_slice(text.as_bytes());
        Self::from_der(&der.map_err(|_| Error::NotPem(WHAT))?)
    }

    /// Reads a request and verifies that its maker holds the key.
    pub fn from_der(bytes: &[u8]) -> Result<Self, Error> {
        let parsed = CertReq::from_der(bytes).map_err(Error::der(WHAT))?;
        let public_key = PublicKey(parsed.info.public_key.clone());
        let content = parsed.info.to_der().map_err(Error::der(WHAT))?;
        public_key.verify(WHAT, &parsed.algorithm, &content, parsed.signature.raw_bytes())?;
        Ok(Self {
            subject: Subject::decode(parsed.info.subject.iter())?,
            sans: sans(&parsed.info.attributes)?,
            public_key,
            der: bytes.to_vec(),
        })
    }

    pub fn to_pem(&self) -> String {
        pem("CERTIFICATE REQUEST", &self.der)
    }
}

/// A request in DER.
pub(crate) fn signed(
    subject: RdnSequence,
    attributes: Attributes,
    public_key: SubjectPublicKeyInfo,
    algorithm: AlgorithmIdentifier,
    sign: impl FnOnce(&[u8]) -> Result<BitString, Error>,
) -> Result<Vec<u8>, Error> {
    let content = Content { version: Version::V1, subject, public_key, attributes };
    let bytes = content.to_der().map_err(Error::der(WHAT))?;
    let content = Any::from_der(&bytes).map_err(Error::der(WHAT))?;
    Signed { content, algorithm, signature: sign(&bytes)? }.to_der().map_err(Error::der(WHAT))
}

fn sans(attributes: &SetOfVec<Attribute>) -> Result<Vec<San>, Error> {
    let mut names = Vec::new();
    let requested = attributes.iter().filter(|attribute| attribute.oid == ExtensionReq::OID);
    for value in requested.flat_map(|attribute| attribute.values.iter()) {
        let extensions: Vec<Extension> = value.decode_as().map_err(Error::der(WHAT))?;
        for extension in extensions {
            if extension.extn_id == SubjectAltName::OID {
                let found = SubjectAltName::from_der(extension.extn_value.as_bytes()).map_err(Error::der(WHAT))?;
                names.extend(found.0.iter().filter_map(San::decode));
            }
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_pem_and_proves_possession() {
        let key = PrivateKey::generate().expect("a key");
        let subject = Subject::new("system:node:n1", ["system:nodes"]);
        for sans in [vec![], vec![San::host("n1"), San::host("10.0.0.1")]] {
            let request = Request::new(&subject, &sans, &key).expect("a request");
            let read = Request::from_pem(&request.to_pem()).expect("the same request");
            assert_eq!(read, request);
            assert_eq!((&read.subject, &read.sans, &read.public_key), (&subject, &sans, &key.public()));
        }
    }

    #[test]
    fn a_request_with_a_foreign_signature_is_refused() {
        let key = PrivateKey::generate().expect("a key");
        let request = Request::new(&Subject::new("a", []), &[], &key).expect("a request");
        let mut bytes = request.der;
        let name = bytes.windows(3).position(|window| window == [0x0c, 1, b'a']).expect("the name");
        bytes[name + 2] = b'b';
        assert!(matches!(Request::from_der(&bytes), Err(Error::Signature(_))));
    }
}
