//! The group `certificates.k8s.io`.

pub mod certificate_signing_request;
pub mod cluster_trust_bundle;
pub mod pem;
pub mod pod_certificate_request;
#[cfg(test)]
mod tests;

use crate::kind::{Deprecation, Kind};

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("certificatesigningrequests", "CertificateSigningRequest")
        .strategy(&certificate_signing_request::SigningRequests)
        .columns(&certificate_signing_request::columns::TABLE),
    Kind::new("clustertrustbundles", "ClusterTrustBundle")
        .strategy(&cluster_trust_bundle::TrustBundles)
        .columns(&cluster_trust_bundle::columns::TABLE)
        .deprecated(&[Deprecation::new("v1beta1", 37).until(40).instead("certificates.k8s.io/v1 ClusterTrustBundle")]),
    Kind::new("podcertificaterequests", "PodCertificateRequest")
        .strategy(&pod_certificate_request::PodCertificateRequests)
        .columns(&pod_certificate_request::columns::TABLE)
        .deprecated(&[Deprecation::new("v1beta1", 37)
            .until(40)
            .instead("certificates.k8s.io/v1 PodCertificateRequest")]),
];
