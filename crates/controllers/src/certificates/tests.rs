//! Which requests are a kubelet's, and how long requests are kept.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Node;
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

#[test]
fn a_node_gets_a_serving_certificate_for_its_own_addresses_only() {
    let node: Node = serde_json::from_value(json!({
        "metadata": {"name": "n1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "host"}]},
    }))
    .expect("a node");
    let with = |names: &[&str], ips: &[&str]| CertificateRequest {
        dns_names: names.iter().map(|&name| name.to_owned()).collect(),
        addresses: ips.iter().map(|&ip| ip.to_owned()).collect(),
        ..kubelet()
    };
    let own = with(&["n1", "host"], &["10.0.0.1"]);
    assert!(plan::names_only_its_own(&own, &node));
    for other in [with(&["n2"], &[]), with(&[], &["10.0.0.2"]), with(&["n1"], &["10.0.0.1", "10.96.0.1"])] {
        assert!(!plan::names_only_its_own(&other, &node), "{other:?}");
    }

    let mut asked = request("kubernetes.io/kubelet-serving", &["digital signature", "server auth"]);
    assert_eq!(plan::serving_node(&asked, &own), None, "asked by nobody");
    asked.spec.username = Some("system:node:n1".to_owned());
    assert_eq!(plan::serving_node(&asked, &own), None, "asked by somebody who is not a node");
    asked.spec.groups = Some(vec!["system:nodes".to_owned()]);
    assert_eq!(plan::serving_node(&asked, &own), Some("n1"));
    assert_eq!(plan::serving_node(&asked, &kubelet()), None, "without any address");
    asked.spec.username = Some("system:node:n2".to_owned());
    assert_eq!(plan::serving_node(&asked, &own), None, "asked by another node");
    asked.spec.username = Some("system:node:n1".to_owned());
    asked.spec.signer_name = "kubernetes.io/kube-apiserver-client".to_owned();
    assert_eq!(plan::serving_node(&asked, &own), None, "for another use");
}
