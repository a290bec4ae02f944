//! Defaults of a pod's spec, wherever one is written: in pods and in every template. Some are for pods alone.

use machinery::quantity::Quantity;
use machinery::{Value, value};
use serde_json::json;

/// Fills in the spec at `path` of an object.
pub fn default(object: &mut Value, path: &str) {
    // A spec that is left out is an empty one.
    if value::at(object, path).is_none_or(Value::is_null) {
        value::set(object, path, json!({}));
    }
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
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        for container in value::list_mut(spec, list) {
            default_container(container);
        }
    }
    if let Some(overhead) = spec.get_mut("overhead") {
        round_up(overhead);
    }
    for kind in ["resources.requests", "resources.limits"] {
        if let Some(list) = value::at_mut(spec, kind) {
            round_up(list);
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

/// What pods get and templates do not: requests where there are limits, and ports of the host on its network.
pub fn default_pod(pod: &mut Value) {
    default(pod, "spec");
    let Some(spec) = pod.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    if value::int(spec, "terminationGracePeriodSeconds").is_some_and(|seconds| seconds < 0) {
        value::set(spec, "terminationGracePeriodSeconds", 1);
    }
    value::set_default(spec, "enableServiceLinks", true);
    let host_network = value::flag(spec, "hostNetwork");
    for list in ["containers", "initContainers"] {
        for container in value::list_mut(spec, list) {
            default_requests(container);
            for port in value::list_mut(container, "ports") {
                if host_network && value::int(port, "hostPort").unwrap_or(0) == 0 {
                    let number = value::int(port, "containerPort").unwrap_or(0);
                    value::set(port, "hostPort", number);
                }
            }
        }
    }
    default_addresses(pod);
}

/// The one address and the list of all of them say the same; an older kubelet knows only the one.
fn default_addresses(pod: &mut Value) {
    let one = value::text(pod, "status.podIP").to_owned();
    let first = value::list(pod, "status.podIPs").first().map(|address| value::text(address, "ip").to_owned());
    match first {
        Some(first) if one.is_empty() => value::set(pod, "status.podIP", first),
        Some(first) if first == one => {}
        _ if !one.is_empty() => value::set(pod, "status.podIPs", json!([{"ip": one}])),
        _ => {}
    }
}

/// Amounts finer than a thousandth are rounded up to one.
pub fn round_up(list: &mut Value) {
    for amount in list.as_object_mut().into_iter().flat_map(|list| list.values_mut()) {
        let Some(Ok(quantity)) = Quantity::from_value(amount) else { continue };
        let rounded = quantity.round_up(-3);
        if rounded != quantity {
            *amount = rounded.to_string().into();
        }
    }
}

fn default_container(container: &mut Value) {
    value::set_default(container, "terminationMessagePath", "/dev/termination-log");
    value::set_default(container, "terminationMessagePolicy", "File");
    value::set_default(container, "resources", json!({}));
    if value::text(container, "imagePullPolicy").is_empty() {
        let policy = if is_latest(value::text(container, "image")) { "Always" } else { "IfNotPresent" };
        value::set(container, "imagePullPolicy", policy);
    }
    for port in value::list_mut(container, "ports") {
        value::set_default(port, "protocol", "TCP");
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
        if value::at(variable, "valueFrom.fileKeyRef").is_some() {
            value::set_default(variable, "valueFrom.fileKeyRef.optional", false);
        }
    }
    for kind in ["resources.requests", "resources.limits"] {
        if let Some(list) = value::at_mut(container, kind) {
            round_up(list);
        }
    }
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
        "awsElasticBlockStore",
        "azureDisk",
        "azureFile",
        "cephfs",
        "cinder",
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "glusterfs",
        "hostPath",
        "image",
        "iscsi",
        "nfs",
        "persistentVolumeClaim",
        "photonPersistentDisk",
        "portworxVolume",
        "projected",
        "quobyte",
        "rbd",
        "scaleIO",
        "secret",
        "storageos",
        "vsphereVolume",
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
    for path in ["iscsi", "rbd", "scaleIO", "azureDisk"] {
        default_disk(volume, path);
    }
    if value::at(volume, "image").is_some_and(Value::is_object) && value::text(volume, "image.pullPolicy").is_empty() {
        let policy = if is_latest(value::text(volume, "image.reference")) { "Always" } else { "IfNotPresent" };
        value::set(volume, "image.pullPolicy", policy);
    }
    if value::at(volume, "ephemeral.volumeClaimTemplate.spec").is_some_and(Value::is_object) {
        value::set_default(volume, "ephemeral.volumeClaimTemplate.spec.volumeMode", "Filesystem");
    }
}

/// What a disk is taken for, unless it says otherwise. Persistent volumes have the same kinds of disks.
pub fn default_disk(parent: &mut Value, kind: &str) {
    let fillings: &[(&str, Value)] = match kind {
        "iscsi" => &[("iscsiInterface", json!("default"))],
        "rbd" => &[("pool", json!("rbd")), ("user", json!("admin")), ("keyring", json!("/etc/ceph/keyring"))],
        "scaleIO" => &[("storageMode", json!("ThinProvisioned")), ("fsType", json!("xfs"))],
        _ => &[
            ("cachingMode", json!("ReadWrite")),
            ("kind", json!("Shared")),
            ("fsType", json!("ext4")),
            ("readOnly", json!(false)),
        ],
    };
    if let Some(disk) = value::at_mut(parent, kind).filter(|disk| disk.is_object()) {
        for (field, filling) in fillings {
            value::set_default(disk, field, filling.clone());
        }
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
    let (path, last) = image.rsplit_once('/').map_or(("", image), |(path, last)| (path, last));
    let (name, tag) = last.rsplit_once(':').unwrap_or((last, "latest"));
    // What cannot be read as an image has no tag. Hosts may have capitals, paths may not.
    const LONGEST: usize = 255;
    let is_part = |part: &str| {
        part.split(['.', '_', '-'])
            .all(|word| word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()))
            && part.starts_with(|letter: char| letter.is_ascii_alphanumeric())
            && part.ends_with(|letter: char| letter.is_ascii_alphanumeric())
    };
    let mut parts = path.split('/').filter(|part| !part.is_empty()).enumerate();
    let host = |part: &str| part.contains(['.', ':']) || part == "localhost" || part.to_lowercase() != part;
    let whole = parts.all(|(at, part)| is_part(part) || (at == 0 && host(part)));
    tag == "latest" && whole && is_part(name) && image.len() <= LONGEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_latest_images_are_always_pulled() {
        for image in ["busybox", "busybox:latest", "localhost:5000/busybox", "Registry.example.com/team/app"] {
            assert!(is_latest(image), "{image}");
        }
        for image in ["busybox:1", "localhost:5000/busybox:1", "busybox@sha256:00", "BusyBox", "bad!", "a/B/c"] {
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
        default_pod(&mut pod);
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
