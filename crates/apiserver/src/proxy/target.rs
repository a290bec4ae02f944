//! Where a proxied request goes: pure look-ups in the caches.

use machinery::status::ApiError;
use machinery::{Value, value};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::query::Query;
use crate::rest::{Api, Call};

/// The other side of a proxied request.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether it speaks TLS.
    pub tls: bool,
    /// Its name for TLS.
    pub host: String,
    /// `address:port`.
    pub authority: String,
    /// Path and query there.
    pub path: String,
}

impl Target {
    /// The target of a request to a connecting subresource.
    pub fn of(api: &Api, call: &Call<'_>) -> Result<Self, ApiError> {
        match (call.info.resource.as_str(), call.info.subresource.as_str()) {
            ("pods", "proxy") => Self::pod(api, call),
            ("pods", _) => Self::kubelet_of_pod(api, call),
            ("nodes", "proxy") => {
                let (scheme_name, port) = name_and_port(&call.info.name);
                let node = object(api, "nodes", "", scheme_name)?;
                let mut target = Self::kubelet(&node, tail(call))?;
                if let Some(port) = port.and_then(|port| port.parse::<u16>().ok()) {
                    target.authority = authority(&target.host, port);
                }
                Ok(target)
            }
            ("services", "proxy") => Self::service(api, call),
            _ => Err(ApiError::no_such_path()),
        }
    }

    fn kubelet(node: &Value, path: String) -> Result<Self, ApiError> {
        let addresses = value::list(node, "status.addresses");
        let address = ["InternalIP", "ExternalIP", "Hostname"].into_iter().find_map(|kind| {
            let found = addresses.iter().find(|address| value::text(address, "type") == kind);
            found.map(|address| value::text(address, "address").to_owned())
        });
        let name = value::text(node, "metadata.name");
        let host = address.ok_or_else(|| {
            ApiError::internal(format!("no preferred addresses found; known addresses of node {name:?}: []"))
        })?;
        let port = value::int(node, "status.daemonEndpoints.kubeletEndpoint.Port").unwrap_or(10250);
        let authority = authority(&host, u16::try_from(port).unwrap_or(10250));
        Ok(Self { tls: true, host, authority, path })
    }

    /// Logs, exec, attach and port-forward are the kubelet's.
    fn kubelet_of_pod(api: &Api, call: &Call<'_>) -> Result<Self, ApiError> {
        let pod = object(api, "pods", &call.info.namespace, &call.info.name)?;
        let node_name = value::text(&pod, "spec.nodeName");
        if node_name.is_empty() {
            return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", call.info.name)));
        }
        let node = object(api, "nodes", "", node_name)?;
        let path = kubelet_path(call, &pod)?;
        Self::kubelet(&node, path)
    }

    fn pod(api: &Api, call: &Call<'_>) -> Result<Self, ApiError> {
        let (name, port) = name_and_port(&call.info.name);
        let pod = object(api, "pods", &call.info.namespace, name)?;
        let host = value::text(&pod, "status.podIP").to_owned();
        if !is_proxyable(&host) {
            return Err(ApiError::bad_request("address not allowed"));
        }
        let declared =
            value::list(&pod, "spec.containers").iter().flat_map(|container| value::list(container, "ports"));
        let port = match port {
            Some(port) => port.parse().unwrap_or_else(|_| {
                let named = declared.clone().find(|candidate| value::text(candidate, "name") == port);
                named.and_then(|port| value::int(port, "containerPort")).unwrap_or(0)
            }),
            None => declared.clone().find_map(|port| value::int(port, "containerPort")).unwrap_or(80),
        };
        let authority = authority(&host, u16::try_from(port).unwrap_or(80));
        Ok(Self { tls: false, host, authority, path: tail(call) })
    }

