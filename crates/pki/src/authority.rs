//! A certificate authority: one key, one self-signed certificate, and what they sign.

use std::time::Duration;

use der::asn1::{BitString, OctetString};
use der::flagset::FlagSet;
use der::oid::AssociatedOid;
use der::{Decode as _, Encode, Sequence};
use jiff::Timestamp;
use ring::rand::{SecureRandom as _, SystemRandom};
use x509_cert::certificate::Version;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName,
    SubjectKeyIdentifier,
};
use x509_cert::name::RdnSequence;
use x509_cert::serial_number::SerialNumber;
use x509_cert::time::{Time, Validity};
use x509_cert::{AlgorithmIdentifier, SubjectPublicKeyInfo};

use crate::certificate::Certificate;
use crate::error::Error;
use crate::key::{PrivateKey, PublicKey};
use crate::subject::{San, Subject};
use crate::usage::Usage;

/// Clocks of other machines may be behind ours by so much.
const BACKDATE: Duration = Duration::from_secs(300);

/// What is to be signed.
#[derive(Debug, Clone)]
pub struct Leaf {
    /// Whom it is about.
    pub subject: Subject,
    /// Where it may be used.
    pub sans: Vec<San>,
    pub usages: Vec<Usage>,
    /// For how long from now.
    pub lifetime: Duration,
}

impl Leaf {
    pub fn server(subject: Subject, sans: Vec<San>, lifetime: Duration) -> Self {
        Self { subject, sans, usages: vec![Usage::DIGITAL_SIGNATURE, Usage::SERVER_AUTH], lifetime }
    }

    pub fn client(subject: Subject, lifetime: Duration) -> Self {
        let usages = vec![Usage::DIGITAL_SIGNATURE, Usage::CLIENT_AUTH];
        Self { subject, sans: Vec::new(), usages, lifetime }
    }
}

#[derive(Debug)]
pub struct Authority {
    certificate: Certificate,
    key: PrivateKey,
}

impl Authority {
    /// A self-signed authority for this key.
    pub fn new(name: &str, key: PrivateKey, now: Timestamp, lifetime: Duration) -> Result<Self, Error> {
        let subject = Subject::new(name, []);
        let public = key.public();
        let usage = KeyUsages::DigitalSignature | KeyUsages::KeyEncipherment | KeyUsages::KeyCertSign;
        let extensions = vec![
            extension(true, &KeyUsage(usage))?,
            extension(true, &BasicConstraints { ca: true, path_len_constraint: None })?,
            subject_key(&public)?,
        ];
        let until = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
        let content = Content {
            version: Version::V3,
            serial: serial()?,
            signature: key.algorithm(),
            issuer: subject.encode()?,
            validity: validity(now, until)?,
            subject: subject.encode()?,
            public_key: public.0,
            extensions: Some(extensions),
        };
        Ok(Self { certificate: sign(&content, &key)?, key })
    }

    /// An existing authority; the caller has checked that the two belong together.
    pub fn from_parts(certificate: Certificate, key: PrivateKey) -> Self {
        Self { certificate, key }
    }

    /// The authority's own certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    pub fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// Signs a certificate for a public key. It never outlives the authority.
    pub fn issue(&self, leaf: &Leaf, public: &PublicKey, now: Timestamp) -> Result<Certificate, Error> {
        let key_usages: FlagSet<KeyUsages> = leaf
            .usages
            .iter()
            .filter_map(|usage| match usage {
                Usage::Key(bit) => Some(FlagSet::from(*bit)),
                Usage::Extended(_) => None,
            })
            .fold(FlagSet::default(), |all, bit| all | bit);
        let mut extended = Vec::new();
        for usage in &leaf.usages {
            if let Usage::Extended(oid) = usage
                && !extended.contains(oid)
            {
                extended.push(*oid);
            }
        }
        let mut extensions = Vec::new();
        if !key_usages.is_empty() {
            extensions.push(extension(true, &KeyUsage(key_usages))?);
        }
        if !extended.is_empty() {
            extensions.push(extension(false, &ExtendedKeyUsage(extended))?);
        }
        extensions.push(extension(true, &BasicConstraints { ca: false, path_len_constraint: None })?);
        extensions.push(subject_key(public)?);
        let identifier = OctetString::new(self.key.public().identifier()).map_err(Error::der("key identifier"))?;
        let authority = AuthorityKeyIdentifier { key_identifier: Some(identifier), ..Default::default() };
        extensions.push(extension(false, &authority)?);
        if !leaf.sans.is_empty() {
            let names = leaf.sans.iter().map(San::encode).collect::<Result<_, _>>()?;
            extensions.push(extension(false, &SubjectAltName(names))?);
        }
        let until = now.checked_add(leaf.lifetime).unwrap_or(Timestamp::MAX).min(self.certificate.not_after);
        let issuer = x509_cert::Certificate::from_der(self.certificate.to_der()).map_err(Error::der("certificate"))?;
        let content = Content {
            version: Version::V3,
            serial: serial()?,
            signature: self.key.algorithm(),
            // To the byte the issuer's subject: verifiers compare encodings.
            issuer: issuer.tbs_certificate().subject().clone().into(),
            validity: validity(now, until)?,
            subject: leaf.subject.encode()?,
            public_key: public.0.clone(),
            extensions: Some(extensions),
        };
        sign(&content, &self.key)
    }
}

