//! Fields of the pod as text: for environment variables and downward API files.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{Error, NodeFacts};
use crate::pod::{resources, spec};

/// The value of a field path.
pub fn field(path: &str, pod: &Pod, ips: &[String], facts: &NodeFacts) -> Result<String, Error> {
    let spec_of = |read: fn(&k8s_openapi::api::core::v1::PodSpec) -> &Option<String>| {
        pod.spec.as_ref().and_then(|s| read(s).clone()).unwrap_or_default()
    };
    Ok(match path {
        "metadata.name" => spec::name(pod).to_owned(),
        "metadata.namespace" => spec::namespace(pod).to_owned(),
        "metadata.uid" => spec::uid(pod).to_owned(),
        "metadata.labels" => lines(pod.metadata.labels.as_ref()),
        "metadata.annotations" => lines(pod.metadata.annotations.as_ref()),
        "spec.nodeName" => spec_of(|s| &s.node_name),
        "spec.serviceAccountName" => spec_of(|s| &s.service_account_name),
        "status.hostIP" => facts.host_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => facts.host_ips.join(","),
        "status.podIP" => ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => ips.join(","),
        _ => {
            let keyed = |prefix: &str| path.strip_prefix(prefix).and_then(|rest| rest.strip_suffix("']"));
            let value = |map: Option<&BTreeMap<String, String>>, key: &str| {
                map.and_then(|map| map.get(key)).cloned().unwrap_or_default()
            };
            if let Some(key) = keyed("metadata.labels['") {
                value(pod.metadata.labels.as_ref(), key)
            } else if let Some(key) = keyed("metadata.annotations['") {
                value(pod.metadata.annotations.as_ref(), key)
            } else {
                return Err(Error::Other(format!("field label not supported: {path}")));
            }
        }
    })
}

/// `key="value"` lines in the order of the keys.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map.into_iter().flatten().map(|(key, value)| format!("{key}={}", quote(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// A string in double quotes, with the escapes of Go's `%q`.
fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The value of a resource of one of the pod's containers. A missing limit is what the node can give.
pub fn resource(
    selector: &ResourceFieldSelector,
    pod: &Pod,
    container: &Container,
    facts: &NodeFacts,
) -> Result<String, Error> {
    let named = selector.container_name.as_deref().filter(|name| !name.is_empty());
    let member =
        named.map(|name| spec::member(pod, name).ok_or_else(|| Error::Other(format!("container {name} not found"))));
    let member = member.transpose()?;
    let container = member.as_ref().map_or(container, |member| &*member.container);
    let unsupported = || Error::Other(format!("unsupported container resource : {}", selector.resource));
    let (which, name) = selector.resource.split_once('.').ok_or_else(unsupported)?;
    let lists = container.resources.as_ref();
    let quantity = match which {
        "limits" => lists.and_then(|r| r.limits.as_ref()).and_then(|list| list.get(name)),
        "requests" => lists.and_then(|r| r.requests.as_ref()).and_then(|list| list.get(name)),
        _ => return Err(unsupported()),
    };
    let one = Quantity("1".to_owned());
    let divisor = selector.divisor.as_ref().filter(|d| resources::milli(d) != 0).unwrap_or(&one);
    let whole = match name {
        "cpu" => {
            let milli = quantity.map(resources::milli).filter(|&m| m != 0);
            let milli = milli.unwrap_or(if which == "limits" { facts.cpu_milli } else { 0 });
            divide(milli, resources::milli(divisor))
        }
        "memory" | "ephemeral-storage" => {
            let all = if name == "memory" { facts.memory } else { facts.ephemeral_storage };
            let bytes = quantity.map(resources::value).filter(|&b| b != 0);
            let bytes = bytes.unwrap_or(if which == "limits" { all } else { 0 });
            divide(bytes, resources::value(divisor))
        }
        _ if name.starts_with("hugepages-") => divide(quantity.map_or(0, resources::value), resources::value(divisor)),
        _ => return Err(unsupported()),
    };
    Ok(whole.to_string())
}

fn divide(value: i64, divisor: i64) -> i64 {
    let divisor = divisor.max(1);
    value / divisor + i64::from(value % divisor != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_written_as_quoted_lines_and_single_values_as_they_are() {
        let mut pod = Pod::default();
        pod.metadata.annotations = Some([("b", "x\"y\n"), ("a", "1")].map(|(k, v)| (k.into(), v.into())).into());
        let get = |path: &str| field(path, &pod, &["10.0.0.1".into(), "fd00::1".into()], &NodeFacts::default());
        assert_eq!(get("metadata.annotations").unwrap(), "a=\"1\"\nb=\"x\\\"y\\n\"");
        assert_eq!(get("metadata.annotations['a']").unwrap(), "1");
        assert_eq!(get("metadata.annotations['none']").unwrap(), "");
        assert_eq!(get("status.podIPs").unwrap(), "10.0.0.1,fd00::1");
        assert!(get("status.phase").is_err());
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let list = |text: &str| Some([("cpu".to_owned(), Quantity(text.to_owned()))].into());
        let requirements =
            k8s_openapi::api::core::v1::ResourceRequirements { limits: list("1500m"), ..Default::default() };
        let container = Container { resources: Some(requirements), ..Default::default() };
        let facts = NodeFacts { cpu_milli: 4000, memory: 1000, ..Default::default() };
        let check = |resource_name: &str, divisor: &str, expect: &str| {
            let selector = ResourceFieldSelector {
                resource: resource_name.into(),
                divisor: Some(Quantity(divisor.into())),
                container_name: None,
            };
            assert_eq!(resource(&selector, &Pod::default(), &container, &facts).unwrap(), expect);
        };
        check("limits.cpu", "1", "2");
        check("limits.cpu", "1m", "1500");
        check("requests.cpu", "1", "0");
        check("limits.memory", "300", "4");
    }
}
