//! Observes, applies what `plan` decides, and reports.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use client::Gvr;
use informer::{Action, Change, EventType, Informer, Key, Reconciler};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus,
};
use k8s_openapi::api::core::v1::Pod;
use machinery::selector::LabelSelector;
use parking_lot::Mutex;

use super::behavior::History;
use super::calculate::Target;
use super::compute::{Failure, Proposal, Subject, compute};
use super::figures;
use super::metrics::Metrics;
use super::plan::{self, BadSelector, Message, Observed};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::common::selector;
use crate::context::{Context, Tools};
use crate::metrics as families;

const WORKERS: usize = 5;
/// How often an autoscaler looks.
const PERIOD: Duration = Duration::from_secs(15);
/// How often a size is tried to be written against somebody else's changes.
const TRIES: u32 = 5;

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = Autoscalers {
        tools: context.tools.clone(),
        scalers: inputs.read(),
        pods: inputs.read(),
        metrics: Metrics { client: context.tools.client.clone() },
        memory: Mutex::default(),
        resources: Mutex::default(),
    };
    let all = controller.scalers.clone();
    inputs.feed(&controller.scalers, move |change| {
        families::SCALERS.set(&[], all.len() as f64);
        if let Change::Deleted(gone) = change {
            families::SCALER_DESIRED.remove(&[gone.metadata.namespace(), gone.metadata.name()]);
        }
        // Its own words about itself are no reason to look.
        let same =
            matches!(change, Change::Modified { old, new } if old.metadata.generation == new.metadata.generation);
        (!same).then(|| change.object().metadata.key())
    });
    inputs.run(controller, WORKERS).await;
}

/// What is remembered of an autoscaler between two turns.
#[derive(Default)]
struct Memory {
    history: History,
    /// The pods it was last seen to scale.
    selector: Option<LabelSelector>,
}

struct Autoscalers {
    tools: Tools,
    scalers: Informer<HorizontalPodAutoscaler>,
    pods: Informer<Pod>,
    metrics: Metrics,
    memory: Mutex<HashMap<Key, Memory>>,
    /// What kinds are called in paths. Kinds do not change their names.
    resources: Mutex<HashMap<(String, String), Gvr>>,
}

impl Reconciler for Autoscalers {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(scaler) = self.scalers.get(key) else {
            self.memory.lock().remove(key);
            return Ok(Action::Done);
        };
        let begun = self.tools.clock.monotonic();
        let target = self.scale(&scaler).await;
        let observed = self.observe(key, &scaler, target.as_ref().map(|(_, scale)| scale), begun).await;
        let plan = plan::plan(observed, self.tools.clock.now());
        self.record(&scaler, &plan.events);
        let rescaled = match (plan.rescale, target) {
            (Some(size), Ok((resource, scale))) => Some(self.rescale(&scaler, &resource, scale, size).await),
            _ => None,
        };
        let rescaled = rescaled.map(|answer| answer.map_err(|error| error.to_string()));
        let outcome = plan.finish(&scaler, rescaled, begun);
        self.record(&scaler, &outcome.events);
        self.memory.lock().entry(key.clone()).or_default().history = outcome.history;
        let took = self.tools.clock.monotonic().saturating_sub(begun);
        figures::turned(key, outcome.current, outcome.desired, took);
        self.report(&scaler, outcome.status).await?;
        Ok(Action::After(PERIOD))
    }
}

