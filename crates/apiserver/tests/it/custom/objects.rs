//! What is done with the objects of a custom resource, as it is done with those of built-in kinds.

use futures::StreamExt as _;
use http::Method;
use serde_json::{Value, json};

use super::{fleet, serving, ship, ships, spec, version};

/// Ships with a name, a number of masts, and ports told apart by their names.
fn definition() -> Value {
    let mut version = version(
        "v1",
        true,
        spec(json!({
            "name": {"type": "string", "maxLength": 10},
            "masts": {"type": "integer", "minimum": 1, "default": 2},
            "crew": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
                "type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "days": {"type": "integer"}}}},
        })),
    );
    version["subresources"] = json!({"status": {}, "scale": {
        "specReplicasPath": ".spec.masts", "statusReplicasPath": ".status.masts", "labelSelectorPath": ".status.selector"}});
    version["additionalPrinterColumns"] = json!([
        {"name": "Masts", "type": "integer", "jsonPath": ".spec.masts", "description": "How many"},
        {"name": "Named", "type": "string", "jsonPath": ".spec.name", "priority": 1},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    ships(json!([version]))
}

#[tokio::test]
async fn kubectl_works_with_a_custom_resource_as_with_any_other() {
    let server = serving(&definition()).await;
    let kubectl = server.kubectl();
    let manifest = "apiVersion: harbour.example.com/v1\nkind: Ship\nmetadata: {name: argo}\nspec: {name: Argo, ports: [{name: iolcus}]}\n";
    let more = manifest.replace("iolcus", "colchis");
    let steps: &[(&[&str], &str, &str)] = &[
        (&["apply", "-f", "-"], manifest, "ship.harbour.example.com/argo created\n"),
        (&["apply", "-f", "-"], manifest, "ship.harbour.example.com/argo unchanged\n"),
        (&["apply", "-f", "-"], &more, "ship.harbour.example.com/argo configured\n"),
        (
            &["get", "ships", "-o", "jsonpath={.items[0].spec}"],
            "",
            r#"{"masts":2,"name":"Argo","ports":[{"name":"colchis"}]}"#,
        ),
        (&["get", "sh", "-o", "name"], "", "ship.harbour.example.com/argo\n"),
        (&["get", "fleet", "-o", "name"], "", "ship.harbour.example.com/argo\n"),
        (
            &["patch", "ship", "argo", "--type=merge", "-p", r#"{"spec":{"masts":3}}"#],
            "",
            "ship.harbour.example.com/argo patched\n",
        ),
        (
            &["patch", "ship", "argo", "--type=json", "-p", r#"[{"op":"replace","path":"/spec/masts","value":4}]"#],
            "",
            "ship.harbour.example.com/argo patched\n",
        ),
        (&["label", "ship", "argo", "a=b"], "", "ship.harbour.example.com/argo labeled\n"),
        (&["scale", "ship", "argo", "--replicas=5"], "", "ship.harbour.example.com/argo scaled\n"),
        (&["get", "ship", "argo", "-o", "jsonpath={.spec.masts} {.metadata.generation}"], "", "5 5"),
        (&["delete", "ship", "argo"], "", "ship.harbour.example.com \"argo\" deleted\n"),
        (&["get", "ships"], "", "No resources found in default namespace.\n"),
    ];
    for (arguments, input, expected) in steps {
        let output = kubectl.output(arguments, input).await;
        assert_eq!(format!("{}{}", output.stdout, output.stderr), *expected, "kubectl {}", arguments.join(" "));
    }
    let explained = kubectl.run(&["explain", "ships.spec"]).await;
    assert!(explained.contains("GROUP:      harbour.example.com\nKIND:       Ship\nVERSION:    v1"), "{explained}");
    assert!(explained.contains("masts\t<integer>"), "{explained}");
    let listed = kubectl.run(&["api-resources", "--api-group=harbour.example.com", "--no-headers"]).await;
    let words: Vec<&str> = listed.split_whitespace().collect();
    assert_eq!(words, ["ships", "sh", "harbour.example.com/v1", "true", "Ship"]);
    server.stop().await;
}

#[tokio::test]
async fn tables_have_the_columns_of_the_definition() {
    let server = serving(&definition()).await;
    assert_eq!(server.post(&fleet("v1"), &ship("argo", json!({"name": "Argo"}))).await.status, 201);
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = server.send(Method::GET, &fleet("v1"), &accept, "").await.json();
    let columns: Vec<(&str, i64)> = table["columnDefinitions"]
        .as_array()
        .expect("columns")
        .iter()
        .map(|column| (column["name"].as_str().expect("a name"), column["priority"].as_i64().expect("a priority")))
        .collect();
    assert_eq!(columns, [("Name", 0), ("Masts", 0), ("Named", 1), ("Age", 0)]);
    let cells = table["rows"][0]["cells"].as_array().expect("cells");
    assert_eq!(cells[..3], [json!("argo"), json!(2), json!("Argo")]);
    assert!(cells[3].as_str().is_some_and(|age| age.ends_with('s')), "{cells:?}");
    let list = server.get(&fleet("v1")).await.json();
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ShipList"), &json!("harbour.example.com/v1")));
    assert_eq!(list["items"][0]["kind"], "Ship", "every item says what it is");
    assert_eq!(list["metadata"]["continue"], "", "as upstream's lists of custom resources have it");
    let protobuf = [("accept", "application/vnd.kubernetes.protobuf")];
    for path in [fleet("v1"), format!("{}?watch=true", fleet("v1")), format!("{}/argo", fleet("v1"))] {
        let refused = server.send(Method::GET, &path, &protobuf, "").await;
        assert_eq!(refused.status, 406, "it has no messages: {path}");
    }
    // As clients ask who prefer protobuf; what cannot be answered is not written either.
    let body = ship("second", json!({"name": "Second"})).to_string();
    let sent = [("accept", "application/vnd.kubernetes.protobuf"), ("content-type", "application/json")];
    assert_eq!(server.send(Method::POST, &fleet("v1"), &sent, body.as_str()).await.status, 406);
    let either =
        [("accept", "application/vnd.kubernetes.protobuf,application/json"), ("content-type", "application/json")];
    let made = server.send(Method::POST, &fleet("v1"), &either, body.as_str()).await;
    assert_eq!((made.status, made.json()["kind"].as_str()), (201, Some("Ship")), "{}", made.text());
    assert_eq!(server.send(Method::GET, &fleet("v1"), &either[..1], "").await.json()["kind"], "ShipList");
    server.stop().await;
}

#[tokio::test]
async fn what_the_schema_says_is_refused_in_upstreams_words() {
    let server = serving(&definition()).await;
    let told = |spec: Value| {
        let server = &server;
        async move {
            let answer = server.post(&fleet("v1"), &ship("argo", spec)).await;
            (answer.status, answer.message())
        }
    };
    assert_eq!(
        told(json!({"masts": 0})).await,
        (422, "Ship.harbour.example.com \"argo\" is invalid: spec.masts: Invalid value: 0: spec.masts in body should be greater than or equal to 1".to_owned())
    );
    assert_eq!(
        told(json!({"masts": "two"})).await.1,
        "Ship.harbour.example.com \"argo\" is invalid: [spec.masts: Invalid value: \"string\": spec.masts in body must be of type integer: \"string\", .spec.masts: Invalid value: 0: .spec.masts accessor error: two is of the type string, expected int64]"
    );
    assert_eq!(
        told(json!({"name": "much too long"})).await.1,
        "Ship.harbour.example.com \"argo\" is invalid: spec.name: Too long: may not be more than 10 bytes"
    );
    assert_eq!(
        told(json!({"crew": ["a", "b", "a"]})).await.1,
        "Ship.harbour.example.com \"argo\" is invalid: spec.crew[2]: Duplicate value: \"a\""
    );
    assert_eq!(
        told(json!({"ports": [{"days": 1}]})).await.1,
        "Ship.harbour.example.com \"argo\" is invalid: spec.ports[0].name: Required value"
    );
    server.stop().await;
}

#[tokio::test]
async fn unknown_fields_are_dropped_warned_of_or_refused() {
    let server = serving(&definition()).await;
    let object = json!({"apiVersion": "harbour.example.com/v1", "kind": "Ship", "metadata": {"name": "argo", "odd": 1},
        "spec": {"name": "Argo", "wings": 2}});
    let ask = |mode: &str| {
        let (server, path) = (&server, format!("{}?fieldValidation={mode}&dryRun=All", fleet("v1")));
        let object = object.clone();
        async move { server.post(&path, &object).await }
    };
    let ignored = ask("Ignore").await;
    assert_eq!((ignored.status, ignored.warnings()), (201, vec![]));
    assert_eq!(ignored.json()["spec"], json!({"name": "Argo", "masts": 2}));
    let warned = ask("Warn").await;
    assert_eq!(warned.status, 201);
    assert_eq!(warned.warnings(), ["unknown field \"metadata.odd\"", "unknown field \"spec.wings\""]);
    let refused = ask("Strict").await;
    assert_eq!(refused.status, 400);
    assert_eq!(
        refused.message(),
        "Ship in version \"v1\" cannot be handled as a Ship: strict decoding error: unknown field \"metadata.odd\", unknown field \"spec.wings\""
    );
    let twice = r#"{"apiVersion":"harbour.example.com/v1","kind":"Ship","metadata":{"name":"a"},"spec":{"name":"a","name":"b"}}"#;
    let refused = server.send(Method::POST, &format!("{}?fieldValidation=Strict", fleet("v1")), &[], twice).await;
    assert_eq!(
        refused.message(),
        "Ship in version \"v1\" cannot be handled as a Ship: strict decoding error: duplicate field \"spec.name\""
    );
    server.stop().await;
}

#[tokio::test]
async fn status_and_scale_are_written_apart() {
    let server = serving(&definition()).await;
    let mut made = ship("argo", json!({"name": "Argo"}));
    made["status"] = json!({"masts": 9});
    let made = server.post(&fleet("v1"), &made).await.json();
    assert_eq!(made["status"], Value::Null, "a create cannot set the status");
    let path = format!("{}/argo", fleet("v1"));
    let merge = "application/merge-patch+json";
    let patch = r#"{"metadata":{"labels":{"x":"y"}},"spec":{"name":"no"},"status":{"masts":1,"selector":"a=b"}}"#;
    let written = server.patch(&format!("{path}/status"), merge, patch).await.json();
    assert_eq!(written["status"], json!({"masts": 1, "selector": "a=b"}));
    assert_eq!((&written["spec"]["name"], &written["metadata"]["labels"]), (&json!("Argo"), &Value::Null));
    assert_eq!(written["metadata"]["generation"], 1);
    let unchanged = server.patch(&path, merge, r#"{"status":{"masts":7}}"#).await.json();
    assert_eq!(unchanged["status"]["masts"], 1);

    let scale = server.get(&format!("{path}/scale")).await.json();
    assert_eq!((&scale["kind"], &scale["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    assert_eq!(
        (&scale["spec"], &scale["status"]),
        (&json!({"replicas": 2}), &json!({"replicas": 1, "selector": "a=b"}))
    );
    let scaled = server.patch(&format!("{path}/scale"), merge, r#"{"spec":{"replicas":4}}"#).await;
    assert_eq!(scaled.status, 200, "{}", scaled.text());
    let after = server.get(&path).await.json();
    assert_eq!((&after["spec"]["masts"], &after["metadata"]["generation"]), (&json!(4), &json!(2)));
    server.stop().await;
}

#[tokio::test]
async fn apply_merges_by_the_lists_and_maps_of_the_schema() {
    let server = serving(&definition()).await;
    let apply = |manager: &'static str, ports: Value, crew: Value| {
        let server = &server;
        async move {
            let path = format!("{}/argo?fieldManager={manager}", fleet("v1"));
            let patch = ship("argo", json!({"ports": ports, "crew": crew}));
            server.patch(&path, "application/apply-patch+yaml", &patch.to_string()).await
        }
    };
    assert_eq!(apply("one", json!([{"name": "a", "days": 1}]), json!(["x"])).await.status, 201);
    let both = apply("two", json!([{"name": "b", "days": 2}]), json!(["y"])).await;
    assert_eq!(both.status, 200, "{}", both.text());
    let spec = &both.json()["spec"];
    assert_eq!(spec["ports"], json!([{"name": "a", "days": 1}, {"name": "b", "days": 2}]));
    assert_eq!(spec["crew"], json!(["x", "y"]));
    let conflict = apply("two", json!([{"name": "a", "days": 3}]), json!([])).await;
    assert_eq!(conflict.status, 409);
    assert_eq!(conflict.message(), "Apply failed with 1 conflict: conflict with \"one\": .spec.ports[name=\"a\"].days");
    let less = apply("one", json!([]), json!([])).await.json();
    assert_eq!((&less["spec"]["ports"], &less["spec"]["crew"]), (&json!([{"name": "b", "days": 2}]), &json!(["y"])));
    server.stop().await;
}

#[tokio::test]
async fn changes_are_watched() {
    let server = serving(&definition()).await;
    let gvr = client::Gvr::new("harbour.example.com", "v1", "ships");
    let dynamic = server.admin().dynamic(&gvr);
    let mut events = dynamic.watch("default", &client::WatchParams::default()).await.expect("a watch");
    assert_eq!(server.post(&fleet("v1"), &ship("argo", json!({"name": "Argo"}))).await.status, 201);
    let path = format!("{}/argo", fleet("v1"));
    server.patch(&path, "application/merge-patch+json", r#"{"spec":{"masts":3}}"#).await;
    server.send(Method::DELETE, &path, &[], "").await;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let event = testkit::eventually("an event", events.next()).await.expect("an open watch").expect("an event");
        seen.push(match event {
            client::Event::Added(object) => ("added", object["spec"]["masts"].clone()),
            client::Event::Modified(object) => ("modified", object["spec"]["masts"].clone()),
            client::Event::Deleted(object) => ("deleted", object["spec"]["masts"].clone()),
            _ => continue,
        });
    }
    assert_eq!(seen, [("added", json!(2)), ("modified", json!(3)), ("deleted", json!(3))]);
    server.stop().await;
}

#[tokio::test]
async fn a_null_that_is_no_value_is_dropped_where_it_is_read_and_refused_where_it_is_applied() {
    let server = serving(&definition()).await;
    let made = server.post(&fleet("v1"), &ship("argo", json!({"name": null, "masts": 1}))).await.json();
    assert_eq!(made["spec"], json!({"masts": 1}), "{made}");
    let apply = "application/apply-patch+yaml";
    let path = format!("{}/argo?fieldManager=m", fleet("v1"));
    let refused = server.patch(&path, apply, &ship("argo", json!({"name": null})).to_string()).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.message().contains(r#"spec.name in body must be of type string: "null""#), "{}", refused.text());
    server.stop().await;
}

#[tokio::test]
async fn metadata_of_updates_is_judged_as_often_as_upstream_judges_it() {
    let server = serving(&definition()).await;
    server.post(&fleet("v1"), &ship("argo", json!({"name": "Argo"}))).await;
    let path = format!("{}/argo", fleet("v1"));
    let merge = "application/merge-patch+json";
    let labels = server.patch(&path, merge, r#"{"metadata":{"labels":{"a":"b c"}}}"#).await.json();
    let uid = server.patch(&path, merge, r#"{"metadata":{"uid":"other"}}"#).await.json();
    let causes = |answer: &Value| answer["details"]["causes"].as_array().map(Vec::len);
    assert_eq!((causes(&labels), causes(&uid)), (Some(3), Some(2)), "{labels}{uid}");
    let linked = server.patch(&path, merge, r#"{"metadata":{"selfLink":"/x","labels":{"a":"b"}}}"#).await.json();
    assert_eq!((&linked["metadata"]["labels"]["a"], linked["metadata"].get("selfLink")), (&json!("b"), None));
    server.stop().await;
}

#[tokio::test]
async fn apply_goes_by_types_and_keeps_what_the_schema_knows() {
    let schema = spec(json!({
        "free": {"type": "object"},
        "when": {"type": "string", "format": "date-time"},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                 "properties": {"inner": {"type": "object", "properties": {"a": {"type": "string"}}}}},
    }));
    let server = serving(&ships(json!([version("v1", true, schema)]))).await;
    let apply = |spec: Value| {
        let server = &server;
        async move {
            let path = format!("{}/argo?fieldManager=one", fleet("v1"));
            server.patch(&path, "application/apply-patch+yaml", &ship("argo", spec).to_string()).await
        }
    };
    let refused = apply(json!({"free": 3})).await;
    assert!(refused.message().ends_with(".spec.free: expected map, got &{3}"), "{}", refused.message());
    let refused = apply(json!({"when": true})).await;
    assert!(refused.message().contains("must be of type date-time"), "{}", refused.message());
    // Where anything may be kept, below it anything may be named; what of it is known is another question.
    let made = apply(json!({"free": {"x": 1}, "open": {"y": 2, "inner": {"a": "b", "z": 3}}})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(made.json()["spec"], json!({"free": {}, "open": {"y": 2, "inner": {"a": "b"}}}));
    server.stop().await;
}

#[tokio::test]
async fn a_scale_is_judged_by_the_rules_of_its_object() {
    let server = serving(&definition()).await;
    assert_eq!(server.post(&fleet("v1"), &ship("argo", json!({"name": "Argo"}))).await.status, 201);
    let path = format!("{}/argo/scale", fleet("v1"));
    let refused = server.patch(&path, "application/merge-patch+json", r#"{"spec":{"replicas":-1}}"#).await;
    let own = ".spec.masts: Invalid value: -1: should be a non-negative integer]";
    assert_eq!(refused.status, 422);
    assert!(refused.message().starts_with("Ship.harbour.example.com \"argo\" is invalid: ["), "{}", refused.message());
    assert!(refused.message().ends_with(own), "{}", refused.message());
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_of_its_type_changes_no_owners_even_where_the_write_cannot_set_it() {
    let server = serving(&definition()).await;
    let made = server.post(&fleet("v1"), &ship("argo", json!({"name": "Argo"}))).await.json();
    let owners = |object: &Value| object["metadata"]["managedFields"].clone();
    assert_eq!(owners(&made).as_array().map(Vec::len), Some(1), "{made}");
    let mut sent = made.clone();
    sent["spec"]["masts"] = json!(3);
    sent["status"] = json!("sunk");
    let changed = server.put(&format!("{}/argo?fieldManager=other", fleet("v1")), &sent).await;
    assert_eq!(changed.status, 200, "{}", changed.text());
    let mut changed = changed.json();
    assert_eq!((&changed["spec"]["masts"], &changed["status"]), (&json!(3), &Value::Null));
    assert_eq!(owners(&changed), owners(&made));
    changed["spec"]["masts"] = json!("three");
    changed["status"] = json!({"afloat": true});
    let told = server.put(&format!("{}/argo/status?fieldManager=other", fleet("v1")), &changed).await.json();
    assert_eq!((&told["spec"]["masts"], &told["status"]), (&json!(3), &json!({"afloat": true})));
    assert_eq!(owners(&told), owners(&made));
    server.stop().await;
}

#[tokio::test]
async fn a_float_is_one_until_it_is_written() {
    let server = serving(&definition()).await;
    let refused = server.post(&fleet("v1"), &ship("argo", json!({"name": 1.0}))).await;
    assert!(refused.message().contains(r#"must be of type string: "number""#), "{}", refused.message());
    let ports = json!([{"name": "Iolcos", "days": 3.0}]);
    let made = server.post(&fleet("v1"), &ship("argo", json!({"ports": ports}))).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let read = server.get(&format!("{}/argo", fleet("v1"))).await;
    for answer in [made.json(), read.json()] {
        assert!(answer["spec"]["ports"][0]["days"].is_i64(), "{answer}");
    }
    // What is asked of a scale is read from the object as it was sent.
    let refused = server.post(&fleet("v1"), &ship("pinta", json!({"masts": 3.0}))).await;
    let why = ".spec.masts accessor error: 3 is of the type float64, expected int64";
    assert!(refused.message().ends_with(why), "{}", refused.message());
    server.stop().await;
}
