//! What containers were given, as cAdvisor tells it.

use k8s_openapi::api::core::v1::Pod;
use node::cri::v1::LinuxContainerResources;

use super::Text;
use crate::pod::{resources, spec};
use crate::server::stats::types::Summary;

type Value = fn(&LinuxContainerResources) -> Option<f64>;

/// Families of limits; what has no limit has no sample, but for memory, whose limit is then nought.
const FAMILIES: [(&str, &str, Value); 4] = [
    ("container_spec_cpu_period", "CPU period of the container.", |given| {
        (given.cpu_quota > 0).then_some(given.cpu_period as f64)
    }),
    ("container_spec_cpu_quota", "CPU quota of the container.", |given| {
        (given.cpu_quota > 0).then_some(given.cpu_quota as f64)
    }),
    ("container_spec_cpu_shares", "CPU share of the container.", |given| Some(given.cpu_shares as f64)),
    ("container_spec_memory_limit_bytes", "Memory limit for the container.", |given| {
        Some(given.memory_limit_in_bytes as f64)
    }),
];

/// Appends the limits of all containers that run.
pub fn render(text: &mut Text, summary: &Summary, pods: &[Pod], memory: u64) {
    let memory = i64::try_from(memory).unwrap_or(i64::MAX);
    for (name, help, value) in FAMILIES {
        text.family(name, "gauge", help);
        for stats in &summary.pods {
            let Some(pod) = pods.iter().find(|pod| spec::uid(pod) == stats.pod_ref.uid) else { continue };
            for container in &stats.containers {
                let Some(member) = spec::member(pod, &container.name) else { continue };
                let given = resources::container_limits(pod, &member.container, memory);
                let Some(value) = value(&given) else { continue };
                let labels = [
                    ("container", container.name.as_str()),
                    ("id", &container.id),
                    ("image", &container.image),
                    ("name", &container.id),
                    ("namespace", &stats.pod_ref.namespace),
                    ("pod", &stats.pod_ref.name),
                ];
                text.sample(&labels, value, None);
            }
        }
    }
}
