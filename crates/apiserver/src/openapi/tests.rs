//! The documents against upstream's own, whose prose is removed.

use facts::{Resource, Stability, Verbs, Version};

use super::*;
use crate::discovery::built_in;

fn everything() -> OpenApi {
    OpenApi::new(BuiltIn::new(built_in(|_, _| true), "unversioned"), built_in(|_, _| true), Customs::default())
}

/// The documents of built-in groups.
pub(super) fn openapi(groups: Vec<Group>) -> OpenApi {
    OpenApi::new(BuiltIn::new(groups.clone(), "v1.37.0"), groups, Customs::default())
}

fn parse(document: &Assembled) -> Value {
    serde_json::from_slice(&document.bytes()).expect("is JSON")
}

fn document(openapi: &OpenApi, path: &str) -> Value {
    parse(openapi.document(Form::V3Json, path).expect("served"))
}

/// Removes descriptions, and the values of fields, which upstream's published documents leave out and its server's have; a
/// field of that name holds an object and stays.
fn without_prose(value: &mut Value) {
    match value {
        Value::Object(object) => {
            object.retain(|key, value| match key.as_str() {
                "description" => !value.is_string(),
                "enum" => !value.is_array(),
                _ => true,
            });
            object.values_mut().for_each(without_prose);
        }
        Value::Array(items) => items.iter_mut().for_each(without_prose),
        _ => {}
    }
}

#[test]
fn every_document_of_version_3_is_upstreams() {
    let openapi = everything();
    for entry in &openapi.documents {
        // A file system that hides names with a dot hid this one from those who published the others: it is told below.
        if entry.path == ".well-known/openid-configuration" {
            continue;
        }
        let mut found = document(&openapi, &entry.path);
        without_prose(&mut found);
        goldens::document(&format!("openapi-v3/{}_openapi.json", entry.path.replace('/', "__")), &found);
    }
}

#[test]
fn version_2_says_what_is_read_and_whose_name_is_meant() {
    let v2 = parse(everything().v2(Form::V2Json));
    let attach = &v2["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/attach"]["parameters"];
    let named = attach.as_array().into_iter().flatten().find(|one| one["name"] == "name").expect("a name");
    assert_eq!(named["description"], "name of the PodAttachOptions");
    assert_eq!(v2["paths"]["/version/"]["get"]["consumes"], json!(["application/json"]));
    assert_eq!(v2["paths"]["/apis/"]["get"]["consumes"][2], "application/vnd.kubernetes.protobuf");
    assert!(v2["paths"]["/openid/v1/jwks/"]["get"]["consumes"].is_null());
}

#[test]
fn the_issuer_of_tokens_is_described() {
    let document = document(&everything(), ".well-known/openid-configuration");
    let operation = &document["paths"]["/.well-known/openid-configuration/"]["get"];
    assert_eq!(operation["operationId"], "getServiceAccountIssuerOpenIDConfiguration");
    assert_eq!(operation["tags"], json!(["WellKnown"]));
    assert_eq!(operation["responses"]["200"]["content"], json!({"application/json": {"schema": {"type": "string"}}}));
}

