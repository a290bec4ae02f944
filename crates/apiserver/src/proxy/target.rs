//! Where a proxied request goes: pure look-ups in the caches.

use machinery::query::Query;
use machinery::status::ApiError;
use machinery::{Value, value};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rest::{Api, Call};

/// How the other side is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    Plain,
    /// Encrypted, with whoever answers: nobody vouches for what runs in pods.
    Tls,
    /// As to a kubelet, which has to be the node's, and is shown who asks.
    Kubelet,
}

/// The other side of a proxied request.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    /// How it is spoken to.
    pub speaks: Speaks,
    /// Its name for TLS.
    pub host: String,
    /// `address:port`.
    pub authority: String,
    /// Path and query there.
    pub path: String,
}

impl Target {
    /// The target of a request to a connecting subresource.
    pub fn of(api: &Api, call: &Call<'_>, addresses: &[String]) -> Result<Self, ApiError> {
        match (call.info.resource.as_str(), call.info.subresource.as_str()) {
            ("pods", "proxy") => Self::pod(api, call),
            ("pods", _) => Self::kubelet_of_pod(api, call, addresses),
            ("nodes", "proxy") => {
                let place = Place::of(&call.info.name, "node")?;
                let node = object(api, "nodes", "", place.name)?;
                let kubelet = Self::kubelet(&node, tail(call), addresses)?;
                if place.port.is_empty() || kubelet.authority == authority(&kubelet.host, place.port) {
                    return Ok(kubelet);
                }
                // Whatever else listens there is no kubelet, and is not shown what only kubelets are.
                let authority = authority(&kubelet.host, place.port);
                Ok(Self { speaks: place.speaks, authority, ..kubelet })
            }
            ("services", "proxy") => Self::service(api, call),
            _ => Err(ApiError::no_such_path()),
        }
    }

    /// The path there, without the query, and with a slash at its end if it has one.
    pub fn path_only(&self) -> &str {
        self.path.split('?').next().unwrap_or_default()
    }

    pub(super) fn kubelet(node: &Value, path: String, preferred: &[String]) -> Result<Self, ApiError> {
        let addresses = value::list(node, "status.addresses");
        let address = preferred.iter().find_map(|kind| {
            let found = addresses.iter().find(|address| value::text(address, "type") == kind.as_str());
            found.map(|address| value::text(address, "address").to_owned())
        });
        let name = value::text(node, "metadata.name");
        let host = address.ok_or_else(|| {
            ApiError::internal(format!("no preferred addresses found; known addresses of node {name:?}: []"))
        })?;
        let port = value::int(node, "status.daemonEndpoints.kubeletEndpoint.Port").unwrap_or(10250);
        let authority = authority(&host, &port.to_string());
        Ok(Self { speaks: Speaks::Kubelet, host, authority, path })
    }

    /// Logs, exec, attach and port-forward are the kubelet's.
    fn kubelet_of_pod(api: &Api, call: &Call<'_>, addresses: &[String]) -> Result<Self, ApiError> {
        let pod = object(api, "pods", &call.info.namespace, &call.info.name)?;
        let node_name = value::text(&pod, "spec.nodeName");
        if node_name.is_empty() {
            return Err(ApiError::bad_request(format!("pod {} does not have a host assigned", call.info.name)));
        }
        let node = object(api, "nodes", "", node_name)?;
        let path = kubelet_path(call, &pod)?;
        Self::kubelet(&node, path, addresses)
    }

    fn pod(api: &Api, call: &Call<'_>) -> Result<Self, ApiError> {
        let place = Place::of(&call.info.name, "pod")?;
        let pod = object(api, "pods", &call.info.namespace, place.name)?;
        let host = value::text(&pod, "status.podIP").to_owned();
        if !is_proxyable(&host) {
            return Err(ApiError::bad_request("address not allowed"));
        }
        let authority = authority(&host, &place.port_of_pod(&pod));
        Ok(Self { speaks: place.speaks, host, authority, path: tail(call) })
    }

