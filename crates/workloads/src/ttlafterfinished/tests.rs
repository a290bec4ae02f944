//! The end of Jobs that have ended.

use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};

use super::plan::{Plan, plan};
use crate::testing::at;

#[test]
fn a_job_goes_when_it_has_been_finished_for_as_long_as_it_says() {
    let job = |ttl: Value, condition: &str, deleted: Value| -> Job {
        let condition = json!({"type": condition, "status": "True", "lastTransitionTime": "1970-01-01T00:01:40Z"});
        serde_json::from_value(json!({
            "metadata": {"deletionTimestamp": deleted},
            "spec": {"ttlSecondsAfterFinished": ttl, "template": {}},
            "status": {"conditions": [condition]},
        }))
        .expect("a job")
    };
    for (job, expected) in [
        (job(json!(10), "Complete", Value::Null), Plan::Delete(at(110))),
        (job(json!(10), "Failed", Value::Null), Plan::Delete(at(110))),
        (job(json!(60), "Complete", Value::Null), Plan::Wait(Duration::from_secs(40))),
        (job(json!(10), "Suspended", Value::Null), Plan::Keep),
        (job(Value::Null, "Complete", Value::Null), Plan::Keep),
        (job(json!(10), "Complete", json!("1970-01-01T00:01:50Z")), Plan::Keep),
    ] {
        assert_eq!(plan(&job, at(120)), expected, "{job:?}");
    }
}
