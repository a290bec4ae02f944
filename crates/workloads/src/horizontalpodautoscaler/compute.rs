//! One metric of an autoscaler: read, calculated, and written down.

use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricSource, ContainerResourceMetricStatus, ExternalMetricSource, ExternalMetricStatus,
    MetricIdentifier, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus, ObjectMetricSource,
    ObjectMetricStatus, PodsMetricSource, PodsMetricStatus, ResourceMetricSource, ResourceMetricStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use machinery::quantity::Format;

use super::calculate::{self, Target};
use super::metrics::Metrics;
use crate::common::selector;

/// What a metric asks for.
pub(super) struct Proposal {
    pub(super) replicas: i32,
    /// What it is called in messages.
    pub(super) name: String,
    pub(super) status: MetricStatus,
}

/// Why a metric could not be used: a reason, the message of its event, and what it adds to the failure of all.
pub(super) struct Failure {
    pub(super) reason: &'static str,
    pub(super) cause: String,
    pub(super) whole: String,
}

/// Whose metrics these are, and who knows them.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) metrics: &'a Metrics,
    pub(super) namespace: &'a str,
    /// The selector of the target's pods, as text.
    pub(super) selector: &'a str,
    /// With the replicas of the spec.
    pub(super) target: Target<'a>,
    /// The replicas of the status.
    pub(super) status_replicas: i32,
}

fn milli(quantity: &Quantity) -> i64 {
    quantity.0.parse::<machinery::quantity::Quantity>().map(|quantity| quantity.milli_value()).unwrap_or_default()
}

fn quantity(milli: i64, format: Format) -> Option<Quantity> {
    Some(Quantity(machinery::quantity::Quantity::milli(milli, format).to_string()))
}

fn selector_text(wire: Option<&LabelSelector>) -> Result<String, String> {
    match wire {
        None => Ok(String::new()),
        Some(wire) => {
            selector::parse(wire).map(|parsed| parsed.to_string()).ok_or_else(|| "invalid label selector".to_owned())
        }
    }
}

/// A selector as upstream's messages show it: `nil`, or the address-like form of Go's `%+v`.
fn shown(wire: Option<&LabelSelector>) -> String {
    let Some(wire) = wire else { return "nil".to_owned() };
    let labels: Vec<String> =
        wire.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},")).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{}},}}",
        labels.join("")
    )
}

/// What one metric asks for. An object that is described is of the resource `described`.
pub(super) async fn compute(
    spec: &MetricSpec,
    subject: Subject<'_>,
    described: Result<String, String>,
) -> Result<Proposal, Failure> {
    match (spec.type_.as_str(), &spec.resource, &spec.container_resource, &spec.pods, &spec.object, &spec.external) {
        ("Resource", Some(source), ..) => of_resource(source, subject).await,
        ("ContainerResource", _, Some(source), ..) => of_container(source, subject).await,
        ("Pods", _, _, Some(source), ..) => of_pods(source, subject).await,
        ("Object", _, _, _, Some(source), _) => of_object(source, subject, described).await,
        ("External", _, _, _, _, Some(source)) => of_external(source, subject).await,
        (unknown, ..) => {
            let cause = format!("unknown metric source type {unknown:?}");
            Err(Failure { reason: "InvalidMetricSourceType", whole: cause.clone(), cause })
        }
    }
}

async fn of_resource(source: &ResourceMetricSource, subject: Subject<'_>) -> Result<Proposal, Failure> {
    let outcome = resource(&source.target, &source.name, None, subject).await;
    let (replicas, current, name) = outcome.map_err(|cause| Failure {
        reason: "FailedGetResourceMetric",
        whole: format!("failed to get {} resource metric value: {cause}", source.name),
        cause,
    })?;
    let resource = Some(ResourceMetricStatus { name: source.name.clone(), current });
    let status = MetricStatus { type_: "Resource".to_owned(), resource, ..MetricStatus::default() };
    Ok(Proposal { replicas, name, status })
}

