//! Figures for Prometheus, under upstream's names.

pub mod cadvisor;
mod limits;
mod requests;
pub mod volumes;

use figures::{Samples, samples};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use rules::pod_spec as spec;

pub use requests::Requests;

use super::stats::types::{ContainerStats, Cpu, Memory, PodStats, Summary};

/// Nanoseconds of a second. Divided by, because a thousand-millionth has no exact form.
const NANOS: f64 = 1e9;

/// `/metrics/resource`: what metrics-server reads. Without a summary there is only the news of that.
pub fn resource(summary: Option<&Summary>) -> String {
    let mut text = String::new();
    let Some(summary) = summary else {
        scrape_error(&mut text, 1.0);
        return text;
    };
    let containers = || summary.pods.iter().flat_map(|pod| pod.containers.iter().map(move |one| (pod, one)));
    let help = "[STABLE] Cumulative cpu time consumed by the container in core-seconds";
    let mut family = samples(&mut text, "container_cpu_usage_seconds_total", "counter", help);
    for (pod, container) in containers() {
        add_cpu(&mut family, &names(pod, container), container.cpu.as_ref());
    }
    let help = "[STABLE] Current working set of the container in bytes";
    let mut family = samples(&mut text, "container_memory_working_set_bytes", "gauge", help);
    for (pod, container) in containers() {
        add_memory(&mut family, &names(pod, container), container.memory.as_ref());
    }
    let help = "[STABLE] Start time of the container since unix epoch in seconds";
    let mut family = samples(&mut text, "container_start_time_seconds", "gauge", help);
    for (pod, container) in containers() {
        family.add(&names(pod, container), container.start_time.as_nanosecond() as f64 / NANOS);
    }
    let help = "[STABLE] Cumulative cpu time consumed by the node in core-seconds";
    let mut family = samples(&mut text, "node_cpu_usage_seconds_total", "counter", help);
    add_cpu(&mut family, &[], summary.node.cpu.as_ref());
    let help = "[STABLE] Current working set of the node in bytes";
    let mut family = samples(&mut text, "node_memory_working_set_bytes", "gauge", help);
    add_memory(&mut family, &[], summary.node.memory.as_ref());
    let help = "[STABLE] Cumulative cpu time consumed by the pod in core-seconds";
    let mut family = samples(&mut text, "pod_cpu_usage_seconds_total", "counter", help);
    for pod in &summary.pods {
        add_cpu(&mut family, &pod_names(pod), pod.cpu.as_ref());
    }
    let help = "[STABLE] Current working set of the pod in bytes";
    let mut family = samples(&mut text, "pod_memory_working_set_bytes", "gauge", help);
    for pod in &summary.pods {
        add_memory(&mut family, &pod_names(pod), pod.memory.as_ref());
    }
    scrape_error(&mut text, 0.0);
    text
}

fn add_cpu(family: &mut Samples<'_>, labels: &[(&str, &str)], cpu: Option<&Cpu>) {
    if let Some(cpu) = cpu {
        family.add_at(labels, cpu.usage_core_nano_seconds as f64 / NANOS, at(cpu.time));
    }
}

fn add_memory(family: &mut Samples<'_>, labels: &[(&str, &str)], memory: Option<&Memory>) {
    if let Some(memory) = memory {
        family.add_at(labels, memory.working_set_bytes as f64, at(memory.time));
    }
}

fn pod_names(pod: &PodStats) -> [(&'static str, &str); 2] {
    [("namespace", &pod.pod_ref.namespace), ("pod", &pod.pod_ref.name)]
}

/// The time of a sample, in the milliseconds that the format wants.
fn at(time: Timestamp) -> Option<i64> {
    Some(time.as_millisecond())
}

fn scrape_error(text: &mut String, value: f64) {
    let help = "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise";
    samples(text, "resource_scrape_error", "gauge", help).add(&[], value);
}

fn names<'a>(pod: &'a PodStats, container: &'a ContainerStats) -> [(&'static str, &'a str); 3] {
    [("container", &container.name), ("namespace", &pod.pod_ref.namespace), ("pod", &pod.pod_ref.name)]
}

