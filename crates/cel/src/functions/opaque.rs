//! Values that only functions look into.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use machinery::quantity::Quantity;

use super::authz::{Check, Decision, Subject};
use super::formats::Named;
use super::semver::Semver;
use super::url::Url;

#[derive(Debug, Clone)]
pub enum Opaque {
    Quantity(Arc<Quantity>),
    Ip(IpAddr),
    Cidr(IpNet),
    Url(Arc<Url>),
    Semver(Arc<Semver>),
    /// A format that texts may have.
    Format(Named),
    /// Whom questions of authorization are about.
    Authorizer(Subject),
    /// A question about a group of the API.
    GroupCheck(Subject, Arc<str>),
    /// A question about a resource or a path.
    Check(Subject, Arc<Check>),
    Decision(Arc<Decision>),
    /// What is not of its type, and what is wrong with it.
    Fault(Arc<str>),
}

impl Opaque {
    /// As expressions name its type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Quantity(_) => "kubernetes.Quantity",
            Self::Ip(_) => "kubernetes.IP",
            Self::Cidr(_) => "kubernetes.CIDR",
            Self::Url(_) => "kubernetes.URL",
            Self::Semver(_) => "kubernetes.Semver",
            Self::Format(_) => "kubernetes.NamedFormat",
            Self::Authorizer(_) => "kubernetes.authorization.Authorizer",
            Self::GroupCheck(..) => "kubernetes.authorization.GroupCheck",
            Self::Check(_, check) => match **check {
                Check::Path(_) => "kubernetes.authorization.PathCheck",
                Check::Resource { .. } => "kubernetes.authorization.ResourceCheck",
            },
            Self::Decision(_) => "kubernetes.authorization.Decision",
            Self::Fault(_) => "error",
        }
    }

    /// What comparing it costs: the bytes of an address.
    pub fn size(&self) -> u64 {
        match self {
            Self::Ip(IpAddr::V4(_)) | Self::Cidr(IpNet::V4(_)) => 4,
            Self::Ip(IpAddr::V6(_)) | Self::Cidr(IpNet::V6(_)) => 16,
            _ => 1,
        }
    }
}

impl PartialEq for Opaque {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Quantity(a), Self::Quantity(b)) => a == b,
            (Self::Ip(a), Self::Ip(b)) => a == b,
            (Self::Cidr(a), Self::Cidr(b)) => a == b,
            (Self::Url(a), Self::Url(b)) => a == b,
            (Self::Semver(a), Self::Semver(b)) => a.precedence(b).is_eq(),
            (Self::Format(a), Self::Format(b)) => a == b,
            (Self::Authorizer(a), Self::Authorizer(b)) => a == b,
            (Self::GroupCheck(a, c), Self::GroupCheck(b, d)) => a == b && c == d,
            (Self::Check(a, c), Self::Check(b, d)) => a == b && c == d,
            (Self::Decision(a), Self::Decision(b)) => a == b,
            _ => false,
        }
    }
}
