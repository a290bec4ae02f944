//! Tables for what metrics ask for, and for what is made of it.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::{
    HPAScalingPolicy, HPAScalingRules, HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::behavior::{Decision, Demand, History};
use super::calculate::{Sample, Samples, Target, Tolerances, by_average, by_ratio, by_utilization, per_pod};
use super::compute::{Failure, Proposal};
use super::plan::{Observed, needs_metrics, plan};
use crate::testing::{PodBuilder, at, pod};

const NOW: i64 = 10_000;

fn asking(pod: PodBuilder, cpu: &str) -> PodBuilder {
    pod.with(|pod| {
        let spec = pod.spec.get_or_insert_default();
        let requests = [("cpu".to_owned(), Quantity(cpu.to_owned()))].into();
        spec.containers[0].resources.get_or_insert_default().requests = Some(requests);
        pod.status.get_or_insert_default().start_time = Some(Time(at(0)));
    })
}

/// Ready pods that ask for 1 CPU each.
fn pods(count: usize) -> Vec<Arc<Pod>> {
    (0..count).map(|number| asking(pod(&format!("p{number}")).ready_since(100), "1").build()).collect()
}

fn samples(values: &[(&str, i64)]) -> Samples {
    let sample = |value| Sample { value, at: at(NOW), window: Duration::from_secs(30) };
    values.iter().map(|(name, value)| ((*name).to_owned(), sample(*value))).collect()
}

fn target(pods: &[Arc<Pod>], replicas: i32) -> Target<'_> {
    Target { pods, replicas, tolerances: Tolerances { down: 0.1, up: 0.1 }, now: at(NOW) }
}

#[test]
fn utilization_is_a_share_of_what_is_requested() {
    let three = pods(3);
    let check = |values: &[i64]| {
        let named = [("p0", values[0]), ("p1", values[1]), ("p2", values[2])];
        by_utilization(target(&three, 3), 50, "cpu", None, samples(&named)).expect("a proposal")
    };
    assert_eq!((check(&[1000, 1000, 1000]).replicas, check(&[1000, 1000, 1000]).percent), (6, 100));
    assert_eq!(check(&[500, 500, 500]).replicas, 3);
    assert_eq!(check(&[540, 540, 540]).replicas, 3, "within the tolerance");
    assert_eq!(check(&[100, 100, 100]).replicas, 1);
    assert_eq!(check(&[600, 300, 300]).average, 400);
}

#[test]
fn pods_without_a_sample_make_a_change_smaller() {
    let four = pods(4);
    let propose = |values: &[(&str, i64)]| by_utilization(target(&four, 4), 50, "cpu", None, samples(values));
    // Two of four at 100 %: the others count as idle, so all together are on target.
    assert_eq!(propose(&[("p0", 1000), ("p1", 1000)]).expect("a proposal").replicas, 4);
    // One of four idle: the others count as fully used.
    assert_eq!(propose(&[("p0", 0)]).expect("a proposal").replicas, 4);
    assert_eq!(
        propose(&[]).expect_err("nothing was measured"),
        "did not receive metrics for targeted pods (pods might be unready)"
    );
}

#[test]
fn pods_that_start_or_go_do_not_count() {
    let mut all = pods(2);
    all.push(
        asking(pod("new").ready_since(NOW - 10), "1")
            .with(|pod| {
                pod.status.get_or_insert_default().start_time = Some(Time(at(NOW - 20)));
            })
            .build(),
    );
    all.push(asking(pod("pending"), "1").build());
    all.push(asking(pod("gone").ready().deleting(), "1").build());
    let measured = samples(&[("p0", 1000), ("p1", 1000), ("new", 9000), ("gone", 9000)]);
    let found = by_utilization(target(&all, 4), 50, "cpu", None, measured).expect("a proposal");
    assert_eq!(found.percent, 100, "only the two that are settled");
    assert_eq!(found.replicas, 4, "the two that start are on their way");
}

#[test]
fn requests_must_be_there() {
    let bare = vec![
        pod("p0")
            .ready_since(100)
            .with(|pod| {
                pod.status.get_or_insert_default().start_time = Some(Time(at(0)));
            })
            .build(),
    ];
    let propose = |container| by_utilization(target(&bare, 1), 50, "cpu", container, samples(&[("p0", 1)]));
    assert_eq!(propose(None).expect_err("no request"), "missing request for cpu in container c of Pod p0");
    assert_eq!(propose(Some("x")).expect_err("no container"), "container x not found in Pod p0");
}

#[test]
fn averages_ratios_and_amounts_per_pod() {
    let two = pods(2);
    let measured = samples(&[("p0", 30_000), ("p1", 10_000)]);
    assert_eq!(by_average(target(&two, 2), 10_000, None, measured), Ok((4, 20_000)));
    assert_eq!(by_ratio(target(&two, 2), 1.05), Ok(2));
    assert_eq!(by_ratio(target(&two, 2), 2.5), Ok(5));
    assert_eq!(by_ratio(target(&two, 0), 2.5), Ok(3), "from nothing");
    assert_eq!(per_pod(target(&two, 2), 50_000, 10_000), (5, 25_000));
    assert_eq!(per_pod(target(&two, 5), 50_000, 10_000), (5, 10_000));
    assert!(by_ratio(target(&[], 2), 2.5).is_err());
}

