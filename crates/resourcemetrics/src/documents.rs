//! What is published about the group: its discovery and its schemas.

use machinery::Value;
use serde_json::json;

use crate::objects::Kind;
use crate::{GROUP, VERSION};

/// The `APIResourceList` of the version.
pub fn resources() -> Value {
    let resource = |kind: Kind| {
        json!({
            "name": kind.resource(),
            "singularName": "",
            "namespaced": kind == Kind::Pod,
            "kind": kind.name(),
            "verbs": ["get", "list"],
        })
    };
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": format!("{GROUP}/{VERSION}"),
        "resources": [resource(Kind::Node), resource(Kind::Pod)],
    })
}

/// Its entry in aggregated discovery.
pub fn version() -> Value {
    let resource = |kind: Kind| {
        json!({
            "resource": kind.resource(),
            "responseKind": {"group": GROUP, "version": VERSION, "kind": kind.name()},
            "scope": if kind == Kind::Pod { "Namespaced" } else { "Cluster" },
            "singularResource": "",
            "verbs": ["get", "list"],
        })
    };
    json!({
        "version": VERSION,
        "resources": [resource(Kind::Node), resource(Kind::Pod)],
        "freshness": "Current",
    })
}

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// Where the schemas are: `openapi/v3/` and this.
pub fn openapi_path() -> String {
    format!("apis/{GROUP}/{VERSION}")
}

/// The schemas of the version, as OpenAPI version 3.
pub fn openapi() -> Value {
    let base = format!("/apis/{GROUP}/{VERSION}");
    let node = (Kind::Node, "nodes".to_owned());
    let pod = (Kind::Pod, "namespaces/{namespace}/pods".to_owned());
    let all = (Kind::Pod, "pods".to_owned());
    let mut paths = serde_json::Map::new();
    for (kind, path) in [&node, &pod, &all] {
        let list = format!("{}List", kind.name());
        paths.insert(format!("{base}/{path}"), json!({"get": operation(*kind, "list", &list)}));
    }
    for (kind, path) in [&node, &pod] {
        paths.insert(format!("{base}/{path}/{{name}}"), json!({"get": operation(*kind, "get", kind.name())}));
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes metrics-server", "version": VERSION},
        "paths": paths,
        "components": {"schemas": schemas()},
    })
}

fn operation(kind: Kind, action: &str, schema: &str) -> Value {
    let content = json!({"application/json": {"schema": {"$ref": format!("#/components/schemas/{}", full(schema))}}});
    json!({
        "description": format!("{action} objects of kind {}", kind.name()),
        "responses": {"200": {"description": "OK", "content": content}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {"group": GROUP, "version": VERSION, "kind": kind.name()},
    })
}

fn full(kind: &str) -> String {
    format!("io.k8s.metrics.pkg.apis.metrics.{VERSION}.{kind}")
}

fn schemas() -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    let refer = |name: &str, description: &str| json!({"description": description, "allOf": [{"$ref": format!("#/components/schemas/{name}")}]});
    let list = |of: &str, description: &str| {
        let items = json!({"allOf": [{"$ref": format!("#/components/schemas/{}", full(of))}]});
        json!({"type": "array", "items": items, "description": description})
    };
    let usage = json!({
        "type": "object",
        "additionalProperties": {"type": "string"},
        "description": "What is used of each resource: CPU is the average over the window, memory the working set at its end.",
    });
    let of_kind = |kind: &str, description: &str, own: Vec<(&str, Value)>| {
        let mut properties = json!({
            "apiVersion": text("The version of the schema of this object."),
            "kind": text("What this object is."),
        });
        own.into_iter().for_each(|(name, schema)| properties[name] = schema);
        json!({
            "type": "object",
            "description": description,
            "properties": properties,
            "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": kind}],
        })
    };
    let measured = |own: (&'static str, Value)| {
        let meta = ("metadata", refer(OBJECT_META, "Name, namespace and labels of what was measured."));
        let time = ("timestamp", text("The end of the window."));
        vec![meta, time, ("window", text("How long was measured.")), own]
    };
    let mut schemas = json!({
        OBJECT_META: {"type": "object", "description": "Metadata that every object has."},
        full("ContainerMetrics"): {
            "type": "object",
            "description": "What a container of a pod uses.",
            "properties": {"name": text("The container's name."), "usage": usage.clone()},
        },
    });
    schemas[full("NodeMetrics")] = of_kind("NodeMetrics", "What a node uses.", measured(("usage", usage)));
    let containers = ("containers", list("ContainerMetrics", "What each container uses."));
    schemas[full("PodMetrics")] =
        of_kind("PodMetrics", "What a pod uses, container by container.", measured(containers));
    for kind in [Kind::Node, Kind::Pod] {
        let name = format!("{}List", kind.name());
        let items = ("items", list(kind.name(), "What was measured."));
        schemas[full(&name)] = of_kind(&name, "A list of measurements.", vec![items]);
    }
    schemas
}
