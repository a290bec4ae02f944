//! A container's environment: from objects, from fields, from services, with references between variables.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, EnvVarSource, FileKeySelector, Pod, Service};

use super::{Error, NodeFacts, References, fields};
use crate::pod::spec;
use rules::expansion::expand;

/// Reads a variable from a file of a volume: its value, empty when the file does not have it, and the file's path on the node.
pub type FromFile<'a> = &'a dyn Fn(&FileKeySelector) -> Result<(String, PathBuf), Error>;

/// The environment, by name.
pub fn environment(
    pod: &Pod,
    container: &Container,
    ips: &[String],
    facts: &NodeFacts,
    references: &References,
    files: FromFile<'_>,
) -> Result<BTreeMap<String, String>, Error> {
    let links = pod.spec.as_ref().and_then(|s| s.enable_service_links).unwrap_or(true);
    let services = services(spec::namespace(pod), links, &references.services);
    let mut own = BTreeMap::new();
    let missing = |kind, name: &str| Error::NotFound { kind, name: name.to_owned() };
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(wanted) = &source.config_map_ref {
            match references.config_maps.get(&wanted.name) {
                Some(map) => {
                    own.extend(map.data.iter().flatten().map(|(key, text)| (format!("{prefix}{key}"), text.clone())))
                }
                None if wanted.optional == Some(true) => {}
                None => return Err(missing("configmap", &wanted.name)),
            }
        } else if let Some(wanted) = &source.secret_ref {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            match references.secrets.get(&wanted.name) {
                Some(secret) => own.extend(
                    secret.data.iter().flatten().map(|(key, value)| (format!("{prefix}{key}"), text(&value.0))),
                ),
                None if wanted.optional == Some(true) => {}
                None => return Err(missing("secret", &wanted.name)),
            }
        }
    }
    for variable in container.env.iter().flatten() {
        let literal = variable.value.as_deref().unwrap_or_default();
        let value = if literal.is_empty()
            && let Some(source) = &variable.value_from
        {
            match from_source(source, pod, container, ips, facts, references, files)? {
                Some(value) => value,
                None => continue,
            }
        } else {
            expand(literal, |name| own.get(name).or_else(|| services.get(name)).cloned())
        };
        own.insert(variable.name.clone(), value);
    }
    for (name, value) in services {
        own.entry(name).or_insert(value);
    }
    Ok(own)
}

/// The value of a source; nothing when it is optional and missing.
fn from_source(
    source: &EnvVarSource,
    pod: &Pod,
    container: &Container,
    ips: &[String],
    facts: &NodeFacts,
    references: &References,
    files: FromFile<'_>,
) -> Result<Option<String>, Error> {
    if let Some(wanted) = &source.field_ref {
        return fields::field(&wanted.field_path, pod, ips, facts).map(Some);
    }
    if let Some(wanted) = &source.resource_field_ref {
        return fields::resource(wanted, pod, container, facts).map(Some);
    }
    let optional = |flag: Option<bool>, error: Error| if flag == Some(true) { Ok(None) } else { Err(error) };
    let no_key = |kind, name: &str, key: &str| Error::NoKey {
        kind,
        namespace: spec::namespace(pod).to_owned(),
        name: name.to_owned(),
        key: key.to_owned(),
    };
    if let Some(wanted) = &source.config_map_key_ref {
        let Some(map) = references.config_maps.get(&wanted.name) else {
            return optional(wanted.optional, Error::NotFound { kind: "configmap", name: wanted.name.clone() });
        };
        return match map.data.as_ref().and_then(|data| data.get(&wanted.key)) {
            Some(value) => Ok(Some(value.clone())),
            None => optional(wanted.optional, no_key("ConfigMap", &wanted.name, &wanted.key)),
        };
    }
    if let Some(wanted) = &source.secret_key_ref {
        let Some(secret) = references.secrets.get(&wanted.name) else {
            return optional(wanted.optional, Error::NotFound { kind: "secret", name: wanted.name.clone() });
        };
        return match secret.data.as_ref().and_then(|data| data.get(&wanted.key)) {
            Some(value) => Ok(Some(String::from_utf8_lossy(&value.0).into_owned())),
            None => optional(wanted.optional, no_key("Secret", &wanted.name, &wanted.key)),
        };
    }
    if let Some(wanted) = &source.file_key_ref {
        let (value, file) = files(wanted)?;
        if value.is_empty() {
            let missing = format!("environment variable key {:?} not found in file {file:?}", wanted.key);
            return optional(wanted.optional, Error::Other(missing));
        }
        return Ok(Some(value));
    }
    Ok(Some(String::new()))
}

/// Variables for the services of the pod's namespace (when it wants links) and for the API itself.
fn services(namespace: &str, links: bool, services: &[Arc<Service>]) -> BTreeMap<String, String> {
    let mut chosen: BTreeMap<&str, &Service> = BTreeMap::new();
    for service in services {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let of = service.metadata.namespace.as_deref().unwrap_or_default();
        let address = service.spec.as_ref().and_then(|s| s.cluster_ip.as_deref()).unwrap_or_default();
        if address.is_empty() || address == "None" {
            continue;
        }
        if of == namespace && links {
            chosen.insert(name, service);
        } else if of == "default" && name == "kubernetes" {
            // The namespace's own service of that name comes first.
            chosen.entry(name).or_insert(service);
        }
    }
    chosen.into_values().flat_map(links_of).collect()
}

