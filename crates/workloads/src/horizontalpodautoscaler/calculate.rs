//! How many replicas a metric asks for. All amounts are in thousandths.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use informer::clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};

use crate::common::meta::MetaExt;
use crate::common::pods;

/// A pod's CPU counts only after this, unless it was ready before.
const CPU_INITIALIZATION: Duration = Duration::from_secs(5 * 60);
/// A pod that was ready for the last time this soon after its start never really was.
const INITIAL_READINESS: Duration = Duration::from_secs(30);

/// What was measured of one pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) value: i64,
    pub(super) at: Timestamp,
    pub(super) window: Duration,
}

/// What was measured, by the names of pods.
pub(super) type Samples = BTreeMap<String, Sample>;

/// How far from its target a metric may be before anything is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tolerances {
    pub(super) down: f64,
    pub(super) up: f64,
}

impl Tolerances {
    fn allow(self, ratio: f64) -> bool {
        (1.0 - self.down) <= ratio && ratio <= (1.0 + self.up)
    }
}

/// The pods of the target, and the time.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) pods: &'a [Arc<Pod>],
    pub(super) replicas: i32,
    pub(super) tolerances: Tolerances,
    pub(super) now: Timestamp,
}

/// What came out for a share of the requests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Utilization {
    pub(super) replicas: i32,
    pub(super) percent: i32,
    pub(super) average: i64,
}

struct Groups<'a> {
    ready: usize,
    unready: HashSet<&'a str>,
    missing: HashSet<&'a str>,
}

/// Replicas so that the average use of a resource is this share of what pods, or one of their containers, request.
pub(super) fn by_utilization(
    target: Target<'_>,
    percent: i32,
    resource: &str,
    container: Option<&str>,
    mut samples: Samples,
) -> Result<Utilization, String> {
    let groups = group(target, &mut samples, Some(resource))?;
    let requests = requests(target.pods, container, resource)?;
    let (ratio, now_percent, average) = utilization_ratio(&samples, &requests, percent)?;
    let outcome = |replicas| Ok(Utilization { replicas, percent: now_percent, average });
    let fill = |name: &str| requests.get(name).copied().unwrap_or_default() * i64::from(percent.max(100)) / 100;
    let again = |samples: &Samples| utilization_ratio(samples, &requests, percent).map(|(ratio, ..)| ratio);
    outcome(settle(target, &groups, samples, ratio, fill, again)?)
}

/// Replicas so that the average of a metric of pods is this much. A resource's own rules apply where it is one.
pub(super) fn by_average(
    target: Target<'_>,
    wanted: i64,
    resource: Option<&str>,
    mut samples: Samples,
) -> Result<(i32, i64), String> {
    let groups = group(target, &mut samples, resource)?;
    let average = |samples: &Samples| {
        let total: i64 = samples.values().map(|sample| sample.value).fold(0, i64::saturating_add);
        total / i64::try_from(samples.len()).unwrap_or(i64::MAX).max(1)
    };
    let usage = average(&samples);
    let ratio = usage as f64 / wanted as f64;
    let again = |samples: &Samples| Ok(average(samples) as f64 / wanted as f64);
    Ok((settle(target, &groups, samples, ratio, |_| wanted, again)?, usage))
}

/// What both have in common: pods without a sample are assumed to make a change smaller, never larger.
fn settle(
    target: Target<'_>,
    groups: &Groups<'_>,
    mut samples: Samples,
    ratio: f64,
    fill: impl Fn(&str) -> i64,
    again: impl Fn(&Samples) -> Result<f64, String>,
) -> Result<i32, String> {
    let up_with_unready = !groups.unready.is_empty() && ratio > 1.0;
    if !up_with_unready && groups.missing.is_empty() {
        let wanted = (ratio * groups.ready as f64).ceil() as i32;
        return Ok(if target.tolerances.allow(ratio) { target.replicas } else { wanted });
    }
    let mut assume = |name: &str, value| {
        samples.insert(name.to_owned(), Sample { value, at: target.now, window: Duration::ZERO });
    };
    for name in &groups.missing {
        if ratio < 1.0 {
            assume(name, fill(name));
        } else if ratio > 1.0 {
            assume(name, 0);
        }
    }
    if up_with_unready {
        groups.unready.iter().for_each(|name| assume(name, 0));
    }
    let new = again(&samples)?;
    let turned = (ratio < 1.0 && new > 1.0) || (ratio > 1.0 && new < 1.0);
    if target.tolerances.allow(new) || turned {
        return Ok(target.replicas);
    }
    let wanted = (new * samples.len() as f64).ceil() as i32;
    let against = (new < 1.0 && wanted > target.replicas) || (new > 1.0 && wanted < target.replicas);
    Ok(if against { target.replicas } else { wanted })
}

