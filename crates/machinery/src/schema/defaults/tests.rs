use serde_json::json;

use super::*;
use crate::schema::{check_types, conform, prune_unknown};

fn of(group: &str, version: &str, kind: &str) -> &'static Type {
    facts::type_of(group, version, kind).expect("a built-in kind").def()
}

#[test]
fn an_object_is_brought_into_upstreams_form() {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "labels": {}, "creationTimestamp": null, "annotations": null, "generation": 0},
        "spec": {
            "foo": 1,
            "containers": [{
                "name": "c", "image": "", "env": [], "stdin": false, "bar": {"x": 1},
                "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}},
                "livenessProbe": {"httpGet": {"port": "http"}, "initialDelaySeconds": 0},
            }],
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": null,
            "activeDeadlineSeconds": null,
        },
        "status": {"startTime": "2026-01-01T01:00:00+01:00"},
    });
    let unknown = conform(&mut pod, of("", "v1", "Pod")).expect("right types");
    assert_eq!(unknown, [r#"unknown field "spec.containers[0].bar""#, r#"unknown field "spec.foo""#]);
    assert_eq!(
        pod,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a"},
            "spec": {
                "containers": [{
                    "name": "c",
                    "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}},
                    "livenessProbe": {"httpGet": {"port": "http"}},
                }],
                "terminationGracePeriodSeconds": 0,
            },
            "status": {"startTime": "2026-01-01T00:00:00Z"},
        })
    );
}

#[test]
fn wrong_types_get_gos_words() {
    for (kind, value, message) in [
        ("Pod", json!([]), "json: cannot unmarshal array into Go value of type v1.Pod"),
        ("Pod", json!({"spec": "x"}), "json: cannot unmarshal string into Go struct field Pod.spec of type v1.PodSpec"),
        (
            "Pod",
            json!({"spec": {"containers": {}}}),
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "Pod",
            json!({"spec": {"containers": ["x"]}}),
            "json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type v1.Container",
        ),
        (
            "Pod",
            json!({"spec": {"containers": [{"name": 5}]}}),
            "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string",
        ),
        (
            "Pod",
            json!({"metadata": {"labels": {"a": 5}}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "Pod",
            json!({"spec": {"priority": 1.5}}),
            "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            "Pod",
            json!({"spec": {"priority": 3000000000u64}}),
            "json: cannot unmarshal number 3000000000 into Go struct field PodSpec.spec.priority of type int32",
        ),
        (
            "Pod",
            json!({"spec": {"hostNetwork": "yes"}}),
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool",
        ),
        (
            "Pod",
            json!({"metadata": {"creationTimestamp": 5}}),
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (
            "Pod",
            json!({"spec": {"containers": [{"livenessProbe": {"httpGet": {"scheme": 5}}}]}}),
            "json: cannot unmarshal number into Go struct field HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.scheme of type v1.URIScheme",
        ),
        (
            "Service",
            json!({"spec": {"ipFamilies": [5]}}),
            "json: cannot unmarshal number into Go struct field ServiceSpec.spec.ipFamilies of type v1.IPFamily",
        ),
        (
            "LimitRange",
            json!({"spec": {"limits": [{"max": "x"}]}}),
            "json: cannot unmarshal string into Go struct field LimitRangeItem.spec.limits.max of type v1.ResourceList",
        ),
        (
            "Pod",
            json!({"spec": {"containers": [{"resources": {"limits": {"cpu": "x"}}}]}}),
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        ("Secret", json!({"data": {"a": "*"}}), "illegal base64 data at input byte 0"),
        (
            "Secret",
            json!({"data": {"a": 1}}),
            "json: cannot unmarshal number into Go struct field Secret.data of type []uint8",
        ),
        (
            "Service",
            json!({"spec": {"ports": [{"targetPort": []}]}}),
            "json: cannot unmarshal array into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
    ] {
        assert_eq!(check_types(&value, of("", "v1", kind)), Err(message.to_owned()), "{value}");
    }
}

#[test]
fn what_upstream_always_writes_is_added() {
    let mut deployment =
        json!({"metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}});
    complete(&mut deployment, of("apps", "v1", "Deployment"));
    assert_eq!(
        deployment,
        json!({
            "metadata": {"name": "a"},
            "spec": {
                "selector": null, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}},
            },
            "status": {},
        })
    );
}

#[test]
fn defaults_are_set_where_the_parent_is() {
    let port = Field { default: Some("80".into()), ..Field::new("port", Schema::Int32) };
    let name = Field { nullable: true, default: Some("\"x\"".into()), ..Field::new("name", Schema::String) };
    let inner = std::sync::Arc::new(Type::new("Inner", vec![port, name]));
    let list = facts::List { items: Schema::Object(inner.clone()), list_type: None, keys: Box::default() };
    let made = Type::new(
        "Made",
        vec![
            Field { default: Some("{}".into()), ..Field::new("made", Schema::Object(inner.clone())) },
            Field::new("given", Schema::Object(inner)),
            Field::new("list", Schema::Array(Box::new(list))),
        ],
    );
    let mut value = json!({"list": [{"port": null, "name": null}]});
    default(&mut value, &made);
    assert_eq!(value, json!({"list": [{"port": 80, "name": null}], "made": {"port": 80, "name": "x"}}));
    let mut service = json!({"spec": {"ports": [{"port": 1}]}});
    default(&mut service, of("", "v1", "Service"));
    assert_eq!(service, json!({"spec": {"ports": [{"port": 1, "protocol": "TCP"}]}}));
}

#[test]
fn unknown_fields_are_pruned_and_preserved() {
    let mut preserving = Type::new("Preserving", vec![Field::new("known", Schema::String)]);
    preserving.preserve_unknown = true;
    let outer = Type::new("Outer", vec![Field::new("in", Schema::Object(std::sync::Arc::new(preserving)))]);
    let mut value = json!({"in": {"other": 1}, "out": 2});
    assert_eq!(prune_unknown(&mut value, &outer), [r#"unknown field "out""#]);
    assert_eq!(value, json!({"in": {"other": 1}}));
}

/// Upstream's own encodings are in upstream's form already: every field known, every zero that is written there.
#[test]
fn upstreams_goldens_stay_as_they_are() {
    let Some(folder) = goldens::upstream("wire") else { return };
    let entries = std::fs::read_dir(folder).expect("a folder");
    let mut compared = 0;
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let golden: Value = serde_json::from_slice(&std::fs::read(&path).expect("a golden")).expect("JSON");
        let Some(version) = crate::gvk::GroupVersion::parse(crate::value::text(&golden, "apiVersion")) else {
            continue;
        };
        let kind = crate::value::text(&golden, "kind");
        let Some(id) = facts::type_of(&version.group, &version.version, kind) else { continue };
        compared += 1;
        let mut ours = golden.clone();
        assert_eq!(conform(&mut ours, id.def()), Ok(Vec::new()), "{}", path.display());
        complete(&mut ours, id.def());
        assert_eq!(ours, golden, "{}", path.display());
    }
    assert!(compared > 50, "only {compared} goldens were compared");
}

/// So are objects of our own making that have all fields, once they are complete.
#[test]
fn whole_objects_stay_as_they_are() {
    for (name, of, object) in crate::testing::every_kind() {
        let mut ours = object.clone();
        assert_eq!(conform(&mut ours, of), Ok(Vec::new()), "{name}");
        complete(&mut ours, of);
        assert_eq!(goldens::difference(&name, &ours, &object), None);
    }
}
