//! `KubeSchedulerConfiguration` v1: profiles, plugins, weights, arguments, extenders.
//!
//! Only what differs from the defaults need be given; [`Configuration::parse`] refuses what it does not understand.

mod args;
pub mod registry;
mod shown;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

pub use args::*;

/// Why a configuration is not usable.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// Not YAML or JSON, or not of the expected form.
    #[error("cannot read KubeSchedulerConfiguration: {0}")]
    Form(String),
    /// Of another kind or version.
    #[error("no kind {kind:?} is registered for version {version:?}")]
    Kind { kind: String, version: String },
    /// A value out of its range.
    #[error("{field}: Invalid value: {message}")]
    Invalid {
        field: String,
        /// What is wrong with it.
        message: String,
    },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Configuration {
    api_version: String,
    kind: String,
    /// Kept for compatibility: one thread schedules.
    pub parallelism: i32,
    /// Who leads when several run.
    pub leader_election: LeaderElection,
    /// How to reach the API; command lines may override it.
    pub client_connection: ClientConnection,
    pub enable_profiling: Option<bool>,
    pub enable_contention_profiling: Option<bool>,
    /// Backoff after the first failure.
    pub pod_initial_backoff_seconds: u64,
    pub pod_max_backoff_seconds: u64,
    /// Percentage of nodes to find before scoring; 0 adapts to the cluster's size.
    pub percentage_of_nodes_to_score: i32,
    /// One per scheduler name.
    pub profiles: Vec<ProfileConfig>,
    /// Other processes that take part.
    pub extenders: Vec<ExtenderConfig>,
    pub delay_cache_until_active: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            api_version: API_VERSION.into(),
            kind: KIND.into(),
            parallelism: 16,
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection::default(),
            enable_profiling: None,
            enable_contention_profiling: None,
            pod_initial_backoff_seconds: 1,
            pod_max_backoff_seconds: 10,
            percentage_of_nodes_to_score: 0,
            profiles: vec![ProfileConfig::default()],
            extenders: Vec::new(),
            delay_cache_until_active: false,
        }
    }
}

const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const KIND: &str = "KubeSchedulerConfiguration";
/// The scheduler name of pods that name none.
pub const DEFAULT_SCHEDULER_NAME: &str = "default-scheduler";

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    pub leader_elect: bool,
    pub lease_duration: String,
    pub renew_deadline: String,
    pub retry_period: String,
    pub resource_lock: String,
    pub resource_name: String,
    pub resource_namespace: String,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            leader_elect: true,
            lease_duration: "15s".into(),
            renew_deadline: "10s".into(),
            retry_period: "2s".into(),
            resource_lock: "leases".into(),
            resource_name: "kube-scheduler".into(),
            resource_namespace: "kube-system".into(),
        }
    }
}

impl LeaderElection {
    /// How long a lease lasts, how long its holder may fail to renew it, and how often that is tried.
    pub fn timings(&self) -> Result<(Duration, Duration, Duration), ConfigError> {
        let read = |field: &str, text: &str| {
            let wrong = || ConfigError::Invalid {
                field: format!("leaderElection.{field}"),
                message: "must be greater than zero".into(),
            };
            machinery::duration::parse(text).filter(|duration| !duration.is_zero()).ok_or_else(wrong)
        };
        let lease = read("leaseDuration", &self.lease_duration)?;
        let renewal = read("renewDeadline", &self.renew_deadline)?;
        let retry = read("retryPeriod", &self.retry_period)?;
        Ok((lease, renewal, retry))
    }

    fn validate(&self) -> Result<(), ConfigError> {
        if !self.leader_elect {
            return Ok(());
        }
        let invalid =
            |field: &str, message: &str| ConfigError::Invalid { field: field.into(), message: message.into() };
        let (lease, renewal, retry) = self.timings()?;
        if lease <= renewal {
            return Err(invalid("leaderElection.leaseDuration", "must be greater than `RenewDeadline`"));
        }
        if renewal <= retry {
            return Err(invalid("leaderElection.renewDeadline", "must be greater than `RetryPeriod`"));
        }
        if self.resource_lock != "leases" {
            return Err(invalid("leaderElection.resourceLock", "resourceLock value must be \"leases\""));
        }
        for (field, value) in [("resourceNamespace", &self.resource_namespace), ("resourceName", &self.resource_name)] {
            if value.is_empty() {
                return Err(invalid(&format!("leaderElection.{field}"), "Required value"));
            }
        }
        Ok(())
    }
}

