//! What upstream says about kinds of this group.

use jiff::Timestamp;
use machinery::Value;
use serde_json::json;

use crate::certificates::cluster_trust_bundle::TrustBundles;
use crate::certificates::pod_certificate_request::PodCertificateRequests;
use crate::strategy::Strategy;

fn authority() -> String {
    let key = pki::PrivateKey::generate().expect("a key");
    let lifetime = std::time::Duration::from_secs(3600);
    pki::Authority::new("root", key, Timestamp::now(), lifetime).expect("an authority").certificate().to_pem()
}

fn check(bundle: &Value, expected: &[&str]) {
    let found: Vec<String> = TrustBundles.validate(bundle).iter().map(ToString::to_string).collect();
    assert_eq!(found, expected);
}

#[test]
fn bundles_hold_authorities_and_are_named_after_their_signer() {
    let root = authority();
    let bundle = |name: &str, signer: &str, roots: &str| json!({"metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": roots}});
    check(&bundle("plain", "", &root), &[]);
    check(&bundle("example.com:signer:v1", "example.com/signer", &root), &[]);
    check(
        &bundle("v1", "example.com/signer", &root),
        &[
            "metadata.name: Invalid value: \"v1\": ClusterTrustBundle for signerName example.com/signer must be named with prefix example.com:signer:",
        ],
    );
    check(
        &bundle("plain", "", &format!("{root}{root}")),
        &["spec.trustBundle: Invalid value: \"<value omitted>\": duplicate trust anchor (indices [0 1])"],
    );
    check(
        &bundle("plain", "", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        &["spec.trustBundle: Invalid value: \"<value omitted>\": entry 0 does not parse as X.509"],
    );
    check(
        &bundle("plain", "", "nothing"),
        &["spec.trustBundle: Invalid value: \"<value omitted>\": at least one trust anchor must be provided"],
    );
}

#[test]
fn an_answer_is_given_once() {
    let open = json!({"status": {}});
    let condition = |kind: &str| json!({"type": kind, "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let denied = json!({"status": {"conditions": [condition("Denied")]}});
    assert!(PodCertificateRequests.validate_status_update(&denied, &open).is_empty());
    let both = json!({"status": {"conditions": [condition("Denied"), condition("Failed")]}});
    assert!(!PodCertificateRequests.validate_status_update(&both, &open).is_empty());
    let errors = PodCertificateRequests.validate_status_update(&open, &denied);
    assert!(errors[0].to_string().ends_with("immutable after PodCertificateRequest is issued, denied, or failed"));
    let issued = json!({"status": {"conditions": [condition("Issued")], "certificateChain": "x"}});
    let errors = PodCertificateRequests.validate_status_update(&issued, &open);
    assert!(errors[0].to_string().ends_with("issued certificate chain must contain at least one certificate"));
}
