//! Claims that ask for more.

use std::sync::Arc;

use informer::Change;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::json;

use super::plan::{grew, plan};
use crate::common::storage::PRE_RESIZE;

fn claim(asks: &str, has: &str) -> PersistentVolumeClaim {
    serde_json::from_value(json!({
        "spec": {"resources": {"requests": {"storage": asks}}}, "status": {"capacity": {"storage": has}},
    }))
    .expect("a claim")
}

#[test]
fn a_claim_that_asks_for_more_than_it_has_is_told_to_wait() {
    let mut volume = PersistentVolume::default();
    assert_eq!(plan(&claim("1Gi", "1Gi"), &volume), None);
    assert!(plan(&claim("2Gi", "1Gi"), &volume).is_some());
    volume.metadata.annotations = Some([(PRE_RESIZE.to_owned(), "1Gi".to_owned())].into());
    assert!(plan(&claim("1Gi", "1Gi"), &volume).is_some(), "the resize is not over");
}

#[test]
fn only_growth_is_looked_at() {
    let change = |old, new| Change::Modified { old: Arc::new(old), new: Arc::new(new) };
    assert!(grew(&change(claim("1Gi", "1Gi"), claim("2Gi", "1Gi"))));
    assert!(grew(&change(claim("2Gi", "1Gi"), claim("2Gi", "2Gi"))));
    assert!(!grew(&change(claim("2Gi", "2Gi"), claim("2Gi", "2Gi"))));
}
