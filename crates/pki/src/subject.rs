//! Whom a certificate is about: a name, groups, and the addresses it may be used at.

use std::net::IpAddr;

use der::asn1::{Any, Ia5String, ObjectIdentifier, Utf8StringRef};
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::ext::pkix::name::{DirectoryString, GeneralName};
use x509_cert::name::{RdnSequence, RelativeDistinguishedName};

use crate::error::Error;

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

/// A user name and its groups, as `CN` and repeated `O`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    pub common_name: String,
    /// The groups, in order.
    pub organizations: Vec<String>,
}

impl Subject {
    /// A user with groups.
    pub fn new<'a>(common_name: impl Into<String>, organizations: impl IntoIterator<Item = &'a str>) -> Self {
        Self { common_name: common_name.into(), organizations: organizations.into_iter().map(str::to_owned).collect() }
    }

    pub(crate) fn encode(&self) -> Result<RdnSequence, Error> {
        let mut name = RdnSequence::default();
        let organizations = self.organizations.iter().map(|group| (ORGANIZATION, group));
        for (oid, text) in organizations.chain([(COMMON_NAME, &self.common_name)]) {
            let value = Utf8StringRef::new(text).and_then(|text| Any::encode_from(&text));
            let value = value.map_err(Error::der("subject"))?;
            let mut rdn = RelativeDistinguishedName::default();
            rdn.insert(AttributeTypeAndValue { oid, value }).map_err(Error::der("subject"))?;
            name.push(rdn);
        }
        Ok(name)
    }

    /// Reads a subject; of several common names the last one counts, as with Go's readers.
    pub(crate) fn decode<'a>(attributes: impl Iterator<Item = &'a AttributeTypeAndValue>) -> Result<Self, Error> {
        let mut subject = Self::default();
        for attribute in attributes {
            if attribute.oid != COMMON_NAME && attribute.oid != ORGANIZATION {
                continue;
            }
            let text: DirectoryString = attribute.value.decode_as().map_err(Error::der("subject"))?;
            let text = text.value().into_owned();
            if attribute.oid == COMMON_NAME {
                subject.common_name = text;
            } else {
                subject.organizations.push(text);
            }
        }
        Ok(subject)
    }
}

/// A subject alternative name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum San {
    Dns(String),
    Ip(IpAddr),
    Uri(String),
    Email(String),
}

impl San {
    /// An address if it reads as one, a host name otherwise.
    pub fn host(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Dns(text.to_owned()), Self::Ip)
    }

    pub(crate) fn encode(&self) -> Result<GeneralName, Error> {
        let ia5 = |text: &str| Ia5String::new(text).map_err(Error::der("subject alternative name"));
        Ok(match self {
            Self::Dns(name) => GeneralName::DnsName(ia5(name)?),
            Self::Ip(address) => GeneralName::from(*address),
            Self::Uri(uri) => GeneralName::UniformResourceIdentifier(ia5(uri)?),
            Self::Email(address) => GeneralName::Rfc822Name(ia5(address)?),
        })
    }

    /// `None` for the kinds of names that Kubernetes does not look at.
    pub(crate) fn decode(name: &GeneralName) -> Option<Self> {
        match name {
            GeneralName::DnsName(name) => Some(Self::Dns(name.to_string())),
            GeneralName::UniformResourceIdentifier(uri) => Some(Self::Uri(uri.to_string())),
            GeneralName::Rfc822Name(address) => Some(Self::Email(address.to_string())),
            GeneralName::IpAddress(bytes) => {
                let bytes = bytes.as_bytes();
                let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
                four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok().map(Self::Ip)
            }
            _ => None,
        }
    }
}
