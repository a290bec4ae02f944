//! Figures for Prometheus, under upstream's names.

pub mod cadvisor;
mod limits;
mod requests;
mod text;

use k8s_openapi::api::core::v1::{ContainerState, Pod};

pub use requests::Requests;
pub use text::Text;

use super::stats::types::{ContainerStats, PodStats, Summary};
use crate::pod::spec;

/// Nanoseconds of a second. Divided by, because a thousand-millionth has no exact form.
const NANOS: f64 = 1e9;

/// `/metrics/resource`: what metrics-server reads. Without a summary there is only the news of that.
pub fn resource(summary: Option<&Summary>) -> String {
    let mut text = Text::default();
    let Some(summary) = summary else {
        scrape_error(&mut text, 1.0);
        return text.finish();
    };
    let containers = || summary.pods.iter().flat_map(|pod| pod.containers.iter().map(move |one| (pod, one)));
    text.family(
        "container_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
    );
    for (pod, container) in containers() {
        if let Some(cpu) = &container.cpu {
            text.sample(&names(pod, container), cpu.usage_core_nano_seconds as f64 / NANOS, Some(cpu.time));
        }
    }
    text.family(
        "container_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the container in bytes",
    );
    for (pod, container) in containers() {
        if let Some(memory) = &container.memory {
            text.sample(&names(pod, container), memory.working_set_bytes as f64, Some(memory.time));
        }
    }
    text.family(
        "container_start_time_seconds",
        "gauge",
        "[STABLE] Start time of the container since unix epoch in seconds",
    );
    for (pod, container) in containers() {
        text.sample(&names(pod, container), container.start_time.as_nanosecond() as f64 / NANOS, None);
    }
    text.family(
        "node_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
    );
    if let Some(cpu) = &summary.node.cpu {
        text.sample(&[], cpu.usage_core_nano_seconds as f64 / NANOS, Some(cpu.time));
    }
    text.family("node_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the node in bytes");
    if let Some(memory) = &summary.node.memory {
        text.sample(&[], memory.working_set_bytes as f64, Some(memory.time));
    }
    let pod_names = |pod: &PodStats| [("namespace", pod.pod_ref.namespace.clone()), ("pod", pod.pod_ref.name.clone())];
    text.family(
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
    );
    for pod in &summary.pods {
        if let Some(cpu) = &pod.cpu {
            let names = pod_names(pod);
            let labels = names.each_ref().map(|(label, value)| (*label, value.as_str()));
            text.sample(&labels, cpu.usage_core_nano_seconds as f64 / NANOS, Some(cpu.time));
        }
    }
    text.family("pod_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the pod in bytes");
    for pod in &summary.pods {
        if let Some(memory) = &pod.memory {
            let names = pod_names(pod);
            let labels = names.each_ref().map(|(label, value)| (*label, value.as_str()));
            text.sample(&labels, memory.working_set_bytes as f64, Some(memory.time));
        }
    }
    scrape_error(&mut text, 0.0);
    text.finish()
}

fn scrape_error(text: &mut Text, value: f64) {
    let help = "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise";
    text.family("resource_scrape_error", "gauge", help).sample(&[], value, None);
}

fn names<'a>(pod: &'a PodStats, container: &'a ContainerStats) -> [(&'static str, &'a str); 3] {
    [("container", &container.name), ("namespace", &pod.pod_ref.namespace), ("pod", &pod.pod_ref.name)]
}

/// Appends how many pods and containers there are.
pub fn count_pods(text: &mut Text, pods: &[Pod]) {
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
        text.family(name, "gauge", help);
        for (label, is_static) in [("", false), ("true", true)] {
            let count = pods.iter().filter(|pod| spec::is_static(pod) == is_static).filter(|pod| counts(pod)).count();
            text.sample(&[("static", label)], count as f64, None);
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
    text.family("kubelet_mirror_pods", "gauge", help).sample(&[], mirrored as f64, None);
    text.family("kubelet_running_containers", "gauge", "[ALPHA] Number of containers currently running");
    text.sample(&[("container_state", "exited")], exited as f64, None);
    text.sample(&[("container_state", "running")], running as f64, None);
    let help = "[ALPHA] Number of pods that have a running pod sandbox";
    text.family("kubelet_running_pods", "gauge", help).sample(&[], alive as f64, None);
}

#[cfg(test)]
mod tests {
    use super::super::stats::types::{Cpu, Interface, Memory, Network, NodeStats, PodReference};
    use super::*;
    use jiff::Timestamp;
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