/// How to reach the API.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ClientConnection {
    pub kubeconfig: String,
    pub accept_content_types: String,
    pub content_type: String,
    pub qps: f64,
    pub burst: i32,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProfileConfig {
    /// Pods of this `schedulerName` are scheduled with this profile.
    pub scheduler_name: Option<String>,
    /// Overrides the scheduler-wide percentage.
    pub percentage_of_nodes_to_score: Option<i32>,
    /// Plugins beside, or instead of, the default ones.
    pub plugins: Plugins,
    pub plugin_config: Vec<PluginConfig>,
}

impl ProfileConfig {
    pub fn name(&self) -> &str {
        self.scheduler_name.as_deref().unwrap_or(DEFAULT_SCHEDULER_NAME)
    }
}

/// Arguments of a plugin.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginConfig {
    /// Name of the plugin.
    pub name: String,
    /// Its arguments, an object of kind `<name>Args`.
    #[serde(default)]
    pub args: Value,
}

/// Plugins per extension point.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Plugins {
    pub pre_enqueue: PluginList,
    pub queue_sort: PluginList,
    pub pre_filter: PluginList,
    pub filter: PluginList,
    pub post_filter: PluginList,
    pub pre_score: PluginList,
    pub score: PluginList,
    pub reserve: PluginList,
    pub permit: PluginList,
    pub pre_bind: PluginList,
    pub bind: PluginList,
    pub post_bind: PluginList,
    pub multi_point: PluginList,
}

/// Plugins switched on and off at an extension point. `*` switches all default ones off.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PluginList {
    pub enabled: Vec<PluginRef>,
    pub disabled: Vec<PluginRef>,
}

impl PluginList {
    /// Whether a default plugin is switched off.
    pub fn disables(&self, name: &str) -> bool {
        self.disabled.iter().any(|p| p.name == name || p.name == "*")
    }
}

/// A plugin, with a weight where it scores.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginRef {
    pub name: String,
    /// Factor of its score; zero means the default of one.
    #[serde(default)]
    pub weight: i64,
}

/// Another process that takes part in scheduling.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ExtenderConfig {
    pub url_prefix: String,
    pub filter_verb: String,
    pub preempt_verb: String,
    pub prioritize_verb: String,
    pub weight: i64,
    pub bind_verb: String,
    #[serde(rename = "enableHTTPS")]
    pub enable_https: bool,
    pub tls_config: Option<Value>,
    #[serde(rename = "httpTimeout")]
    pub http_timeout: Option<String>,
    pub node_cache_capable: bool,
    pub managed_resources: Vec<ManagedResource>,
    pub ignorable: bool,
}

/// An extended resource that an extender looks after.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ManagedResource {
    /// Name of the resource.
    pub name: String,
    /// Whether NodeResourcesFit leaves it to the extender.
    pub ignored_by_scheduler: bool,
}

impl ExtenderConfig {
    /// How long a call may take; five seconds unless given.
    pub fn timeout(&self) -> Duration {
        self.http_timeout.as_deref().and_then(machinery::duration::parse).unwrap_or(Duration::from_secs(5))
    }
}

impl Configuration {
    /// Reads a configuration from its JSON form (YAML is turned into it by the caller).
    pub fn parse(value: Value) -> Result<Self, ConfigError> {
        let mut configuration: Self = serde_json::from_value(value).map_err(|e| ConfigError::Form(e.to_string()))?;
        if configuration.api_version != API_VERSION || configuration.kind != KIND {
            return Err(ConfigError::Kind { kind: configuration.kind, version: configuration.api_version });
        }
        if configuration.profiles.is_empty() {
            configuration.profiles.push(ProfileConfig::default());
        }
        configuration.validate()?;
        Ok(configuration)
    }

