//! Definitions: what is said of them, what is served when they change, and where clients read about it.

use serde_json::{Value, json};

use super::{DEFINITIONS, condition, define, established, fleet, serving, ship, ships, spec, version};
use crate::server::Server;

#[tokio::test]
async fn a_definition_is_established_and_says_which_names_it_has() {
    let definition = ships(json!([version("v1", true, spec(json!({})))]));
    let server = serving(&definition).await;
    let found = server.get(&format!("{DEFINITIONS}/ships.harbour.example.com")).await.json();
    assert_eq!(found["status"]["acceptedNames"], definition["spec"]["names"]);
    assert_eq!(found["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(condition(&found, "NamesAccepted").expect("the condition")["reason"], "NoConflicts");
    assert_eq!(condition(&found, "Established").expect("the condition")["reason"], "InitialNamesAccepted");
    server.stop().await;
}

#[tokio::test]
async fn names_that_another_has_are_accepted_when_it_goes() {
    let server = serving(&ships(json!([version("v1", true, spec(json!({})))]))).await;
    let mut rafts = ships(json!([version("v1", true, spec(json!({})))]));
    rafts["metadata"]["name"] = json!("rafts.harbour.example.com");
    rafts["spec"]["names"] = json!({"plural": "rafts", "singular": "raft", "kind": "Ship", "listKind": "RaftList"});
    assert_eq!(server.post(DEFINITIONS, &rafts).await.status, 201);
    let path = format!("{DEFINITIONS}/rafts.harbour.example.com");
    testkit::object::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>(
        &server.admin(),
        "",
        "rafts.harbour.example.com",
        "the names are looked at",
        |found| found.is_some_and(|found| found.status.as_ref().is_some_and(|status| status.conditions.is_some())),
    )
    .await;
    let refused = condition(&server.get(&path).await.json(), "NamesAccepted").expect("the condition");
    assert_eq!((&refused["status"], &refused["reason"]), (&json!("False"), &json!("KindConflict")));
    assert_eq!(refused["message"], "\"Ship\" is already in use");
    let rafts_path = "/apis/harbour.example.com/v1/namespaces/default/rafts";
    assert_eq!(server.get(rafts_path).await.status, 404, "what has no name is not served");
    let deleted = server.send(http::Method::DELETE, &format!("{DEFINITIONS}/ships.harbour.example.com"), &[], "").await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    established(&server, &rafts).await;
    assert_eq!(server.get(rafts_path).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn discovery_and_openapi_tell_of_it_while_it_is_there() {
    let mut one = version("v1", true, spec(json!({"name": {"type": "string", "description": "What it is called."}})));
    one["subresources"] = json!({"status": {}});
    let server = serving(&ships(json!([version("v1beta1", false, spec(json!({}))), one]))).await;
    let group = server.get("/apis/harbour.example.com").await.json();
    let versions: Vec<&Value> =
        group["versions"].as_array().expect("versions").iter().map(|one| &one["version"]).collect();
    assert_eq!(
        (versions, &group["preferredVersion"]["version"]),
        (vec![&json!("v1"), &json!("v1beta1")], &json!("v1"))
    );
    let resources = server.get("/apis/harbour.example.com/v1").await.json();
    let names: Vec<&Value> =
        resources["resources"].as_array().expect("resources").iter().map(|one| &one["name"]).collect();
    assert_eq!(names, [&json!("ships"), &json!("ships/status")]);
    let ships_entry = &resources["resources"][0];
    assert_eq!(
        (&ships_entry["singularName"], &ships_entry["shortNames"], &ships_entry["categories"]),
        (&json!("ship"), &json!(["sh"]), &json!(["fleet"]))
    );
    assert!(ships_entry["storageVersionHash"].as_str().is_some_and(|hash| !hash.is_empty()));
    let aggregated = [("accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")];
    let all = server.send(http::Method::GET, "/apis", &aggregated, "").await.json();
    let ours = all["items"]
        .as_array()
        .expect("groups")
        .iter()
        .find(|group| group["metadata"]["name"] == "harbour.example.com");
    assert_eq!(ours.expect("our group")["versions"][0]["resources"][0]["resource"], "ships");

    let root = server.get("/openapi/v3").await.json();
    let address =
        root["paths"]["apis/harbour.example.com/v1"]["serverRelativeURL"].as_str().expect("an address").to_owned();
    let document = server.get(&address).await.json();
    let schema = &document["components"]["schemas"]["com.example.harbour.v1.Ship"];
    assert_eq!(schema["properties"]["spec"]["properties"]["name"]["description"], "What it is called.");
    assert!(document["paths"]["/apis/harbour.example.com/v1/namespaces/{namespace}/ships"].is_object());
    let v2 = server.get("/openapi/v2").await.json();
    assert!(v2["definitions"]["com.example.harbour.v1.Ship"].is_object());

    // A change of the schema is published at once, and only there.
    let apps = root["paths"]["apis/apps/v1"]["serverRelativeURL"].clone();
    let path = format!("{DEFINITIONS}/ships.harbour.example.com");
    let mut changed = server.get(&path).await.json();
    changed["spec"]["versions"][1]["schema"]["openAPIV3Schema"] = spec(json!({"flag": {"type": "string"}}));
    assert_eq!(server.put(&path, &changed).await.status, 200);
    published(&server, |document| {
        document["components"]["schemas"]["com.example.harbour.v1.Ship"]["properties"]["spec"]["properties"]["flag"]
            .is_object()
    })
    .await;
    let root = server.get("/openapi/v3").await.json();
    assert_ne!(root["paths"]["apis/harbour.example.com/v1"]["serverRelativeURL"], address.as_str());
    assert_eq!(root["paths"]["apis/apps/v1"]["serverRelativeURL"], apps);
    server.stop().await;
}

/// Waits until the document of `v1` is so.
async fn published(server: &Server, met: impl Fn(&Value) -> bool) {
    let wait = async {
        while !met(&server.get("/openapi/v3/apis/harbour.example.com/v1").await.json()) {
            tokio::task::yield_now().await;
        }
    };
    testkit::eventually("the document is published", wait).await;
}

#[tokio::test]
async fn several_versions_are_served_of_one_object() {
    let old = version(
        "v1beta1",
        false,
        spec(json!({"name": {"type": "string"}, "sails": {"type": "integer", "default": 1}})),
    );
    let mut old_deprecated = old.clone();
    old_deprecated["deprecated"] = json!(true);
    let new =
        version("v1", true, spec(json!({"name": {"type": "string"}, "masts": {"type": "integer", "default": 2}})));
    let server = serving(&ships(json!([old_deprecated, new]))).await;
    assert_eq!(server.post(&fleet("v1"), &ship("argo", json!({"name": "Argo"}))).await.status, 201);
    let shown = server.get(&format!("{}/argo", fleet("v1beta1"))).await;
    assert_eq!(shown.json()["apiVersion"], "harbour.example.com/v1beta1");
    assert_eq!(
        shown.json()["spec"],
        json!({"name": "Argo"}),
        "each version has its own fields, and the defaults of the stored one"
    );
    assert_eq!(shown.warnings(), ["harbour.example.com/v1beta1 Ship is deprecated; use harbour.example.com/v1 Ship"]);
    let stored = server.get(&format!("{}/argo", fleet("v1"))).await.json();
    assert_eq!(stored["spec"], json!({"name": "Argo", "masts": 2}));
    let merge = "application/merge-patch+json";
    let patched = server.patch(&format!("{}/argo", fleet("v1beta1")), merge, r#"{"spec":{"name":"Argo II"}}"#).await;
    assert_eq!((patched.status, &patched.json()["apiVersion"]), (200, &json!("harbour.example.com/v1beta1")));
    let after = server.get(&format!("{}/argo", fleet("v1"))).await.json();
    assert_eq!((&after["apiVersion"], &after["spec"]["name"]), (&json!("harbour.example.com/v1"), &json!("Argo II")));
    server.stop().await;
}

#[tokio::test]
async fn defaults_and_pruning_hold_for_what_is_stored_already() {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = ships(json!([version("v1", true, open)]));
    let server = serving(&definition).await;
    assert_eq!(server.post(&fleet("v1"), &ship("argo", json!({"name": "Argo", "odd": 1}))).await.status, 201);
    let path = format!("{DEFINITIONS}/ships.harbour.example.com");
    let mut changed = server.get(&path).await.json();
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        spec(json!({"name": {"type": "string"}, "masts": {"type": "integer", "default": 2}}));
    assert_eq!(server.put(&path, &changed).await.status, 200);
    let there = async {
        while server.get(&format!("{}/argo", fleet("v1"))).await.json()["spec"] != json!({"name": "Argo", "masts": 2}) {
            tokio::task::yield_now().await;
        }
    };
    testkit::eventually("the new schema is in force", there).await;

    // Also after a restart, when nothing is known of what is stored.
    let server = server.restart(|_, _| {}).await;
    let list = server.get(&fleet("v1")).await.json();
    assert_eq!(list["items"][0]["spec"], json!({"name": "Argo", "masts": 2}));
    server.stop().await;
}

#[tokio::test]
async fn rules_of_a_schema_are_inspected_and_asked() {
    let server = Server::default().await;
    let with = |rule: &str| {
        let mut schema = spec(json!({"min": {"type": "integer"}, "max": {"type": "integer"}}));
        schema["properties"]["spec"]["x-kubernetes-validations"] =
            json!([{"rule": rule, "message": "must be in order"}]);
        ships(json!([version("v1", true, schema)]))
    };
    let refused = server.post(DEFINITIONS, &with("self.missing == 1")).await;
    assert_eq!(refused.status, 422);
    assert!(refused.message().contains("undefined field 'missing'"), "{}", refused.message());
    let refused = server.post(DEFINITIONS, &with("self = 42")).await;
    assert!(refused.message().contains("Syntax error"), "{}", refused.message());
    let mut costly = with("self.list.all(x, self.list.all(y, x == y))");
    costly["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["list"] =
        json!({"type": "array", "items": {"type": "string"}});
    let refused = server.post(DEFINITIONS, &costly).await;
    assert!(
        refused.message().contains("estimated rule cost exceeds budget by factor of more than 100x"),
        "{}",
        refused.message()
    );
    define(&server, &with("self.min <= self.max")).await;
    let refused = server.post(&fleet("v1"), &ship("argo", json!({"min": 2, "max": 1}))).await;
    assert_eq!(
        refused.message(),
        "Ship.harbour.example.com \"argo\" is invalid: spec: Invalid value: must be in order"
    );
    assert_eq!(server.post(&fleet("v1"), &ship("argo", json!({"min": 1, "max": 1}))).await.status, 201);

    // A rule that comes later binds what changes, and only warns of what stays as it was.
    let path = format!("{DEFINITIONS}/ships.harbour.example.com");
    let mut changed = server.get(&path).await.json();
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["min"]["x-kubernetes-validations"] =
        json!([{"rule": "self >= oldSelf", "message": "only grows"}, {"rule": "self > 1", "message": "more than one"}]);
    assert_eq!(server.put(&path, &changed).await.status, 200);
    let merge = "application/merge-patch+json";
    let object = format!("{}/argo", fleet("v1"));
    let shrinks = async {
        loop {
            let answer = server.patch(&object, merge, r#"{"spec":{"min":0}}"#).await;
            if answer.status == 422 {
                return answer.message();
            }
            server.patch(&object, merge, r#"{"spec":{"min":1}}"#).await;
        }
    };
    let message = testkit::eventually("the new rule is in force", shrinks).await;
    assert!(message.contains("spec.min: Invalid value: 0: only grows"), "{message}");
    let kept = server.patch(&object, merge, r#"{"spec":{"max":9}}"#).await;
    assert_eq!((kept.status, kept.warnings()), (200, vec!["spec.min: Invalid value: 1: more than one".to_owned()]));
    server.stop().await;
}

/// Upstream meant to leave metadata alone when a status is written, and does not.
#[tokio::test]
async fn a_write_of_its_status_may_change_its_labels_and_finalizers() {
    let server = serving(&ships(json!([version("v1", true, spec(json!({})))]))).await;
    let path = format!("{DEFINITIONS}/ships.harbour.example.com/status");
    let patch = r#"{"metadata": {"labels": {"a": "b"}, "finalizers": ["example.com/hold"]}, "spec": {"group": "other.example.com"}, "status": {"storedVersions": null}}"#;
    let written = server.patch(&path, "application/merge-patch+json", patch).await.json();
    assert_eq!(written["metadata"]["labels"], json!({"a": "b"}), "{written}");
    assert_eq!(written["metadata"]["finalizers"], json!(["example.com/hold"]));
    assert_eq!(written["spec"]["group"], "harbour.example.com");
    assert_eq!(written["status"]["storedVersions"], json!(["v1"]));
    server.stop().await;
}

#[tokio::test]
async fn a_subresource_that_it_does_not_have_is_an_object_that_is_not_there() {
    let server = serving(&ships(json!([version("v1", true, spec(json!({})))]))).await;
    for below in ["status", "scale", "log"] {
        let answer = server.get(&format!("{}/argo/{below}", fleet("v1"))).await;
        assert_eq!((answer.status, answer.message()), (404, "ships.harbour.example.com \"argo\" not found".to_owned()));
        assert_eq!(answer.json()["details"]["kind"], "ships");
    }
    server.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_metadata_is_found_as_often_as_upstream_looks() {
    let server = serving(&ships(json!([version("v1", true, spec(json!({})))]))).await;
    let path = format!("{DEFINITIONS}/ships.harbour.example.com");
    let definition = server.get(&path).await.json();
    for part in ["", "/status"] {
        let mut changed = definition.clone();
        changed["metadata"]["labels"] = json!({"a": "x".repeat(64)});
        changed["metadata"]["deletionGracePeriodSeconds"] = json!(5);
        let refused = server.put(&format!("{path}{part}"), &changed).await.json();
        let causes = refused["details"]["causes"].as_array().expect("causes");
        let found = |field: &str| causes.iter().filter(|cause| cause["field"] == field).count();
        assert_eq!(
            (found("metadata.labels"), found("metadata.deletionGracePeriodSeconds")),
            (3, 2),
            "{part}: {refused}"
        );
    }
    server.stop().await;
}

/// Puts an object into the store as another server would, which begins with the kind.
async fn stored_by_another(server: &Server, key: &str, kind: &str, version: &str, rest: &str) {
    let text = format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",{rest}}}\n");
    let op = store::Op::Put { value: bytes::Bytes::from(text), ttl: None };
    let expect = store::Expect::Absent;
    let txn = store::Txn { key: key.into(), expect, op, write: None, note: Default::default() };
    let outcome = store::Store::txn(server.store(), txn).await.expect("the store is well");
    assert!(matches!(outcome, store::Outcome::Committed(_)), "{outcome:?}");
}

#[tokio::test]
async fn what_upstream_stores_in_versions_of_its_own_is_read() {
    let server = Server::default().await;
    let names = r#"{"plural":"ships","singular":"ship","kind":"Ship","listKind":"ShipList"}"#;
    let rest = format!(
        r#""metadata":{{"name":"ships.harbour.example.com","uid":"u","creationTimestamp":"2026-01-01T00:00:00Z"}},"spec":{{
        "group":"harbour.example.com","version":"v1","names":{names},"scope":"Namespaced","preserveUnknownFields":false,
        "validation":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{"size":{{"type":"integer"}}}}}}}}}}}},
        "versions":[{{"name":"v1","served":true,"storage":true}}],"additionalPrinterColumns":[{{"name":"Size","type":"integer","JSONPath":".spec.size"}}],
        "conversion":{{"strategy":"None"}}}},"status":{{"conditions":[],"acceptedNames":{names},"storedVersions":["v1"]}}"#
    );
    let key = "/registry/apiextensions.k8s.io/customresourcedefinitions/ships.harbour.example.com";
    stored_by_another(&server, key, "CustomResourceDefinition", "apiextensions.k8s.io/v1beta1", &rest).await;
    established(&server, &ships(json!([]))).await;
    let definition = server.get(&format!("{DEFINITIONS}/ships.harbour.example.com")).await.json();
    assert_eq!(definition["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(definition["spec"]["versions"][0]["additionalPrinterColumns"][0]["jsonPath"], ".spec.size");
    let ship = |spec: Value| json!({"apiVersion": "harbour.example.com/v1", "kind": "Ship", "metadata": {"name": "a"}, "spec": spec});
    let path = "/apis/harbour.example.com/v1/namespaces/default/ships";
    assert_eq!(server.post(path, &ship(json!({"size": "large"}))).await.status, 422, "its schema holds");
    assert_eq!(server.post(path, &ship(json!({"size": 7}))).await.json()["spec"]["size"], 7);
    // A version that is served here too, and not the one in which its objects are stored here.
    let bundle =
        r#""metadata":{"name":"b","uid":"v","creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"trustBundle":"x"}"#;
    stored_by_another(
        &server,
        "/registry/clustertrustbundles/b",
        "ClusterTrustBundle",
        "certificates.k8s.io/v1beta1",
        bundle,
    )
    .await;
    let path = "/apis/certificates.k8s.io/v1/clustertrustbundles/b";
    testkit::eventually("the bundle is read", async { while server.get(path).await.status != 200 {} }).await;
    assert_eq!(server.get(path).await.json()["apiVersion"], "certificates.k8s.io/v1");
    // What is not kept in protobuf is shown all the same.
    let claim = r#"{"metadata":{"name":"d"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}"#;
    let set = format!(
        r#""metadata":{{"name":"s","namespace":"default","uid":"w","creationTimestamp":"2026-01-01T00:00:00Z"}},"spec":{{"serviceName":"s",
        "selector":{{"matchLabels":{{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c","image":"i"}}]}}}},
        "volumeClaimTemplates":[{claim}]}}"#
    );
    stored_by_another(&server, "/registry/statefulsets/default/s", "StatefulSet", "apps/v1", &set).await;
    let path = "/apis/apps/v1/namespaces/default/statefulsets/s";
    testkit::eventually("the set is read", async { while server.get(path).await.status != 200 {} }).await;
    let claim = server.get(path).await.json()["spec"]["volumeClaimTemplates"][0].clone();
    assert_eq!((&claim["apiVersion"], &claim["kind"]), (&json!("v1"), &json!("PersistentVolumeClaim")));
    server.stop().await;
}
