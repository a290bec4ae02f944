//! What a certificate's key may be used for, under the names that `CertificateSigningRequest` gives them.

use std::str::FromStr;

use der::asn1::ObjectIdentifier;
use x509_cert::ext::pkix::KeyUsages;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usage {
    /// A bit of the key usage extension.
    Key(KeyUsages),
    /// A member of the extended key usage extension.
    Extended(ObjectIdentifier),
}

const fn extended(oid: &str) -> Usage {
    Usage::Extended(ObjectIdentifier::new_unwrap(oid))
}

impl Usage {
    pub const DIGITAL_SIGNATURE: Self = Self::Key(KeyUsages::DigitalSignature);
    pub const KEY_ENCIPHERMENT: Self = Self::Key(KeyUsages::KeyEncipherment);
    pub const SERVER_AUTH: Self = extended("1.3.6.1.5.5.7.3.1");
    pub const CLIENT_AUTH: Self = extended("1.3.6.1.5.5.7.3.2");
    pub const ANY: Self = extended("2.5.29.37.0");
}

const NAMES: &[(&str, Usage)] = &[
    ("signing", Usage::DIGITAL_SIGNATURE),
    ("digital signature", Usage::DIGITAL_SIGNATURE),
    ("content commitment", Usage::Key(KeyUsages::NonRepudiation)),
    ("key encipherment", Usage::KEY_ENCIPHERMENT),
    ("data encipherment", Usage::Key(KeyUsages::DataEncipherment)),
    ("key agreement", Usage::Key(KeyUsages::KeyAgreement)),
    ("cert sign", Usage::Key(KeyUsages::KeyCertSign)),
    ("crl sign", Usage::Key(KeyUsages::CRLSign)),
    ("encipher only", Usage::Key(KeyUsages::EncipherOnly)),
    ("decipher only", Usage::Key(KeyUsages::DecipherOnly)),
    ("any", Usage::ANY),
    ("server auth", Usage::SERVER_AUTH),
    ("client auth", Usage::CLIENT_AUTH),
    ("code signing", extended("1.3.6.1.5.5.7.3.3")),
    ("email protection", extended("1.3.6.1.5.5.7.3.4")),
    ("s/mime", extended("1.3.6.1.5.5.7.3.4")),
    ("ipsec end system", extended("1.3.6.1.5.5.7.3.5")),
    ("ipsec tunnel", extended("1.3.6.1.5.5.7.3.6")),
    ("ipsec user", extended("1.3.6.1.5.5.7.3.7")),
    ("timestamping", extended("1.3.6.1.5.5.7.3.8")),
    ("ocsp signing", extended("1.3.6.1.5.5.7.3.9")),
    ("microsoft sgc", extended("1.3.6.1.4.1.311.10.3.3")),
    ("netscape sgc", extended("2.16.840.1.113730.4.1")),
];

/// A use that has no such name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized key usage \"{0}\"")]
pub struct UnknownUsage(pub String);

impl FromStr for Usage {
    type Err = UnknownUsage;

    fn from_str(text: &str) -> Result<Self, UnknownUsage> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found.map(|(_, usage)| *usage).ok_or_else(|| UnknownUsage(text.to_owned()))
    }
}