fn demand(current: i32, desired: i32) -> Demand {
    Demand { current, desired, min: 1, max: 20 }
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn without_rules_it_goes_up_at_once_and_down_after_five_quiet_minutes() {
    let mut history = History::default();
    history.begin(3, seconds(1000));
    let mut decide = |current, desired, second| history.decide(demand(current, desired), None, seconds(second));
    let up = decide(3, 10, 1000);
    assert_eq!((up.replicas, up.limited.0, up.limited.1.0), (6, true, "ScaleUpLimit"));
    assert_eq!(decide(6, 10, 1015).replicas, 10);
    let down = decide(10, 2, 1030);
    assert_eq!((down.replicas, down.able.0), (10, "ScaleDownStabilized"));
    assert_eq!(decide(10, 2, 1300).replicas, 10);
    let quiet = decide(10, 2, 1316);
    assert_eq!(
        quiet,
        Decision {
            replicas: 2,
            able: ("ReadyForNewScale", "recommended size matches current size"),
            limited: (false, ("DesiredWithinRange", "the desired count is within the acceptable range")),
        }
    );
}

#[test]
fn limits_hold() {
    let mut history = History::default();
    let most = history.decide(Demand { current: 15, desired: 99, min: 1, max: 20 }, None, seconds(1));
    assert_eq!((most.replicas, most.limited.1.0), (20, "TooManyReplicas"));
    let mut history = History::default();
    let least = history.decide(Demand { current: 4, desired: 1, min: 2, max: 20 }, None, seconds(1));
    assert_eq!((least.replicas, least.limited.1.0), (2, "TooFewReplicas"));
}

fn rules(window: i32, select: &str, policies: &[(&str, i32, i32)]) -> HPAScalingRules {
    let policies = policies.iter().map(|(type_, value, period)| HPAScalingPolicy {
        type_: (*type_).to_owned(),
        value: *value,
        period_seconds: *period,
    });
    HPAScalingRules {
        stabilization_window_seconds: Some(window),
        select_policy: Some(select.to_owned()),
        policies: Some(policies.collect()),
        tolerance: None,
    }
}

#[test]
fn policies_limit_the_pace() {
    let behavior = HorizontalPodAutoscalerBehavior {
        scale_up: Some(rules(0, "Min", &[("Pods", 2, 60), ("Percent", 50, 60)])),
        scale_down: Some(rules(0, "Max", &[("Pods", 1, 60), ("Percent", 25, 60)])),
    };
    let mut history = History::default();
    let up = history.decide(demand(10, 20), Some(&behavior), seconds(100));
    assert_eq!((up.replicas, up.limited.1.0), (12, "ScaleUpLimit"));
    history.scaled(10, 12, Some(&behavior), seconds(100));
    assert_eq!(
        history.decide(demand(12, 20), Some(&behavior), seconds(130)).replicas,
        12,
        "this minute's two are used up"
    );
    assert_eq!(history.decide(demand(12, 20), Some(&behavior), seconds(170)).replicas, 14);
    let down = history.decide(demand(12, 2), Some(&behavior), seconds(300));
    assert_eq!((down.replicas, down.limited.1.0), (9, "ScaleDownLimit"), "a quarter is more than one");
    let off =
        HorizontalPodAutoscalerBehavior { scale_down: Some(rules(0, "Disabled", &[("Pods", 1, 60)])), scale_up: None };
    assert_eq!(History::default().decide(demand(12, 2), Some(&off), seconds(300)).replicas, 12);
    assert_eq!(
        History::default().decide(demand(1, 20), Some(&off), seconds(300)).replicas,
        5,
        "four more, or twice as many"
    );
}

#[test]
fn a_window_waits_for_the_way_up_too() {
    let behavior = HorizontalPodAutoscalerBehavior {
        scale_up: Some(rules(60, "Max", &[("Percent", 900, 15)])),
        scale_down: Some(rules(0, "Max", &[("Percent", 100, 15)])),
    };
    let mut history = History::default();
    history.begin(4, seconds(100));
    let early = history.decide(demand(4, 8), Some(&behavior), seconds(130));
    assert_eq!((early.replicas, early.able.0), (4, "ScaleUpStabilized"));
    assert_eq!(history.decide(demand(4, 8), Some(&behavior), seconds(161)).replicas, 8);
}

fn scaler(min: i32, status: serde_json::Value) -> HorizontalPodAutoscaler {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "h", "namespace": "ns", "generation": 3},
        "spec": {"minReplicas": min, "maxReplicas": 10, "scaleTargetRef": {"kind": "Deployment", "name": "d"}},
        "status": status,
    }))
    .expect("an autoscaler")
}

