//! What containers were given, as cAdvisor tells it.

use node::cri::v1::LinuxContainerResources;

use super::cadvisor;
use crate::stats::groups::Group;

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
pub fn render(text: &mut String, groups: &[Group]) {
    for (name, help, value) in FAMILIES {
        let mut family = figures::samples(text, name, "gauge", help);
        for group in groups {
            if let Some(value) = group.limits.as_ref().and_then(value) {
                cadvisor::sample(&mut family, group, &[], value);
            }
        }
    }
}