#[test]
fn the_root_addresses_documents_by_their_tags() {
    let openapi = openapi(built_in(|_, version| version.default_on));
    let root: Value = serde_json::from_slice(&openapi.root().body).expect("is JSON");
    let address = root["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().expect("an address");
    let document = openapi.document(Form::V3Json, "apis/apps/v1").expect("served");
    assert_eq!(address, format!("/openapi/v3/apis/apps/v1?hash={}", document.etag));
    assert!(root["paths"]["apis/lifecycle.k8s.io/v1alpha1"].is_null());
    assert!(openapi.document(Form::V3Json, "apis/nothing/v1").is_none());
}

#[test]
fn fields_say_which_values_they_may_have() {
    let openapi = everything();
    let core = document(&openapi, "api/v1");
    let schemas = &core["components"]["schemas"];
    let container = &schemas["io.k8s.api.core.v1.Container"]["properties"];
    assert_eq!(container["imagePullPolicy"]["enum"], json!(["Always", "IfNotPresent", "Never"]));
    let claim = &schemas["io.k8s.api.core.v1.PersistentVolumeClaimSpec"]["properties"]["accessModes"];
    assert_eq!(claim["items"]["enum"], json!(["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]));
    let requests = document(&openapi, "apis/certificates.k8s.io/v1");
    let spec = &requests["components"]["schemas"]["io.k8s.api.certificates.v1.CertificateSigningRequestSpec"];
    assert_eq!(spec["properties"]["usages"]["items"]["enum"][2], "client auth");
    let claim = &schemas["io.k8s.api.core.v1.PersistentVolumeClaimStatus"]["properties"];
    let statuses = &claim["allocatedResourceStatuses"];
    assert_eq!(statuses["additionalProperties"]["enum"][4], "NodeResizePending");
    assert_eq!(statuses.get("enum"), None);
}

#[test]
fn version_2_has_what_kubectl_looks_for() {
    let mut v2 = parse(everything().v2(Form::V2Json));
    let described = v2["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]["nodeName"]["description"].as_str();
    assert!(described.is_some_and(|text| text.contains("node")), "{described:?}");
    let list = &v2["definitions"]["io.k8s.api.core.v1.ServiceList"];
    let items = list["properties"]["items"]["description"].as_str();
    assert!(items.is_some_and(|text| text.starts_with("List of services. ")), "{items:?}");
    assert_eq!(list["description"], "ServiceList is a list of Service");
    let patch = &v2["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(
        patch["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "kind": "Deployment", "version": "v1"})
    );
    let names: Vec<_> = patch["parameters"].as_array().expect("a list").iter().map(|p| p["name"].as_str()).collect();
    assert!(names.contains(&Some("fieldValidation")) && names.contains(&Some("dryRun")), "{names:?}");
    let spec = &v2["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"];
    assert_eq!(spec["containers"]["x-kubernetes-patch-merge-key"], "name");
    let v2 = &mut v2;
    without_prose(v2);
    assert_eq!(v2["definitions"]["io.k8s.apimachinery.pkg.api.resource.Quantity"], json!({"type": "string"}));
    assert_eq!(
        v2["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["metadata"],
        json!({"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"})
    );
}

/// The fields of a message: their numbers and bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        if tag & 7 == 1 {
            let (number, rest) = bytes.split_at(8);
            found.push((tag >> 3, number.to_vec()));
            bytes = rest;
            continue;
        }
        let value = varint(&mut bytes);
        match tag & 7 {
            0 => found.push((tag >> 3, vec![value as u8])),
            2 => {
                let (inner, rest) = bytes.split_at(value as usize);
                found.push((tag >> 3, inner.to_vec()));
                bytes = rest;
            }
            other => panic!("wire type {other}"),
        }
    }
    found
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().expect("the message is whole");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

fn get(message: &[u8], number: u64) -> Vec<Vec<u8>> {
    fields(message).into_iter().filter(|(found, _)| *found == number).map(|(_, bytes)| bytes).collect()
}

fn named(list: &[Vec<u8>], name: &str) -> Vec<u8> {
    let entry =
        list.iter().find(|entry| get(entry, 1) == [name.as_bytes()]).unwrap_or_else(|| panic!("{name} is there"));
    get(entry, 2).remove(0)
}

#[test]
fn the_protobuf_form_holds_the_same() {
    let openapi = everything();
    let document = &openapi.v2(Form::V2Protobuf).bytes();
    assert_eq!(get(document, 1), [b"2.0"]);
    let definitions = get(&get(document, 9)[0], 1);
    let v2 = parse(openapi.v2(Form::V2Json));
    assert_eq!(definitions.len(), v2["definitions"].as_object().expect("an object").len());
    let pod_spec = named(&definitions, "io.k8s.api.core.v1.PodSpec");
    assert_eq!(get(&pod_spec, 19), [b"containers"], "what is required");
    let containers = named(&get(&get(&pod_spec, 25)[0], 1), "containers");
    assert_eq!(get(&get(&containers, 22)[0], 1), [b"array"]);
    let item = &get(&get(&containers, 23)[0], 1)[0];
    assert_eq!(get(item, 1), [b"#/definitions/io.k8s.api.core.v1.Container"]);
    let merge_key = named(&get(&containers, 31), "x-kubernetes-patch-merge-key");
    assert_eq!(get(&merge_key, 2), [b"\"name\""]);

    let paths = get(&get(document, 8)[0], 2);
    let patch = &get(&named(&paths, "/api/v1/namespaces/{namespace}/pods/{name}"), 8)[0];
    let own = get(patch, 8).into_iter().flat_map(|item| get(&item, 1));
    let queries: Vec<_> = own.flat_map(|parameter| get(&parameter, 2)).collect();
    let shared: Vec<_> = get(patch, 8).into_iter().flat_map(|item| get(&item, 2)).collect();
    assert_eq!(get(&shared[0], 1), [b"#/parameters/body-78PwaGsr"]);
    let parameters = get(&get(document, 10)[0], 1);
    let names: Vec<&String> = v2["parameters"].as_object().expect("an object").keys().collect();
    assert_eq!(parameters.len(), names.len());
    let force = names.into_iter().find(|name| name.starts_with("force-")).expect("it is shared");
    let force = named(&parameters, force);
    assert_eq!(get(&get(&get(&force, 2)[0], 3)[0], 4), [b"force"]);
    let names: Vec<_> = queries.iter().map(|query| get(&get(query, 3)[0], 4).remove(0)).collect();
    assert!(names.contains(&b"fieldValidation".to_vec()));
    let kind = named(&get(patch, 13), "x-kubernetes-group-version-kind");
    assert_eq!(get(&kind, 2), [br#"{"group":"","kind":"Pod","version":"v1"}"#]);
}

fn crontabs(version: &str) -> Custom {
    let mut resource = Resource::new("stable.example.com", version.to_owned(), "crontabs", "CronTab");
    resource.namespaced = true;
    resource.verbs = Verbs::ALL;
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["image", "note"],
                "properties": {
                    "image": { "type": "string", "pattern": "^[a-z]+$", "default": "busybox" },
                    "note": { "type": "string", "nullable": true },
                    "replicas": { "type": "integer", "minimum": 1, "enum": [1, 3] },
                    "port": { "x-kubernetes-int-or-string": true, "anyOf": [{ "type": "integer" }, { "type": "string" }] },
                    "template": { "type": "object", "x-kubernetes-embedded-resource": true },
                    "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": { "a": { "type": "string" } } },
                },
            },
        },
    });
    let selectable = vec!["spec.image".to_owned()];
    Custom::new(resource, Box::new(move || Some(schema.clone())), selectable, "1".to_owned())
}

fn with_custom(custom: Custom) -> OpenApi {
    let resource = custom.resource().clone();
    let mut customs = Customs::default();
    customs.insert(Arc::new(custom));
    let version = Version {
        name: resource.version.clone(),
        stability: Stability::Stable,
        default_on: true,
        resources: [resource].into(),
    };
    let built_in = built_in(|_, version| version.default_on);
    let custom = Group { name: "stable.example.com".into(), versions: [version].into() };
    let groups = built_in.iter().cloned().chain([custom]).collect();
    OpenApi::new(BuiltIn::new(built_in, "v1.37.0"), groups, customs)
}

fn with_crontabs() -> OpenApi {
    with_custom(crontabs("v1"))
}

#[test]
fn a_custom_resource_has_a_document_of_its_own() {
    let openapi = with_crontabs();
    let v3 = document(&openapi, "apis/stable.example.com/v1");
    let schemas = &v3["components"]["schemas"];
    let object = &schemas["com.example.stable.v1.CronTab"];
    assert_eq!(
        object["x-kubernetes-group-version-kind"],
        json!([{"group": "stable.example.com", "kind": "CronTab", "version": "v1"}])
    );
    assert_eq!(object["x-kubernetes-selectable-fields"], json!([{"fieldPath": "spec.image"}]));
    let kind = &object["properties"]["kind"];
    assert_eq!(kind["type"], "string");
    assert!(kind["description"].as_str().is_some_and(|text| text.starts_with("Kind is a string value")), "{kind}");
    let spec = &object["properties"]["spec"];
    assert_eq!(spec["properties"]["image"]["default"], "busybox");
    let template = &spec["properties"]["template"];
    assert_eq!(template["required"], json!(["kind", "apiVersion"]));
    let said = template["properties"]["kind"]["description"].as_str();
    assert!(
        said.is_some_and(|text| text.starts_with("kind is a string value")),
        "upstream has other words inside: {said:?}"
    );
    assert!(schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"].is_object());
    assert!(schemas["io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"].is_object(), "what that refers to");
    assert_eq!(schemas["com.example.stable.v1.CronTabList"]["required"], json!(["items"]));
    // Of the group versions that clients know, and not of its own.
    let kinds =
        schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]["x-kubernetes-group-version-kind"].as_array();
    let kinds: Vec<&Value> = kinds.expect("kinds").iter().map(|kind| &kind["group"]).collect();
    assert!(
        kinds.len() == 55 && kinds[0] == "" && kinds.iter().all(|group| **group != "stable.example.com"),
        "{kinds:?}"
    );
    let path = &v3["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}"];
    assert_eq!(path["patch"]["operationId"], "patchStableExampleComV1NamespacedCronTab");
    assert_eq!(path["patch"]["requestBody"]["content"].as_object().map(Map::len), Some(3));
    // Upstream says less of them than of built-in kinds, and some of it otherwise.
    assert!(path["patch"]["responses"]["201"].is_null() && path["put"]["responses"]["201"].is_object());
    assert_eq!(path["get"]["parameters"][0]["name"], "resourceVersion");
    assert_eq!(path["get"]["description"], "read the specified CronTab");
    assert_eq!(path["parameters"][0]["description"], "name of the CronTab");
    assert!(
        openapi.document(Form::V3Json, "apis/stable.example.com").is_none()
            && openapi.document(Form::V3Json, "apis/apps").is_some()
    );
    let collection = &v3["paths"]["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs"]["delete"];
    assert!(collection["requestBody"].is_null(), "{collection}");
    assert_eq!(collection["parameters"][0]["name"], "allowWatchBookmarks");
    let v2 = parse(openapi.v2(Form::V2Json));
    let reads = &v2["paths"]["/apis/stable.example.com/v1/crontabs"]["get"]["consumes"];
    assert_eq!(*reads, json!(["application/json", "application/yaml"]));
    assert_eq!(super::names::group_tag("cluster.x-k8s.io"), "clusterXK8sIo");
    assert_eq!(v3["info"], json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}));
    assert!(
        v3["paths"]["/apis/stable.example.com/v1/"].is_null() && v2["paths"]["/apis/stable.example.com/"].is_null()
    );
    assert!(v2["paths"]["/apis/apps/v1/"].is_object() && v2["paths"]["/apis/apps/"].is_object());
}

