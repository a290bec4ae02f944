//! The arguments of plugins, with upstream's defaults.

use k8s_openapi::api::core::v1::{NodeAffinity, TopologySpreadConstraint};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{ConfigError, ProfileConfig};

/// Reads the arguments of a plugin; absent ones are the defaults.
pub fn plugin_args<T: DeserializeOwned + Default>(profile: &ProfileConfig, plugin: &str) -> Result<T, ConfigError> {
    let Some(config) = profile.plugin_config.iter().find(|c| c.name == plugin) else { return Ok(T::default()) };
    let mut args = config.args.clone();
    if let Value::Object(fields) = &mut args {
        // Checked by nobody but harmless: the kind follows from the plugin's name.
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    if args.is_null() {
        return Ok(T::default());
    }
    serde_json::from_value(args)
        .map_err(|e| ConfigError::Invalid { field: format!("pluginConfig[{plugin}].args"), message: e.to_string() })
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DefaultPreemptionArgs {
    /// Percentage of candidate nodes to look at.
    pub min_candidate_nodes_percentage: i32,
    /// At least so many of them.
    pub min_candidate_nodes_absolute: i32,
}

impl Default for DefaultPreemptionArgs {
    fn default() -> Self {
        Self { min_candidate_nodes_percentage: 10, min_candidate_nodes_absolute: 100 }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InterPodAffinityArgs {
    /// What the required affinity of placed pods is worth to an incoming one.
    pub hard_pod_affinity_weight: i32,
    /// Whether pods without preferred terms ignore those of others.
    pub ignore_preferred_terms_of_existing_pods: bool,
}

impl Default for InterPodAffinityArgs {
    fn default() -> Self {
        Self { hard_pod_affinity_weight: 1, ignore_preferred_terms_of_existing_pods: false }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeAffinityArgs {
    /// Added to that of every pod.
    pub added_affinity: Option<NodeAffinity>,
}

/// A resource and its weight.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceSpec {
    pub name: String,
    /// Weight; zero means one.
    #[serde(default)]
    pub weight: i64,
}

/// A point of a broken line.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UtilizationShapePoint {
    /// 0 to 100.
    pub utilization: i64,
    /// 0 to 10.
    pub score: i64,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ScoringStrategy {
    /// `LeastAllocated`, `MostAllocated` or `RequestedToCapacityRatio`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Scored resources; CPU and memory when empty.
    pub resources: Vec<ResourceSpec>,
    /// The line of `RequestedToCapacityRatio`.
    pub requested_to_capacity_ratio: Option<RequestedToCapacityRatio>,
}

/// The line of `RequestedToCapacityRatio`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RequestedToCapacityRatio {
    pub shape: Vec<UtilizationShapePoint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeResourcesFitArgs {
    /// Extended resources that others look after.
    pub ignored_resources: Vec<String>,
    /// Whole groups of them.
    pub ignored_resource_groups: Vec<String>,
    pub scoring_strategy: Option<ScoringStrategy>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BalancedAllocationArgs {
    /// Balanced resources; CPU and memory when empty.
    pub resources: Vec<ResourceSpec>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PodTopologySpreadArgs {
    /// Constraints of pods that bring none, under `List`.
    pub default_constraints: Vec<TopologySpreadConstraint>,
    /// `System` or `List`.
    pub defaulting_type: String,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VolumeBindingArgs {
    /// How long to wait for volumes.
    pub bind_timeout_seconds: u64,
    /// What a used share of capacity is worth.
    pub shape: Vec<UtilizationShapePoint>,
}

impl Default for VolumeBindingArgs {
    fn default() -> Self {
        let point = |utilization, score| UtilizationShapePoint { utilization, score };
        Self { bind_timeout_seconds: 600, shape: vec![point(0, 10), point(100, 0)] }
    }
}
