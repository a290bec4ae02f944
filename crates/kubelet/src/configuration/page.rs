//! `/configz`: the configuration in force, as an administrator would write it.

use std::collections::BTreeMap;

use super::Config;
use crate::pressure;
use crate::pressure::thresholds::{Signal, Value};

/// What `/configz` shows.
pub(crate) fn configz(config: &Config) -> serde_json::Value {
    serde_json::json!({"kubeletconfig": {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "maxPods": config.node.max_pods,
        "podPidsLimit": config.pod_pids.unwrap_or(-1),
        "enforceNodeAllocatable": [if config.node.enforced { "pods" } else { "none" }],
        "allowedUnsafeSysctls": config.allowed_unsafe_sysctls,
        "enableSystemLogHandler": config.system_logs.is_some(),
        "enableSystemLogQuery": false,
        "clusterDNS": config.cluster_dns,
        "clusterDomain": config.cluster_domain,
        "maxParallelImagePulls": config.parallel_pulls,
        "staticPodPath": config.static_pods,
        "staticPodURL": config.static_url.as_ref().map(|source| source.url.clone()).unwrap_or_default(),
        "fileCheckFrequency": format!("{}s", config.static_pods_period.as_secs()),
        "containerLogMaxSize": config.rotation.max_size.to_string(),
        "containerLogMaxFiles": config.rotation.max_files,
        "containerLogMaxWorkers": config.rotation.workers,
        "containerLogMonitorInterval": format!("{}s", config.rotation.interval.as_secs()),
        "imageGCHighThresholdPercent": config.image_gc.high,
        "imageGCLowThresholdPercent": config.image_gc.low,
        "imageMinimumGCAge": format!("{}s", config.image_gc.min_age.as_secs()),
        "imageMaximumGCAge": format!("{}s", config.image_gc.max_age.as_secs()),
        "evictionHard": eviction(&config.eviction, true),
        "evictionSoft": eviction(&config.eviction, false),
        "evictionPressureTransitionPeriod": format!("{}s", config.eviction.transition.as_secs()),
        "evictionMaxPodGracePeriod": config.eviction.max_pod_grace,
        "volumeStatsAggPeriod": format!("{}s", config.volume_stats_period.as_secs()),
    }})
}

/// The thresholds in force, as an administrator would write them.
fn eviction(config: &pressure::Config, hard: bool) -> BTreeMap<&'static str, String> {
    let own = |signal: &Signal| *signal != Signal::AllocatableMemory;
    let chosen = config.thresholds.iter().filter(|t| t.is_hard() == hard && own(&t.signal));
    chosen
        .map(|threshold| {
            let text = match threshold.value {
                Value::Amount(amount) => threshold.signal.amount(amount),
                Value::Share(share) => format!("{}%", (share * 1e4).round() / 1e2),
            };
            (threshold.signal.as_str(), text)
        })
        .collect()
}
