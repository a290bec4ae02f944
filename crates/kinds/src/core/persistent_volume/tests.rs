//! What upstream says about PersistentVolumes.

use machinery::Value;
use serde_json::json;

use crate::strategy;

#[test]
fn a_volume_says_since_when_it_is_in_its_phase() {
    let volume = |phase: &str, time: Value| json!({"status": {"phase": phase, "lastPhaseTransitionTime": time}});
    let stamped = |mut new: Value, old: &Value| {
        strategy("", "PersistentVolume").stamp_status(&mut new, old, &|| "now".to_owned());
        new["status"]["lastPhaseTransitionTime"].take()
    };
    let old = volume("Pending", json!("then"));
    assert_eq!(stamped(volume("Pending", Value::Null), &old), "then");
    assert_eq!(stamped(volume("Bound", Value::Null), &old), "now");
    assert_eq!(stamped(volume("Bound", json!("then")), &old), "now");
    assert_eq!(stamped(volume("Bound", json!("later")), &old), "later");
}
