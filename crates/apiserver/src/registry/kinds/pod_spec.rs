//! Defaults of a pod's spec, wherever one is written: in pods and in every template.

use machinery::status::FieldError;
use machinery::{Value, names, value};
use serde_json::json;

/// Fills in the spec at `path` of an object.
pub fn default(object: &mut Value, path: &str) {
    let Some(spec) = value::at_mut(object, path).filter(|spec| spec.is_object()) else { return };
    for (field, filling) in [
        ("dnsPolicy", json!("ClusterFirst")),
        ("restartPolicy", json!("Always")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("terminationGracePeriodSeconds", json!(30)),
    ] {
        value::set_default(spec, field, filling);
    }
    let host_network = value::flag(spec, "hostNetwork");
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in value::list_mut(spec, list) {
            default_container(container, host_network);
        }
    }
    for volume in value::list_mut(spec, "volumes") {
        default_volume(volume);
    }
    // The deprecated name follows the new one.
    let account = value::text(spec, "serviceAccountName").to_owned();
    let deprecated = value::text(spec, "serviceAccount").to_owned();
    match (account.is_empty(), deprecated.is_empty()) {
        (false, _) => value::set(spec, "serviceAccount", account),
        (true, false) => value::set(spec, "serviceAccountName", deprecated),
        (true, true) => {}
    }
}

