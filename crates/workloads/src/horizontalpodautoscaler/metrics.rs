//! Where the numbers come from: the three metrics APIs, which somebody outside serves.

use std::time::Duration;

use client::Client;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIResourceList};
use machinery::quantity::Quantity;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::calculate::{Sample, Samples};

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// What a custom metric is an average over, unless it says so itself.
const CUSTOM_WINDOW: Duration = Duration::from_secs(60);
const CUSTOM: &str = "custom.metrics.k8s.io";
const CUSTOM_VERSIONS: [&str; 2] = ["custom.metrics.k8s.io/v1beta2", "custom.metrics.k8s.io/v1beta1"];
const NO_SUCH_RESOURCE: &str = "the server could not find the requested resource";

#[derive(Deserialize)]
struct Items<T> {
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct PodMetrics {
    metadata: Named,
    timestamp: Option<Timestamp>,
    #[serde(default)]
    window: String,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    name: String,
    #[serde(default)]
    usage: std::collections::BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetricValue {
    described_object: Option<Named>,
    timestamp: Option<Timestamp>,
    window_seconds: Option<u64>,
    value: String,
}

fn milli(text: &str) -> i64 {
    text.parse::<Quantity>().map(|quantity| quantity.milli_value()).unwrap_or_default()
}

/// Durations as Go writes them, such as `30s` or `1m30s`; the metrics server knows no others.
fn window(text: &str) -> Duration {
    let (mut total, mut number) = (0.0, String::new());
    for letter in text.chars() {
        if letter.is_ascii_digit() || letter == '.' {
            number.push(letter);
            continue;
        }
        let value: f64 = number.parse().unwrap_or_default();
        number.clear();
        total += value
            * match letter {
                'h' => 3600.0,
                'm' => 60.0,
                's' => 1.0,
                _ => 0.0,
            };
    }
    Duration::try_from_secs_f64(total).unwrap_or_default()
}

fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Reads the metrics APIs.
pub(super) struct Metrics {
    pub(super) client: Client,
}

impl Metrics {
    /// The use of a resource by pods, or by one container of each.
    pub(super) async fn resource(
        &self,
        resource: &str,
        namespace: &str,
        selector: &str,
        container: Option<&str>,
    ) -> Result<Samples, String> {
        let path = format!(
            "/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods?labelSelector={}",
            escape(namespace),
            escape(selector)
        );
        let found: Items<PodMetrics> = self
            .read(&path, "pods.metrics.k8s.io")
            .await
            .map_err(|error| format!("unable to fetch metrics from resource metrics API: {error}"))?;
        if found.items.is_empty() {
            return Err("no metrics returned from resource metrics API".to_owned());
        }
        Ok(found.items.iter().filter_map(|pod| sample(pod, resource, container)).collect())
    }

    /// A metric of pods.
    pub(super) async fn of_pods(
        &self,
        metric: &str,
        namespace: &str,
        selector: &str,
        metric_selector: &str,
    ) -> Result<Samples, String> {
        let query = format!("?labelSelector={}", escape(selector));
        let place = format!("namespaces/{}/pods/*/{}{query}", escape(namespace), escape(metric));
        let found = self.custom(&place, metric_selector, &format!("pods.custom.metrics.k8s.io {metric}")).await?;
        if found.items.is_empty() {
            return Err("no metrics returned from custom metrics API".to_owned());
        }
        Ok(found
            .items
            .into_iter()
            .map(|value| {
                let name = value.described_object.map(|object| object.name).unwrap_or_default();
                let window = value.window_seconds.map_or(CUSTOM_WINDOW, Duration::from_secs);
                let at = value.timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
                (name, Sample { value: milli(&value.value), at, window })
            })
            .collect())
    }

    /// A metric of one object, such as an Ingress.
    pub(super) async fn of_object(
        &self,
        metric: &str,
        namespace: &str,
        resource: &str,
        name: &str,
        metric_selector: &str,
    ) -> Result<i64, String> {
        let place = if resource == "namespaces" {
            format!("namespaces/{}/metrics/{}", escape(namespace), escape(metric))
        } else {
            format!("namespaces/{}/{}/{}/{}", escape(namespace), escape(resource), escape(name), escape(metric))
        };
        let found = self.custom(&place, metric_selector, &format!("{resource}.custom.metrics.k8s.io {name}")).await?;
        let value = found.items.first().ok_or_else(|| {
            "unable to fetch metrics from custom metrics API: no metrics returned from custom metrics API".to_owned()
        })?;
        Ok(milli(&value.value))
    }

    async fn custom(&self, place: &str, metric_selector: &str, what: &str) -> Result<Items<MetricValue>, String> {
        let joint = if place.contains('?') { '&' } else { '?' };
        let selector = if metric_selector.is_empty() {
            String::new()
        } else {
            format!("{joint}metricLabelSelector={}", escape(metric_selector))
        };
        let answer = async {
            let version = self.custom_version().await?;
            self.read(&format!("/apis/{version}/{place}{selector}"), what).await
        };
        answer.await.map_err(|error| format!("unable to fetch metrics from custom metrics API: {error}"))
    }

    /// The version that whoever serves custom metrics prefers; what differs between those known here is nothing that is read.
    async fn custom_version(&self) -> Result<String, String> {
        let known = |version: &str| CUSTOM_VERSIONS.contains(&version);
        let group: APIGroup = match self.client.raw(&format!("/apis/{CUSTOM}")).await {
            Err(error) if error.code() == Some(404) => {
                return Err(format!("no custom metrics API ({CUSTOM}) registered"));
            }
            answer => serde_json::from_slice(&answer.map_err(|error| error.to_string())?)
                .map_err(|error| error.to_string())?,
        };
        let preferred = group.preferred_version.into_iter().chain(group.versions);
        let mut versions = preferred.map(|version| version.group_version);
        versions.find(|version| known(version)).ok_or_else(|| "no known available metric versions found".to_owned())
    }

    /// The sum of a metric that has nothing to do with objects of this cluster.
    pub(super) async fn external(&self, metric: &str, namespace: &str, selector: &str) -> Result<i64, String> {
        let query = if selector.is_empty() { String::new() } else { format!("?labelSelector={}", escape(selector)) };
        let path =
            format!("/apis/external.metrics.k8s.io/v1beta1/namespaces/{}/{}{query}", escape(namespace), escape(metric));
        let found: Items<MetricValue> = self
            .read(&path, &format!("{metric}.external.metrics.k8s.io"))
            .await
            .map_err(|error| format!("unable to fetch metrics from external metrics API: {error}"))?;
        if found.items.is_empty() {
            return Err("no metrics returned from external metrics API".to_owned());
        }
        Ok(found.items.iter().map(|value| milli(&value.value)).fold(0, i64::saturating_add))
    }

    /// The resources of a group in a version.
    pub(super) async fn resources(&self, group_version: &str) -> Result<APIResourceList, String> {
        let root = if group_version.contains('/') { "apis" } else { "api" };
        self.read(&format!("/{root}/{group_version}"), group_version).await
    }

    async fn read<T: DeserializeOwned>(&self, path: &str, what: &str) -> Result<T, String> {
        let bytes = self.client.raw(path).await.map_err(|error| match error.to_string() {
            // A server that knows nothing of an API cannot say what was asked for; whoever asked can.
            text if text == NO_SUCH_RESOURCE => format!("{text} (get {what})"),
            text => text,
        })?;
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    }
}

fn sample(pod: &PodMetrics, resource: &str, container: Option<&str>) -> Option<(String, Sample)> {
    let usage = |container: &ContainerMetrics| container.usage.get(resource).map(|amount| milli(amount));
    let value = match container {
        Some(name) => usage(pod.containers.iter().find(|container| container.name == name)?)?,
        // Only a pod all of whose containers were measured was measured.
        None if pod.containers.is_empty() => return None,
        None => pod.containers.iter().map(usage).sum::<Option<i64>>()?,
    };
    let at = pod.timestamp.unwrap_or(Timestamp::UNIX_EPOCH);
    Some((pod.metadata.name.clone(), Sample { value, at, window: window(&pod.window) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_written_as_go_writes_them() {
        for (text, seconds) in [("30s", 30), ("1m30s", 90), ("1h0m0s", 3600), ("", 0), ("15.5s", 15)] {
            assert_eq!(window(text).as_secs(), seconds, "{text}");
        }
    }

    #[test]
    fn a_pod_counts_only_if_all_of_its_containers_were_measured() {
        let pod: PodMetrics = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p"}, "timestamp": "2026-01-01T00:00:00Z", "window": "30s",
            "containers": [{"name": "a", "usage": {"cpu": "250m"}}, {"name": "b", "usage": {"memory": "1Mi"}}],
        }))
        .expect("metrics of a pod");
        assert_eq!(sample(&pod, "cpu", None), None);
        assert_eq!(sample(&pod, "cpu", Some("a")).map(|(_, sample)| sample.value), Some(250));
        assert_eq!(sample(&pod, "cpu", Some("b")), None);
        assert_eq!(sample(&pod, "cpu", Some("c")), None);
    }
}
