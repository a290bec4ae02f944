//! Volumes on nodes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::{Value, json};

use super::plan::{Observed, Plan, default_storage_class, is_below, is_over, place, plan, removal};
use crate::testing::node;

fn claim(status: Value) -> Arc<PersistentVolumeClaim> {
    let claim = json!({
        "metadata": {"name": "data", "namespace": "ns", "uid": "u"},
        "spec": {"resources": {"requests": {"storage": "2Gi"}}}, "status": status,
    });
    serde_json::from_value(claim).expect("a claim")
}

fn observed(claim: Arc<PersistentVolumeClaim>) -> Observed {
    let (class, node) = (Some(Arc::new(default_storage_class())), Some(node("n1").build()));
    Observed { claim, volume: None, class, node }
}

#[test]
fn only_directories_of_this_provisioner_are_removed() {
    let check = |path: &str| is_below(Path::new(path), "/var/lib/volumes");
    assert!(check("/var/lib/volumes/pvc-1_default_data"));
    for path in
        ["/", "/etc", "/var/lib/volumes", "/var/lib/volumes/a/b", "/var/lib/volumes/..", "/var/lib/volumes/../x"]
    {
        assert!(!check(path), "{path}");
    }
}

#[test]
fn a_volume_is_made_once_the_node_is_known_and_knows_where_it_is() {
    let Plan::Provision(volume) = plan(&observed(claim(json!({}))), "/root") else { panic!("a volume") };
    assert_eq!(place(&volume, "/root"), Some(("n1".to_owned(), PathBuf::from("/root/pvc-u_ns_data"))));
    assert_eq!(place(&volume, "/elsewhere"), None);
    let nodes = [node("n0").build(), node("n1").build()];
    let told = "/api/v1/nodes/n1/proxy/localpath/pvc-u_ns_data";
    assert_eq!(removal(&volume, "/root", &nodes).as_deref(), Some(told));
    assert_eq!(removal(&volume, "/root", &nodes[..1]), None, "its node is gone");
    let mut odd = volume.clone();
    odd.spec.get_or_insert_default().host_path.get_or_insert_default().path = "/root/pvc-u?x=1".to_owned();
    assert_eq!(removal(&odd, "/root", &nodes), None);
    let unscheduled = Observed { node: None, ..observed(claim(json!({}))) };
    assert_eq!(plan(&unscheduled, "/root"), Plan::Keep);
    let mut foreign = default_storage_class();
    foreign.provisioner = "other".to_owned();
    let foreign = Observed { class: Some(Arc::new(foreign)), ..observed(claim(json!({}))) };
    assert_eq!(plan(&foreign, "/root"), Plan::Keep);
}

#[test]
fn a_claim_that_grows_has_grown_and_a_volume_without_a_claim_goes() {
    let Plan::Provision(mut volume) = plan(&observed(claim(json!({}))), "/root") else { panic!("a volume") };
    let bound = |status: Value, volume| Observed { volume: Some(Arc::new(volume)), ..observed(claim(status)) };
    let grown = plan(&bound(json!({"capacity": {"storage": "1Gi"}}), (*volume).clone()), "/root");
    let Plan::Grow { volume: None, claim } = grown else { panic!("the volume is large enough: {grown:?}") };
    assert_eq!(plan(&bound(json!(claim.status), (*volume).clone()), "/root"), Plan::Keep);
    volume.spec.get_or_insert_default().capacity = None;
    let both = plan(&bound(json!({"capacity": {"storage": "1Gi"}}), (*volume).clone()), "/root");
    assert!(matches!(both, Plan::Grow { volume: Some(_), .. }), "{both:?}");
    assert!(!is_over(&volume));
    volume.status.get_or_insert_default().phase = Some("Released".to_owned());
    assert!(is_over(&volume));
}