    fn validate(&self) -> Result<(), ConfigError> {
        let invalid =
            |field: &str, message: &str| Err(ConfigError::Invalid { field: field.into(), message: message.into() });
        if self.parallelism <= 0 {
            return invalid("parallelism", "should be an integer value greater than zero");
        }
        if !(0..=100).contains(&self.percentage_of_nodes_to_score) {
            return invalid("percentageOfNodesToScore", "not in valid range [0-100]");
        }
        if self.pod_initial_backoff_seconds == 0 {
            return invalid("podInitialBackoffSeconds", "must be greater than 0");
        }
        if self.pod_max_backoff_seconds < self.pod_initial_backoff_seconds {
            return invalid("podMaxBackoffSeconds", "must be greater than or equal to PodInitialBackoffSeconds");
        }
        self.leader_election.validate()?;
        let mut names = BTreeMap::new();
        for (index, profile) in self.profiles.iter().enumerate() {
            if self.profiles.len() > 1 && profile.scheduler_name.as_deref().unwrap_or_default().is_empty() {
                return invalid(&format!("profiles[{index}].schedulerName"), "Required value");
            }
            if names.insert(profile.name(), index).is_some() {
                return invalid(&format!("profiles[{index}].schedulerName"), "Duplicate value");
            }
            if profile.percentage_of_nodes_to_score.is_some_and(|p| !(0..=100).contains(&p)) {
                return invalid(&format!("profiles[{index}].percentageOfNodesToScore"), "not in valid range [0-100]");
            }
        }
        let mut binders = 0;
        for (index, extender) in self.extenders.iter().enumerate() {
            if !extender.prioritize_verb.is_empty() && extender.weight <= 0 {
                return invalid(&format!("extenders[{index}].weight"), "must have a positive weight applied to it");
            }
            binders += usize::from(!extender.bind_verb.is_empty());
        }
        if binders > 1 {
            return invalid("extenders", &format!("found {binders} extenders implementing bind"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn config(mut value: Value) -> Result<Configuration, ConfigError> {
        value["apiVersion"] = json!(API_VERSION);
        value["kind"] = json!(KIND);
        Configuration::parse(value)
    }

    #[test]
    fn an_empty_configuration_is_the_default_one() {
        let parsed = config(json!({})).unwrap();
        assert_eq!(parsed.profiles[0].name(), DEFAULT_SCHEDULER_NAME);
        assert_eq!((parsed.pod_initial_backoff_seconds, parsed.pod_max_backoff_seconds), (1, 10));
        let timings = parsed.leader_election.timings().unwrap();
        assert_eq!(timings, (Duration::from_secs(15), Duration::from_secs(10), Duration::from_secs(2)));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (value, part) in [
            (json!({"nonsense": 1}), "unknown field"),
            (json!({"percentageOfNodesToScore": 101}), "percentageOfNodesToScore"),
            (json!({"podMaxBackoffSeconds": 0}), "podMaxBackoffSeconds"),
            (json!({"profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]}), "Duplicate"),
            (json!({"profiles": [{}, {"schedulerName": "a"}]}), "Required"),
            (json!({"extenders": [{"prioritizeVerb": "p"}]}), "positive weight"),
            (json!({"leaderElection": {"leaseDuration": "5s"}}), "must be greater than `RenewDeadline`"),
            (json!({"leaderElection": {"retryPeriod": "soon"}}), "leaderElection.retryPeriod"),
            (json!({"leaderElection": {"resourceLock": "endpoints"}}), "must be \"leases\""),
            (json!({"leaderElection": {"resourceName": ""}}), "leaderElection.resourceName"),
        ] {
            let error = config(value.clone()).unwrap_err().to_string();
            assert!(error.contains(part), "{value}: {error}");
        }
        let other = json!({"apiVersion": "kubescheduler.config.k8s.io/v1beta3", "kind": KIND});
        assert!(matches!(Configuration::parse(other), Err(ConfigError::Kind { .. })));
    }
}