#[test]
fn a_kind_without_capitals_has_one_where_all_namespaces_are_read() {
    let mut resource = crontabs("v1").resource().clone();
    resource.kind = "crontab".into();
    let openapi = with_custom(Custom::new(resource, Box::new(|| None), Vec::new(), "1".to_owned()));
    let paths = &document(&openapi, "apis/stable.example.com/v1")["paths"];
    let id = |path: &str| paths[format!("/apis/stable.example.com/v1/{path}")]["get"]["operationId"].clone();
    assert_eq!(id("crontabs"), "listStableExampleComV1CrontabForAllNamespaces");
    assert_eq!(id("namespaces/{namespace}/crontabs"), "listStableExampleComV1Namespacedcrontab");
}

#[test]
fn version_2_leaves_out_what_it_cannot_say_of_a_custom_resource() {
    let openapi = with_crontabs();
    let v2 = parse(openapi.v2(Form::V2Json));
    let spec = &v2["definitions"]["com.example.stable.v1.CronTab"]["properties"]["spec"];
    assert_eq!(spec["required"], json!(["image"]), "null is not a value there");
    assert_eq!(spec["properties"]["image"], json!({"type": "string", "pattern": "^[a-z]+$"}));
    assert_eq!(spec["properties"]["note"], json!({}));
    assert_eq!(spec["properties"]["port"], json!({"x-kubernetes-int-or-string": true}));
    assert_eq!(spec["properties"]["free"], json!({"x-kubernetes-preserve-unknown-fields": true}));
    let definitions = get(&get(&openapi.v2(Form::V2Protobuf).bytes(), 9)[0], 1);
    let object = named(&definitions, "com.example.stable.v1.CronTab");
    let spec = named(&get(&get(&object, 25)[0], 1), "spec");
    let replicas = named(&get(&get(&spec, 25)[0], 1), "replicas");
    assert_eq!(get(&replicas, 9), [1.0f64.to_le_bytes()], "the minimum");
    assert_eq!(get(&replicas, 20).len(), 2, "the enumerated values");
}