    /// Any ready endpoint of the Service's port.
    fn service(api: &Api, call: &Call<'_>) -> Result<Self, ApiError> {
        let place = Place::of(&call.info.name, "service")?;
        let name = place.name;
        let unavailable = || ApiError::unavailable(format!("no endpoints available for service {name:?}"));
        let port_name = match place.port.parse::<i64>() {
            Err(_) => place.port.to_owned(),
            Ok(number) => {
                let service = object(api, "services", &call.info.namespace, name)?;
                let ports = value::list(&service, "spec.ports");
                let port = ports.iter().find(|port| value::int(port, "port") == Some(number));
                let missing = || ApiError::unavailable(format!("no service port {number} found for service {name:?}"));
                value::text(port.ok_or_else(missing)?, "name").to_owned()
            }
        };
        let slices = api.registry.stored("discovery.k8s.io", "endpointslices").ok_or_else(unavailable)?;
        let (slices, _) = slices.cache.list(&storage::cache::Filter::namespace(&call.info.namespace), None, 0);
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
        let authority = authority(&host, &port.to_string());
        Ok(Self { speaks: place.speaks, host, authority, path: tail(call) })
    }
}

/// A name in the path of a proxied request: `name`, `name:port` or `scheme:name:port`.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    speaks: Speaks,
    name: &'a str,
    /// By number or name, or empty.
    port: &'a str,
}

impl<'a> Place<'a> {
    fn of(text: &'a str, kind: &str) -> Result<Self, ApiError> {
        let parts: Vec<&str> = text.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => ("", "", ""),
        };
        let speaks = match scheme {
            "" | "http" => Speaks::Plain,
            "https" => Speaks::Tls,
            _ => return Err(ApiError::bad_request(format!("invalid {kind} request {text:?}"))),
        };
        if name.is_empty() {
            return Err(ApiError::bad_request(format!("invalid {kind} request {text:?}")));
        }
        Ok(Self { speaks, name, port })
    }

    /// The port of a pod that is meant: the one that is said, the first that the pod declares, or the scheme's own.
    fn port_of_pod(&self, pod: &Value) -> String {
        let mut declared =
            value::list(pod, "spec.containers").iter().flat_map(|container| value::list(container, "ports"));
        let number = |port: &Value| value::int(port, "containerPort").map(|port| port.to_string());
        let found = match self.port {
            "" => declared.find_map(number),
            port => declared.find(|candidate| value::text(candidate, "name") == port).and_then(number),
        };
        match (found, self.port, self.speaks) {
            (Some(found), _, _) => found,
            (None, "", Speaks::Plain) => "80".to_owned(),
            (None, "", _) => "443".to_owned(),
            (None, port, _) => port.to_owned(),
        }
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

fn authority(host: &str, port: &str) -> String {
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

/// What may stand in a whole path as it is.
pub const WHOLE_PATH: &percent_encoding::AsciiSet = &PATH.remove(b'/');

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
        for (text, expect) in [
            ("web", Some((Speaks::Plain, "web", ""))),
            ("web:http", Some((Speaks::Plain, "web", "http"))),
            ("https:web", Some((Speaks::Plain, "https", "web"))),
            ("https:web:443", Some((Speaks::Tls, "web", "443"))),
            ("https:web:", Some((Speaks::Tls, "web", ""))),
            ("http:web:", Some((Speaks::Plain, "web", ""))),
            (":web:80", Some((Speaks::Plain, "web", "80"))),
            ("ftp:web:80", None),
            ("a:b:c:d", None),
            (":80", None),
        ] {
            let place = Place::of(text, "pod");
            let expect = expect.map(|(speaks, name, port)| Place { speaks, name, port });
            let refusal = ApiError::bad_request(format!("invalid pod request {text:?}"));
            assert_eq!(place, expect.ok_or(refusal), "{text}");
        }
    }

    #[test]
    fn a_pods_port_is_said_or_declared_or_the_schemes() {
        let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "ports": [
            {"containerPort": 8080}, {"name": "admin", "containerPort": 9090}]}]}});
        let port = |text: &str, pod: &Value| Place::of(text, "pod").expect("a place").port_of_pod(pod);
        assert_eq!(port("web", &pod), "8080");
        assert_eq!(port("web:admin", &pod), "9090");
        assert_eq!(port("web:443", &pod), "443");
        assert_eq!(port("web", &json!({})), "80");
        assert_eq!(port("https:web:", &json!({})), "443");
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
