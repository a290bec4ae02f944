//! What every pod requests and is limited to, by upstream's names: a page of its own, as it grows with the number of pods.
//!
//! The pods are those of the scheduler that runs; one that stands by has none to show.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock, Weak};

use informer::Informer;
use parking_lot::Mutex;

use crate::model::pod::PodInfo;

/// The pods that a running scheduler knows.
pub struct Known(Informer<PodInfo>);

fn registry() -> &'static Mutex<Weak<Known>> {
    static RUNNING: OnceLock<Mutex<Weak<Known>>> = OnceLock::new();
    RUNNING.get_or_init(Mutex::default)
}

impl Known {
    /// Shows these pods for as long as the value is kept.
    pub(crate) fn show(pods: Informer<PodInfo>) -> Arc<Self> {
        let known = Arc::new(Self(pods));
        *registry().lock() = Arc::downgrade(&known);
        known
    }
}

/// Writes the figures of all pods.
pub fn write(text: &mut String) {
    let known = registry().lock().upgrade();
    let pods = known.map(|known| known.0.list()).unwrap_or_default();
    render(&pods, text);
}

/// Reads named amounts of a pod.
type Amounts = fn(&PodInfo) -> &[(Box<str>, i64)];

fn render(pods: &[Arc<PodInfo>], text: &mut String) {
    let families: [(&str, &str, Amounts); 2] = [
        (
            "kube_pod_resource_limit",
            "Resources limit for workloads on the cluster, broken down by pod. This shows the resource usage the scheduler and kubelet expect per pod for resources along with the unit for the resource if any.",
            |pod| &pod.declared.limits,
        ),
        (
            "kube_pod_resource_request",
            "Resources requested by workloads on the cluster, broken down by pod. This shows the resource usage the scheduler and kubelet expect per pod for resources along with the unit for the resource if any.",
            |pod| &pod.declared.requests,
        ),
    ];
    for (name, help, amounts) in families {
        let mut figures: Vec<(Labels<'_>, f64)> = pods
            .iter()
            .flat_map(|pod| amounts(pod).iter().map(|(resource, amount)| figure(pod, resource, *amount)))
            .collect();
        if figures.is_empty() {
            continue;
        }
        figures.sort_by(|(one, _), (other, _)| one.cmp(other));
        figures.dedup_by(|(one, _), (other, _)| one == other);
        let mut family = figures::samples(text, name, "gauge", &format!("[STABLE] {help}"));
        for (labels, amount) in &figures {
            family.add(&labels.each_ref().map(|(name, value)| (*name, &**value)), *amount);
        }
    }
}

/// What tells one series from another, in the order of the names.
type Labels<'a> = [(&'static str, Cow<'a, str>); 7];

fn figure<'a>(pod: &'a PodInfo, resource: &'a str, amount: i64) -> (Labels<'a>, f64) {
    let unit = match resource {
        "cpu" => "cores",
        "memory" | "storage" | "ephemeral-storage" => "bytes",
        _ if resource.starts_with("hugepages-") => "bytes",
        _ if resource.starts_with("attachable-volumes-") => "integer",
        _ => "",
    };
    let labels = [
        ("namespace", pod.namespace().into()),
        ("node", pod.node_name().unwrap_or_default().into()),
        ("pod", pod.name().into()),
        ("priority", pod.priority.to_string().into()),
        ("resource", resource.into()),
        ("scheduler", pod.scheduler_name().into()),
        ("unit", unit.into()),
    ];
    (labels, if resource == "cpu" { amount as f64 / 1000.0 } else { amount as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{container, pod};

    #[test]
    fn requests_and_limits_are_shown_with_their_units() {
        let web = container("web").limit("cpu", "500m").limit("memory", "2Gi").cpu("250m").memory("1Gi");
        let sidecar = container("sidecar").cpu("50m").limit("example.com/gpu", "2").always();
        let info = pod("p").with(web).with_init(sidecar).with_init(container("init").cpu("1"));
        let info = info.overhead("cpu", "10m").overhead("memory", "1Mi").priority(7).on("n").info();
        let mut text = String::new();
        render(&[info], &mut text);
        let labels = |resource: &str, unit: &str| {
            format!(
                "{{namespace=\"default\",node=\"n\",pod=\"p\",priority=\"7\",resource=\"{resource}\",scheduler=\"default-scheduler\",unit=\"{unit}\"}}"
            )
        };
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                format!("kube_pod_resource_limit{} 0.51", labels("cpu", "cores")),
                format!("kube_pod_resource_limit{} 2", labels("example.com/gpu", "")),
                format!("kube_pod_resource_limit{} 2.148532224e+09", labels("memory", "bytes")),
                // The init container beside the sidecar needs more than what runs later.
                format!("kube_pod_resource_request{} 1.06", labels("cpu", "cores")),
                format!("kube_pod_resource_request{} 2", labels("example.com/gpu", "")),
                format!("kube_pod_resource_request{} 1.0747904e+09", labels("memory", "bytes")),
            ]
        );
        assert!(text.contains("# TYPE kube_pod_resource_limit gauge\n"), "{text}");
    }

    #[test]
    fn without_pods_nothing_is_shown_and_names_cannot_forge_lines() {
        let mut text = String::new();
        render(&[], &mut text);
        assert_eq!(text, "");
        let odd = pod("p").cpu("1").scheduler("a\"} 1\nforged").info();
        render(&[odd], &mut text);
        assert!(text.contains(r#"scheduler="a\"} 1\nforged""#), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("forged")), "{text}");
    }
}
