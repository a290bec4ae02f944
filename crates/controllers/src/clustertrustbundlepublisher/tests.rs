//! One bundle, named after its content.

use std::sync::Arc;

use k8s_openapi::api::certificates::v1::ClusterTrustBundle;

use super::plan::{Plan, SIGNER, name, plan};

fn bundle(name: &str, content: &str) -> Arc<ClusterTrustBundle> {
    let mut bundle = ClusterTrustBundle::default();
    bundle.metadata.name = Some(name.to_owned());
    bundle.spec.signer_name = Some(SIGNER.to_owned());
    bundle.spec.trust_bundle = content.to_owned();
    Arc::new(bundle)
}

#[test]
fn a_bundle_is_named_after_its_signer_and_content() {
    // The first twelve bytes of the SHA-256 of nothing, and of "abc".
    assert_eq!(name(""), "kubernetes.io:kube-apiserver-serving:e3b0c44298fc1c149afbf4c8");
    assert_eq!(name("abc"), "kubernetes.io:kube-apiserver-serving:ba7816bf8f01cfea414140de");
}

#[test]
fn there_is_one_bundle_with_the_present_content() {
    let (own, old) = (name("new"), name("old"));
    let wanted = ClusterTrustBundle::clone(&bundle(&own, "new"));
    let missing = Plan { create: Some(wanted.clone()), ..Plan::default() };
    assert_eq!(plan("new", &[]), missing);
    assert_eq!(plan("new", &[bundle(&own, "new")]), Plan::default());
    let forged = Plan { update: Some(wanted.clone()), ..Plan::default() };
    assert_eq!(plan("new", &[bundle(&own, "forged")]), forged);
    let rotated = Plan { create: Some(wanted), delete: vec![old.clone()], ..Plan::default() };
    assert_eq!(plan("new", &[bundle(&old, "old")]), rotated);
    let left = Plan { delete: vec![old.clone()], ..Plan::default() };
    assert_eq!(plan("new", &[bundle(&own, "new"), bundle(&old, "old")]), left);
}
