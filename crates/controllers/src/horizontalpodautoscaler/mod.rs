//! HorizontalPodAutoscaler: as many replicas as the load asks for.
//!
//! `metrics` reads, `calculate` and `behavior` decide and are pure, `status` reports. Metrics cannot be watched, so an autoscaler looks again every 15 s; without one nothing
//! wakes up. Upstream: HorizontalController.

mod behavior;
mod calculate;
mod compute;
mod figures;
mod metrics;
mod status;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Gvr};
use informer::{Action, Change, Clock, EventType, Informer, Key, Reconciler, Recorder};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerStatus, MetricStatus,
};
use k8s_openapi::api::core::v1::Pod;
use machinery::selector::LabelSelector;
use parking_lot::Mutex;

use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::selector;
use crate::context::Context;
use crate::metrics as shown;
use behavior::{History, Wish};
use calculate::{Target, Tolerances};
use compute::{Subject, compute};
use metrics::Metrics;
use status::{ABLE, ACTIVE, LIMITED, Report, ZERO};

const WORKERS: usize = 5;
/// How often an autoscaler looks.
const PERIOD: Duration = Duration::from_secs(15);
/// How far from its target a metric may be, unless the autoscaler says otherwise.
const TOLERANCE: f64 = 0.1;
/// How often a size is tried to be written against somebody else's changes.
const TRIES: u32 = 5;

/// Runs the controller.
pub(crate) async fn start(context: Context) {
    let controller = Autoscalers {
        client: context.client.clone(),
        recorder: context.recorder.clone(),
        clock: context.clock.clone(),
        scalers: context.informers.of(),
        pods: context.informers.of(),
        metrics: Metrics { client: context.client.clone() },
        memory: Mutex::default(),
        resources: Mutex::default(),
    };
    let queue = context.queue();
    let all = controller.scalers.clone();
    informer::feed(&controller.scalers, &queue, move |change| {
        shown::SCALERS.set(&[], all.len() as f64);
        if let Change::Deleted(gone) = change {
            shown::SCALER_DESIRED.remove(&[gone.metadata.namespace(), gone.metadata.name()]);
        }
        // Its own words about itself are no reason to look.
        let same =
            matches!(change, Change::Modified { old, new } if old.metadata.generation == new.metadata.generation);
        (!same).then(|| change.object().metadata.key())
    });
    futures::join!(controller.scalers.synced(), controller.pods.synced());
    context.run(controller, queue, WORKERS).await;
}

/// What is remembered of an autoscaler between two looks.
#[derive(Default)]
struct Memory {
    history: History,
    /// The pods it was last seen to scale.
    selector: Option<LabelSelector>,
}

struct Autoscalers {
    client: Client,
    recorder: Recorder,
    clock: Arc<dyn Clock>,
    scalers: Informer<HorizontalPodAutoscaler>,
    pods: Informer<Pod>,
    metrics: Metrics,
    memory: Mutex<HashMap<Key, Memory>>,
    /// What kinds are called in paths. Kinds do not change their names.
    resources: Mutex<HashMap<(String, String), Gvr>>,
}

/// What the metrics together ask for.
struct Computed {
    replicas: i32,
    metric: String,
    statuses: Vec<MetricStatus>,
}

impl Reconciler for Autoscalers {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(scaler) = self.scalers.get(key) else {
            self.memory.lock().remove(key);
            return Ok(Action::Done);
        };
        let mut report = Report::new(&scaler, self.clock.now());
        let begun = self.clock.monotonic();
        let looked = self.look(key, &scaler, &mut report).await;
        figures::looked(key, looked.as_ref(), self.clock.monotonic().saturating_sub(begun));
        let status = match looked {
            Some(looked) => report.finish(&scaler, looked.current, looked.desired, looked.metrics, looked.rescaled),
            None => report.conditions_only(),
        };
        self.write(&scaler, status).await?;
        Ok(Action::After(PERIOD))
    }
}

/// What came of a look.
struct Looked {
    current: i32,
    desired: Option<i32>,
    metrics: Vec<MetricStatus>,
    rescaled: bool,
}