    /// Any ready endpoint of the Service's port.
    fn service(api: &Api, call: &Call<'_>) -> Result<Self, ApiError> {
        let (name, port) = name_and_port(&call.info.name);
        let service = object(api, "services", &call.info.namespace, name)?;
        let ports = value::list(&service, "spec.ports");
        let chosen = match port {
            Some(port) => ports.iter().find(|candidate| {
                value::text(candidate, "name") == port
                    || value::int(candidate, "port").map(|port| port.to_string()).as_deref() == Some(port)
            }),
            None => ports.first(),
        };
        let unavailable = || ApiError::unavailable(format!("no endpoints available for service {:?}", call.info.name));
        let port_name = value::text(chosen.ok_or_else(unavailable)?, "name");
        let slices = api.registry.stored("discovery.k8s.io", "endpointslices").ok_or_else(unavailable)?;
        let (slices, _) = slices.cache.list(&crate::cache::Filter::namespace(&call.info.namespace), None, 0);
        let mut candidates = Vec::new();
        for slice in slices.iter().filter(|slice| slice.meta().label("kubernetes.io/service-name") == Some(name)) {
            let slice = slice.to_value();
            let port = value::list(&slice, "ports").iter().find(|port| value::text(port, "name") == port_name);
            let Some(port) = port.and_then(|port| value::int(port, "port")) else { continue };
            for endpoint in value::list(&slice, "endpoints") {
                let ready = value::at(endpoint, "conditions.ready").and_then(Value::as_bool).unwrap_or(true);
                if let Some(address) =
                    value::list(endpoint, "addresses").first().and_then(Value::as_str).filter(|_| ready)
                    && is_of_pod(api, &call.info.namespace, endpoint, address)
                {
                    candidates.push((address.to_owned(), port));
                }
            }
        }
        if candidates.is_empty() {
            return Err(unavailable());
        }
        let (host, port) = candidates.swap_remove(rand::random_range(0..candidates.len()));
        let authority = authority(&host, u16::try_from(port).unwrap_or(80));
        Ok(Self { tls: call.info.name.starts_with("https:"), host, authority, path: tail(call) })
    }
}

/// `scheme:name:port`, of which scheme and port may be absent.
fn name_and_port(text: &str) -> (&str, Option<&str>) {
    let text = text.strip_prefix("https:").or_else(|| text.strip_prefix("http:")).unwrap_or(text);
    match text.split_once(':') {
        Some((name, port)) => (name, Some(port).filter(|port| !port.is_empty())),
        None => (text, None),
    }
}

/// Whether a pod can be at an address: whoever writes a status must not make the server talk to itself, or to the
/// neighbours that only this machine has.
fn is_proxyable(host: &str) -> bool {
    use std::net::IpAddr;
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V4(ip)) => {
            !(ip.is_loopback() || ip.is_unspecified() || ip.is_link_local() || ip.is_multicast() || ip.is_broadcast())
        }
        Ok(IpAddr::V6(ip)) => {
            let mapped = ip.to_ipv4_mapped().is_none_or(|ip| is_proxyable(&ip.to_string()));
            mapped && !(ip.is_loopback() || ip.is_unspecified() || ip.is_unicast_link_local() || ip.is_multicast())
        }
        Err(_) => false,
    }
}

/// Whether an endpoint is a pod of the namespace, at the address that the pod has: a slice is written by users, and must
/// not let them reach what they name.
fn is_of_pod(api: &Api, namespace: &str, endpoint: &Value, address: &str) -> bool {
    let target = |field: &str| value::text(endpoint, &format!("targetRef.{field}"));
    if target("kind") != "Pod" || target("namespace") != namespace || !is_proxyable(address) {
        return false;
    }
    let Ok(pod) = object(api, "pods", namespace, target("name")) else { return false };
    let listed = value::list(&pod, "status.podIPs").iter().any(|ip| value::text(ip, "ip") == address);
    listed || value::text(&pod, "status.podIP") == address
}

fn authority(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn object(api: &Api, plural: &str, namespace: &str, name: &str) -> Result<Value, ApiError> {
    let resource = api.registry.stored("", plural).ok_or_else(ApiError::no_such_path)?;
    let found = resource.cache.get(&resource.key(namespace, name));
    found.map(|object| object.to_value()).ok_or_else(|| ApiError::not_found(&resource.name, name))
}

/// What follows `/proxy` in the path, and the query.
fn tail(call: &Call<'_>) -> String {
    let segments: Vec<String> =
        call.info.tail.iter().map(|segment| utf8_percent_encode(segment, PATH).to_string()).collect();
    let slash = if call.info.path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    format!("/{}{slash}{}", segments.join("/"), query_text(call.query))
}

/// What may stand in a path segment as it is.
const PATH: &percent_encoding::AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b':')
    .remove(b'@')
    .remove(b'=')
    .remove(b',');

