//! What is said about patches that cannot be, and where upstream looks at a patch in a way of its own. Codes, texts and orders of keys are
//! upstream's.

use serde_json::{Value, json};

use crate::server::Server;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const APPLY_CBOR: &str = "application/apply-patch+cbor";

async fn server() -> Server {
    let server = Server::default().await;
    let map = json!({"metadata": {"name": "a", "annotations": {"l": "<"}}, "data": {"k": "v"}});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    for (at, object) in [(MAPS, map), (SETS, json!({"metadata": {"name": "a"}, "spec": spec}))] {
        let made = server.post(&format!("{at}?fieldManager=creator"), &object).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }
    server
}

#[tokio::test]
async fn what_is_no_patch_is_named_as_upstream_names_it() {
    let server = server().await;
    let object = "into Go value of type map[string]interface {}";
    let rejected = "the server rejected our request due to an error in our request";
    let yaml = "error unmarshaling JSON: while decoding JSON: json";
    for (media, query, patch, code, message) in [
        (JSON, "", "{", 400, "invalid JSON patch".to_owned()),
        (MERGE, "", "", 400, "invalid JSON patch".to_owned()),
        (MERGE, "", "null", 400, "Invalid JSON Patch".to_owned()),
        (MERGE, "", "[]", 400, format!("error decoding patch: json: cannot unmarshal array {object}")),
        (MERGE, "&fieldValidation=Ignore", "5", 400, "Invalid JSON Patch".to_owned()),
        (STRATEGIC, "", "[]", 400, format!("json: cannot unmarshal array {object}")),
        (
            JSON,
            "",
            r#"[{"op": 5, "path": "/a"}]"#,
            400,
            "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string".to_owned(),
        ),
        (JSON, "&fieldValidation=Ignore", r#"[{"op": 5, "path": "/a"}]"#, 422, rejected.to_owned()),
        (JSON, "", "[null]", 422, rejected.to_owned()),
        (APPLY, "", "[]", 400, format!("error decoding patch: {yaml}: cannot unmarshal array {object}")),
        (APPLY, "", "a: b: c", 400, "error encoding patch: yaml: mapping values are not allowed in this context".to_owned()),
        (
            APPLY,
            "",
            "{a: \"",
            400,
            "error decoding patch: error converting YAML to JSON: yaml: found unexpected end of stream".to_owned(),
        ),
        (APPLY_CBOR, "", "\u{5}", 400, format!("error decoding patch: cbor: cannot unmarshal positive integer {object}")),
        (
            APPLY,
            "&fieldValidation=Strict",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b, a: c}\n",
            400,
            "error strict decoding patch: error converting YAML to JSON: yaml: unmarshal errors:\n  line 4: key \"a\" already set in map".to_owned(),
        ),
        (
            STRATEGIC,
            "",
            r#"{"metadata": {"annotations": {"$setElementOrder/x": []}}}"#,
            400,
            "merging an object in json but data type is not struct, instead is: map".to_owned(),
        ),
        (
            "application/x",
            "",
            "{}",
            415,
            "415: Unsupported Media Type".to_owned(),
        ),
    ] {
        let answer = server.patch(&format!("{MAPS}/a?fieldManager=m{query}"), media, patch).await;
        assert_eq!((answer.status, answer.json()["message"].as_str()), (code, Some(&*message)), "{patch}");
    }
    let nothing = server.patch(&format!("{MAPS}/a"), STRATEGIC, "null").await;
    assert_eq!(nothing.status, 200, "null is a strategic patch that says nothing: {}", nothing.text());
    let first = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\nkind: {";
    assert_eq!(server.patch(&format!("{MAPS}/a?fieldManager=m"), APPLY, first).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_refused_patch_shows_the_object_in_the_order_that_upstream_writes() {
    let server = server().await;
    let live = server.get(&format!("{MAPS}/a")).await.json();
    let said = |field: &str| live["metadata"][field].as_str().unwrap_or_default().to_owned();
    let metadata = format!(
        r#""metadata":{{"name":"a","namespace":"default","uid":"{}","resourceVersion":"{}","creationTimestamp":"{}","annotations":{{"l":"\u003c"}},"managedFields":"#,
        said("uid"),
        said("resourceVersion"),
        said("creationTimestamp")
    );
    let answer = server.patch(&format!("{MAPS}/a"), MERGE, r#"{"data": {"z": {"b": 1, "a": 2}}}"#).await;
    let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
    let begin = format!(
        " \"\" is invalid: patch: Invalid value: {:?}",
        format!(r#"{{"apiVersion":"v1","data":{{"k":"v","z":{{"a":2,"b":1}}}},"kind":"ConfigMap",{metadata}"#)
    );
    assert!(message.starts_with(begin.trim_end_matches('"')), "{message}\n{begin}");
    let answer = server
        .patch(&format!("{MAPS}/a"), JSON, r#"[{"op": "add", "path": "/data/z", "value": {"b": 1, "a": 2}}]"#)
        .await;
    let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains(r#"\"z\":{\"b\":1,\"a\":2}"#), "what a JSON patch adds stays as it was sent: {message}");
    server.stop().await;
}

#[tokio::test]
async fn strategic_patches_and_applies_are_converted_and_others_decoded() {
    let server = server().await;
    let at = format!("{SETS}/a?fieldManager=m&dryRun=All&force=true");
    let apply = |spec: Value| {
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "a"}, "spec": spec}).to_string()
    };
    let at_json = at.replace("&force=true", "");
    for (at, media, patch, code, message) in [
        (&at_json, STRATEGIC, r#"{"spec": {"replicas": "1"}}"#.to_owned(), 422, "unrecognized type: int32"),
        (&at_json, STRATEGIC, r#"{"spec": {"replicas": 1.5}}"#.to_owned(), 422, "cannot convert float64 to int32"),
        (&at_json, STRATEGIC, r#"{"spec": "x"}"#.to_owned(), 422, "cannot restore struct from: string"),
        (
            &at_json,
            MERGE,
            r#"{"spec": {"replicas": "1"}}"#.to_owned(),
            422,
            "json: cannot unmarshal string into Go struct field ReplicaSetSpec.spec.replicas of type int32",
        ),
        (
            &at_json,
            MERGE,
            r#"{"kind": 5}"#.to_owned(),
            422,
            "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string",
        ),
        (
            &at,
            APPLY,
            apply(json!({"replicas": "1"})),
            400,
            ".spec.replicas: expected numeric (int or float), got string",
        ),
        (
            &at,
            APPLY,
            apply(json!({"replicas": 1.5})),
            400,
            "unable to convert unstructured object to apps/v1, Kind=ReplicaSet: cannot convert float64 to int32",
        ),
    ] {
        let answer = server.patch(at, media, &patch).await;
        let said = answer.json()["message"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status == code && said.ends_with(message), "{patch}: {} {said}", answer.status);
    }
    for (at, media, patch) in [
        (&at_json, STRATEGIC, r#"{"spec": {"replicas": 3.0}}"#.to_owned()),
        (&at, APPLY, apply(json!({"replicas": 3.0}))),
    ] {
        let answer = server.patch(at, media, &patch).await;
        assert_eq!(answer.json()["spec"]["replicas"], 3, "{patch}: {}", answer.text());
    }
    let versionless = server.patch(&at_json, MERGE, r#"{"apiVersion": null}"#).await;
    let nameless = "the name of the object (a based on URL) was undeterminable: name must be provided";
    assert_eq!((versionless.status, versionless.json()["message"].as_str()), (400, Some(nameless)));
    let unnamed = server.patch(&format!("{SETS}/a/scale"), MERGE, r#"{"metadata": {"name": null}}"#).await;
    assert_eq!((unnamed.status, unnamed.json()["message"].as_str()), (400, Some(nameless)));
    let other = server.patch(&format!("{SETS}/a/scale"), MERGE, r#"{"metadata": {"namespace": "x"}}"#).await;
    assert!(other.status == 400 && other.text().contains("does not match the namespace"), "{}", other.text());
    let scale = server.patch(&format!("{SETS}/a/scale"), MERGE, r#"{"kind": "Pod"}"#).await;
    assert!(scale.status == 422 && scale.text().contains("patch: Invalid value"), "{}", scale.text());
    server.stop().await;
}

#[tokio::test]
async fn times_that_the_server_fills_in_belong_to_who_left_them_out() {
    let server = server().await;
    let rules = "/apis/resource.k8s.io/v1/devicetaintrules";
    let taint = json!({"key": "k", "value": "v", "effect": "NoSchedule"});
    let rule =
        json!({"metadata": {"name": "a"}, "spec": {"deviceSelector": {"driver": "d.example.com"}, "taint": taint}});
    let made = server.post(&format!("{rules}?fieldManager=creator"), &rule).await.json();
    assert!(made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:taint"]["f:timeAdded"].is_object(), "{made}");
    let volumes = "/api/v1/persistentvolumes";
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    let volume = server.post(volumes, &json!({"metadata": {"name": "a"}, "spec": spec})).await.json();
    let since = |volume: &Value| volume["status"]["lastPhaseTransitionTime"].clone();
    let at = format!("{volumes}/a/status");
    let kept =
        server.patch(&at, MERGE, r#"{"status": {"message": "m", "lastPhaseTransitionTime": null}}"#).await.json();
    assert_eq!(since(&kept), since(&volume), "the phase did not change");
    let said = r#"{"status": {"phase": "Bound", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}}"#;
    assert_eq!(since(&server.patch(&at, MERGE, said).await.json()), "2020-01-01T00:00:00Z");
    let changed = server.patch(&at, MERGE, r#"{"status": {"phase": "Released"}}"#).await.json();
    assert_ne!(since(&changed), "2020-01-01T00:00:00Z", "a phase has the time of its beginning: {changed}");
    server.stop().await;
}
