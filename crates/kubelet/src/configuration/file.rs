//! The administrator's file: a `KubeletConfiguration`. `fields.txt` says of every field what becomes of it; what this kubelet does not have is
//! refused by name instead of being accepted and forgotten.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;
use rules::upstream::{self, file::Mistake};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::Config;
use crate::admission::sysctls::Allowed;
use crate::pressure::thresholds;
use crate::upkeep::shutdown;
use crate::{pressure, static_pods};

const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";
const KIND: &str = "KubeletConfiguration";
/// Durations whose zero is upstream's default.
const DEFAULT_IF_ZERO: [&str; 6] = [
    "imageMinimumGCAge",
    "evictionPressureTransitionPeriod",
    "volumeStatsAggPeriod",
    "containerLogMonitorInterval",
    "fileCheckFrequency",
    "httpCheckFrequency",
];
/// Pulls at a time where no limit is wanted.
const NO_LIMIT_OF_PULLS: usize = 1000;

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("read {path}: {source}", path = path.display())]
    Read {
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is not a configuration.
    #[error("{path}: {why}", path = path.display())]
    Parse { path: PathBuf, why: String },
    /// A field's value cannot be used.
    #[error("{field}: {why}")]
    Value { field: &'static str, why: String },
    #[error("{path}, {mistake}", path = path.display())]
    Field { path: PathBuf, mistake: Mistake },
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let parsed = machinery::duration::parse(&text)
        .ok_or_else(|| serde::de::Error::custom(format!("invalid duration {text:?}")))?;
    Ok(Some(parsed))
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct File {
    api_version: String,
    kind: String,
    port: Option<u16>,
    register_with_taints: Option<Vec<Taint>>,
    pods_per_core: Option<u32>,
    max_pods: Option<u32>,
    pod_pids_limit: Option<i64>,
    allowed_unsafe_sysctls: Option<Vec<String>>,
    enable_system_log_handler: Option<bool>,
    enable_system_log_query: Option<bool>,
    #[serde(rename = "clusterDNS")]
    cluster_dns: Option<Vec<String>>,
    cluster_domain: Option<String>,
    resolv_conf: Option<PathBuf>,
    static_pod_path: Option<PathBuf>,
    #[serde(rename = "staticPodURL")]
    static_pod_url: Option<String>,
    #[serde(rename = "staticPodURLHeader")]
    static_pod_url_header: Option<BTreeMap<String, Vec<String>>>,
    #[serde(deserialize_with = "duration")]
    http_check_frequency: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    file_check_frequency: Option<Duration>,
    max_parallel_image_pulls: Option<usize>,
    serialize_image_pulls: Option<bool>,
    system_reserved: Option<BTreeMap<String, String>>,
    kube_reserved: Option<BTreeMap<String, String>>,
    enforce_node_allocatable: Option<Vec<String>>,
    container_log_max_size: Option<String>,
    container_log_max_files: Option<usize>,
    container_log_max_workers: Option<usize>,
    #[serde(deserialize_with = "duration")]
    container_log_monitor_interval: Option<Duration>,
    #[serde(rename = "imageMinimumGCAge", deserialize_with = "duration")]
    image_minimum_gc_age: Option<Duration>,
    #[serde(rename = "imageMaximumGCAge", deserialize_with = "duration")]
    image_maximum_gc_age: Option<Duration>,
    #[serde(rename = "imageGCHighThresholdPercent")]
    image_gc_high_threshold_percent: Option<u8>,
    #[serde(rename = "imageGCLowThresholdPercent")]
    image_gc_low_threshold_percent: Option<u8>,
    eviction_hard: Option<thresholds::Settings>,
    eviction_soft: Option<thresholds::Settings>,
    eviction_soft_grace_period: Option<thresholds::Settings>,
    eviction_minimum_reclaim: Option<thresholds::Settings>,
    #[serde(deserialize_with = "duration")]
    eviction_pressure_transition_period: Option<Duration>,
    eviction_max_pod_grace_period: Option<i64>,
    #[serde(deserialize_with = "duration")]
    volume_stats_agg_period: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    shutdown_grace_period: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    shutdown_grace_period_critical_pods: Option<Duration>,
    shutdown_grace_period_by_pod_priority: Option<Vec<ShutdownPeriod>>,
    tracing: Option<otlp::Configuration>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ShutdownPeriod {
    priority: i32,
    shutdown_grace_period_seconds: i64,
}

/// Reads a file, and fields that the command line sets besides, into a configuration that has defaults already.
pub fn read(path: Option<&Path>, fields: &[(String, Value)], config: &mut Config) -> Result<(), Error> {
    let table = upstream::table(include_str!("fields.txt"));
    if let Some(path) = path {
        let text = std::fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let parse = |why: String| Error::Parse { path: path.to_owned(), why };
        let tree: Value = serde_saphyr::from_str(&text).map_err(|error| parse(error.to_string()))?;
        if tree["apiVersion"] != API_VERSION || tree["kind"] != KIND {
            return Err(parse(format!("not a {KIND} of {API_VERSION}")));
        }
        let mistake = |mistake| Error::Field { path: path.to_owned(), mistake };
        let honoured = upstream::file::honoured(&table, &text, tree).map_err(mistake)?;
        apply(typed(honoured).map_err(parse)?, config)?;
    }
    // As upstream has it, the command line comes after the file.
    let path = PathBuf::from("the command line");
    let mut given = Map::new();
    for (field, value) in fields {
        place(&mut given, field, value.clone());
    }
    let honoured = upstream::file::honoured(&table, "", Value::Object(given));
    let honoured = honoured.map_err(|mistake| Error::Field { path: path.clone(), mistake })?;
    apply(typed(honoured).map_err(|why| Error::Parse { path, why })?, config)
}

/// Sets a field; `a.b` is b below a.
fn place(fields: &mut Map<String, Value>, field: &str, value: Value) {
    let Some((above, rest)) = field.split_once('.') else {
        fields.insert(field.to_owned(), value);
        return;
    };
    let below = fields.entry(above).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(below) = below {
        place(below, rest, value);
    }
}

/// What is honoured, with zeros that mean "as by default" left out.
fn typed(mut tree: Value) -> Result<File, String> {
    if let Some(fields) = tree.as_object_mut() {
        fields.retain(|name, value| {
            !(DEFAULT_IF_ZERO.contains(&name.as_str()) && matches!(value.as_str(), Some("0s" | "0")))
        });
    }
    serde_json::from_value(tree).map_err(|error| error.to_string())
}

/// A URL of static pods, asked every twenty seconds by default.
pub fn static_url(
    url: String,
    headers: Vec<(String, String)>,
    every: Option<Duration>,
) -> Result<static_pods::Url, String> {
    if crate::probes::http_get::Target::parse(&url).is_none() {
        return Err(format!("{url:?} is no URL of HTTP"));
    }
    for (name, text) in &headers {
        let (name_ok, text_ok) =
            (http::HeaderName::try_from(name.as_str()), http::HeaderValue::try_from(text.as_str()));
        if name_ok.is_err() || text_ok.is_err() {
            return Err(format!("the header {name:?} cannot be sent"));
        }
    }
    Ok(static_pods::Url { url, headers, every: every.unwrap_or(Duration::from_secs(20)) })
}

fn refused(field: &'static str, why: &dyn std::fmt::Display) -> Error {
    Error::Value { field, why: why.to_string() }
}

fn set<T>(place: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *place = given;
    }
}

fn apply(mut file: File, config: &mut Config) -> Result<(), Error> {
    set(&mut config.node.max_pods, file.max_pods);
    set(&mut config.node.port, file.port.filter(|port| *port != 0));
    set(&mut config.node.taints, file.register_with_taints.take());
    if let Some(each) = file.pods_per_core.filter(|each| *each > 0) {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        config.node.max_pods = config.node.max_pods.min(each.saturating_mul(cores));
    }
    config.pod_pids = file.pod_pids_limit.map_or(config.pod_pids, |limit| (limit > 0).then_some(limit));
    set(&mut config.allowed_unsafe_sysctls, file.allowed_unsafe_sysctls.take());
    Allowed::new("", &config.allowed_unsafe_sysctls).map_err(|why| refused("allowedUnsafeSysctls", &why))?;
    if file.enable_system_log_handler == Some(false) {
        config.system_logs = None;
    }
    if file.enable_system_log_query == Some(true) {
        return Err(refused("enableSystemLogQuery", &"this kubelet shows log files and does not query the journal"));
    }
    set(&mut config.cluster_dns, file.cluster_dns.take());
    set(&mut config.cluster_domain, file.cluster_domain.take());
    set(&mut config.resolv_conf, file.resolv_conf.take());
    if let Some(tracing) = file.tracing.take() {
        if let Some(error) = tracing.check("tracing").first() {
            return Err(refused("invalid configuration", error));
        }
        config.tracing = Some(tracing);
    }
    set_static_pods(&mut file, config)?;
    set_reservations(&mut file, config)?;
    set_images_and_logs(&mut file, config)?;
    set_eviction(&mut file, config)?;
    set_shutdown(file, config)
}

fn set_static_pods(file: &mut File, config: &mut Config) -> Result<(), Error> {
    config.static_pods = file.static_pod_path.take().or(config.static_pods.take());
    set(&mut config.static_pods_period, file.file_check_frequency.filter(|period| !period.is_zero()));
    if let Some(url) = file.static_pod_url.take().filter(|url| !url.is_empty()) {
        let every = file.http_check_frequency.filter(|period| !period.is_zero());
        let headers = file.static_pod_url_header.take().into_iter().flatten();
        let headers = headers.flat_map(|(name, values)| values.into_iter().map(move |value| (name.clone(), value)));
        config.static_url =
            Some(static_url(url, headers.collect(), every).map_err(|why| refused("staticPodURL", &why))?);
    }
    Ok(())
}

fn set_reservations(file: &mut File, config: &mut Config) -> Result<(), Error> {
    for (field, reserved) in
        [("systemReserved", file.system_reserved.take()), ("kubeReserved", file.kube_reserved.take())]
    {
        for (name, text) in reserved.into_iter().flatten() {
            let amount: machinery::quantity::Quantity = text.parse().map_err(|error| refused(field, &error))?;
            match name.as_str() {
                "cpu" => config.node.reserved_cpu_milli += amount.milli_value(),
                "memory" => config.node.reserved_memory += amount.value(),
                "ephemeral-storage" => config.node.reserved_storage += amount.value(),
                "pid" => config.node.reserved_pids += amount.value(),
                other => return Err(refused(field, &format!("{other:?} cannot be reserved"))),
            }
        }
    }
    for what in file.enforce_node_allocatable.iter().flatten() {
        config.node.enforced = match what.as_str() {
            "pods" => true,
            "none" if file.enforce_node_allocatable.as_ref().is_some_and(|all| all.len() > 1) => {
                let why = "may not contain additional enforcements when \"none\" is specified";
                return Err(refused("enforceNodeAllocatable", &why));
            }
            "none" => false,
            other => return Err(refused("enforceNodeAllocatable", &format!("{other:?} cannot be enforced"))),
        };
    }
    Ok(())
}

fn set_images_and_logs(file: &mut File, config: &mut Config) -> Result<(), Error> {
    config.parallel_pulls = match (file.serialize_image_pulls, file.max_parallel_image_pulls) {
        (Some(true), Some(most)) if most > 1 => {
            return Err(refused(
                "maxParallelImagePulls",
                &"cannot be larger than 1 unless serializeImagePulls is set to false",
            ));
        }
        (_, Some(0)) => return Err(refused("maxParallelImagePulls", &"must be a positive number")),
        (Some(true), _) => 1,
        // Upstream sets no limit then; one that nobody reaches keeps the queue bounded.
        (Some(false), None) => NO_LIMIT_OF_PULLS,
        (_, most) => most.unwrap_or(config.parallel_pulls),
    };
    let rotation = &mut config.rotation;
    if let Some(text) = &file.container_log_max_size {
        let size: machinery::quantity::Quantity =
            text.parse().map_err(|error| refused("containerLogMaxSize", &error))?;
        rotation.max_size = size.value();
    }
    set(&mut rotation.max_files, file.container_log_max_files);
    if rotation.max_files < 2 {
        return Err(refused("containerLogMaxFiles", &"must be greater than 1"));
    }
    set(&mut rotation.workers, file.container_log_max_workers);
    set(&mut rotation.interval, file.container_log_monitor_interval);
    let policy = &mut config.image_gc;
    set(&mut policy.min_age, file.image_minimum_gc_age);
    set(&mut policy.max_age, file.image_maximum_gc_age);
    set(&mut policy.high, file.image_gc_high_threshold_percent);
    set(&mut policy.low, file.image_gc_low_threshold_percent);
    if policy.high > 100 || policy.low >= policy.high {
        return Err(refused(
            "imageGCLowThresholdPercent",
            &"must be less than imageGCHighThresholdPercent, which is at most 100",
        ));
    }
    Ok(())
}

fn set_eviction(file: &mut File, config: &mut Config) -> Result<(), Error> {
    if file.eviction_hard.is_some() || file.eviction_soft.is_some() || file.eviction_minimum_reclaim.is_some() {
        let hard = file.eviction_hard.take().unwrap_or_else(pressure::default_hard);
        let given = |settings: Option<thresholds::Settings>| settings.unwrap_or_default();
        let parsed = thresholds::parse(
            &hard,
            &given(file.eviction_soft.take()),
            &given(file.eviction_soft_grace_period.take()),
            &given(file.eviction_minimum_reclaim.take()),
        );
        config.eviction.thresholds = parsed.map_err(|error| refused("evictionHard", &error))?;
    }
    set(&mut config.eviction.transition, file.eviction_pressure_transition_period);
    set(&mut config.eviction.max_pod_grace, file.eviction_max_pod_grace_period);
    Ok(())
}

fn set_shutdown(file: File, config: &mut Config) -> Result<(), Error> {
    set(&mut config.volume_stats_period, file.volume_stats_agg_period);
    let whole = file.shutdown_grace_period.unwrap_or_default();
    let critical = file.shutdown_grace_period_critical_pods.unwrap_or_default();
    if critical > whole {
        return Err(refused("shutdownGracePeriodCriticalPods", &"must be <= shutdownGracePeriod"));
    }
    if let Some(periods) = file.shutdown_grace_period_by_pod_priority {
        if !whole.is_zero() {
            return Err(refused(
                "shutdownGracePeriodByPodPriority",
                &"cannot be set together with shutdownGracePeriod",
            ));
        }
        let period = |one: ShutdownPeriod| shutdown::Period {
            priority: one.priority,
            seconds: one.shutdown_grace_period_seconds,
        };
        let mut periods: Vec<shutdown::Period> = periods.into_iter().map(period).collect();
        periods.sort_by_key(|period| period.priority);
        config.shutdown = shutdown::Config(periods);
    } else if !whole.is_zero() {
        config.shutdown = shutdown::Config::new(whole, critical);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::gc;
    use rules::upstream::Doing;

    fn parsed(text: &str) -> Result<Config, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubelet.yaml");
        std::fs::write(&path, format!("apiVersion: {API_VERSION}\nkind: {KIND}\n{text}")).unwrap();
        let mut config = Config::new("n", dir.path());
        read(Some(&path), &[], &mut config).map(|()| config).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_sets_what_it_names() {
        let config = parsed(
            "maxPods: 50\npodPidsLimit: 100\ncontainerLogMaxSize: 1Mi\ncontainerLogMonitorInterval: 1m30s\n\
             imageMinimumGCAge: 1h\nevictionHard:\n  memory.available: 200Mi\nshutdownGracePeriod: 30s\n\
             shutdownGracePeriodCriticalPods: 10s\nsystemReserved:\n  cpu: 100m\n  pid: \"50\"\nkubeReserved:\n  \
             cpu: \"1\"\n",
        )
        .unwrap();
        assert_eq!((config.node.max_pods, config.pod_pids), (50, Some(100)));
        assert_eq!((config.rotation.max_size, config.rotation.interval), (1 << 20, Duration::from_secs(90)));
        assert_eq!((config.image_gc.min_age, config.image_gc.high), (Duration::from_secs(3600), 85));
        assert_eq!(config.eviction.thresholds.len(), 2);
        assert_eq!(config.shutdown.0.len(), 2);
        assert_eq!((config.node.reserved_cpu_milli, config.node.reserved_pids), (1100, 50));
        assert!(config.node.enforced);
        assert!(!parsed("enforceNodeAllocatable: [none]\n").unwrap().node.enforced);
        for bad in ["[none, pods]", "[system-reserved]"] {
            let refused = parsed(&format!("enforceNodeAllocatable: {bad}\n")).unwrap_err();
            assert!(refused.starts_with("enforceNodeAllocatable: "), "{refused}");
        }
        let config = parsed(
            "staticPodURL: http://localhost:1/pods\nstaticPodURLHeader:\n  X-Key: [a, b]\nhttpCheckFrequency: 1m\n\
             serializeImagePulls: false\n",
        )
        .unwrap();
        let source = config.static_url.unwrap();
        assert_eq!((source.url.as_str(), source.every), ("http://localhost:1/pods", Duration::from_secs(60)));
        assert_eq!(source.headers, [("X-Key".to_owned(), "a".to_owned()), ("X-Key".to_owned(), "b".to_owned())]);
        assert_eq!(config.parallel_pulls, NO_LIMIT_OF_PULLS);
        assert_eq!(parsed("serializeImagePulls: true\n").unwrap().parallel_pulls, 1);
        assert_eq!(parsed("maxParallelImagePulls: 7\nserializeImagePulls: false\n").unwrap().parallel_pulls, 7);
        let both = parsed("maxParallelImagePulls: 7\nserializeImagePulls: true\n").unwrap_err();
        assert!(both.starts_with("maxParallelImagePulls: cannot be larger than 1"), "{both}");
        assert!(parsed("staticPodURL: ftp://x\n").unwrap_err().starts_with("staticPodURL"));
        let allowed = parsed("allowedUnsafeSysctls: [net.core.*]\n").unwrap();
        assert_eq!(allowed.allowed_unsafe_sysctls, ["net.core.*"]);
        let refused = parsed("allowedUnsafeSysctls: [kernel.sysrq]\n").unwrap_err();
        assert_eq!(refused, "allowedUnsafeSysctls: the sysctls \"kernel.sysrq\" are not known to be namespaced");
        assert!(parsed("nonsense: 1\n").unwrap_err().ends_with("line 3: nonsense: unknown field"));
        assert!(parsed("imageGCLowThresholdPercent: 90\n").unwrap_err().starts_with("imageGCLowThresholdPercent"));
    }

    #[test]
    fn every_field_of_upstream_s_has_a_line() {
        let table = upstream::table(include_str!("fields.txt"));
        let mut here: Vec<&str> = table.iter().map(|row| row.name.split('.').next().unwrap()).collect();
        here.sort_unstable();
        here.dedup();
        let theirs: Vec<&str> = include_str!("names.txt").split_whitespace().collect();
        assert_eq!(here, theirs);
        assert!(
            table.iter().all(|row| matches!(row.doing, Doing::Honoured(_) | Doing::Gates) || !row.reason.is_empty())
        );
    }

    #[test]
    fn what_kubeadm_writes_is_read() {
        let config = parsed(
            "authentication:\n  anonymous: {enabled: false}\n  webhook: {cacheTTL: 0s, enabled: true}\n  x509: {clientCAFile: /ca.crt}\n\
             authorization:\n  mode: Webhook\n  webhook: {cacheAuthorizedTTL: 0s, cacheUnauthorizedTTL: 0s}\n\
             cgroupDriver: systemd\nclusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\ncontainerRuntimeEndpoint: \"\"\n\
             cpuManagerReconcilePeriod: 0s\ncrashLoopBackOff: {}\nevictionPressureTransitionPeriod: 0s\nfileCheckFrequency: 0s\n\
             healthzBindAddress: 127.0.0.1\nhealthzPort: 10248\nhttpCheckFrequency: 0s\nimageMaximumGCAge: 0s\n\
             imageMinimumGCAge: 0s\nlogging:\n  flushFrequency: 0\n  options:\n    json: {infoBufferSize: \"0\"}\n  verbosity: 0\n\
             memorySwap: {}\nnodeStatusReportFrequency: 0s\nnodeStatusUpdateFrequency: 0s\nrotateCertificates: true\n\
             runtimeRequestTimeout: 0s\nshutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\n\
             staticPodPath: /etc/kubernetes/manifests\nstreamingConnectionIdleTimeout: 0s\nsyncFrequency: 0s\nvolumeStatsAggPeriod: 0s\n",
        )
        .unwrap();
        assert_eq!(config.image_gc.min_age, gc::Policy::default().min_age, "zero is the default");
        assert_eq!(config.static_pods.as_deref(), Some(Path::new("/etc/kubernetes/manifests")));
        let refused = parsed("failSwapOn: true\n").unwrap_err();
        assert!(refused.contains("line 3: failSwapOn: \"true\" is not possible, only false"), "{refused}");
        assert!(parsed("featureGates: {EventedPLEG: true}\n").unwrap_err().contains("EventedPLEG=true: it is off"));
    }

    #[test]
    fn the_command_line_comes_after_the_file() {
        let fields = [
            ("maxPods".to_owned(), Value::from(7)),
            ("authentication.anonymous.enabled".to_owned(), Value::from(false)),
            ("registerWithTaints".to_owned(), serde_json::json!([{"key": "a", "effect": "NoSchedule"}])),
        ];
        let mut config = Config::new("n", Path::new("/nowhere"));
        read(None, &fields, &mut config).unwrap();
        assert_eq!((config.node.max_pods, config.node.taints.len()), (7, 1));
        let anonymous = [("authentication.anonymous.enabled".to_owned(), Value::from(true))];
        let refused = read(None, &anonymous, &mut config).unwrap_err().to_string();
        assert!(
            refused.starts_with("the command line, line 1: authentication.anonymous.enabled: \"true\" is not possible"),
            "{refused}"
        );
    }
}