fn default_container(container: &mut Value, host_network: bool) {
    value::set_default(container, "terminationMessagePath", "/dev/termination-log");
    value::set_default(container, "terminationMessagePolicy", "File");
    value::set_default(container, "resources", json!({}));
    if value::text(container, "imagePullPolicy").is_empty() {
        let policy = if is_latest(value::text(container, "image")) { "Always" } else { "IfNotPresent" };
        value::set(container, "imagePullPolicy", policy);
    }
    for port in value::list_mut(container, "ports") {
        value::set_default(port, "protocol", "TCP");
        if host_network && value::int(port, "hostPort").unwrap_or(0) == 0 {
            let number = value::int(port, "containerPort").unwrap_or(0);
            value::set(port, "hostPort", number);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = value::at_mut(container, probe).filter(|probe| probe.is_object()) {
            default_probe(probe);
        }
    }
    for hook in ["lifecycle.postStart.httpGet", "lifecycle.preStop.httpGet"] {
        default_http_get(container, hook);
    }
    for variable in value::list_mut(container, "env") {
        if value::at(variable, "valueFrom.fieldRef").is_some() {
            value::set_default(variable, "valueFrom.fieldRef.apiVersion", "v1");
        }
    }
    default_requests(container);
}

/// A limit without a request is a request too.
fn default_requests(container: &mut Value) {
    let limits = value::at(container, "resources.limits").and_then(Value::as_object).cloned().unwrap_or_default();
    for (name, quantity) in limits {
        let path = "resources.requests";
        let known = value::at(container, path).and_then(|requests| requests.get(&name)).is_some();
        if !known && let Some(resources) = value::at_mut(container, "resources") {
            value::object_mut(resources, "requests").insert(name, quantity);
        }
    }
}

fn default_probe(probe: &mut Value) {
    for (field, filling) in
        [("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)]
    {
        if value::int(probe, field).unwrap_or(0) == 0 {
            value::set(probe, field, filling);
        }
    }
    default_http_get(probe, "httpGet");
    if value::at(probe, "grpc").is_some_and(Value::is_object) {
        value::set_default(probe, "grpc.service", "");
    }
}

fn default_http_get(parent: &mut Value, path: &str) {
    if let Some(get) = value::at_mut(parent, path).filter(|get| get.is_object()) {
        value::set_default(get, "path", "/");
        value::set_default(get, "scheme", "HTTP");
    }
}

fn default_volume(volume: &mut Value) {
    const SOURCES: [&str; 30] = [
        "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "configMap", "csi", "downwardAPI",
        "emptyDir", "ephemeral", "fc", "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "hostPath",
        "image", "iscsi", "nfs", "persistentVolumeClaim", "photonPersistentDisk", "portworxVolume", "projected",
        "quobyte", "rbd", "scaleIO", "secret", "storageos", "vsphereVolume",
    ];
    if !SOURCES.iter().any(|source| value::at(volume, source).is_some_and(|source| !source.is_null())) {
        value::set(volume, "emptyDir", json!({}));
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if value::at(volume, source).is_some_and(Value::is_object) {
            value::set_default(volume, &format!("{source}.defaultMode"), 420);
        }
    }
    if value::at(volume, "hostPath").is_some_and(Value::is_object) {
        value::set_default(volume, "hostPath.type", "");
    }
    for item in value::list_mut(volume, "downwardAPI.items") {
        default_field_ref(item);
    }
    for source in value::list_mut(volume, "projected.sources") {
        if value::at(source, "serviceAccountToken").is_some_and(Value::is_object) {
            value::set_default(source, "serviceAccountToken.expirationSeconds", 3600);
        }
        for item in value::list_mut(source, "downwardAPI.items") {
            default_field_ref(item);
        }
    }
    if value::at(volume, "ephemeral.volumeClaimTemplate.spec").is_some_and(Value::is_object) {
        value::set_default(volume, "ephemeral.volumeClaimTemplate.spec.volumeMode", "Filesystem");
    }
}

fn default_field_ref(item: &mut Value) {
    if value::at(item, "fieldRef").is_some_and(Value::is_object) {
        value::set_default(item, "fieldRef.apiVersion", "v1");
    }
}

/// Whether an image reference has no tag, or `latest`, and no digest.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    last.rsplit_once(':').is_none_or(|(_, tag)| tag == "latest")
}

/// What makes a spec unusable: no containers, or containers without a name or an image.
pub fn validate(object: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let empty = Value::Null;
    let spec = value::at(object, path).unwrap_or(&empty);
    if value::list(spec, "containers").is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut names: Vec<&str> = Vec::new();
    for list in ["containers", "initContainers"] {
        for (index, container) in value::list(spec, list).iter().enumerate() {
            let at = |field: &str| format!("{path}.{list}[{index}].{field}");
            let name = value::text(container, "name");
            if name.is_empty() {
                errors.push(FieldError::required(at("name"), ""));
            } else if names.contains(&name) {
                errors.push(FieldError::duplicate(at("name"), name));
            } else {
                let problems = names::is_dns1123_label(name);
                errors.extend(problems.into_iter().map(|problem| FieldError::invalid(at("name"), name, problem)));
            }
            names.push(name);
            if value::text(container, "image").is_empty() {
                errors.push(FieldError::required(at("image"), ""));
            }
            for (place, mount) in value::list(container, "volumeMounts").iter().enumerate() {
                let name = value::text(mount, "name");
                if !value::list(spec, "volumes").iter().any(|volume| value::text(volume, "name") == name) {
                    errors.push(FieldError::not_found(at(&format!("volumeMounts[{place}].name")), name));
                }
            }
        }
    }
    let policy = value::text(spec, "restartPolicy");
    if !matches!(policy, "Always" | "OnFailure" | "Never") {
        let at = format!("{path}.restartPolicy");
        errors.push(FieldError::not_supported(at, policy, ["Always", "OnFailure", "Never"]));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_latest_images_are_always_pulled() {
        for image in ["busybox", "busybox:latest", "localhost:5000/busybox"] {
            assert!(is_latest(image), "{image}");
        }
        for image in ["busybox:1", "localhost:5000/busybox:1", "busybox@sha256:00"] {
            assert!(!is_latest(image), "{image}");
        }
    }

    #[test]
    fn defaults_are_filled_in_and_given_values_stay() {
        let mut pod = json!({"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}],
                "resources": {"limits": {"cpu": "1"}}, "livenessProbe": {"httpGet": {"port": 80}}}],
            "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}],
        }});
        default(&mut pod, "spec");
        let spec = &pod["spec"];
        assert_eq!(spec["restartPolicy"], "Never");
        assert_eq!(spec["dnsPolicy"], "ClusterFirst");
        let container = &spec["containers"][0];
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(container["ports"][0]["protocol"], "TCP");
        assert_eq!(container["resources"]["requests"]["cpu"], "1");
        assert_eq!(container["livenessProbe"]["httpGet"]["scheme"], "HTTP");
        assert_eq!(container["livenessProbe"]["failureThreshold"], 3);
        assert_eq!(spec["volumes"][0]["emptyDir"], json!({}));
        assert_eq!(spec["volumes"][1]["secret"]["defaultMode"], 420);
    }
}
