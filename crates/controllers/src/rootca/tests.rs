//! The certificates in every namespace.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::plan::{Plan, plan};
use crate::testing::at;

#[test]
fn a_namespace_has_the_certificates_and_keeps_what_else_is_in_the_metadata() {
    let metadata = ObjectMeta { name: Some("ns".into()), ..ObjectMeta::default() };
    let mut namespace = Namespace { metadata, ..Namespace::default() };
    let Plan::Create(mut map) = plan(Some(&namespace), None, "ca") else { panic!("none is there") };
    assert_eq!(map.metadata.namespace.as_deref(), Some("ns"));
    assert_eq!(plan(Some(&namespace), Some(&map), "ca"), Plan::Keep);
    map.metadata.annotations = Some([("own".to_owned(), "kept".to_owned())].into());
    let Plan::Update(updated) = plan(Some(&namespace), Some(&map), "other") else { panic!("it is another") };
    assert_eq!(updated.data.as_ref().and_then(|data| data.get("ca.crt")).map(String::as_str), Some("other"));
    let annotations = updated.metadata.annotations.unwrap_or_default();
    assert!(annotations.contains_key("own") && annotations.contains_key("kubernetes.io/description"));
    namespace.metadata.deletion_timestamp = Some(Time(at(0)));
    assert_eq!(plan(Some(&namespace), None, "ca"), Plan::Keep);
}
