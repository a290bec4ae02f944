//! Endpoints as slices.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Endpoints;
use serde_json::{Value, json};

use super::plan::{is_mirrored, plan, slices};
use crate::common::slices::Plan;

fn endpoints(subsets: Value) -> Endpoints {
    serde_json::from_value(json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "db", "namespace": "ns", "uid": "e"}, "subsets": subsets})).expect("endpoints")
}

#[test]
fn families_and_ports_stand_apart_and_nothing_is_written_twice() {
    let wanted = slices(&endpoints(json!([
        {"addresses": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}], "notReadyAddresses": [{"ip": "10.0.0.2"}], "ports": [{"port": 5432}]},
        {"addresses": [{"ip": "10.0.0.1"}], "ports": [{"port": 80, "name": "http"}]},
    ])));
    let families: Vec<(&str, usize)> = wanted
        .iter()
        .map(|slice| (slice.address_type.as_str(), slice.endpoints.as_ref().map_or(0, Vec::len)))
        .collect();
    assert_eq!(families, [("IPv4", 2), ("IPv6", 1), ("IPv4", 1)]);
    let existing: Vec<Arc<_>> = wanted.iter().cloned().map(Arc::new).collect();
    assert_eq!(plan(&existing, wanted.clone()), Plan::default());
    let fewer = plan(&existing, wanted[..1].to_vec());
    assert_eq!((fewer.create.len(), fewer.update.len(), fewer.delete.len()), (0, 0, 2));
    assert_eq!(plan(&[], wanted).create.len(), 3);
}

#[test]
fn what_controllers_wrote_is_not_mirrored() {
    let mut own = endpoints(json!([]));
    assert!(is_mirrored(&own));
    own.metadata
        .labels
        .get_or_insert_default()
        .insert("endpoints.kubernetes.io/managed-by".into(), "endpoint-controller".into());
    assert!(!is_mirrored(&own));
}