/// Replicas for a metric that is not of pods, and so much of its target.
pub(super) fn by_ratio(target: Target<'_>, ratio: f64) -> Result<i32, String> {
    if target.replicas == 0 {
        return Ok(ratio.ceil() as i32);
    }
    if target.tolerances.allow(ratio) {
        return Ok(target.replicas);
    }
    if target.pods.is_empty() {
        return Err(
            "unable to calculate ready pods: no pods returned by selector while calculating replica count".to_owned()
        );
    }
    let ready = target.pods.iter().filter(|pod| pods::phase(pod) == "Running" && pods::is_ready(pod)).count();
    Ok((ratio * ready as f64).ceil() as i32)
}

/// Replicas so that each has this much of a metric that is not of pods, and how much each has now.
pub(super) fn per_pod(target: Target<'_>, usage: i64, wanted: i64) -> (i32, i64) {
    let replicas = f64::from(target.replicas);
    let ratio = usage as f64 / (wanted as f64 * replicas);
    let count =
        if target.tolerances.allow(ratio) { target.replicas } else { (usage as f64 / wanted as f64).ceil() as i32 };
    (count, (usage as f64 / replicas).ceil() as i64)
}

/// Which pods count; samples of those that do not are removed.
fn group<'a>(target: Target<'a>, samples: &mut Samples, resource: Option<&str>) -> Result<Groups<'a>, String> {
    if target.pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let mut groups = Groups { ready: 0, unready: HashSet::new(), missing: HashSet::new() };
    for pod in target.pods {
        let name = pod.metadata.name();
        if pod.metadata.is_deleting() || pods::phase(pod) == "Failed" {
            samples.remove(name);
        } else if pods::phase(pod) == "Pending" {
            samples.remove(name);
            groups.unready.insert(name);
        } else if let Some(sample) = samples.get(name) {
            if resource == Some("cpu") && is_starting(pod, sample, target.now) {
                samples.remove(name);
                groups.unready.insert(name);
            } else {
                groups.ready += 1;
            }
        } else {
            groups.missing.insert(name);
        }
    }
    if samples.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    Ok(groups)
}

/// Whether a pod's CPU says more about its start than about its load.
fn is_starting(pod: &Pod, sample: &Sample, now: Timestamp) -> bool {
    let started = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let (Some(ready), Some(started)) = (pods::condition(pod, "Ready"), started) else { return true };
    let changed = ready.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    let unready = ready.status == "False";
    if clock::add(started.0, CPU_INITIALIZATION) > now {
        unready || sample.at < clock::add(changed, sample.window)
    } else {
        unready && clock::add(started.0, INITIAL_READINESS) > changed
    }
}

fn utilization_ratio(
    samples: &Samples,
    requests: &BTreeMap<&str, i64>,
    percent: i32,
) -> Result<(f64, i32, i64), String> {
    let (mut used, mut requested, mut count) = (0_i64, 0_i64, 0_i64);
    for (name, sample) in samples {
        let Some(request) = requests.get(name.as_str()) else { continue };
        used = used.saturating_add(sample.value);
        requested = requested.saturating_add(*request);
        count += 1;
    }
    if requested == 0 {
        return Err("no metrics returned matched known pods".to_owned());
    }
    let now = i32::try_from(used.saturating_mul(100) / requested).unwrap_or(i32::MAX);
    Ok((f64::from(now) / f64::from(percent), now, used / count))
}

/// What pods, or one container of each, request of a resource.
fn requests<'a>(
    targets: &'a [Arc<Pod>],
    container: Option<&str>,
    resource: &str,
) -> Result<BTreeMap<&'a str, i64>, String> {
    targets.iter().map(|pod| Ok((pod.metadata.name(), request(pod, container, resource)?))).collect()
}

fn milli(text: &str) -> i64 {
    text.parse::<machinery::quantity::Quantity>().map(|quantity| quantity.milli_value()).unwrap_or_default()
}

fn request(pod: &Pod, container: Option<&str>, resource: &str) -> Result<i64, String> {
    let name = pod.metadata.name();
    let Some(spec) = &pod.spec else { return Ok(0) };
    let own = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    if let Some(amount) = own.and_then(|own| own.get(resource)).filter(|_| container.is_none()) {
        return Ok(milli(&amount.0));
    }
    let sidecars = spec.init_containers.iter().flatten();
    let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
    let all: Vec<&Container> = spec.containers.iter().chain(sidecars).collect();
    let amount = |container: &Container| {
        let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
        let amount = requests.and_then(|requests| requests.get(resource));
        amount
            .map(|amount| milli(&amount.0))
            .ok_or_else(|| format!("missing request for {resource} in container {} of Pod {name}", container.name))
    };
    match container {
        None => all.into_iter().map(amount).sum(),
        Some(wanted) => match all.into_iter().find(|container| container.name == wanted) {
            Some(container) => amount(container),
            None => Err(format!("container {wanted} not found in Pod {name}")),
        },
    }
}
