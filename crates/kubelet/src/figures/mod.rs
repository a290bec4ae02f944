//! The kubelet's own figures, under upstream's names: calls to the runtime, probes, evictions, starts.
//!
//! [`Count`] and [`Time`] say what there is, each with its family; what happened is noted where it happens.

mod counted;
mod families;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;

use crate::pod::spec;
use crate::probes::Kind;
use crate::server::metrics::Text;
pub use counted::Counted;
pub use families::{Count, Time, image_size};

/// Name, meaning and labels of a group of figures.
#[derive(Debug, Clone, Copy)]
struct Family {
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
}

impl Family {
    fn begin(&self, text: &mut Text, kind: &str) {
        text.family(self.name, kind, &format!("[ALPHA] {}", self.help));
    }
}

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

    /// Labels are written as in the format, without braces.
    fn render(&self, out: &mut String, name: &str, labels: &str, bounds: &[f64]) {
        let comma = if labels.is_empty() { "" } else { "," };
        for (count, bound) in self.counts.iter().zip(bounds) {
            let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(out, "{name}_bucket{{{labels}{comma}le=\"+Inf\"}} {}", self.count);
        let braced = if labels.is_empty() { String::new() } else { format!("{{{labels}}}") };
        let _ = writeln!(out, "{name}_sum{braced} {}", self.sum);
        let _ = writeln!(out, "{name}_count{braced} {}", self.count);
    }
}

/// A probe: namespace, pod, uid, container, kind.
type Probe = (String, String, String, String, &'static str);

#[derive(Debug, Clone, Default)]
struct Probed {
    results: BTreeMap<&'static str, u64>,
    durations: Histogram,
}

/// Values of labels, in the order of their family's.
type Values = Vec<String>;

fn values(labels: &[&str]) -> Values {
    labels.iter().map(|value| (*value).to_owned()).collect()
}

/// The figures.
#[derive(Debug, Default)]
pub struct Figures {
    counts: Mutex<BTreeMap<(Count, Values), u64>>,
    times: Mutex<BTreeMap<(Time, Values), Histogram>>,
    probes: Mutex<BTreeMap<Probe, Probed>>,
}

impl Figures {
    /// Counts one; with the values of the family's labels, which must be few.
    pub fn count(&self, what: Count, labels: &[&str]) {
        *self.counts.lock().entry((what, values(labels))).or_default() += 1;
    }

    /// Notes how long something took, likewise.
    pub fn time(&self, what: Time, labels: &[&str], took: Duration) {
        let (_, _, bounds) = what.family();
        self.times.lock().entry((what, values(labels))).or_default().note(bounds, took.as_secs_f64());
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
        probed.durations.note(families::USUAL, took.as_secs_f64());
    }

    /// Forgets a pod that is gone.
    pub fn forget(&self, uid: &str) {
        self.probes.lock().retain(|(_, _, one, ..), _| one != uid);
    }

    /// For `/metrics`. What did not happen yet has no samples.
    pub fn render(&self, out: &mut String) {
        let mut text = Text::default();
        let counts = self.counts.lock().clone();
        for what in Count::ALL {
            let family = what.family();
            family.begin(&mut text, "counter");
            for ((_, values), count) in counts.iter().filter(|((one, _), _)| *one == what) {
                let labels: Vec<(&str, &str)> =
                    family.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
                text.sample(&labels, *count as f64, None);
            }
        }
        let times = self.times.lock().clone();
        for what in Time::ALL {
            let (family, twin, bounds) = what.family();
            for family in [Some(family), twin].into_iter().flatten() {
                family.begin(&mut text, "histogram");
                for ((_, values), histogram) in times.iter().filter(|((one, _), _)| *one == what) {
                    let labels: Vec<String> =
                        family.labels.iter().zip(values).map(|(label, value)| format!("{label}={value:?}")).collect();
                    histogram.render(text.raw(), family.name, &labels.join(","), bounds);
                }
            }
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
            probed.durations.render(text.raw(), name, &labels, families::USUAL);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_under_their_names() {
        let figures = Figures::default();
        figures.call("run_podsandbox", Duration::from_millis(20), false);
        figures.call("run_podsandbox", Duration::from_secs(2), true);
        figures.count(Count::Evictions, &["memory.available"]);
        figures.count(Count::FailedContainers, &["ErrImagePull", "container"]);
        figures.time(Time::Reads, &[], Duration::from_millis(20));
        figures.time(Time::Pulls, &[image_size(11 << 20)], Duration::from_secs(2));
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
            "kubelet_started_containers_errors_total{code=\"ErrImagePull\",container_type=\"container\"} 1",
            "kubelet_pleg_relist_duration_seconds_bucket{le=\"0.025\"} 1",
            "kubelet_pleg_relist_duration_seconds_count 1",
            "kubelet_pleg_pod_relist_duration_seconds_count 1",
            "kubelet_image_pull_duration_seconds_bucket{image_size_in_bytes=\"10MB-100MB\",le=\"5\"} 1",
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
