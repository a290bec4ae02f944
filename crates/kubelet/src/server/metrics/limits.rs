//! What containers were given, as cAdvisor tells it.

use k8s_openapi::api::core::v1::Pod;
use node::cri::v1::LinuxContainerResources;

use super::cadvisor;
use crate::pod::{resources, spec};
use crate::server::stats::groups::Group;

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
pub fn render(text: &mut String, groups: &[Group], pods: &[Pod], memory: u64) {
    let memory = i64::try_from(memory).unwrap_or(i64::MAX);
    for (name, help, value) in FAMILIES {
        let mut family = figures::samples(text, name, "gauge", help);
        for group in groups.iter().filter(|group| !group.container.is_empty()) {
            let same = |pod: &&Pod| spec::namespace(pod) == group.namespace && spec::name(pod) == group.pod;
            let Some(member) = pods.iter().find(same).and_then(|pod| Some((pod, spec::member(pod, &group.container)?)))
            else {
                continue;
            };
            let given = resources::container_limits(member.0, &member.1.container, memory);
            if let Some(value) = value(&given) {
                cadvisor::sample(&mut family, group, &[], value);
            }
        }
    }
}
