//! What upstream says about PersistentVolumeClaims.

use serde_json::json;

use crate::strategy;
use crate::testing::{change, said};

#[test]
fn a_claim_shrinks_no_further_than_what_it_got() {
    let claim = |size: &str| {
        json!({"metadata": {"name": "c", "namespace": "n"}, "status": {"phase": "Bound", "capacity": {"storage": "2Gi"}}, "spec": {
            "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "resources": {"requests": {"storage": size}},
        }})
    };
    change("", "PersistentVolumeClaim", claim("5Gi"), claim("3Gi"), &[]);
    let less = "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity";
    change("", "PersistentVolumeClaim", claim("5Gi"), claim("2Gi"), &[less]);
    let mut bare = claim("5Gi");
    bare["spec"]["resources"] = json!({});
    let refused = said("", "PersistentVolumeClaim", bare, Some(&claim("5Gi")));
    assert_eq!(refused.last().map(String::as_str), Some(less), "{refused:?}");
    let mut foreign = claim("5Gi");
    foreign["spec"]["dataSourceRef"] = json!({"kind": "PersistentVolumeClaim", "name": "x", "namespace": "other"});
    strategy("", "PersistentVolumeClaim").prepare_for_create(&mut foreign);
    assert_eq!(foreign["spec"].get("dataSourceRef"), None, "contents of other namespaces are behind a gate");
}
