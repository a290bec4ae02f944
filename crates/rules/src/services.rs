//! Where a Service is reached by a part that speaks to it without a proxy in between: a webhook's, an aggregated API's.

use machinery::{Value, value};

/// `host:port`, with brackets around what has colons.
pub fn authority(host: &str, port: i64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// The address of a Service's port: a ready endpoint, one of the Service's first family if there is one, or the Service's own address
/// when none of its endpoints is. `pick` says which of so many endpoints.
pub fn resolve(
    service: &Value,
    slices: &[Value],
    port: u16,
    pick: impl FnOnce(usize) -> usize,
) -> Result<String, String> {
    let port = i64::from(port);
    let name = value::text(service, "metadata.name");
    match value::text(service, "spec.type") {
        "ExternalName" => return Ok(authority(value::text(service, "spec.externalName"), port)),
        "" | "ClusterIP" | "NodePort" | "LoadBalancer" => {}
        other => return Err(format!("unsupported service type {other:?}")),
    }
    let ports = value::list(service, "spec.ports");
    let chosen = ports.iter().find(|candidate| value::int(candidate, "port") == Some(port));
    let chosen = chosen.ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let family = value::list(service, "spec.ipFamilies").first().and_then(Value::as_str).unwrap_or_default();
    let (first, second): (Vec<&Value>, Vec<&Value>) =
        slices.iter().partition(|slice| value::text(slice, "addressType") == family);
    for slices in [first, second] {
        let found: Vec<String> = slices.iter().flat_map(|slice| ready(slice, value::text(chosen, "name"))).collect();
        if !found.is_empty() {
            let index = pick(found.len()).min(found.len() - 1);
            return Ok(found[index].clone());
        }
    }
    match value::text(service, "spec.clusterIP") {
        address @ ("" | "None") => Err(format!("cannot route to service with ClusterIP {address:?}")),
        address => Ok(authority(address, port)),
    }
}

/// Whether a slice has an endpoint that is ready and a port of this name.
pub fn has_ready(slice: &Value, port_name: &str) -> bool {
    value::list(slice, "endpoints").iter().any(is_ready) && port(slice, port_name).is_some()
}

fn ready(slice: &Value, port_name: &str) -> Vec<String> {
    let Some(port) = port(slice, port_name) else { return Vec::new() };
    let endpoints = value::list(slice, "endpoints").iter().filter(|endpoint| is_ready(endpoint));
    let address = |endpoint| value::list(endpoint, "addresses").first().and_then(Value::as_str);
    endpoints.filter_map(address).map(|address| authority(address, port)).collect()
}

fn port(slice: &Value, name: &str) -> Option<i64> {
    let port = value::list(slice, "ports").iter().find(|candidate| value::text(candidate, "name") == name)?;
    value::int(port, "port")
}

/// An endpoint that says nothing about it is ready.
fn is_ready(endpoint: &Value) -> bool {
    value::at(endpoint, "conditions.ready").and_then(Value::as_bool).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice(family: &str, port: &str, endpoints: &[(&str, Option<bool>)]) -> Value {
        let endpoints: Vec<Value> = endpoints
            .iter()
            .map(|(address, ready)| json!({"addresses": [address], "conditions": {"ready": ready}}))
            .collect();
        json!({"addressType": family, "ports": [{"name": port, "port": 8443}], "endpoints": endpoints})
    }

    fn check(spec: Value, slices: &[Value], expect: Result<&str, &str>) {
        let service = json!({"metadata": {"name": "s"}, "spec": spec});
        let got = resolve(&service, slices, 443, |count| count - 1);
        assert_eq!(got.as_deref().map_err(String::as_str), expect, "{service}");
    }

    #[test]
    fn a_service_is_reached_at_a_ready_endpoint_or_at_its_own_address() {
        let spec = json!({"type": "ClusterIP", "clusterIP": "10.0.0.9", "ipFamilies": ["IPv6", "IPv4"], "ports": [{"name": "https", "port": 443}]});
        let v4 = slice("IPv4", "https", &[("10.1.0.1", None), ("10.1.0.2", Some(true)), ("10.1.0.3", Some(false))]);
        let v6 = slice("IPv6", "https", &[("fd00::1", Some(true))]);
        check(spec.clone(), &[], Ok("10.0.0.9:443"));
        check(spec.clone(), std::slice::from_ref(&v4), Ok("10.1.0.2:8443"));
        check(spec.clone(), &[v4, v6], Ok("[fd00::1]:8443"));
        check(spec.clone(), &[slice("IPv4", "https", &[("10.1.0.3", Some(false))])], Ok("10.0.0.9:443"));
        check(spec, &[slice("IPv4", "http", &[("10.1.0.1", None)])], Ok("10.0.0.9:443"));
        check(json!({"type": "ClusterIP", "ports": []}), &[], Err("no service port 443 found for service \"s\""));
        let headless = json!({"type": "ClusterIP", "clusterIP": "None", "ports": [{"port": 443}]});
        check(headless, &[], Err("cannot route to service with ClusterIP \"None\""));
        check(json!({"type": "ExternalName", "externalName": "elsewhere"}), &[], Ok("elsewhere:443"));
        check(json!({"type": "Odd"}), &[], Err("unsupported service type \"Odd\""));
    }

    #[test]
    fn a_slice_counts_if_somebody_in_it_is_ready_at_the_port() {
        assert!(has_ready(&slice("IPv4", "", &[("10.1.0.1", None)]), ""));
        assert!(!has_ready(&slice("IPv4", "", &[("10.1.0.1", Some(false))]), ""));
        assert!(!has_ready(&slice("IPv4", "a", &[("10.1.0.1", None)]), ""));
    }
}
