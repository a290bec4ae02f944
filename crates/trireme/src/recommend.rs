//! `trireme recommend`: what containers should ask for, from what was seen of them.
//!
//! Readings are those of `metrics.k8s.io`, whoever serves it. The server keeps none: it measures only while somebody asks. Whoever wants more than the moment
//! keeps them in a file, which each run adds to.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use client::{Client, ListParams};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use machinery::quantity::Quantity;
use resourcemetrics::collect::RESOLUTION;
use resourcemetrics::recommend::{Advice, Care, Reading, Whose, advise, keep};
use serde::Deserialize;

use crate::component::Failure;
use crate::standalone::connect;

/// What to look at, and how.
#[derive(Debug, clap::Args)]
pub struct Recommend {
    /// Whom to connect to, and as whom.
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: PathBuf,
    /// Only this namespace [default: all].
    #[arg(long, short, value_name = "NAME", default_value = "")]
    namespace: String,
    /// Go on reading so long, in seconds: 0 takes one reading.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    duration: u64,
    /// Keep readings in this file, and count those that are in it.
    #[arg(long, value_name = "FILE")]
    readings: Option<PathBuf>,
    /// Forget readings that are older, in days.
    #[arg(long, value_name = "DAYS", default_value_t = 8)]
    keep: u16,
    /// So many of a hundred readings of CPU are within the recommendation.
    #[arg(long, value_name = "NUMBER", default_value_t = 90, value_parser = clap::value_parser!(u8).range(1..=100))]
    cpu_percentile: u8,
    /// So many of a hundred readings of memory are within it.
    #[arg(long, value_name = "NUMBER", default_value_t = 98, value_parser = clap::value_parser!(u8).range(1..=100))]
    memory_percentile: u8,
    /// Add so many hundredths.
    #[arg(long, value_name = "NUMBER", default_value_t = 15, value_parser = clap::value_parser!(u8).range(0..=200))]
    margin: u8,
}

#[derive(Deserialize)]
struct PodMetricsList {
    #[serde(default)]
    items: Vec<PodMetrics>,
}

#[derive(Deserialize)]
struct PodMetrics {
    metadata: Metadata,
    timestamp: Timestamp,
    #[serde(default)]
    containers: Vec<ContainerMetrics>,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    namespace: String,
}

#[derive(Deserialize)]
struct ContainerMetrics {
    name: String,
    usage: std::collections::BTreeMap<String, String>,
}

/// Reads, keeps, and says.
pub async fn run(options: Recommend) -> Result<(), Failure> {
    let client = connect(&options.kubeconfig)?;
    let mut kept = options.readings.as_deref().map(load).transpose()?.unwrap_or_default();
    let age = SignedDuration::from_hours(i64::from(options.keep) * 24);
    let end = Instant::now() + Duration::from_secs(options.duration);
    let pods = loop {
        let pods = client.list::<Pod>(&options.namespace, &ListParams::default()).await?.items;
        let new = read(&client, &options.namespace, &pods).await?;
        keep(&mut kept, new, Timestamp::now(), age);
        if let Some(path) = &options.readings {
            save(path, &kept)?;
        }
        if Instant::now() + RESOLUTION > end {
            break pods;
        }
        tokio::time::sleep(RESOLUTION).await;
    };
    let care = Care {
        cpu_percentile: options.cpu_percentile,
        memory_percentile: options.memory_percentile,
        margin: options.margin,
    };
    let in_it = |advice: &Advice| options.namespace.is_empty() || advice.whose.namespace == options.namespace;
    let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
    let advice: Vec<Advice> = advise(&kept, care).into_iter().filter(in_it).collect();
    print!("{}", table(&advice, &pods));
    Ok(())
}

async fn read(client: &Client, namespace: &str, pods: &[std::sync::Arc<Pod>]) -> Result<Vec<Reading>, Failure> {
    let place = if namespace.is_empty() { String::new() } else { format!("namespaces/{namespace}/") };
    let bytes = client.raw(&format!("/apis/metrics.k8s.io/v1beta1/{place}pods")).await?;
    let found: PodMetricsList = serde_json::from_slice(&bytes)?;
    let mut readings = Vec::new();
    for measured in found.items {
        let Metadata { name, namespace } = measured.metadata;
        let is_it = |pod: &&std::sync::Arc<Pod>| {
            pod.metadata.name.as_deref() == Some(&name) && pod.metadata.namespace.as_deref() == Some(&namespace)
        };
        let Some(pod) = pods.iter().find(is_it) else { continue };
        for container in measured.containers {
            let used = |what: &str, scale: fn(&Quantity) -> u64| {
                container.usage.get(what).and_then(|text| text.parse().ok()).map_or(0, |amount| scale(&amount))
            };
            let whose =
                Whose { namespace: namespace.clone(), workload: workload(pod), container: container.name.clone() };
            readings.push(Reading {
                whose,
                pod: name.clone(),
                time: measured.timestamp,
                cpu: used("cpu", nanos),
                memory: used("memory", |amount| u64::try_from(amount.value()).unwrap_or(0)),
            });
        }
    }
    Ok(readings)
}