impl Autoscalers {
    async fn observe<'a>(
        &self,
        key: &Key,
        scaler: &'a HorizontalPodAutoscaler,
        scale: Result<&Scale, &String>,
        monotonic: Duration,
    ) -> Observed<'a> {
        let replicas = |scale: &Scale| scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or_default();
        let metrics = match scale {
            Ok(scale) if plan::needs_metrics(scaler, replicas(scale)) => {
                self.metrics_of(key, scaler, scale, replicas(scale)).await
            }
            _ => Ok(Vec::new()),
        };
        let history = self.memory.lock().get(key).map(|memory| memory.history.clone()).unwrap_or_default();
        let current = scale.map(replicas).map_err(Clone::clone);
        Observed { scaler, current, metrics, history, monotonic }
    }

    fn record(&self, scaler: &HorizontalPodAutoscaler, events: &[Message]) {
        for (type_, reason, message) in events {
            self.tools.recorder.event(scaler, *type_, reason, message.clone());
        }
    }

    async fn report(
        &self,
        scaler: &HorizontalPodAutoscaler,
        status: HorizontalPodAutoscalerStatus,
    ) -> Result<(), Error> {
        if scaler.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let changed = HorizontalPodAutoscaler { status: Some(status), ..scaler.clone() };
        if let Err(error) = self.tools.client.update_status(&changed).await {
            self.tools.recorder.event(scaler, EventType::Warning, "FailedUpdateStatus", error.to_string());
            return Err(error.into());
        }
        Ok(())
    }

    /// The target's size, and what the target is called in paths.
    async fn scale(&self, scaler: &HorizontalPodAutoscaler) -> Result<(Gvr, Scale), String> {
        let target = &scaler.spec.scale_target_ref;
        let resource = self.resource(target.api_version.as_deref().unwrap_or("v1"), &target.kind).await?;
        let scale = self
            .tools
            .client
            .dynamic(&resource)
            .get_subresource(scaler.metadata.namespace(), &target.name, "scale")
            .await;
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
        let target = self.tools.client.dynamic(resource);
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

    /// What each metric asks for.
    async fn metrics_of(
        &self,
        key: &Key,
        scaler: &HorizontalPodAutoscaler,
        scale: &Scale,
        current: i32,
    ) -> Result<Vec<Result<Proposal, Failure>>, BadSelector> {
        let text = scale.status.as_ref().and_then(|status| status.selector.clone()).unwrap_or_default();
        let pods = self.selected(key, &text)?;
        let target = Target {
            pods: &pods,
            replicas: current,
            tolerances: plan::tolerances(scaler.spec.behavior.as_ref()),
            now: self.tools.clock.now(),
        };
        let subject = Subject {
            metrics: &self.metrics,
            namespace: &key.namespace,
            selector: &text,
            target,
            status_replicas: scale.status.as_ref().map(|status| status.replicas).unwrap_or_default(),
        };
        let mut all = Vec::new();
        for spec in scaler.spec.metrics.iter().flatten() {
            let described = match &spec.object {
                Some(source) => self.described(&source.described_object).await,
                None => Ok(String::new()),
            };
            let begun = self.tools.clock.monotonic();
            let proposed = compute(spec, subject, described).await;
            let replicas = proposed.as_ref().ok().map(|proposal| proposal.replicas);
            figures::computed(&spec.type_, current, replicas, self.tools.clock.monotonic().saturating_sub(begun));
            all.push(proposed);
        }
        Ok(all)
    }

    /// The pods of the target, which must be nobody else's to scale.
    fn selected(&self, key: &Key, text: &str) -> Result<Vec<Arc<Pod>>, BadSelector> {
        if text.is_empty() {
            return Err(BadSelector {
                event: "SelectorRequired",
                reason: "InvalidSelector",
                condition: "the HPA target's scale is missing a selector".to_owned(),
                message: "selector is required".to_owned(),
            });
        }
        let bad = |reason, message: String| BadSelector { event: reason, reason, condition: message.clone(), message };
        let parsed = LabelSelector::parse(text).map_err(|error| {
            let message = format!("couldn't convert selector into a corresponding internal selector object: {error}");
            bad("InvalidSelector", message)
        })?;
        let pods = self.pods.select(&key.namespace, &parsed);
        let mut memory = self.memory.lock();
        let shares = |other: &LabelSelector| pods.iter().any(|pod| selector::matches(other, &pod.metadata.labels));
        let other = memory.iter().find(|(other, known)| {
            *other != key && other.namespace == key.namespace && known.selector.as_ref().is_some_and(shares)
        });
        let rival = other.map(|(other, _)| other.clone());
        memory.entry(key.clone()).or_default().selector = Some(parsed.clone());
        match rival {
            None => Ok(pods),
            Some(rival) => {
                let message = format!(
                    "pods by selector {text} are controlled by more than one HPA (e.g. [{{{} {}}} {{{} {}}}])",
                    key.name, key.namespace, rival.name, rival.namespace
                );
                Err(bad("AmbiguousSelector", message))
            }
        }
    }
}