#[test]
fn a_custom_resource_without_a_schema_may_hold_anything() {
    let resource = crontabs("v1").resource().clone();
    let openapi = with_custom(Custom::new(resource, Box::new(|| None), Vec::new(), "1".to_owned()));
    let v3 = document(&openapi, "apis/stable.example.com/v1");
    let object = &v3["components"]["schemas"]["com.example.stable.v1.CronTab"];
    assert!(object["properties"].is_null() && object["type"] == "object", "{object}");
}

#[test]
fn what_is_said_of_a_custom_resource_is_the_same_in_protobuf() {
    let openapi = with_crontabs();
    let path = "apis/stable.example.com/v1";
    let v3 = document(&openapi, path);
    let packed = openapi.document(Form::V3Protobuf, path).expect("served");
    assert_eq!(packed.etag, openapi.document(Form::V3Json, path).expect("served").etag);
    let packed = packed.bytes();
    assert_eq!(get(&packed, 1), [b"3.0.0"]);
    let schemas = get(&get(&get(&packed, 5)[0], 1)[0], 1);
    assert_eq!(Some(schemas.len()), v3["components"]["schemas"].as_object().map(Map::len));
    let paths = get(&get(&packed, 4)[0], 1);
    assert_eq!(Some(paths.len()), v3["paths"].as_object().map(Map::len));
    let kind = named(&schemas, "com.example.stable.v1.CronTab");
    assert!(!get(&kind, 1).is_empty(), "it is a schema and no reference");
}

#[test]
fn others_are_merged_into_version_2_where_they_meet() {
    let openapi = with_crontabs();
    let name = "com.example.stable.v1.CronTab";
    let plain = parse(openapi.v2(Form::V2Json));
    let mut seen = Vec::new();
    for open in [false, true] {
        let changed = openapi.v2_changed(
            Form::V2Json,
            |_, _| open,
            |tree| {
                seen.push(tree["definitions"].get(name).is_some());
                tree["definitions"]["other"] = json!({"type": "object"});
            },
        );
        assert_ne!(changed.etag, openapi.v2(Form::V2Json).etag);
        let mut changed = parse(&changed);
        assert_eq!(
            changed["definitions"].as_object_mut().and_then(|all| all.remove("other")),
            Some(json!({"type": "object"}))
        );
        assert_eq!(changed, plain, "nothing else is different");
    }
    assert_eq!(seen, [false, true]);
}