fn nanos(amount: &Quantity) -> u64 {
    u64::try_from(amount.scaled_value(-9)).unwrap_or(0)
}

/// Whose pod it is: a Deployment's are owned by ReplicaSets whose names end with a hash that the pods carry.
fn workload(pod: &Pod) -> String {
    let owner = pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    let Some(owner) = owner else { return format!("Pod/{}", pod.metadata.name.as_deref().unwrap_or_default()) };
    let hash = pod.metadata.labels.as_ref().and_then(|labels| labels.get("pod-template-hash"));
    match hash.and_then(|hash| owner.name.strip_suffix(hash.as_str())?.strip_suffix('-')) {
        Some(name) if owner.kind == "ReplicaSet" => format!("Deployment/{name}"),
        _ => format!("{}/{}", owner.kind, owner.name),
    }
}

/// What a container asks for now.
fn requested(whose: &Whose, pods: &[&Pod], resource: &str) -> String {
    let of_it =
        |pod: &&&Pod| pod.metadata.namespace.as_deref() == Some(&whose.namespace) && workload(pod) == whose.workload;
    let spec = pods.iter().find(of_it).and_then(|pod| pod.spec.as_ref());
    let sidecars = spec.into_iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let all = spec.into_iter().flat_map(|spec| &spec.containers).chain(sidecars);
    let named = |container: &&Container| container.name == whose.container;
    let requests = all.filter(named).find_map(|container| container.resources.as_ref()?.requests.as_ref());
    requests
        .and_then(|requests| requests.get(resource))
        .map_or_else(|| "<none>".to_owned(), |Amount(text)| text.clone())
}

fn table(advice: &[Advice], pods: &[&Pod]) -> String {
    let mut rows = vec![
        ["NAMESPACE", "WORKLOAD", "CONTAINER", "READINGS", "CPU", "RECOMMENDED", "MEMORY", "RECOMMENDED"]
            .map(str::to_owned),
    ];
    rows.extend(advice.iter().map(|advice| {
        let Whose { namespace, workload, container } = advice.whose.clone();
        let now = |resource| requested(&advice.whose, pods, resource);
        let (cpu, memory) = (format!("{}m", advice.cpu), format!("{}Mi", advice.memory));
        [namespace, workload, container, advice.readings.to_string(), now("cpu"), cpu, now("memory"), memory]
    }));
    let widths: Vec<usize> =
        (0..8).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0) + 3).collect();
    let line = |row: &[String; 8]| {
        let cells: String = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", cells.trim_end())
    };
    rows.iter().map(line).collect()
}

/// Lines that cannot be read, such as one that a crash cut off, are left out.
fn load(path: &Path) -> Result<Vec<Reading>, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(format!("read {}: {error}", path.display()).into()),
    }
}

/// All of them, or what was there before.
fn save(path: &Path, readings: &[Reading]) -> Result<(), Failure> {
    let lines = readings.iter().map(|reading| serde_json::to_string(reading).map(|line| line + "\n"));
    let next = path.with_extension("next");
    ::node::private::write(&next, lines.collect::<Result<String, _>>()?)?;
    Ok(std::fs::rename(&next, path)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(tree: serde_json::Value) -> Pod {
        serde_json::from_value(tree).unwrap()
    }

    fn web() -> Pod {
        pod(json!({
            "metadata": {"name": "web-5d9-x", "namespace": "default", "labels": {"pod-template-hash": "5d9"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9", "uid": "u", "controller": true}]},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]},
        }))
    }

    #[test]
    fn pods_are_their_workloads() {
        assert_eq!(workload(&web()), "Deployment/web");
        let mut set = web();
        set.metadata.labels = None;
        assert_eq!(workload(&set), "ReplicaSet/web-5d9");
        assert_eq!(workload(&pod(json!({"metadata": {"name": "alone"}}))), "Pod/alone");
    }

    #[test]
    fn what_is_asked_for_stands_beside_what_should_be() {
        let whose = Whose { namespace: "default".into(), workload: "Deployment/web".into(), container: "c".into() };
        let advice = [Advice { whose, readings: 12, cpu: 115, memory: 64 }];
        assert_eq!(
            table(&advice, &[&web()]),
            "NAMESPACE   WORKLOAD         CONTAINER   READINGS   CPU    RECOMMENDED   MEMORY   RECOMMENDED\n\
             default     Deployment/web   c           12         500m   115m          <none>   64Mi\n"
        );
    }

    #[test]
    fn readings_are_kept_in_a_file_and_a_torn_line_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("readings");
        assert!(load(&path).unwrap().is_empty());
        let whose = Whose { namespace: "n".into(), workload: "Pod/p".into(), container: "c".into() };
        let reading = Reading { whose, pod: "p".into(), time: Timestamp::from_second(7).unwrap(), cpu: 1, memory: 2 };
        save(&path, std::slice::from_ref(&reading)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{text}{}", &text[..20])).unwrap();
        assert_eq!(load(&path).unwrap(), [reading]);
    }
}