impl Autoscalers {
    async fn write(
        &self,
        scaler: &HorizontalPodAutoscaler,
        status: HorizontalPodAutoscalerStatus,
    ) -> Result<(), Error> {
        if scaler.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let changed = HorizontalPodAutoscaler { status: Some(status), ..scaler.clone() };
        if let Err(error) = self.client.update_status(&changed).await {
            self.recorder.event(scaler, EventType::Warning, "FailedUpdateStatus", error.to_string());
            return Err(error.into());
        }
        Ok(())
    }

    fn warn(&self, scaler: &HorizontalPodAutoscaler, reason: &str, message: impl Into<String>) {
        self.recorder.event(scaler, EventType::Warning, reason, message);
    }

    /// One look; `None` if not even the size of the target could be found.
    async fn look(&self, key: &Key, scaler: &HorizontalPodAutoscaler, report: &mut Report) -> Option<Looked> {
        let (resource, scale) = match self.scale(scaler).await {
            Ok(found) => found,
            Err(error) => {
                let message = format!("the HPA controller was unable to get the target's current scale: {error}");
                report.condition(ABLE, false, "FailedGetScale", message);
                self.warn(scaler, "FailedGetScale", error);
                return None;
            }
        };
        report.condition(
            ABLE,
            true,
            "SucceededGetScale",
            "the HPA controller was able to get the target's current scale",
        );
        let current = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
        let now = self.clock.monotonic();
        self.memory.lock().entry(key.clone()).or_default().history.begin(current, now);
        let (min, max) = (scaler.spec.min_replicas.unwrap_or(1), scaler.spec.max_replicas);
        let counts_outside =
            scaler.spec.metrics.iter().flatten().any(|metric| matches!(&*metric.type_, "Object" | "External"));
        let at_zero = report.holds(ZERO);

        let mut looked = Looked { current, desired: None, metrics: Vec::new(), rescaled: false };
        let (desired, reason) = if current == 0 && (!at_zero || (min == 0 && !counts_outside)) {
            let message = "scaling is disabled since the replica count of the target is zero";
            report.condition(ACTIVE, false, "ScalingDisabled", message);
            (0, String::new())
        } else if current > max {
            (max, "Current number of replicas above Spec.MaxReplicas".to_owned())
        } else if current != 0 && current < min {
            (min, "Current number of replicas below Spec.MinReplicas".to_owned())
        } else {
            let (computed, failure) = self.compute(key, scaler, &scale, report).await;
            let Some(computed) = computed else {
                looked.metrics = failure.statuses;
                self.warn(scaler, "FailedComputeMetricsReplicas", failure.message);
                return Some(looked);
            };
            looked.metrics = computed.statuses;
            let wish = Wish { current, desired: computed.replicas, min, max };
            let mut reason = String::new();
            if wish.desired > current {
                reason = format!("{} above target", computed.metric);
            } else if wish.desired < current {
                "All metrics below target".clone_into(&mut reason);
            }
            let behavior = scaler.spec.behavior.as_ref();
            let decision = self.memory.lock().entry(key.clone()).or_default().history.decide(wish, behavior, now);
            report.condition(ABLE, true, decision.able.0, decision.able.1);
            let (limited, why) = decision.limited;
            report.condition(LIMITED, limited, why.0, why.1);
            let mut desired = decision.replicas;
            if current == 0 && min != 0 && at_zero && desired < min {
                desired = min;
                if reason.is_empty() {
                    "Current number of replicas below Spec.MinReplicas".clone_into(&mut reason);
                }
            }
            (desired, reason)
        };
        looked.desired = Some(desired);
        if desired == current {
            return Some(looked);
        }
        if let Err(error) = self.rescale(scaler, &resource, scale, desired).await {
            self.warn(scaler, "FailedRescale", format!("New size: {desired}; reason: {reason}; error: {error}"));
            let message = format!("the HPA controller was unable to update the target scale: {error}");
            report.condition(ABLE, false, "FailedUpdateScale", message);
            looked.desired = None;
            return Some(looked);
        }
        let message = format!("the HPA controller was able to update the target scale to {desired}");
        report.condition(ABLE, true, "SucceededRescale", message);
        let message = format!("New size: {desired}; reason: {reason}");
        self.recorder.event(scaler, EventType::Normal, "SuccessfulRescale", message);
        let behavior = scaler.spec.behavior.as_ref();
        self.memory.lock().entry(key.clone()).or_default().history.scaled(current, desired, behavior, now);
        if current > 0 && desired == 0 && min == 0 && counts_outside {
            report.condition(ZERO, true, "ScaledToZero", "the HPA controller scaled the workload to zero");
        } else {
            report.condition(ZERO, false, "NotScaledToZero", "the HPA controller did not scale the workload to zero");
        }
        looked.rescaled = true;
        Some(looked)
    }

