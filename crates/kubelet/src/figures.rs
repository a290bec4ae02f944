//! The kubelet's own figures, under upstream's names: calls to the runtime, probes, evictions, starts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use node::cri::{Error, Event, Runtime, v1};
use parking_lot::Mutex;

use crate::pod::spec;
use crate::probes::Kind;
use crate::server::metrics::Text;

/// Upper bounds of calls to the runtime in seconds: 5 ms, and two and a half times as much for each further one.
const CALLS: [f64; 14] = [
    0.005,
    0.0125,
    0.03125,
    0.078125,
    0.1953125,
    0.48828125,
    1.220703125,
    3.0517578125,
    7.62939453125,
    19.073486328125,
    47.6837158203125,
    119.20928955078125,
    298.0232238769531,
    745.0580596923828,
];
/// Upper bounds of probes in seconds: the customary ones.
const PROBES: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

#[derive(Debug, Clone, Default)]
struct Histogram {
    /// As many as there are bounds; what exceeds them all is only in the count.
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn note(&mut self, bounds: &[f64], seconds: f64) {
        self.counts.resize(bounds.len(), 0);
        for (count, bound) in self.counts.iter_mut().zip(bounds) {
            *count += u64::from(seconds <= *bound);
        }
        self.sum += seconds;
        self.count += 1;
    }