fn links_of(service: &Service) -> Vec<(String, String)> {
    let Some(spec) = &service.spec else { return Vec::new() };
    let ports = spec.ports.as_deref().unwrap_or_default();
    let address = spec.cluster_ip.as_deref().unwrap_or_default();
    let shout = |text: &str| text.replace('-', "_").to_uppercase();
    let prefix = shout(service.metadata.name.as_deref().unwrap_or_default());
    let Some(first) = ports.first() else { return Vec::new() };
    let mut out = vec![
        (format!("{prefix}_SERVICE_HOST"), address.to_owned()),
        (format!("{prefix}_SERVICE_PORT"), first.port.to_string()),
    ];
    for port in ports {
        if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty()) {
            out.push((format!("{prefix}_SERVICE_PORT_{}", shout(name)), port.port.to_string()));
        }
    }
    for (index, port) in ports.iter().enumerate() {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let host_port = if address.contains(':') {
            format!("[{address}]:{}", port.port)
        } else {
            format!("{address}:{}", port.port)
        };
        let url = format!("{}://{host_port}", protocol.to_lowercase());
        if index == 0 {
            out.push((format!("{prefix}_PORT"), url.clone()));
        }
        let port_prefix = format!("{prefix}_PORT_{}_{}", port.port, protocol.to_uppercase());
        out.extend([
            (format!("{port_prefix}_PROTO"), protocol.to_lowercase()),
            (format!("{port_prefix}_PORT"), port.port.to_string()),
            (format!("{port_prefix}_ADDR"), address.to_owned()),
            (port_prefix, url),
        ]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, PodSpec};
    use serde_json::json;

    fn env(container: serde_json::Value, references: &References) -> Result<BTreeMap<String, String>, Error> {
        let container: Container = serde_json::from_value(container).unwrap();
        let mut pod = Pod { spec: Some(PodSpec::default()), ..Default::default() };
        pod.metadata.namespace = Some("ns".into());
        pod.metadata.name = Some("pod".into());
        let files = |wanted: &FileKeySelector| match wanted.path.as_str() {
            "bad" => Err(Error::Other("couldn't parse env file".into())),
            path => Ok((rules::env_file::value("A='one'\nB=''", &wanted.key).unwrap(), PathBuf::from(path))),
        };
        environment(&pod, &container, &["10.0.0.1".into()], &NodeFacts::default(), references, &files)
    }

    fn references() -> References {
        let mut references = References::default();
        let map: ConfigMap = serde_json::from_value(json!({"data": {"k": "v"}})).unwrap();
        references.config_maps.insert("cm".into(), Arc::new(map));
        let service = |ns: &str, name: &str, ip: &str| -> Arc<Service> {
            Arc::new(
                serde_json::from_value(json!({
                    "metadata": {"namespace": ns, "name": name},
                    "spec": {"clusterIP": ip, "ports": [{"port": 80, "name": "web-ui"}]},
                }))
                .unwrap(),
            )
        };
        references.services = vec![
            service("default", "kubernetes", "10.96.0.1"),
            service("ns", "my-svc", "10.96.0.5"),
            service("ns", "headless", "None"),
            service("other", "x", "10.96.0.9"),
        ];
        references
    }

    #[test]
    fn variables_may_refer_to_earlier_ones_and_to_services() {
        let env = env(
            json!({"name": "c", "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "value": "$(A)-$(C)-$(MY_SVC_SERVICE_HOST)"},
                {"name": "C", "value": "late"},
            ]}),
            &references(),
        )
        .unwrap();
        assert_eq!(env["B"], "1-$(C)-10.96.0.5");
        assert_eq!(env["KUBERNETES_SERVICE_HOST"], "10.96.0.1");
        assert_eq!(env["MY_SVC_PORT_80_TCP"], "tcp://10.96.0.5:80");
        assert_eq!(env["MY_SVC_SERVICE_PORT_WEB_UI"], "80");
        assert!(!env.contains_key("HEADLESS_SERVICE_HOST") && !env.contains_key("X_SERVICE_HOST"));
    }

    #[test]
    fn files_of_volumes_fill_variables() {
        let from = |path: &str, key: &str, optional: bool| {
            let reference = json!({"volumeName": "v", "path": path, "key": key, "optional": optional});
            let variable = json!({"name": "X", "valueFrom": {"fileKeyRef": reference}});
            let made = env(json!({"name": "c", "env": [variable]}), &References::default());
            made.map(|env| env.get("X").cloned()).map_err(|error| error.to_string())
        };
        assert_eq!(from("f", "A", false), Ok(Some("one".to_owned())));
        assert_eq!(from("f", "C", true), Ok(None));
        assert_eq!(from("f", "B", true), Ok(None));
        let missing = |key: &str| Err(format!("environment variable key {key:?} not found in file \"f\""));
        assert_eq!(from("f", "C", false), missing("C"));
        assert_eq!(from("f", "B", false), missing("B"));
        assert_eq!(from("bad", "A", true), Err("couldn't parse env file".to_owned()));
    }

    #[test]
    fn objects_fill_variables_and_missing_ones_are_named() {
        let good = env(
            json!({"name": "c", "envFrom": [{"prefix": "P_", "configMapRef": {"name": "cm"}}], "env": [
                {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "O", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k", "optional": true}}},
            ]}),
            &references(),
        )
        .unwrap();
        assert_eq!((good["P_k"].as_str(), good["N"].as_str(), good.get("O")), ("v", "pod", None));
        let missing = json!({"name": "c", "env": [
            {"name": "O", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "none"}}},
        ]});
        assert_eq!(env(missing, &references()).unwrap_err().to_string(), "couldn't find key none in ConfigMap ns/cm");
        let missing = json!({"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]});
        assert_eq!(env(missing, &references()).unwrap_err().to_string(), "secret \"s\" not found");
    }
}
