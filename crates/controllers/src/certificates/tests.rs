//! Which requests are a kubelet's, and how long requests are kept.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use serde_json::json;

use super::plan;
use crate::config::CertificateRequest;
use crate::testing::at;

fn request(signer: &str, usages: &[&str]) -> CertificateSigningRequest {
    serde_json::from_value(json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "r", "creationTimestamp": "1970-01-01T00:00:00Z"},
        "spec": {"request": "", "signerName": signer, "usages": usages},
    }))
    .expect("a request")
}

fn kubelet() -> CertificateRequest {
    CertificateRequest {
        common_name: "system:node:n1".to_owned(),
        organizations: vec!["system:nodes".to_owned()],
        ..CertificateRequest::default()
    }
}

#[test]
fn only_a_kubelets_own_form_is_recognized() {
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let usages = ["digital signature", "client auth"];
    assert!(plan::is_kubelet_client(&request(signer, &usages), &kubelet()));
    assert!(plan::is_kubelet_client(
        &request(signer, &["key encipherment", "digital signature", "client auth"]),
        &kubelet()
    ));
    assert!(!plan::is_kubelet_client(&request(signer, &["server auth"]), &kubelet()));
    assert!(!plan::is_kubelet_client(&request("example.com/other", &usages), &kubelet()));
    let other = CertificateRequest { organizations: vec!["system:masters".to_owned()], ..kubelet() };
    assert!(!plan::is_kubelet_client(&request(signer, &usages), &other));
    let named = CertificateRequest { dns_names: vec!["n1".to_owned()], ..kubelet() };
    assert!(!plan::is_kubelet_client(&request(signer, &usages), &named));
}

#[test]
fn a_serving_certificate_needs_a_name() {
    let request = request("kubernetes.io/kubelet-serving", &["digital signature", "server auth"]);
    assert!(plan::judge(&request, &kubelet()).is_err());
    let named = CertificateRequest { addresses: vec!["10.0.0.1".to_owned()], ..kubelet() };
    assert_eq!(plan::judge(&request, &named), Ok(()));
}

#[test]
fn lifetimes_are_bounded_and_requests_do_not_stay_for_ever() {
    let mut request = request("kubernetes.io/kube-apiserver-client", &["client auth"]);
    assert_eq!(plan::lifetime(&request), Duration::from_secs(365 * 24 * 3600));
    request.spec.expiration_seconds = Some(1);
    assert_eq!(plan::lifetime(&request), Duration::from_secs(600));
    assert_eq!(plan::useless_at(&request), at(24 * 3600));
    let approved = plan::approved(&request, "fine", at(100));
    assert!(plan::is_pending(&request) && !plan::is_pending(&approved) && plan::wants_signature(&approved));
    assert_eq!(plan::useless_at(&approved), at(100 + 3600));
}
