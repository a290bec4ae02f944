//! The kubelet's own figures, under upstream's names: calls to the runtime, probes, evictions, starts.
//!
//! [`Families`] says what there is; what happened is noted where it happens.

mod counted;
mod families;

use std::collections::BTreeMap;
use std::time::Duration;

use figures::Distribution;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use parking_lot::Mutex;

use crate::pod::spec;
use crate::probes::Kind;
pub use counted::Counted;
pub use families::{Families, image_size};

/// A probe: namespace, pod, uid, container, kind.
type Probe = (String, String, String, String, &'static str);

#[derive(Debug, Clone)]
struct Probed {
    results: BTreeMap<&'static str, u64>,
    durations: Distribution,
}

#[derive(Debug, Default)]
pub struct Figures {
    families: Families,
    probes: Mutex<BTreeMap<Probe, Probed>>,
}

impl std::ops::Deref for Figures {
    type Target = Families;

    fn deref(&self) -> &Families {
        &self.families
    }
}

impl Figures {
    /// Notes how long reading a pod's state took. There is no other relist, so it stands for both of upstream's.
    pub fn read(&self, took: Duration) {
        self.reads.observe(&[], took.as_secs_f64());
        self.relists.observe(&[], took.as_secs_f64());
    }

    /// Counts the containers that ended between two statuses of a pod: each end once, however often it is told.
    pub fn ended(&self, before: &PodStatus, now: &PodStatus) {
        let lists = [
            ("init_container", &before.init_container_statuses, &now.init_container_statuses),
            ("container", &before.container_statuses, &now.container_statuses),
            ("ephemeral_container", &before.ephemeral_container_statuses, &now.ephemeral_container_statuses),
        ];
        for (kind, before, now) in lists {
            let was_over = |name: &str| {
                let known = before.iter().flatten().find(|container| container.name == name);
                known.is_some_and(|container| end(container).is_some())
            };
            for container in now.iter().flatten().filter(|container| !was_over(&container.name)) {
                if let Some(end) = end(container) {
                    let reason = end.reason.as_deref().unwrap_or_default();
                    self.ended_containers.increment(&[kind, &end.exit_code.to_string(), reason]);
                }
            }
        }
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
        let new = || Probed { results: BTreeMap::new(), durations: Distribution::new(families::USUAL) };
        let probed = probes.entry(key).or_insert_with(new);
        *probed.results.entry(result).or_default() += 1;
        probed.durations.observe(took.as_secs_f64());
    }

    /// Forgets a pod that is gone.
    pub fn forget(&self, uid: &str) {
        self.probes.lock().retain(|(_, _, one, ..), _| one != uid);
    }

    /// For `/metrics`.
    pub fn render(&self, out: &mut String) {
        figures::write(&self.families.all(), out);
    }

    /// For `/metrics/probes`.
    pub fn render_probes(&self, out: &mut String) {
        let probes = self.probes.lock().clone();
        let help = "[ALPHA] Duration in seconds for a probe response.";
        let mut family = figures::samples(out, "prober_probe_duration_seconds", "histogram", help);
        for ((namespace, pod, _, container, kind), probed) in &probes {
            let labels =
                [("container", container.as_str()), ("namespace", namespace), ("pod", pod), ("probe_type", kind)];
            family.distribution(&labels, &probed.durations);
        }
        let help = "[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.";
        let mut family = figures::samples(out, "prober_probe_total", "counter", help);
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
                family.add(&labels, *count as f64);
            }
        }
    }
}

fn end(container: &ContainerStatus) -> Option<&ContainerStateTerminated> {
    container.state.as_ref()?.terminated.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_counted_once() {
        let figures = Figures::default();
        let one = |name: &str, state: serde_json::Value| serde_json::json!({"name": name, "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
        let over = |code: i32, reason: &str| serde_json::json!({"terminated": {"exitCode": code, "reason": reason}});
        let running = serde_json::json!({"running": {}});
        let status = |init: serde_json::Value, main: serde_json::Value| -> PodStatus {
            serde_json::from_value(serde_json::json!({
                "initContainerStatuses": [one("init", init)], "containerStatuses": [one("main", main), one("other", running.clone())],
            }))
            .unwrap()
        };
        let statuses = [
            PodStatus::default(),
            status(over(0, "Completed"), running.clone()),
            status(over(0, "Completed"), over(139, "Error")),
            status(over(0, "Completed"), over(139, "Error")),
            status(over(0, "Completed"), running.clone()),
            status(over(0, "Completed"), over(139, "Error")),
        ];
        statuses.windows(2).for_each(|pair| figures.ended(&pair[0], &pair[1]));
        let count = |values: [&str; 3]| figures.ended_containers.value(&values) as u64;
        assert_eq!(count(["init_container", "0", "Completed"]), 1);
        assert_eq!(count(["container", "139", "Error"]), 2);
    }

    #[test]
    fn figures_are_told_under_their_names() {
        let figures = Figures::default();
        figures.call("run_podsandbox", Duration::from_millis(20), false);
        figures.call("run_podsandbox", Duration::from_secs(2), true);
        figures.evictions.increment(&["memory.available"]);
        figures.failed_containers.increment(&["ErrImagePull", "container"]);
        figures.read(Duration::from_millis(20));
        figures.pulls.observe(&[image_size(11 << 20)], 2.0);
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
