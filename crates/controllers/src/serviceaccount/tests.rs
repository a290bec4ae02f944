//! The account of a namespace.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::plan::plan;
use crate::testing::at;

#[test]
fn every_namespace_that_lives_has_an_account() {
    let metadata = ObjectMeta { name: Some("ns".into()), ..ObjectMeta::default() };
    let mut namespace = Namespace { metadata, ..Namespace::default() };
    let account = plan(Some(&namespace), false).expect("one is missing");
    assert_eq!(
        (account.metadata.namespace.as_deref(), account.metadata.name.as_deref()),
        (Some("ns"), Some("default"))
    );
    assert_eq!(plan(Some(&namespace), true), None);
    assert_eq!(plan(None, false), None);
    namespace.metadata.deletion_timestamp = Some(Time(at(0)));
    assert_eq!(plan(Some(&namespace), false), None);
}