    /// The target's size, and what the target is called in paths.
    async fn scale(&self, scaler: &HorizontalPodAutoscaler) -> Result<(Gvr, Scale), String> {
        let target = &scaler.spec.scale_target_ref;
        let resource = self.resource(target.api_version.as_deref().unwrap_or("v1"), &target.kind).await?;
        let scale =
            self.client.dynamic(&resource).get_subresource(scaler.metadata.namespace(), &target.name, "scale").await;
        let scale = scale.map_err(|error| error.to_string())?;
        Ok((resource, serde_json::from_value(scale).map_err(|error| error.to_string())?))
    }

    async fn resource(&self, api_version: &str, kind: &str) -> Result<Gvr, String> {
        let id = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = self.resources.lock().get(&id) {
            return Ok(known.clone());
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let unknown = || format!("no matches for kind {kind:?} in group {group:?}");
        let list = self.metrics.resources(api_version).await.map_err(|_| unknown())?;
        let found = list.resources.into_iter().find(|resource| resource.kind == kind && !resource.name.contains('/'));
        let resource = Gvr::new(group, version, found.ok_or_else(unknown)?.name);
        self.resources.lock().insert(id, resource.clone());
        Ok(resource)
    }

    /// What an object of a metric is called in paths: `ingresses.networking.k8s.io`.
    async fn described(&self, object: &CrossVersionObjectReference) -> Result<String, String> {
        let found = self.resource(object.api_version.as_deref().unwrap_or("v1"), &object.kind).await?;
        Ok(if found.group.is_empty() { found.resource } else { format!("{}.{}", found.resource, found.group) })
    }

    async fn rescale(
        &self,
        scaler: &HorizontalPodAutoscaler,
        resource: &Gvr,
        mut scale: Scale,
        desired: i32,
    ) -> Result<(), client::Error> {
        let (namespace, name) = (scaler.metadata.namespace(), &scaler.spec.scale_target_ref.name);
        let target = self.client.dynamic(resource);
        for attempt in 1.. {
            scale.spec.get_or_insert_default().replicas = Some(desired);
            let body = serde_json::to_value(&scale).map_err(client::Error::Encode)?;
            match target.update(namespace, &body, "scale").await {
                Err(error) if error.is_conflict() && attempt < TRIES => {
                    let latest = target.get_subresource(namespace, name, "scale").await?;
                    scale = serde_json::from_value(latest).map_err(client::Error::Encode)?;
                }
                answer => return answer.map(drop),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// The most that any metric asks for. Metrics that fail may not make it smaller.
    async fn compute(
        &self,
        key: &Key,
        scaler: &HorizontalPodAutoscaler,
        scale: &Scale,
        report: &mut Report,
    ) -> (Option<Computed>, Failed) {
        let current = scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
        let text = scale.status.as_ref().and_then(|status| status.selector.clone()).unwrap_or_default();
        let pods = match self.selected(key, scaler, &text, report) {
            Ok(pods) => pods,
            Err(message) => return (None, Failed { statuses: Vec::new(), message }),
        };
        let target = Target {
            pods: &pods,
            replicas: current,
            tolerances: tolerances(scaler.spec.behavior.as_ref()),
            now: self.clock.now(),
        };
        let subject = Subject {
            namespace: &key.namespace,
            selector: &text,
            target,
            status_replicas: scale.status.as_ref().map(|status| status.replicas).unwrap_or_default(),
        };
        let specs = scaler.spec.metrics.as_deref().unwrap_or_default();
        let (mut best, mut statuses, mut failed): (Option<(i32, String)>, Vec<MetricStatus>, Vec<compute::Failure>) =
            (None, Vec::new(), Vec::new());
        for spec in specs {
            let described = match &spec.object {
                Some(source) => self.described(&source.described_object).await,
                None => Ok(String::new()),
            };
            let begun = self.clock.monotonic();
            let proposed = compute(&self.metrics, spec, subject, described).await;
            let replicas = proposed.as_ref().ok().map(|proposal| proposal.replicas);
            figures::computed(&spec.type_, current, replicas, self.clock.monotonic().saturating_sub(begun));
            match proposed {
                Ok(proposal) => {
                    statuses.push(proposal.status);
                    if best.as_ref().is_none_or(|(most, _)| *most == 0 || proposal.replicas > *most) {
                        best = Some((proposal.replicas, proposal.name));
                    }
                }
                Err(failure) => {
                    self.warn(scaler, failure.reason, failure.cause.clone());
                    // A place is kept for every metric, so that they can be told apart.
                    statuses.push(MetricStatus::default());
                    failed.push(failure);
                }
            }
        }
        let message = failed.first().map_or_else(String::new, |first| {
            format!(
                "invalid metrics ({} invalid out of {}), first error is: {}",
                failed.len(),
                specs.len(),
                first.whole
            )
        });
        match (best, failed.first()) {
            (Some((replicas, metric)), first) if first.is_none() || replicas >= current => {
                let words = format!("the HPA was able to successfully calculate a replica count from {metric}");
                report.condition(ACTIVE, true, "ValidMetricFound", words);
                (Some(Computed { replicas, metric, statuses }), Failed::default())
            }
            (_, first) => {
                if let Some(first) = first {
                    let words = format!("the HPA was unable to compute the replica count: {}", first.cause);
                    report.condition(ACTIVE, false, first.reason, words);
                }
                (None, Failed { statuses, message })
            }
        }
    }

    /// The pods of the target, which must be nobody else's to scale.
    fn selected(
        &self,
        key: &Key,
        scaler: &HorizontalPodAutoscaler,
        text: &str,
        report: &mut Report,
    ) -> Result<Vec<Arc<Pod>>, String> {
        if text.is_empty() {
            let message = "selector is required";
            self.warn(scaler, "SelectorRequired", message);
            report.condition(ACTIVE, false, "InvalidSelector", "the HPA target's scale is missing a selector");
            return Err(message.to_owned());
        }
        let parsed = LabelSelector::parse(text).map_err(|error| {
            let message = format!("couldn't convert selector into a corresponding internal selector object: {error}");
            self.warn(scaler, "InvalidSelector", message.clone());
            report.condition(ACTIVE, false, "InvalidSelector", message.clone());
            message
        })?;
        let matching = |pod: &Arc<Pod>| selector::matches(&parsed, &pod.metadata.labels);
        let pods: Vec<Arc<Pod>> = self.pods.by_namespace(&key.namespace).into_iter().filter(matching).collect();
        let mut memory = self.memory.lock();
        let shares = |other: &LabelSelector| pods.iter().any(|pod| selector::matches(other, &pod.metadata.labels));
        let other = memory.iter().find(|(other, known)| {
            *other != key && other.namespace == key.namespace && known.selector.as_ref().is_some_and(shares)
        });
        let rival = other.map(|(other, _)| other.clone());
        memory.entry(key.clone()).or_default().selector = Some(parsed.clone());
        drop(memory);
        if let Some(rival) = rival {
            let message = format!(
                "pods by selector {text} are controlled by more than one HPA (e.g. [{{{} {}}} {{{} {}}}])",
                key.name, key.namespace, rival.name, rival.namespace
            );
            self.warn(scaler, "AmbiguousSelector", message.clone());
            report.condition(ACTIVE, false, "AmbiguousSelector", message.clone());
            return Err(message);
        }
        Ok(pods)
    }
}

/// Why no size could be computed.
#[derive(Default)]
struct Failed {
    statuses: Vec<MetricStatus>,
    message: String,
}

fn tolerances(behavior: Option<&HorizontalPodAutoscalerBehavior>) -> Tolerances {
    let given = |rules: Option<&k8s_openapi::api::autoscaling::v2::HPAScalingRules>| {
        let text = &rules?.tolerance.as_ref()?.0;
        text.parse::<machinery::quantity::Quantity>().ok().map(|quantity| quantity.as_f64())
    };
    Tolerances {
        down: given(behavior.and_then(|behavior| behavior.scale_down.as_ref())).unwrap_or(TOLERANCE),
        up: given(behavior.and_then(|behavior| behavior.scale_up.as_ref())).unwrap_or(TOLERANCE),
    }
}
