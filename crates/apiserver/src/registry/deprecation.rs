//! Which served versions are on their way out, and how clients are told.

use facts::Resource as Facts;

/// `(group, version, kind, deprecated in, gone in, what to use instead)`; releases are minors of 1, none is 0.
type Row = (&'static str, &'static str, &'static str, u8, u8, &'static str);

const ADMISSION: &str = "admissionregistration.k8s.io";
const CERTIFICATES: &str = "certificates.k8s.io";
const COORDINATION: &str = "coordination.k8s.io";
const RESOURCE: &str = "resource.k8s.io";

const ROWS: &[Row] = &[
    ("", "v1", "ComponentStatus", 19, 0, ""),
    ("", "v1", "Endpoints", 33, 0, "discovery.k8s.io/v1 EndpointSlice"),
    (ADMISSION, "v1alpha1", "MutatingAdmissionPolicy", 35, 38, ""),
    (ADMISSION, "v1alpha1", "MutatingAdmissionPolicyBinding", 35, 38, ""),
    (
        ADMISSION,
        "v1beta1",
        "MutatingAdmissionPolicy",
        37,
        40,
        "admissionregistration.k8s.io/v1 MutatingAdmissionPolicy",
    ),
    (
        ADMISSION,
        "v1beta1",
        "MutatingAdmissionPolicyBinding",
        37,
        40,
        "admissionregistration.k8s.io/v1 MutatingAdmissionPolicyBinding",
    ),
    (CERTIFICATES, "v1beta1", "ClusterTrustBundle", 37, 40, "certificates.k8s.io/v1 ClusterTrustBundle"),
    (CERTIFICATES, "v1beta1", "PodCertificateRequest", 37, 40, "certificates.k8s.io/v1 PodCertificateRequest"),
    (COORDINATION, "v1alpha2", "LeaseCandidate", 35, 38, ""),
    (COORDINATION, "v1beta1", "LeaseCandidate", 36, 39, ""),
    (RESOURCE, "v1alpha3", "DeviceTaintRule", 36, 39, ""),
    (RESOURCE, "v1beta1", "DeviceClass", 35, 38, ""),
    (RESOURCE, "v1beta1", "ResourceClaim", 35, 38, ""),
    (RESOURCE, "v1beta1", "ResourceClaimTemplate", 35, 38, ""),
    (RESOURCE, "v1beta1", "ResourceSlice", 35, 38, ""),
    (RESOURCE, "v1beta2", "DeviceClass", 36, 39, ""),
    (RESOURCE, "v1beta2", "ResourceClaim", 36, 39, ""),
    (RESOURCE, "v1beta2", "ResourceClaimTemplate", 36, 39, ""),
    (RESOURCE, "v1beta2", "ResourceSlice", 36, 39, ""),
    (
        "storagemigration.k8s.io",
        "v1beta1",
        "StorageVersionMigration",
        37,
        40,
        "storagemigration.k8s.io/v1 StorageVersionMigration",
    ),
];

/// What a client of a resource should be told, if its version is on its way out.
pub fn warning(facts: &Facts) -> Option<String> {
    let found = ROWS.iter().find(|row| (row.0, row.1, row.2) == (&*facts.group, &*facts.version, &*facts.kind));
    let (_, _, kind, since, gone, instead) = found?;
    let mut text = format!("{} {kind} is deprecated in v1.{since}+", facts.api_version());
    if *gone > 0 {
        text.push_str(&format!(", unavailable in v1.{gone}+"));
    }
    if !instead.is_empty() {
        text.push_str(&format!("; use {instead}"));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(group: &str, version: &str, plural: &str) -> Option<String> {
        warning(facts::resource(group, version, plural).expect("a resource"))
    }

    #[test]
    fn old_versions_are_named_with_their_end_and_their_heir() {
        let text = |group, version, plural| of(group, version, plural).unwrap_or_default();
        assert_eq!(
            text("", "v1", "endpoints"),
            "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"
        );
        assert_eq!(
            text("resource.k8s.io", "v1beta2", "deviceclasses"),
            "resource.k8s.io/v1beta2 DeviceClass is deprecated in v1.36+, unavailable in v1.39+"
        );
        assert_eq!(of("", "v1", "pods"), None);
    }
}
