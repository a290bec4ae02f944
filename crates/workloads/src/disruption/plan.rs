//! The numbers of a budget.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use informer::{EventType, clock};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use machinery::selector::label::LabelSelector;

use crate::common::intstr::{Round, scaled};
use crate::common::meta::MetaExt;
use crate::common::{pods, selector};

/// How long an eviction may take from its acceptance to the pod's deletion timestamp.
const DELETION_TIMEOUT: Duration = Duration::from_secs(120);

/// A disruption condition of a pod that is not being deleted is stale after this.
const STALE: Duration = Duration::from_secs(120);

/// What a turn sees.
pub(super) struct Observed {
    pub(super) budget: Arc<PodDisruptionBudget>,
    /// Those that the budget selects.
    pub(super) pods: Vec<Arc<Pod>>,
    /// How many there should be, or why nobody knows.
    pub(super) scale: Result<Scale, String>,
}

/// The sizes of the workloads behind the pods, together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scale {
    pub(super) replicas: i32,
    /// Whether some pods have no workload behind them.
    pub(super) unmanaged: bool,
}

/// An event: its type, reason and message.
pub(super) type Message = (EventType, &'static str, String);

/// What a turn says and does.
pub(super) struct Plan {
    pub(super) events: Vec<Message>,
    pub(super) status: PodDisruptionBudgetStatus,
    /// Pods, as they should be, that were to be disrupted and never were.
    pub(super) clear: Vec<Pod>,
    pub(super) again: Option<Duration>,
}

pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    let Observed { budget, pods, scale } = observed;
    let mut events = Vec::new();
    if pods.is_empty() {
        events.push((EventType::Normal, "NoPods", "No matching pods found".to_owned()));
    }
    let scale = match scale {
        Ok(scale) => scale,
        Err(error) => {
            let message = format!("Failed to calculate the number of expected pods: {error}");
            events.push((EventType::Warning, "CalculateExpectedPodCountFailed", message));
            // Nothing may be evicted on numbers that nobody knows.
            return Plan { events, status: failed(budget, error, now), clear: Vec::new(), again: None };
        }
    };
    if scale.unmanaged {
        let message = format!(
            "Pods selected by this PodDisruptionBudget (selector: {}) were found to be unmanaged. As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" field of the PDB to an integer value.",
            selector(budget)
        );
        events.push((EventType::Warning, "UnmanagedPods", message));
    }
    let (status, again) = status(budget, pods, expected(budget, scale.replicas), now);
    let cleared = |pod: &Arc<Pod>| Some(Pod { status: Some(without_condition(pod, now)?), ..Pod::clone(pod) });
    let clear = pods.iter().filter(|pod| stale_condition(pod, now, STALE)).filter_map(cleared).collect();
    let stale = pods.iter().filter_map(|pod| stale_in(pod, now, STALE)).min();
    Plan { events, status, clear, again: [again, stale].into_iter().flatten().min() }
}

/// How many pods there should be, and how many healthy ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) count: i32,
    pub(super) healthy: i32,
}

/// An absent selector picks no pod, an empty one every pod.
pub(super) fn selector(budget: &PodDisruptionBudget) -> LabelSelector {
    selector::parse_optional(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref()))
}

