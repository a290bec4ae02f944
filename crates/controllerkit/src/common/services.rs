//! Services and the pods behind them, as both controllers of endpoints see them.

use informer::{Change, Informer, Key};
use k8s_openapi::api::core::v1::{Pod, Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::meta::MetaExt;
use super::{pods, selector};

/// The label of what belongs to a Service without a cluster IP.
pub const HEADLESS_LABEL: &str = "service.kubernetes.io/headless";

/// The selector of a Service whose endpoints are found by selecting pods; others are somebody else's affair.
pub fn pod_selector(service: &Service) -> Option<machinery::selector::label::LabelSelector> {
    let spec = service.spec.as_ref()?;
    if spec.type_.as_deref() == Some("ExternalName") {
        return None;
    }
    spec.selector.as_ref().filter(|labels| !labels.is_empty()).map(selector::of_map)
}

/// It has no cluster IP.
pub fn is_headless(spec: &ServiceSpec) -> bool {
    matches!(spec.cluster_ip.as_deref(), None | Some("" | "None"))
}

/// All addresses of a pod.
pub fn addresses(pod: &Pod) -> Vec<&str> {
    let Some(status) = &pod.status else { return Vec::new() };
    let all: Vec<&str> = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str()).collect();
    if all.is_empty() { status.pod_ip.as_deref().into_iter().filter(|ip| !ip.is_empty()).collect() } else { all }
}

/// The first address of a family, `IPv4` or `IPv6`.
pub fn address_of_family<'a>(pod: &'a Pod, family: &str) -> Option<&'a str> {
    addresses(pod).into_iter().find(|address| address.contains(':') == (family == "IPv6"))
}

/// The port of the pod behind a Service's port: a number, or the number of the container port of that name and protocol.
pub fn target_port(pod: &Pod, port: &ServicePort) -> Option<i32> {
    match port.target_port.as_ref() {
        None => Some(port.port),
        Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let spec = pods::spec(pod)?;
            let sidecars = spec.init_containers.iter().flatten();
            let sidecars = sidecars.filter(|container| container.restart_policy.as_deref() == Some("Always"));
            let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
            let protocol = |protocol: &Option<String>| protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            let mut named = ports.filter(|candidate| {
                candidate.name.as_ref() == Some(name) && protocol(&candidate.protocol) == protocol(&port.protocol)
            });
            named.next().map(|candidate| candidate.container_port)
        }
    }
}

/// The pod's host name, if it is one under this (headless) Service.
pub fn host_name<'a>(pod: &'a Pod, service: &Service) -> Option<&'a str> {
    let spec = pods::spec(pod)?;
    let host = spec.hostname.as_deref().filter(|host| !host.is_empty())?;
    let same = spec.subdomain.as_deref() == Some(service.metadata.name())
        && pod.metadata.namespace() == service.metadata.namespace();
    same.then_some(host)
}

/// The Services whose endpoints a change to a pod may touch. Changes that no endpoint shows are nobody's affair.
pub fn affected(change: &Change<Pod>, services: &Informer<Service>) -> Vec<Key> {
    if let Change::Modified { old, new } = change
        && shown(old) == shown(new)
    {
        return Vec::new();
    }
    let candidates = services.by_namespace(change.object().metadata.namespace());
    let selects = |service: &Service| {
        let Some(selector) = pod_selector(service) else { return false };
        let before = change.before().is_some_and(|pod| selector::matches(&selector, &pod.metadata.labels));
        before || change.after().is_some_and(|pod| selector::matches(&selector, &pod.metadata.labels))
    };
    candidates.iter().filter(|service| selects(service)).map(|service| service.metadata.key()).collect()
}

/// Everything about a pod that its endpoints show.
fn shown(pod: &Pod) -> impl PartialEq + '_ {
    (
        (pod.metadata.labels.as_ref(), pod.metadata.is_deleting(), pods::is_terminal(pod), pods::is_ready(pod)),
        (addresses(pod), pods::node_name(pod)),
        pods::spec(pod).map(|spec| (&spec.hostname, &spec.subdomain)),
    )
}