async fn of_container(source: &ContainerResourceMetricSource, subject: Subject<'_>) -> Result<Proposal, Failure> {
    let outcome = resource(&source.target, &source.name, Some(&source.container), subject).await;
    let (replicas, current, name) = outcome.map_err(|cause| Failure {
        reason: "FailedGetContainerResourceMetric",
        whole: format!("failed to get {} container metric value: {cause}", source.container),
        cause,
    })?;
    let container_resource =
        Some(ContainerResourceMetricStatus { name: source.name.clone(), container: source.container.clone(), current });
    let status = MetricStatus { type_: "ContainerResource".to_owned(), container_resource, ..MetricStatus::default() };
    Ok(Proposal { replicas, name, status })
}

async fn of_pods(source: &PodsMetricSource, subject: Subject<'_>) -> Result<Proposal, Failure> {
    let outcome = async {
        let metric_selector = selector_text(source.metric.selector.as_ref())?;
        let name = &source.metric.name;
        let samples = subject
            .metrics
            .of_pods(name, subject.namespace, subject.selector, &metric_selector)
            .await
            .map_err(|error| format!("unable to get metric {name}: {error}"))?;
        let wanted = source.target.average_value.as_ref().map(milli).unwrap_or_default();
        calculate::by_average(subject.target, wanted, None, samples)
    };
    let (replicas, usage) = outcome.await.map_err(|cause| Failure {
        reason: "FailedGetPodsMetric",
        whole: format!("failed to get pods metric value: {cause}"),
        cause,
    })?;
    let pods = Some(PodsMetricStatus { metric: source.metric.clone(), current: average(usage) });
    let name = format!("pods metric {}", source.metric.name);
    let status = MetricStatus { type_: "Pods".to_owned(), pods, ..MetricStatus::default() };
    Ok(Proposal { replicas, name, status })
}

async fn of_object(
    source: &ObjectMetricSource,
    subject: Subject<'_>,
    described: Result<String, String>,
) -> Result<Proposal, Failure> {
    let object = &source.described_object;
    let outcome = async {
        let metric_selector = selector_text(source.metric.selector.as_ref())?;
        let name = &source.metric.name;
        let usage = async {
            let resource = described?;
            subject.metrics.of_object(name, subject.namespace, &resource, &object.name, &metric_selector).await
        };
        let usage = usage.await.map_err(|error| {
            format!("unable to get metric {name} on {} {}/{}: {error}", object.kind, subject.namespace, object.name)
        });
        let known_as = format!("{} metric {name}", object.kind);
        by_target(&source.target, subject, usage, &source.metric, "object", &known_as)
    };
    let (replicas, current, name) = outcome.await.map_err(|cause| Failure {
        reason: "FailedGetObjectMetric",
        whole: format!("failed to get object metric value: {}", cause.1),
        cause: cause.0,
    })?;
    let object = Some(ObjectMetricStatus { described_object: object.clone(), metric: source.metric.clone(), current });
    let status = MetricStatus { type_: "Object".to_owned(), object, ..MetricStatus::default() };
    Ok(Proposal { replicas, name, status })
}

async fn of_external(source: &ExternalMetricSource, subject: Subject<'_>) -> Result<Proposal, Failure> {
    let outcome = async {
        let name = &source.metric.name;
        let metric_selector = selector_text(source.metric.selector.as_ref())?;
        let usage = subject.metrics.external(name, subject.namespace, &metric_selector).await.map_err(|error| {
            let selector = shown(source.metric.selector.as_ref());
            format!("unable to get external metric {}/{name}/{selector}: {error}", subject.namespace)
        });
        let known_as = format!("external metric {name}({})", shown(source.metric.selector.as_ref()));
        by_target(&source.target, subject, usage, &source.metric, "external", &known_as)
    };
    let (replicas, current, name) = outcome.await.map_err(|cause| Failure {
        reason: "FailedGetExternalMetric",
        whole: format!("failed to get {} external metric value: {}", source.metric.name, cause.1),
        cause: cause.0,
    })?;
    let external = Some(ExternalMetricStatus { metric: source.metric.clone(), current });
    let status = MetricStatus { type_: "External".to_owned(), external, ..MetricStatus::default() };
    Ok(Proposal { replicas, name, status })
}

