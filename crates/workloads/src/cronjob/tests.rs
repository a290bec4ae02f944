//! What is due, what is in the way, and what is reported.

use std::sync::Arc;
use std::time::Duration;

use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, Job};
use serde_json::{Value, json};

use super::plan::{Observed, Plan, Started, after_start, is_surprised, plan};
use crate::common::meta::MetaExt;
use crate::testing::at;

/// Every minute, from the first second of the epoch on.
fn cron(spec: Value, status: Value) -> CronJob {
    let mut whole = json!({"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {}}}});
    for (key, value) in spec.as_object().expect("fields") {
        whole[key] = value.clone();
    }
    let metadata = json!({"name": "c", "namespace": "ns", "uid": "c", "creationTimestamp": "1970-01-01T00:00:00Z"});
    serde_json::from_value(json!({"metadata": metadata, "spec": whole, "status": status})).expect("a cron job")
}

fn job(name: &str, condition: Option<&str>, started: i64) -> Arc<Job> {
    let time = machinery::time::format(at(started));
    let conditions = condition.map(|type_| json!([{"type": type_, "status": "True"}]));
    let status = json!({"startTime": time, "completionTime": time, "conditions": conditions});
    let job =
        json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"template": {}}, "status": status});
    serde_json::from_value(job).expect("a job")
}

fn active(names: &[&str]) -> Value {
    json!({"active": names.iter().map(|name| json!({"name": name, "uid": name})).collect::<Vec<_>>()})
}

fn turn(cron: CronJob, jobs: &[Arc<Job>], second: i64) -> Plan {
    plan(&Observed { cron: Arc::new(cron), jobs: jobs.to_vec(), zone: Ok(TimeZone::UTC) }, at(second))
}

/// What a turn does, in words.
#[track_caller]
fn check(cron: CronJob, jobs: &[Arc<Job>], second: i64, expected: &[&str]) {
    let plan = turn(cron, jobs, second);
    let mut words: Vec<String> = plan.events.iter().map(|(_, reason, _)| (*reason).to_owned()).collect();
    words.extend(plan.clean_up.iter().map(|name| format!("delete {name}")));
    if let Some(start) = &plan.start {
        words.extend(start.replaces.iter().map(|name| format!("replace {name}")));
        words.push(format!("start {}", start.job.metadata.name()));
    }
    assert_eq!(words, expected);
}

#[test]
fn the_latest_time_that_came_is_served_once() {
    check(cron(json!({}), json!({})), &[], 59, &[]);
    check(cron(json!({}), json!({})), &[], 185, &["start c-3"]);
    let served = json!({"lastScheduleTime": "1970-01-01T00:03:00Z"});
    check(cron(json!({}), served.clone()), &[], 185, &[]);
    assert_eq!(turn(cron(json!({}), served), &[], 185).again, Some(Duration::from_millis(55_100)));
    check(cron(json!({}), json!({})), &[], 7200, &["TooManyMissedTimes", "start c-120"]);
    check(cron(json!({"startingDeadlineSeconds": 3}), json!({})), &[], 185, &[]);
}

#[test]
fn nothing_is_started_that_should_not_be() {
    check(cron(json!({"suspend": true}), json!({})), &[], 185, &[]);
    check(cron(json!({"schedule": "nonsense"}), json!({})), &[], 185, &["UnparseableSchedule"]);
    // There is no 31st of February.
    check(cron(json!({"schedule": "59 23 31 2 *"}), json!({})), &[], 185, &["InvalidSchedule"]);
    let unknown = Observed {
        cron: Arc::new(cron(json!({"timeZone": "X"}), json!({}))),
        jobs: Vec::new(),
        zone: Err("unknown".to_owned()),
    };
    assert_eq!(plan(&unknown, at(185)).events[0].2, "invalid timeZone: \"X\": unknown");
}

#[test]
fn jobs_that_run_are_kept_awaited_or_replaced() {
    let running = [job("old", None, 1)];
    for (policy, expected) in
        [("Allow", &["start c-3"][..]), ("Forbid", &["JobAlreadyActive"]), ("Replace", &["replace old", "start c-3"])]
    {
        check(cron(json!({"concurrencyPolicy": policy}), active(&["old"])), &running, 185, expected);
    }
}

#[test]
fn jobs_that_end_come_or_vanish_are_noted() {
    let idle = json!({"suspend": true, "successfulJobsHistoryLimit": 1});
    let jobs = [job("a", Some("Complete"), 10), job("b", Some("Complete"), 20), job("new", None, 30)];
    check(
        cron(idle.clone(), active(&["b", "gone"])),
        &jobs,
        40,
        &["SawCompletedJob", "UnexpectedJob", "MissingJob", "delete a"],
    );
    let status = turn(cron(idle, active(&["b", "gone"])), &jobs, 40).status;
    assert_eq!((status.active, status.last_successful_time.map(|time| time.0)), (None, Some(at(20))));
}

#[test]
fn a_job_that_runs_and_is_not_named_is_a_surprise() {
    let surprised = |status: Value, jobs: &[Arc<Job>]| {
        let cron = Arc::new(cron(json!({}), status));
        is_surprised(&Observed { cron, jobs: jobs.to_vec(), zone: Ok(TimeZone::UTC) })
    };
    let (runs, done) = (job("a", None, 1), job("b", Some("Complete"), 1));
    assert!(surprised(json!({}), std::slice::from_ref(&runs)));
    assert!(surprised(active(&["b"]), &[runs.clone(), done.clone()]));
    assert!(!surprised(active(&["a"]), &[runs, done]));
}

#[test]
fn a_start_is_reported_as_far_as_it_went() {
    let plan = turn(cron(json!({"concurrencyPolicy": "Replace"}), active(&["old"])), &[job("old", None, 1)], 185);
    let start = plan.start.expect("a start");
    let names = |started: &Started| {
        let status = after_start(plan.status.clone(), &start, started);
        let active: Vec<String> = status.active.into_iter().flatten().filter_map(|job| job.name).collect();
        (active, status.last_schedule_time.map(|time| time.0.as_second()))
    };
    assert_eq!(names(&Started::default()), (vec!["old".to_owned()], None));
    assert_eq!(names(&Started { replaced: true, served: None }), (vec![], None));
    let created = Job::clone(&job("c-3", None, 185));
    assert_eq!(names(&Started { replaced: true, served: Some(Some(created)) }), (vec!["c-3".to_owned()], Some(180)));
    assert_eq!(names(&Started { replaced: true, served: Some(None) }), (vec![], Some(180)));
}