/// Appends how many pods and containers there are.
pub fn count_pods(text: &mut String, pods: &[Pod]) {
    let states = |pod: &Pod| -> Vec<ContainerState> {
        let status = pod.status.clone().unwrap_or_default();
        let lists = [status.container_statuses, status.init_container_statuses, status.ephemeral_container_statuses];
        lists.into_iter().flatten().flatten().filter_map(|container| container.state).collect()
    };
    let (mut running, mut exited, mut alive) = (0, 0, 0);
    for pod in pods {
        let states = states(pod);
        let here = states.iter().filter(|state| state.running.is_some()).count();
        running += here;
        exited += states.iter().filter(|state| state.terminated.is_some()).count();
        alive += usize::from(here > 0);
    }
    let ended = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let mut by_source = |name: &'static str, help: &str, counts: &dyn Fn(&&Pod) -> bool| {
        let mut family = samples(text, name, "gauge", help);
        for (label, is_static) in [("", false), ("true", true)] {
            let count = pods.iter().filter(|pod| spec::is_static(pod) == is_static).filter(|pod| counts(pod)).count();
            family.add(&[("static", label)], count as f64);
        }
    };
    by_source(
        "kubelet_desired_pods",
        "[ALPHA] The number of pods the kubelet is being instructed to run. static is true if the pod is not from the apiserver.",
        &|_| true,
    );
    by_source(
        "kubelet_active_pods",
        "[ALPHA] The number of pods the kubelet considers active and which are being considered when admitting new pods. \
         static is true if the pod is not from the apiserver.",
        &|pod| !ended(pod),
    );
    let mirrored = pods.iter().filter(|pod| spec::is_static(pod)).count();
    let help = "[ALPHA] The number of mirror pods the kubelet will try to create (one per admitted static pod)";
    samples(text, "kubelet_mirror_pods", "gauge", help).add(&[], mirrored as f64);
    let mut family =
        samples(text, "kubelet_running_containers", "gauge", "[ALPHA] Number of containers currently running");
    family.add(&[("container_state", "exited")], exited as f64);
    family.add(&[("container_state", "running")], running as f64);
    let help = "[ALPHA] Number of pods that have a running pod sandbox";
    samples(text, "kubelet_running_pods", "gauge", help).add(&[], alive as f64);
}

#[cfg(test)]
mod tests {
    use super::super::stats::types::{Interface, Network, NodeStats, PodReference};
    use super::*;
    use serde_json::json;

    fn summary() -> Summary {
        let time = Timestamp::from_second(1000).unwrap();
        let cpu = Some(Cpu { time, usage_nano_cores: None, usage_core_nano_seconds: 1_500_000_000 });
        let memory = Some(Memory {
            time,
            available_bytes: None,
            usage_bytes: 30,
            working_set_bytes: 20,
            rss_bytes: 10,
            page_faults: 1,
            major_page_faults: 0,
        });
        let container = ContainerStats {
            name: "c".into(),
            start_time: time,
            cpu: cpu.clone(),
            memory: memory.clone(),
            rootfs: None,
            logs: None,
            id: "id".into(),
            image: "i".into(),
            disk: String::new(),
        };
        let eth0 = Interface { name: "eth0".into(), rx_bytes: 7, ..Interface::default() };
        let pod = PodStats {
            pod_ref: PodReference { name: "p".into(), namespace: "n".into(), uid: "u".into() },
            start_time: time,
            sandbox: String::new(),
            containers: vec![container],
            cpu: cpu.clone(),
            memory: memory.clone(),
            network: Some(Network { time, main: eth0.clone(), interfaces: vec![eth0] }),
            volumes: vec![],
            ephemeral_storage: None,
            process_stats: None,
        };
        let node = NodeStats {
            node_name: "node".into(),
            system_containers: vec![],
            start_time: time,
            cpu,
            memory,
            network: None,
            fs: None,
            runtime: None,
            rlimit: None,
        };
        Summary { node, pods: vec![pod] }
    }

    #[track_caller]
    fn has(text: &str, lines: &[&str]) {
        for line in lines {
            assert!(text.lines().any(|l| l == *line), "{line} in\n{text}");
        }
    }

    #[test]
    fn autoscalers_find_what_they_look_for() {
        let text = resource(Some(&summary()));
        has(
            &text,
            &[
                "container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\"} 1.5 1000000",
                "container_memory_working_set_bytes{container=\"c\",namespace=\"n\",pod=\"p\"} 20 1000000",
                "container_start_time_seconds{container=\"c\",namespace=\"n\",pod=\"p\"} 1000",
                "node_cpu_usage_seconds_total 1.5 1000000",
                "pod_memory_working_set_bytes{namespace=\"n\",pod=\"p\"} 20 1000000",
                "resource_scrape_error 0",
            ],
        );
        has(&resource(None), &["resource_scrape_error 1"]);
    }

    #[test]
    fn the_summary_has_the_names_its_readers_know() {
        let document = serde_json::to_value(summary()).unwrap();
        assert_eq!(document["node"]["nodeName"], "node");
        let pod = &document["pods"][0];
        assert_eq!(pod["podRef"], json!({"name": "p", "namespace": "n", "uid": "u"}));
        assert_eq!(pod["containers"][0]["cpu"]["usageCoreNanoSeconds"], 1_500_000_000);
        assert_eq!(pod["containers"][0]["startTime"], "1970-01-01T00:16:40Z");
        assert_eq!(pod["network"]["rxBytes"], 7);
        assert_eq!(pod["network"]["interfaces"][0]["name"], "eth0");
    }
}