/// `TBSCertificate`: the part that is signed.
#[derive(Sequence)]
struct Content {
    #[asn1(context_specific = "0", default = "Default::default")]
    version: Version,
    serial: SerialNumber,
    signature: AlgorithmIdentifier,
    issuer: RdnSequence,
    validity: Validity,
    subject: RdnSequence,
    public_key: SubjectPublicKeyInfo,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT", optional = "true")]
    extensions: Option<Vec<Extension>>,
}

#[derive(Sequence)]
struct Signed {
    content: der::Any,
    algorithm: AlgorithmIdentifier,
    signature: BitString,
}

fn sign(content: &Content, key: &PrivateKey) -> Result<Certificate, Error> {
    let bytes = content.to_der().map_err(Error::der("certificate"))?;
    let signed = Signed {
        content: der::Any::from_der(&bytes).map_err(Error::der("certificate"))?,
        algorithm: key.algorithm(),
        signature: key.sign(&bytes)?,
    };
    Certificate::from_der(&signed.to_der().map_err(Error::der("certificate"))?)
}

fn extension<T: AssociatedOid + Encode>(critical: bool, content: &T) -> Result<Extension, Error> {
    let bytes = content.to_der().and_then(OctetString::new).map_err(Error::der("extension"))?;
    Ok(Extension { extn_id: T::OID, critical, extn_value: bytes })
}

fn subject_key(public: &PublicKey) -> Result<Extension, Error> {
    let identifier = OctetString::new(public.identifier()).map_err(Error::der("key identifier"))?;
    extension(false, &SubjectKeyIdentifier(identifier))
}

/// 126 random bits, positive and of constant length.
fn serial() -> Result<SerialNumber, Error> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::Randomness)?;
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    SerialNumber::new(&bytes).map_err(Error::der("serial number"))
}

fn validity(now: Timestamp, until: Timestamp) -> Result<Validity, Error> {
    let from = now.checked_sub(BACKDATE).unwrap_or(now);
    let time = |at: Timestamp| {
        let seconds = Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default());
        der::DateTime::from_unix_duration(seconds).map(Time::from).map_err(Error::der("validity"))
    };
    Ok(Validity::new(time(from)?, time(until)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn now() -> Timestamp {
        "2026-03-01T00:00:00Z".parse().expect("a timestamp")
    }

    fn authority() -> Authority {
        Authority::new("kubernetes", PrivateKey::generate().expect("a key"), now(), DAY * 3650).expect("an authority")
    }

    #[test]
    fn every_group_is_an_organization_of_its_own() {
        let authority = authority();
        let key = PrivateKey::generate().expect("a key");
        let subject = Subject::new("jane", ["developers", "system:masters", "ops"]);
        let leaf = Leaf::client(subject.clone(), DAY);
        let made = authority.issue(&leaf, &key.public(), now()).expect("a certificate");
        let read = Certificate::from_pem(&made.to_pem()).expect("the same certificate");
        assert_eq!(read, made);
        assert_eq!(read.subject, subject);
        assert_eq!(read.extended_usages, [Usage::CLIENT_AUTH]);
        assert_eq!(read.not_after, now().checked_add(DAY).expect("a timestamp"));
        assert_eq!(read.public_key, key.public());
        read.verify_signed_by(&authority.key().public()).expect("signed by the authority");
        assert!(read.verify_signed_by(&key.public()).is_err());
    }

    #[test]
    fn names_and_addresses_survive_and_no_leaf_outlives_its_authority() {
        let authority = authority();
        let sans = vec![
            San::host("localhost"),
            San::host("127.0.0.1"),
            San::host("::1"),
            San::Uri("spiffe://x/y".to_owned()),
            San::Email("a@b.c".to_owned()),
        ];
        let leaf = Leaf::server(Subject::new("kube-apiserver", []), sans.clone(), DAY * 36_500);
        let public = PrivateKey::generate().expect("a key").public();
        let made = authority.issue(&leaf, &public, now()).expect("a certificate");
        assert_eq!(made.sans, sans);
        assert_eq!(made.not_after, authority.certificate().not_after);
    }

    #[test]
    fn rustls_accepts_what_we_sign() {
        use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
        let authority = authority();
        let public = PrivateKey::generate().expect("a key").public();
        let leaf = Leaf::server(Subject::new("kube-apiserver", []), vec![San::host("localhost")], DAY);
        let made = authority.issue(&leaf, &public, now()).expect("a certificate");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from(authority.certificate().to_der().to_vec())).expect("an authority");
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
            .build()
            .expect("a verifier");
        let seconds = u64::try_from(now().as_second()).expect("after 1970");
        let check = |name: &'static str| {
            rustls::client::danger::ServerCertVerifier::verify_server_cert(
                &*verifier,
                &CertificateDer::from(made.to_der()),
                &[],
                &ServerName::try_from(name).expect("a name"),
                &[],
                UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
            )
        };
        check("localhost").expect("accepted");
        assert!(check("other").is_err());
    }
}
