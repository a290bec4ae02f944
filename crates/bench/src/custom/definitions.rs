//! The definitions and objects of this part, as data.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::GROUP;

/// A definition of one version with this schema of `spec`.
pub fn small(plural: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced", "names": {"plural": plural, "kind": kind(plural)},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec},
            }}}],
        },
    })
}

pub fn kind(plural: &str) -> String {
    let mut letters = plural.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

pub fn object(plural: &str, name: &str, spec: Value) -> Bytes {
    let object = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": kind(plural),
        "metadata": {
            "name": name, "labels": {"app": "bench", "pod-template-hash": "7c5ddbdf54"}, "annotations": {"bench/sent": ""},
        },
        "spec": spec,
    });
    Bytes::from(object.to_string())
}

/// A definition with ten expressions of the usual kinds.
pub fn ruled(plural: &str) -> Value {
    let rules: Vec<Value> = [
        "self.low <= self.high",
        "self.replicas >= self.low && self.replicas <= self.high",
        "self.mode in ['fast', 'slow']",
        "self.mode != 'slow' || self.replicas < 5",
        "self.hosts.all(host, host.endsWith('.example.com'))",
        "self.hosts.exists(host, host.startsWith('a'))",
        "size(self.hosts) <= self.high",
        "!has(self.labels) || !('forbidden' in self.labels)",
        "self.name.matches('^[a-z][a-z0-9-]*$')",
        "self.name.size() < 64",
    ]
    .iter()
    .map(|rule| json!({"rule": rule, "message": "it is as the rule says"}))
    .collect();
    small(
        plural,
        json!({
            "type": "object", "required": ["name", "low", "high", "replicas", "mode", "hosts"],
            "x-kubernetes-validations": rules,
            "properties": {
                "name": {"type": "string", "maxLength": 64},
                "low": {"type": "integer"}, "high": {"type": "integer"}, "replicas": {"type": "integer"},
                "mode": {"type": "string", "maxLength": 16},
                "hosts": {"type": "array", "maxItems": 16, "items": {"type": "string", "maxLength": 253}},
                "labels": {"type": "object", "maxProperties": 16, "additionalProperties": {"type": "string", "maxLength": 64}},
            },
        }),
    )
}

/// What [`crate::pods::pod`] has when defaults are filled in.
pub fn pod_spec() -> Value {
    json!({
        "containers": [{
            "name": "main", "image": "registry.example.com/team/application:v1.2.3", "imagePullPolicy": "IfNotPresent",
            "args": ["--listen=:8080", "--log-level=info"],
            "env": [{"name": "SETTING", "value": "a value of some length"}],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        }],
        "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
        "serviceAccountName": "default", "terminationGracePeriodSeconds": 30, "enableServiceLinks": true,
    })
}

/// The schema of [`pod_spec`].
pub fn like_pods() -> Value {
    fn schema_of(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let properties: Map<String, Value> =
                    fields.iter().map(|(name, field)| (name.clone(), schema_of(field))).collect();
                json!({"type": "object", "properties": properties})
            }
            Value::Array(items) => json!({"type": "array", "items": items.first().map(schema_of)}),
            Value::Number(_) => json!({"type": "integer"}),
            Value::Bool(_) => json!({"type": "boolean"}),
            _ => json!({"type": "string"}),
        }
    }
    schema_of(&pod_spec())
}

pub fn large_plural(number: usize) -> String {
    format!("larges{number}")
}

/// A definition as large as a provider's of a cloud: settings of a resource, the same once more as it was observed, with descriptions.
pub fn large(number: usize) -> Value {
    const TEXT: &str = "What this setting is for, when it takes effect, which values are allowed in which region, and what happens to what is there when it is changed later.";
    let setting = |at: usize| match at % 5 {
        0 => json!({"type": "string", "description": TEXT, "maxLength": 256}),
        1 => json!({"type": "integer", "description": TEXT, "minimum": 0}),
        2 => json!({"type": "boolean", "description": TEXT}),
        3 => json!({"type": "array", "description": TEXT, "items": {"type": "object", "properties": {
            "name": {"type": "string", "description": TEXT}, "value": {"type": "string", "description": TEXT},
        }}}),
        _ => json!({"type": "object", "description": TEXT, "additionalProperties": {"type": "string"}}),
    };
    let settings = |count: usize| -> Map<String, Value> {
        (0..count).map(|at| (format!("setting{number}Of{at}"), setting(at))).collect()
    };
    let provider = json!({"type": "object", "properties": {
        "deletionPolicy": {"type": "string", "enum": ["Orphan", "Delete"], "default": "Delete"},
        "forProvider": {"type": "object", "properties": settings(50)},
        "initProvider": {"type": "object", "properties": settings(30)},
    }});
    let mut definition = small(&large_plural(number), provider);
    definition["spec"]["scope"] = "Cluster".into();
    let version = &mut definition["spec"]["versions"][0];
    version["subresources"] = json!({"status": {}});
    version["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({"type": "object", "properties": {"atProvider": {"type": "object", "properties": settings(40)}}});
    definition
}