fn asks(replicas: i32) -> Result<Proposal, Failure> {
    Ok(Proposal { replicas, name: format!("metric for {replicas}"), status: MetricStatus::default() })
}

fn fails() -> Result<Proposal, Failure> {
    Err(Failure { reason: "FailedGetPodsMetric", cause: "cause".to_owned(), whole: "whole".to_owned() })
}

/// A turn whose writes succeed: the size that is written, the reasons of the events, and those of the conditions.
#[track_caller]
fn check(
    scaler: &HorizontalPodAutoscaler,
    current: Result<i32, &str>,
    metrics: Vec<Result<Proposal, Failure>>,
    expected: (Option<i32>, &[&str], &[&str]),
) -> HorizontalPodAutoscalerStatus {
    let current = current.map_err(str::to_owned);
    let observed =
        Observed { scaler, current, metrics: Ok(metrics), history: History::default(), monotonic: seconds(1000) };
    let plan = plan(observed, at(NOW));
    let (size, mut events) = (plan.rescale, plan.events.clone());
    let outcome = plan.finish(scaler, size.map(|_| Ok(())), seconds(1000));
    events.extend(outcome.events);
    let reasons: Vec<&str> = events.iter().map(|(_, reason, _)| *reason).collect();
    let conditions: Vec<String> =
        outcome.status.conditions.iter().flatten().filter_map(|condition| condition.reason.clone()).collect();
    assert_eq!(
        (size, &reasons[..], conditions.iter().map(String::as_str).collect::<Vec<_>>()),
        (expected.0, expected.1, expected.2.to_vec())
    );
    outcome.status
}

#[test]
fn a_turn_from_metrics_to_what_is_said() {
    let plain = scaler(1, serde_json::Value::Null);
    let rescaled = ["SucceededRescale", "ValidMetricFound", "DesiredWithinRange", "NotScaledToZero"];
    let status = check(&plain, Ok(2), vec![asks(3), asks(4)], (Some(4), &["SuccessfulRescale"], &rescaled));
    assert_eq!((status.current_replicas, status.desired_replicas, status.observed_generation), (Some(2), 4, Some(3)));
    assert_eq!(status.last_scale_time.map(|time| time.0), Some(at(NOW)));
    let quiet = ["ReadyForNewScale", "ValidMetricFound", "DesiredWithinRange"];
    let status = check(&plain, Ok(2), vec![asks(2)], (None, &[], &quiet));
    assert_eq!((status.desired_replicas, status.last_scale_time), (2, None));
}

#[test]
fn metrics_that_fail_may_not_make_it_smaller() {
    let plain = scaler(1, serde_json::Value::Null);
    let failed = ["FailedGetPodsMetric", "FailedComputeMetricsReplicas"];
    let status =
        check(&plain, Ok(4), vec![asks(2), fails()], (None, &failed, &["SucceededGetScale", "FailedGetPodsMetric"]));
    assert_eq!(status.current_metrics.map(|metrics| metrics.len()), Some(2), "a place for each");
    let rescaled = ["SucceededRescale", "ValidMetricFound", "DesiredWithinRange", "NotScaledToZero"];
    check(&plain, Ok(4), vec![asks(6), fails()], (Some(6), &["FailedGetPodsMetric", "SuccessfulRescale"], &rescaled));
}

#[test]
fn limits_and_zero_need_no_metrics() {
    let plain = scaler(2, serde_json::Value::Null);
    for (current, needed) in [(0, false), (1, false), (2, true), (10, true), (11, false)] {
        assert_eq!(needs_metrics(&plain, current), needed, "{current}");
    }
    let rescaled = ["SucceededRescale", "NotScaledToZero"];
    check(&plain, Ok(11), Vec::new(), (Some(10), &["SuccessfulRescale"], &rescaled));
    check(&plain, Ok(1), Vec::new(), (Some(2), &["SuccessfulRescale"], &rescaled));
    check(&plain, Ok(0), Vec::new(), (None, &[], &["SucceededGetScale", "ScalingDisabled"]));
    check(&plain, Err("gone"), Vec::new(), (None, &["FailedGetScale"], &["FailedGetScale"]));
}

#[test]
fn a_size_that_cannot_be_written_is_not_desired() {
    let plain = scaler(1, serde_json::json!({"desiredReplicas": 2, "currentReplicas": 2}));
    let observed = Observed {
        scaler: &plain,
        current: Ok(2),
        metrics: Ok(vec![asks(4)]),
        history: History::default(),
        monotonic: seconds(1),
    };
    let outcome = plan(observed, at(NOW)).finish(&plain, Some(Err("refused".to_owned())), seconds(1));
    assert_eq!(outcome.events[0].2, "New size: 4; reason: metric for 4 above target; error: refused");
    assert_eq!((outcome.desired, outcome.status.desired_replicas), (None, 2));
}