/// The first is the message of an event, the second becomes part of the failure of all.
struct Causes(String, String);

impl From<String> for Causes {
    fn from(cause: String) -> Self {
        Self(cause.clone(), cause)
    }
}

fn average(usage: i64) -> MetricValueStatus {
    MetricValueStatus { average_value: quantity(usage, Format::DecimalSi), ..MetricValueStatus::default() }
}

/// A metric that is one number: of an object, or from outside.
fn by_target(
    target: &MetricTarget,
    subject: Subject<'_>,
    usage: Result<i64, String>,
    metric: &MetricIdentifier,
    source: &str,
    known_as: &str,
) -> Result<(i32, MetricValueStatus, String), Causes> {
    if let Some(wanted) = &target.average_value {
        let usage = usage.map_err(|error| {
            Causes(error.clone(), format!("failed to get {} {source} metric: {error}", metric.name))
        })?;
        let per_pod = Target { replicas: subject.status_replicas, ..subject.target };
        let (replicas, each) = calculate::per_pod(per_pod, usage, milli(wanted));
        let name = format!("external metric {}({})", metric.name, shown(metric.selector.as_ref()));
        return Ok((replicas, average(each), name));
    }
    let Some(wanted) = &target.value else {
        return Err(format!(
            "invalid {source} metric source: neither a value target nor an average value target was set"
        )
        .into());
    };
    let wrap = |error: String| match source {
        "external" => Causes(error.clone(), format!("failed to get external metric {}: {error}", metric.name)),
        _ => error.into(),
    };
    let usage = usage.map_err(wrap)?;
    let replicas = calculate::by_ratio(subject.target, usage as f64 / milli(wanted) as f64).map_err(wrap)?;
    let current = MetricValueStatus { value: quantity(usage, Format::DecimalSi), ..MetricValueStatus::default() };
    Ok((replicas, current, known_as.to_owned()))
}

/// The use of CPU or memory, by pods or by one container of each.
async fn resource(
    target: &MetricTarget,
    resource: &str,
    container: Option<&str>,
    subject: Subject<'_>,
) -> Result<(i32, MetricValueStatus, String), String> {
    let samples = || async {
        subject
            .metrics
            .resource(resource, subject.namespace, subject.selector, container)
            .await
            .map_err(|error| format!("unable to get metrics for resource {resource}: {error}"))
    };
    let format = if resource == "memory" { Format::BinarySi } else { Format::DecimalSi };
    if let Some(wanted) = &target.average_value {
        let outcome = async { calculate::by_average(subject.target, milli(wanted), Some(resource), samples().await?) };
        let (replicas, usage) = outcome.await.map_err(|error| format!("failed to get {resource} usage: {error}"))?;
        let current = MetricValueStatus { average_value: quantity(usage, format), ..MetricValueStatus::default() };
        return Ok((replicas, current, format!("{resource} resource")));
    }
    let Some(percent) = target.average_utilization else {
        return Err("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set".to_owned());
    };
    let outcome = async { calculate::by_utilization(subject.target, percent, resource, container, samples().await?) };
    let found = outcome.await.map_err(|error| format!("failed to get {resource} utilization: {error}"))?;
    let current = MetricValueStatus {
        average_utilization: Some(found.percent),
        average_value: quantity(found.average, format),
        ..MetricValueStatus::default()
    };
    let kind = if container.is_some() { "container resource" } else { "resource" };
    Ok((found.replicas, current, format!("{resource} {kind} utilization (percentage of request)")))
}