fn query_text(query: &Query) -> String {
    let text = query.to_text();
    if text.is_empty() { text } else { format!("?{text}") }
}

/// The kubelet's own path for a request to a pod.
fn kubelet_path(call: &Call<'_>, pod: &Value) -> Result<String, ApiError> {
    let (namespace, name) = (&call.info.namespace, &call.info.name);
    let query = call.query;
    if call.info.subresource == "portforward" {
        // The kubelet has its own word for them.
        let ports: Vec<&str> = query.all("ports").collect();
        let mut parameters = Query::default();
        if !ports.is_empty() {
            parameters.push("port", &ports.join(","));
        }
        let text = query_text(&parameters);
        return Ok(format!("/portForward/{namespace}/{name}{text}"));
    }
    let container = container(pod, name, query.get("container"))?;
    let mut parameters = Query::default();
    if call.info.subresource == "log" {
        for parameter in
            ["follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream"]
        {
            if query.has(parameter) {
                parameters.push(parameter, query.get(parameter));
            }
        }
        return Ok(format!("/containerLogs/{namespace}/{name}/{container}{}", query_text(&parameters)));
    }
    for (ours, kubelets) in [("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")] {
        if query.flag(ours) {
            parameters.push(kubelets, "1");
        }
    }
    for word in query.all("command") {
        parameters.push("command", word);
    }
    Ok(format!("/{}/{namespace}/{name}/{container}{}", call.info.subresource, query_text(&parameters)))
}

/// The container that is meant; with several, the request must say which.
fn container(pod: &Value, pod_name: &str, asked: &str) -> Result<String, ApiError> {
    let names = |list: &str| -> Vec<String> {
        value::list(pod, list).iter().map(|container| value::text(container, "name").to_owned()).collect()
    };
    let (main, init, ephemeral) =
        (names("spec.containers"), names("spec.initContainers"), names("spec.ephemeralContainers"));
    if asked.is_empty() {
        if let [only] = main.as_slice() {
            return Ok(only.clone());
        }
        let mut message =
            format!("a container name must be specified for pod {pod_name}, choose one of: [{}]", main.join(" "));
        if !init.is_empty() {
            message.push_str(&format!(" or one of the init containers: [{}]", init.join(" ")));
        }
        if !ephemeral.is_empty() {
            message.push_str(&format!(" or one of the ephemeral containers: [{}]", ephemeral.join(" ")));
        }
        return Err(ApiError::bad_request(message));
    }
    if [main, init, ephemeral].iter().flatten().any(|name| name == asked) {
        return Ok(asked.to_owned());
    }
    Err(ApiError::bad_request(format!("container {asked} is not valid for pod {pod_name}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_a_pod_can_have_are_reached() {
        for (address, expect) in [
            ("10.244.0.7", true),
            ("192.168.1.1", true),
            ("fd00::7", true),
            ("127.0.0.1", false),
            ("127.9.9.9", false),
            ("0.0.0.0", false),
            ("169.254.169.254", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::1", false),
            ("fe80::1", false),
            ("::ffff:127.0.0.1", false),
            ("localhost", false),
            ("", false),
        ] {
            assert_eq!(is_proxyable(address), expect, "{address}");
        }
    }
    use serde_json::json;

    #[test]
    fn names_may_carry_scheme_and_port() {
        assert_eq!(name_and_port("web"), ("web", None));
        assert_eq!(name_and_port("https:web:443"), ("web", Some("443")));
        assert_eq!(name_and_port("web:http"), ("web", Some("http")));
        assert_eq!(name_and_port("http:web:"), ("web", None));
    }

    #[test]
    fn one_container_needs_no_name_and_several_do() {
        let one = json!({"spec": {"containers": [{"name": "a"}]}});
        assert_eq!(container(&one, "p", "").ok().as_deref(), Some("a"));
        let two = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}});
        let message = container(&two, "p", "").expect_err("ambiguous").message;
        assert_eq!(
            message,
            "a container name must be specified for pod p, choose one of: [a b] or one of the init containers: [i]"
        );
        assert_eq!(container(&two, "p", "i").ok().as_deref(), Some("i"));
        assert_eq!(container(&two, "p", "x").expect_err("unknown").message, "container x is not valid for pod p");
    }
}
