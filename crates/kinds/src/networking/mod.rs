//! The group `networking.k8s.io`: ingresses, network policies, and the addresses of services.

pub mod ingress;
pub mod ingress_class;
pub mod ip_address;
pub mod network_policy;
pub mod references;
pub mod service_cidr;
#[cfg(test)]
mod tests;

use crate::kind::Kind;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("ingressclasses", "IngressClass")
        .strategy(&ingress_class::IngressClasses)
        .columns(&ingress_class::columns::TABLE),
    Kind::new("ingresses", "Ingress")
        .strategy(&ingress::Ingresses)
        .columns(&ingress::columns::TABLE)
        .stored_at("ingress"),
    Kind::new("ipaddresses", "IPAddress").strategy(&ip_address::IpAddresses).columns(&ip_address::columns::TABLE),
    Kind::new("networkpolicies", "NetworkPolicy")
        .strategy(&network_policy::NetworkPolicies)
        .columns(&network_policy::columns::TABLE),
    Kind::new("servicecidrs", "ServiceCIDR")
        .strategy(&service_cidr::ServiceCidrs)
        .columns(&service_cidr::columns::TABLE),
];
