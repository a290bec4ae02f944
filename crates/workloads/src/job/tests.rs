//! Counting, deciding and the sets of indexes.

use std::sync::Arc;

use k8s_openapi::api::batch::v1::{JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::tally::tally;
use super::{indexes, plan};
use crate::testing::{at, pod};

fn spec(value: Value) -> JobSpec {
    let mut all = json!({"template": {}, "parallelism": 2, "completions": 3, "backoffLimit": 1});
    for (key, field) in value.as_object().into_iter().flatten() {
        all[key] = field.clone();
    }
    serde_json::from_value(all).expect("a spec")
}

fn ended(name: &str, phase: &str) -> crate::testing::PodBuilder {
    pod(name).on("n").phase(phase).finalizer("batch.kubernetes.io/job-tracking")
}

#[track_caller]
fn check(spec: &JobSpec, status: &JobStatus, pods: &[Arc<Pod>], outcome: &str, create: usize, delete: usize) {
    let tally = tally(spec, status, pods, at(0));
    let (job, spec, known, pods) = (Arc::default(), spec.clone(), status.clone(), pods.to_vec());
    let plan = plan::plan(&plan::Observed { job, spec, known, pods, tally }, at(1000));
    let reason = plan.outcome.map(|outcome| outcome.reason).unwrap_or_default();
    assert_eq!((reason.as_str(), plan.create.len(), plan.delete.len()), (outcome, create, delete));
}

#[test]
fn pods_are_created_until_enough_succeeded() {
    let none = JobStatus::default();
    check(&spec(json!({})), &none, &[], "", 2, 0);
    check(&spec(json!({})), &none, &[pod("a").build()], "", 1, 0);
    let two = JobStatus { succeeded: Some(2), ..JobStatus::default() };
    check(&spec(json!({})), &two, &[], "", 1, 0);
    check(&spec(json!({})), &two, &[ended("a", "Succeeded").build()], "CompletionsReached", 0, 0);
    check(&spec(json!({"completions": null})), &none, &[ended("a", "Succeeded").build(), pod("b").build()], "", 0, 0);
    check(&spec(json!({"completions": null})), &none, &[ended("a", "Succeeded").build()], "CompletionsReached", 0, 0);
    check(&spec(json!({"suspend": true})), &none, &[pod("a").build()], "", 0, 1);
    check(&spec(json!({"parallelism": 1})), &none, &[pod("a").build(), pod("b").build()], "", 0, 1);
}

#[test]
fn too_many_failures_end_a_job_and_ignored_ones_do_not() {
    let failures = [ended("a", "Failed").build(), ended("b", "Failed").build()];
    check(&spec(json!({})), &JobStatus::default(), &failures, "BackoffLimitExceeded", 0, 0);
    let disrupted = |name: &str| {
        let condition =
            serde_json::from_value(json!({"type": "DisruptionTarget", "status": "True"})).expect("a condition");
        ended(name, "Failed").with(|pod| pod.status.get_or_insert_default().conditions = Some(vec![condition])).build()
    };
    let rules =
        json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]});
    check(
        &spec(json!({"podFailurePolicy": rules})),
        &JobStatus::default(),
        &[disrupted("a"), disrupted("b")],
        "",
        2,
        0,
    );
}

#[test]
fn indexes_are_done_once_each_and_may_fail_alone() {
    let indexed = |name: &str, index: &str, phase: &str| {
        ended(name, phase).annotation("batch.kubernetes.io/job-completion-index", index).build()
    };
    let job = spec(json!({"completionMode": "Indexed", "parallelism": 3}));
    check(&job, &JobStatus::default(), &[indexed("a", "1", "Succeeded")], "", 2, 0);
    check(&job, &JobStatus::default(), &[indexed("a", "0", "Pending"), indexed("b", "0", "Pending")], "", 0, 1);
    let limited =
        spec(json!({"completionMode": "Indexed", "parallelism": 3, "backoffLimitPerIndex": 0, "backoffLimit": 100}));
    let pods = [indexed("a", "0", "Failed"), indexed("b", "1", "Succeeded"), indexed("c", "2", "Succeeded")];
    check(&limited, &JobStatus::default(), &pods, "FailedIndexes", 0, 0);
    let policy = spec(json!({"completionMode": "Indexed", "successPolicy": {"rules": [{"succeededIndexes": "1"}]}}));
    check(&policy, &JobStatus::default(), &[indexed("b", "1", "Succeeded")], "SuccessPolicy", 0, 0);
}

#[test]
fn sets_of_indexes_are_written_as_intervals() {
    for (text, canonical) in
        [("", ""), ("0", "0"), ("0,1", "0,1"), ("0,1,2,5", "0-2,5"), ("3-5,7", "3-5,7"), ("1-99", "1-9"), ("x,2", "2")]
    {
        assert_eq!(indexes::format(&indexes::parse(text, 10)), canonical, "{text}");
    }
}

mod orphans {
    use std::sync::Arc;

    use k8s_openapi::api::batch::v1::Job;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use serde_json::json;

    use super::super::orphans::{Standing, standing};
    use crate::testing::pod;

    fn job(uid: &str, spec: serde_json::Value, condition: &str) -> Arc<Job> {
        let job = json!({
            "metadata": {"name": "j", "namespace": "ns", "uid": uid},
            "spec": spec, "status": {"conditions": [{"type": condition, "status": "True"}]},
        });
        Arc::new(serde_json::from_value(job).expect("a job"))
    }

    #[test]
    fn a_pod_is_an_orphan_once_no_job_will_count_it() {
        let owned = |kind: &str, api: &str| {
            let owner = OwnerReference {
                api_version: api.into(),
                kind: kind.into(),
                name: "j".into(),
                uid: "1".into(),
                controller: Some(true),
                ..OwnerReference::default()
            };
            pod("p").with(|pod| pod.metadata.owner_references = Some(vec![owner])).build()
        };
        let own = owned("Job", "batch/v1");
        let spec = || json!({"template": {}});
        let running = || Some(job("1", spec(), "Suspended"));
        assert_eq!(standing(&pod("p").build(), |_| running()), Standing::Orphan, "it was released");
        assert_eq!(standing(&own, |_| running()), Standing::Kept);
        assert_eq!(standing(&own, |_| None), Standing::Missing(informer::Key::new("ns", "j")));
        let another = job("2", spec(), "Suspended");
        assert_eq!(standing(&own, |_| Some(another)), Standing::Missing(informer::Key::new("ns", "j")), "of its name");
        assert_eq!(standing(&own, |_| Some(job("1", spec(), "Complete"))), Standing::Orphan);
        assert_eq!(standing(&own, |_| Some(job("1", spec(), "Failed"))), Standing::Orphan);
        let foreign = json!({"template": {}, "managedBy": "example.com/queue"});
        assert_eq!(standing(&own, |_| Some(job("1", foreign, "Complete"))), Standing::Kept, "somebody else's to count");
        assert_eq!(standing(&owned("ReplicaSet", "apps/v1"), |_| None), Standing::Kept);
        assert_eq!(standing(&owned("Job", "example.com/v1"), |_| None), Standing::Kept);
    }
}