/// Whether the sizes of the workloads matter: they do unless a plain number of healthy pods is asked for.
pub(super) fn needs_scale(budget: &PodDisruptionBudget) -> bool {
    let Some(spec) = &budget.spec else { return false };
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

pub(super) fn expected(budget: &PodDisruptionBudget, count: i32) -> Expected {
    let Some(spec) = &budget.spec else { return Expected { count: 0, healthy: 0 } };
    let healthy = if let Some(value) = &spec.max_unavailable {
        (count - scaled(value, count, Round::Up).unwrap_or_default()).max(0)
    } else if let Some(value) = &spec.min_available {
        scaled(value, count, Round::Up).unwrap_or_default()
    } else {
        0
    };
    Expected { count, healthy }
}

/// The status, and when evictions that were accepted and did not happen are to be forgotten.
pub(super) fn status(
    budget: &PodDisruptionBudget,
    all: &[Arc<Pod>],
    expected: Expected,
    now: Timestamp,
) -> (PodDisruptionBudgetStatus, Option<Duration>) {
    let known = budget.status.clone().unwrap_or_default();
    let (disrupted, again) = still_disrupted(&known.disrupted_pods.clone().unwrap_or_default(), all, now);
    let is_healthy = |pod: &Arc<Pod>| {
        !pod.metadata.is_deleting() && !disrupted.contains_key(pod.metadata.name()) && pods::is_ready(pod)
    };
    let current = i32::try_from(all.iter().filter(|pod| is_healthy(pod)).count()).unwrap_or(i32::MAX);
    let allowed = if expected.count <= 0 { 0 } else { (current - expected.healthy).max(0) };
    let (value, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let status = PodDisruptionBudgetStatus {
        current_healthy: Some(current),
        desired_healthy: Some(expected.healthy),
        expected_pods: Some(expected.count),
        disruptions_allowed: Some(allowed),
        disrupted_pods: (!disrupted.is_empty()).then_some(disrupted),
        observed_generation: budget.metadata.generation,
        conditions: Some(with_condition(&known, budget, value, reason, "", now)),
    };
    (status, again)
}

/// The status when the numbers cannot be known: nothing may be evicted.
fn failed(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> PodDisruptionBudgetStatus {
    let known = budget.status.clone().unwrap_or_default();
    let conditions = with_condition(&known, budget, "False", "SyncFailed", why, now);
    PodDisruptionBudgetStatus {
        disruptions_allowed: Some(0),
        observed_generation: budget.metadata.generation,
        conditions: Some(conditions),
        ..known
    }
}

fn with_condition(
    known: &PodDisruptionBudgetStatus,
    budget: &PodDisruptionBudget,
    value: &str,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Vec<Condition> {
    let mut conditions = known.conditions.clone().unwrap_or_default();
    let old = conditions.iter().find(|condition| condition.type_ == "DisruptionAllowed");
    let since = old.filter(|old| old.status == value).map_or(Time(now), |old| old.last_transition_time.clone());
    let new = Condition {
        type_: "DisruptionAllowed".to_owned(),
        status: value.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: budget.metadata.generation,
        last_transition_time: since,
    };
    conditions.retain(|condition| condition.type_ != "DisruptionAllowed");
    conditions.push(new);
    conditions
}

/// Evictions that were accepted and whose pods are not being deleted yet.
fn still_disrupted(
    known: &BTreeMap<String, Time>,
    all: &[Arc<Pod>],
    now: Timestamp,
) -> (BTreeMap<String, Time>, Option<Duration>) {
    let mut disrupted = BTreeMap::new();
    let mut again: Option<Duration> = None;
    for (name, at) in known {
        let waits = all.iter().any(|pod| pod.metadata.name() == name && !pod.metadata.is_deleting());
        let left = clock::since(clock::add(at.0, DELETION_TIMEOUT), now);
        if waits && !left.is_zero() {
            disrupted.insert(name.clone(), at.clone());
            again = Some(again.map_or(left, |known| known.min(left)));
        }
    }
    (disrupted, again)
}

/// The time a disruption condition has left before it is stale; `None` if there is none that could be.
fn condition_left(pod: &Pod, now: Timestamp, stale: Duration) -> Option<Duration> {
    if pod.metadata.is_deleting() || pods::is_terminal(pod) {
        return None;
    }
    let condition = pods::condition(pod, "DisruptionTarget")?;
    let ours = condition.status == "True" && condition.reason.as_deref() != Some("TerminationByKubelet");
    let since = condition.last_transition_time.as_ref()?.0;
    ours.then(|| clock::since(clock::add(since, stale), now))
}

/// A pod was to be disrupted and never was.
fn stale_condition(pod: &Pod, now: Timestamp, stale: Duration) -> bool {
    condition_left(pod, now, stale).is_some_and(|left| left.is_zero())
}

/// When that could be said of it.
fn stale_in(pod: &Pod, now: Timestamp, stale: Duration) -> Option<Duration> {
    condition_left(pod, now, stale).filter(|left| !left.is_zero())
}

/// The status that says it is not disrupted after all.
fn without_condition(pod: &Pod, now: Timestamp) -> Option<PodStatus> {
    let mut status = pod.status.clone()?;
    let condition = status.conditions.iter_mut().flatten().find(|condition| condition.type_ == "DisruptionTarget")?;
    condition.status = "False".to_owned();
    condition.last_transition_time = Some(Time(now));
    Some(status)
}