    fn render(&self, out: &mut String, name: &str, labels: &str, bounds: &[f64]) {
        for (count, bound) in self.counts.iter().zip(bounds) {
            let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(out, "{name}_sum{{{labels}}} {}", self.sum);
        let _ = writeln!(out, "{name}_count{{{labels}}} {}", self.count);
    }
}

#[derive(Debug, Clone, Default)]
struct Calls {
    durations: Histogram,
    errors: u64,
}

/// A probe: namespace, pod, uid, container, kind.
type Probe = (String, String, String, String, &'static str);

#[derive(Debug, Clone, Default)]
struct Probed {
    results: BTreeMap<&'static str, u64>,
    durations: Histogram,
}

/// The figures.
#[derive(Debug, Default)]
pub struct Figures {
    calls: Mutex<BTreeMap<&'static str, Calls>>,
    probes: Mutex<BTreeMap<Probe, Probed>>,
    evictions: Mutex<BTreeMap<&'static str, u64>>,
    started: Mutex<BTreeMap<&'static str, u64>>,
}

impl Figures {
    fn call(&self, operation: &'static str, took: Duration, failed: bool) {
        let mut calls = self.calls.lock();
        let calls = calls.entry(operation).or_default();
        calls.durations.note(&CALLS, took.as_secs_f64());
        calls.errors += u64::from(failed);
    }

    /// Counts a probe. `result` is `successful`, `failed` or `unknown`.
    pub fn probed(&self, pod: &Pod, container: &str, kind: Kind, result: &'static str, took: Duration) {
        let key = (
            spec::namespace(pod).to_owned(),
            spec::name(pod).to_owned(),
            spec::uid(pod).to_owned(),
            container.to_owned(),
            kind.as_str(),
        );
        let mut probes = self.probes.lock();
        let probed = probes.entry(key).or_default();
        *probed.results.entry(result).or_default() += 1;
        probed.durations.note(&PROBES, took.as_secs_f64());
    }

    /// Forgets a pod that is gone.
    pub fn forget(&self, uid: &str) {
        self.probes.lock().retain(|(_, _, one, ..), _| one != uid);
    }

    /// Counts a pod that was ended for the node's sake.
    pub fn evicted(&self, signal: &'static str) {
        *self.evictions.lock().entry(signal).or_default() += 1;
    }

    /// Counts a container that was started.
    pub fn started(&self, kind: spec::Kind) {
        let kind = match kind {
            spec::Kind::Init => "init_container",
            spec::Kind::Regular => "container",
            spec::Kind::Ephemeral => "ephemeral_container",
        };
        *self.started.lock().entry(kind).or_default() += 1;
    }

    /// For `/metrics`.
    pub fn render(&self, out: &mut String) {
        let mut text = Text::default();
        let calls = self.calls.lock().clone();
        let help = "[ALPHA] Cumulative number of runtime operations by operation type.";
        text.family("kubelet_runtime_operations_total", "counter", help);
        for (operation, calls) in &calls {
            text.sample(&[("operation_type", operation)], calls.durations.count as f64, None);
        }
        let help = "[ALPHA] Cumulative number of runtime operation errors by operation type.";
        text.family("kubelet_runtime_operations_errors_total", "counter", help);
        for (operation, calls) in calls.iter().filter(|(_, calls)| calls.errors > 0) {
            text.sample(&[("operation_type", operation)], calls.errors as f64, None);
        }
        let name = "kubelet_runtime_operations_duration_seconds";
        let help = "[ALPHA] Duration in seconds of runtime operations. Broken down by operation type.";
        text.family(name, "histogram", help);
        for (operation, calls) in &calls {
            calls.durations.render(text.raw(), name, &format!("operation_type={operation:?}"), &CALLS);
        }
        let help = "[ALPHA] Cumulative number of pod evictions by eviction signal";
        text.family("kubelet_evictions", "counter", help);
        for (signal, count) in self.evictions.lock().iter() {
            text.sample(&[("eviction_signal", signal)], *count as f64, None);
        }
        text.family("kubelet_started_containers_total", "counter", "[ALPHA] Cumulative number of containers started");
        for (kind, count) in self.started.lock().iter() {
            text.sample(&[("container_type", kind)], *count as f64, None);
        }
        out.push_str(&text.finish());
    }

    /// For `/metrics/probes`.
    pub fn render_probes(&self, out: &mut String) {
        let probes = self.probes.lock().clone();
        let mut text = Text::default();
        let name = "prober_probe_duration_seconds";
        text.family(name, "histogram", "[ALPHA] Duration in seconds for a probe response.");
        for ((namespace, pod, _, container, kind), probed) in &probes {
            // Names in the API hold nothing that would have to be escaped.
            let labels = format!("container={container:?},namespace={namespace:?},pod={pod:?},probe_type={kind:?}");
            probed.durations.render(text.raw(), name, &labels, &PROBES);
        }
        let help = "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.";
        text.family("prober_probe_total", "counter", help);
        for ((namespace, pod, uid, container, kind), probed) in &probes {
            for (result, count) in &probed.results {
                let labels = [
                    ("container", container.as_str()),
                    ("namespace", namespace),
                    ("pod", pod),
                    ("pod_uid", uid),
                    ("probe_type", kind),
                    ("result", result),
                ];
                text.sample(&labels, *count as f64, None);
            }
        }
        out.push_str(&text.finish());
    }
}

/// A runtime whose calls are counted.
pub struct Counted {
    inner: Arc<dyn Runtime>,
    figures: Arc<Figures>,
}

impl Counted {
    /// Counts the calls to a runtime.
    pub fn new(inner: Arc<dyn Runtime>, figures: Arc<Figures>) -> Self {
        Self { inner, figures }
    }
}

/// One call, counted under upstream's name for it.
macro_rules! counted {
    ($self:ident, $operation:literal, $call:expr) => {{
        let start = Instant::now();
        let result = $call.await;
        $self.figures.call($operation, start.elapsed(), result.is_err());
        result
    }};
}

#[async_trait]
impl Runtime for Counted {
    async fn version(&self) -> Result<v1::VersionResponse, Error> {
        counted!(self, "version", self.inner.version())
    }

    async fn status(&self) -> Result<v1::StatusResponse, Error> {
        counted!(self, "status", self.inner.status())
    }

    async fn events(&self) -> Result<BoxStream<'static, Result<Event, Error>>, Error> {
        counted!(self, "get_container_events", self.inner.events())
    }

    async fn run_sandbox(&self, config: v1::PodSandboxConfig, handler: &str) -> Result<String, Error> {
        counted!(self, "run_podsandbox", self.inner.run_sandbox(config, handler))
    }

    async fn stop_sandbox(&self, id: &str) -> Result<(), Error> {
        counted!(self, "stop_podsandbox", self.inner.stop_sandbox(id))
    }

    async fn remove_sandbox(&self, id: &str) -> Result<(), Error> {
        counted!(self, "remove_podsandbox", self.inner.remove_sandbox(id))
    }

    async fn sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, Error> {
        counted!(self, "podsandbox_status", self.inner.sandbox_status(id))
    }

    async fn list_sandboxes(&self, filter: v1::PodSandboxFilter) -> Result<Vec<v1::PodSandbox>, Error> {
        counted!(self, "list_podsandbox", self.inner.list_sandboxes(filter))
    }

    async fn create_container(
        &self,
        sandbox: &str,
        config: v1::ContainerConfig,
        sandbox_config: v1::PodSandboxConfig,
    ) -> Result<String, Error> {
        counted!(self, "create_container", self.inner.create_container(sandbox, config, sandbox_config))
    }

    async fn start_container(&self, id: &str) -> Result<(), Error> {
        counted!(self, "start_container", self.inner.start_container(id))
    }

    async fn stop_container(&self, id: &str, grace: Duration) -> Result<(), Error> {
        counted!(self, "stop_container", self.inner.stop_container(id, grace))
    }

    async fn remove_container(&self, id: &str) -> Result<(), Error> {
        counted!(self, "remove_container", self.inner.remove_container(id))
    }

    async fn list_containers(&self, filter: v1::ContainerFilter) -> Result<Vec<v1::Container>, Error> {
        counted!(self, "list_containers", self.inner.list_containers(filter))
    }

    async fn container_status(&self, id: &str) -> Result<v1::ContainerStatus, Error> {
        counted!(self, "container_status", self.inner.container_status(id))
    }

    async fn update_resources(&self, id: &str, resources: v1::LinuxContainerResources) -> Result<(), Error> {
        counted!(self, "update_container", self.inner.update_resources(id, resources))
    }

    async fn reopen_log(&self, id: &str) -> Result<(), Error> {
        counted!(self, "reopen_container_log", self.inner.reopen_log(id))
    }

    async fn exec_sync(&self, id: &str, command: &[String], timeout: Duration) -> Result<v1::ExecSyncResponse, Error> {
        counted!(self, "exec_sync", self.inner.exec_sync(id, command, timeout))
    }

    async fn exec(&self, request: v1::ExecRequest) -> Result<String, Error> {
        counted!(self, "exec", self.inner.exec(request))
    }

    async fn attach(&self, request: v1::AttachRequest) -> Result<String, Error> {
        counted!(self, "attach", self.inner.attach(request))
    }

    async fn port_forward(&self, request: v1::PortForwardRequest) -> Result<String, Error> {
        counted!(self, "port_forward", self.inner.port_forward(request))
    }

    async fn container_stats(&self, filter: v1::ContainerStatsFilter) -> Result<Vec<v1::ContainerStats>, Error> {
        counted!(self, "list_container_stats", self.inner.container_stats(filter))
    }

    async fn sandbox_stats(&self, filter: v1::PodSandboxStatsFilter) -> Result<Vec<v1::PodSandboxStats>, Error> {
        counted!(self, "list_podsandbox_stats", self.inner.sandbox_stats(filter))
    }

    async fn list_images(&self) -> Result<Vec<v1::Image>, Error> {
        counted!(self, "list_images", self.inner.list_images())
    }

    async fn image_status(&self, image: v1::ImageSpec) -> Result<Option<v1::Image>, Error> {
        counted!(self, "image_status", self.inner.image_status(image))
    }

    async fn pull_image(
        &self,
        image: v1::ImageSpec,
        auth: Option<v1::AuthConfig>,
        sandbox: v1::PodSandboxConfig,
    ) -> Result<String, Error> {
        counted!(self, "pull_image", self.inner.pull_image(image, auth, sandbox))
    }

    async fn remove_image(&self, image: v1::ImageSpec) -> Result<(), Error> {
        counted!(self, "remove_image", self.inner.remove_image(image))
    }

    async fn image_fs_info(&self) -> Result<v1::ImageFsInfoResponse, Error> {
        counted!(self, "image_fs_info", self.inner.image_fs_info())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_under_their_names() {
        let figures = Figures::default();
        figures.call("run_podsandbox", Duration::from_millis(20), false);
        figures.call("run_podsandbox", Duration::from_secs(2), true);
        figures.evicted("memory.available");
        figures.started(spec::Kind::Init);
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "u"}
        }))
        .unwrap();
        figures.probed(&pod, "c", Kind::Liveness, "failed", Duration::from_millis(30));
        let mut text = String::new();
        figures.render(&mut text);
        figures.render_probes(&mut text);
        for line in [
            "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"} 2",
            "kubelet_runtime_operations_errors_total{operation_type=\"run_podsandbox\"} 1",
            "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"run_podsandbox\",le=\"0.03125\"} 1",
            "kubelet_runtime_operations_duration_seconds_sum{operation_type=\"run_podsandbox\"} 2.02",
            "kubelet_evictions{eviction_signal=\"memory.available\"} 1",
            "kubelet_started_containers_total{container_type=\"init_container\"} 1",
            "prober_probe_total{container=\"c\",namespace=\"n\",pod=\"p\",pod_uid=\"u\",probe_type=\"Liveness\",result=\"failed\"} 1",
            "prober_probe_duration_seconds_bucket{container=\"c\",namespace=\"n\",pod=\"p\",probe_type=\"Liveness\",le=\"0.05\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        figures.forget("u");
        let mut text = String::new();
        figures.render_probes(&mut text);
        assert!(!text.contains("pod=\"p\""));
    }
}
