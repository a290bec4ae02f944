//! Versions that somebody else converts, and fields of a version that selectors may name.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt as _;
use http::Method;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use testkit::Https;

use super::{DEFINITIONS, define, established, fleet, serving, ship, ships, spec, version};
use crate::server::Server;

/// Between `hostPort` of `v1` and `host` and `port` of `v2`.
fn converted(mut object: Value, desired: &str) -> Value {
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let fields = object.as_object_mut().expect("an object");
    if desired.ends_with("/v2") {
        let both = fields.remove("hostPort").unwrap_or_default();
        let (host, port) = both.as_str().unwrap_or_default().split_once(':').unwrap_or_default();
        fields.insert("host".to_owned(), json!(host));
        fields.insert("port".to_owned(), json!(port));
    } else {
        let both = format!("{}:{}", text(&object, "host"), text(&object, "port"));
        let fields = object.as_object_mut().expect("an object");
        fields.retain(|name, _| !matches!(name.as_str(), "host" | "port"));
        fields.insert("hostPort".to_owned(), json!(both));
    }
    object["apiVersion"] = json!(desired);
    object
}

/// What is done to an answer, to make a lie of it.
type Spoil = fn(&mut Value);

/// A webhook; what it was asked, and what it does to its answers.
struct Hook {
    https: Https,
    asked: Arc<Mutex<Vec<usize>>>,
    spoil: Arc<Mutex<Option<Spoil>>>,
}

impl Hook {
    async fn start() -> Self {
        let (asked, spoil) = (Arc::<Mutex<Vec<usize>>>::default(), Arc::<Mutex<Option<Spoil>>>::default());
        let (questions, spoiling) = (asked.clone(), spoil.clone());
        let https = Https::start(|_| {
            move |request: http::Request<Bytes>| {
                let review: Value = serde_json::from_slice(request.body()).expect("a review");
                let question = &review["request"];
                let desired = question["desiredAPIVersion"].as_str().expect("a version");
                let objects = question["objects"].as_array().expect("objects").clone();
                questions.lock().expect("a lock").push(objects.len());
                let objects: Vec<Value> = objects.into_iter().map(|object| converted(object, desired)).collect();
                let mut answer = json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": {
                    "uid": question["uid"], "result": {"status": "Success"}, "convertedObjects": objects}});
                if let Some(spoil) = *spoiling.lock().expect("a lock") {
                    spoil(&mut answer);
                }
                http::Response::new(Bytes::from(answer.to_string()))
            }
        })
        .await;
        Self { https, asked, spoil }
    }

    /// A definition of two versions that it converts, stored in the first.
    fn definition(&self) -> Value {
        let fields = |names: &[&str]| {
            let properties: serde_json::Map<String, Value> =
                names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
            json!({"type": "object", "properties": properties})
        };
        let mut first = version("v1", true, fields(&["hostPort"]));
        first["selectableFields"] = json!([{"jsonPath": ".hostPort"}]);
        let mut second = version("v2", false, fields(&["host", "port"]));
        second["selectableFields"] = json!([{"jsonPath": ".host"}, {"jsonPath": ".port"}]);
        let mut definition = ships(json!([first, second]));
        definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {"url": format!("{}/convert", self.https.url()), "caBundle": STANDARD.encode(self.https.authority())},
        }});
        definition
    }
}

fn first(name: &str, host_port: &str) -> Value {
    json!({"apiVersion": "harbour.example.com/v1", "kind": "Ship", "metadata": {"name": name}, "hostPort": host_port})
}

fn second(name: &str, host: &str, port: &str) -> Value {
    json!({"apiVersion": "harbour.example.com/v2", "kind": "Ship", "metadata": {"name": name}, "host": host, "port": port})
}

#[tokio::test]
async fn a_webhook_converts_whatever_is_stored() {
    let (server, hook) = (Server::default().await, Hook::start().await);
    define(&server, &hook.definition()).await;
    assert_eq!(server.post(&fleet("v1"), &first("a", "one:80")).await.status, 201);
    let made = server.post(&fleet("v2"), &second("b", "two", "81")).await;
    assert_eq!((made.status, &made.json()["host"]), (201, &json!("two")), "{}", made.text());
    let shown = server.get(&format!("{}/a", fleet("v2"))).await.json();
    assert_eq!(
        (&shown["apiVersion"], &shown["host"], &shown["port"]),
        (&json!("harbour.example.com/v2"), &json!("one"), &json!("80"))
    );
    assert_eq!(server.get(&format!("{}/b", fleet("v1"))).await.json()["hostPort"], "two:81");

    // Another version is stored from now on, and what is stored is of both.
    let path = format!("{DEFINITIONS}/ships.harbour.example.com");
    let mut changed = server.get(&path).await.json();
    changed["spec"]["versions"][0]["storage"] = json!(false);
    changed["spec"]["versions"][1]["storage"] = json!(true);
    let stored = server.put(&path, &changed).await;
    assert_eq!(stored.json()["status"]["storedVersions"], json!(["v1", "v2"]), "{}", stored.text());
    assert_eq!(server.post(&fleet("v2"), &second("c", "three", "82")).await.status, 201);
    for (version, field, expect) in
        [("v1", "hostPort", ["one:80", "two:81", "three:82"]), ("v2", "host", ["one", "two", "three"])]
    {
        let list = server.get(&fleet(version)).await.json();
        let items = list["items"].as_array().expect("items");
        let found: Vec<&str> = items.iter().map(|item| item[field].as_str().expect("a text")).collect();
        assert_eq!(found, expect, "{version}");
    }
    assert!(hook.asked.lock().expect("a lock").contains(&2), "what is listed is converted together");
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_that_fails_or_lies_is_told_of() {
    let (server, hook) = (Server::default().await, Hook::start().await);
    define(&server, &hook.definition()).await;
    assert_eq!(server.post(&fleet("v1"), &first("a", "one:80")).await.status, 201);
    let of = "conversion webhook for harbour.example.com/v1, Kind=Ship";
    let lies: [(Spoil, String); 8] = [
        (
            |answer| answer["response"]["result"] = json!({"status": "Failure", "message": "out of order"}),
            format!("{of} failed: out of order"),
        ),
        (|answer| answer["response"]["convertedObjects"] = json!([]), format!("{of} returned 0 objects, expected 1")),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["name"] = json!("z"),
            format!("{of} returned invalid object: must have the same name: a != z"),
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["namespace"] = json!("z"),
            format!("{of} returned invalid object: must have the same namespace: default != z"),
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["kind"] = json!("Boat"),
            format!("{of} returned invalid object at index 0: invalid kind (expected Ship, received Boat)"),
        ),
        (
            |answer| {
                let objects = answer["response"]["convertedObjects"].as_array_mut().expect("objects");
                objects.push(objects[0].clone());
            },
            format!("{of} returned 2 objects, expected 1"),
        ),
        (|answer| answer["response"] = json!(null), format!("{of} failed: no response provided")),
        (
            |answer| *answer = json!({"kind": "Nonsense", "apiVersion": "v1"}),
            format!(
                "{of} failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /v1, Kind=Nonsense"
            ),
        ),
    ];
    let revision = server.get(&format!("{}/a", fleet("v1"))).await.json()["metadata"]["resourceVersion"].clone();
    let read = format!(
        "Internal error occurred: StorageError: corrupt object, Code: 7, Key: /harbour.example.com/ships/default/a, ResourceVersion: 0, AdditionalErrorMsg: object not decodable revision={}: ",
        revision.as_str().expect("a revision")
    );
    for (spoil, message) in lies {
        *hook.spoil.lock().expect("a lock") = Some(spoil);
        let answer = server.get(&format!("{}/a", fleet("v2"))).await;
        assert_eq!((answer.status, answer.message()), (500, format!("{read}{message}")));
        assert_eq!(
            server.get(&format!("{}/a", fleet("v1"))).await.status,
            200,
            "nobody is asked for what is stored so"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn selectors_name_the_fields_of_the_version() {
    let (server, hook) = (Server::default().await, Hook::start().await);
    define(&server, &hook.definition()).await;
    let gvr = client::Gvr::new("harbour.example.com", "v2", "ships");
    let watched = client::WatchParams { field_selector: "host=one".to_owned(), ..client::WatchParams::default() };
    let mut events = server.admin().dynamic(&gvr).watch("default", &watched).await.expect("a watch");
    for (name, place) in [("a", "one:80"), ("b", "two:80"), ("c", "one:81")] {
        assert_eq!(server.post(&fleet("v1"), &first(name, place)).await.status, 201);
    }
    let names = |version: &'static str, selector: &'static str| {
        let server = &server;
        async move {
            let list = server.get(&format!("{}?fieldSelector={selector}", fleet(version))).await.json();
            let items = list["items"].as_array().expect("items").clone();
            items.iter().map(|item| item["metadata"]["name"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
        }
    };
    assert_eq!(names("v2", "host=one").await, ["a", "c"]);
    assert_eq!(names("v2", "host=one,port=81").await, ["c"]);
    assert_eq!(names("v1", "hostPort=two:80").await, ["b"]);
    let refused = server.get(&format!("{}?fieldSelector=host=one", fleet("v1"))).await;
    assert_eq!((refused.status, refused.message().as_str()), (400, "field label not supported: host"));
    // What stops to match is gone for the watcher.
    let moved =
        server.patch(&format!("{}/a", fleet("v1")), "application/merge-patch+json", r#"{"hostPort":"two:80"}"#).await;
    assert_eq!(moved.status, 200, "{}", moved.text());
    let mut seen = Vec::new();
    while seen.len() < 3 {
        match testkit::eventually("an event", events.next()).await.expect("an open watch").expect("an event") {
            client::Event::Added(object) => seen.push(("added", object["metadata"]["name"].clone())),
            client::Event::Deleted(object) => seen.push(("deleted", object["metadata"]["name"].clone())),
            _ => {}
        }
    }
    assert_eq!(seen, [("added", json!("a")), ("added", json!("c")), ("deleted", json!("a"))]);
    let removed = server.send(Method::DELETE, &format!("{}?fieldSelector=host=two", fleet("v2")), &[], "").await;
    assert_eq!(removed.status, 200);
    assert_eq!(names("v2", "").await, ["c"]);
    server.stop().await;
}

#[tokio::test]
async fn a_write_is_answered_with_what_is_read_back() {
    let old = json!({"name": {"type": "string"}, "oars": {"type": "integer"}});
    let mut new = version("v2", true, spec(json!({"name": {"type": "string"}})));
    new["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({"type": "object", "default": {"phase": "New"}, "properties": {"phase": {"type": "string"}}});
    new["subresources"] = json!({"status": {}});
    let server = serving(&ships(json!([version("v1", false, spec(old)), new]))).await;
    let made = server.post(&fleet("v1"), &ship("argo", json!({"name": "Argo", "oars": 50}))).await.json();
    assert_eq!(made["spec"], json!({"name": "Argo"}), "the version that is stored has no oars");
    assert_eq!(made["spec"], server.get(&format!("{}/argo", fleet("v1"))).await.json()["spec"]);
    let mut second = ship("pinta", json!({"name": "Pinta"}));
    second["apiVersion"] = json!("harbour.example.com/v2");
    second["status"] = json!({"phase": "Old"});
    let made = server.post(&fleet("v2"), &second).await.json();
    assert_eq!(made["status"], json!({"phase": "New"}), "a status cannot be made, but has a default");
    assert_eq!(made, server.get(&format!("{}/pinta", fleet("v2"))).await.json());
    server.stop().await;
}

#[tokio::test]
async fn what_is_stored_in_another_version_has_the_defaults_of_that_one() {
    let stored = json!({"name": {"type": "string"}, "crew": {"type": "integer", "default": 5}, "home": {"type": "string", "default": "Ithaca"}});
    let shown = json!({"name": {"type": "string"}, "crew": {"type": "integer"}, "flag": {"type": "string", "default": "white"}});
    let versions = json!([version("v1", false, spec(shown)), version("v2", true, spec(stored))]);
    let server = serving(&ships(versions)).await;
    let made = server.post(&fleet("v1"), &ship("argo", json!({"name": "Argo"}))).await.json();
    // What the version of the request has by default is written, and lost where the stored version has no place for it.
    assert_eq!(made["spec"], json!({"name": "Argo", "crew": 5}));
    assert_eq!(server.get(&format!("{}/argo", fleet("v1"))).await.json()["spec"], made["spec"]);
    let other = server.get(&format!("{}/argo", fleet("v2"))).await.json();
    assert_eq!(other["spec"], json!({"name": "Argo", "crew": 5, "home": "Ithaca"}));
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_is_shown_the_defaults_of_the_version_that_it_converts() {
    let (server, hook) = (Server::default().await, Hook::start().await);
    let mut definition = hook.definition();
    define(&server, &definition).await;
    assert_eq!(
        server
            .post(
                &fleet("v1"),
                &json!({"apiVersion": "harbour.example.com/v1", "kind": "Ship", "metadata": {"name": "a"}})
            )
            .await
            .status,
        201
    );
    let path = format!("{DEFINITIONS}/ships.harbour.example.com");
    definition = server.get(&path).await.json();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["hostPort"]["default"] =
        json!("home:1");
    definition["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]["more"] =
        json!({"type": "string", "default": "no"});
    assert_eq!(server.put(&path, &definition).await.status, 200);
    let read = || async { server.get(&format!("{}/a", fleet("v2"))).await.json() };
    let changed = async {
        while read().await["host"] != "home" {
            tokio::task::yield_now().await;
        }
    };
    testkit::eventually("the default is converted", changed).await;
    let shown = read().await;
    assert_eq!((&shown["port"], &shown["more"]), (&json!("1"), &Value::Null));
    server.stop().await;
}

#[tokio::test]
async fn what_nobody_can_be_asked_to_convert_is_not_served() {
    let (server, hook) = (Server::default().await, Hook::start().await);
    let mut definition = hook.definition();
    let bundle = definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].take();
    definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = json!(STANDARD.encode("no certificate"));
    assert_eq!(server.post(DEFINITIONS, &definition).await.status, 201);
    let name = "ships.harbour.example.com";
    let path = format!("{DEFINITIONS}/{name}");
    let is_judged = |found: Option<&CustomResourceDefinition>| {
        let mut conditions = found
            .into_iter()
            .filter_map(|found| found.status.as_ref())
            .flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|condition| condition.reason.as_deref() == Some("InvalidCABundle"))
    };
    testkit::object(&server.admin(), "", name, "the definition is judged", is_judged).await;
    for version in ["v1", "v2"] {
        let refused = server.get(&fleet(version)).await;
        let why = "Internal error occurred: error resolving resource";
        assert_eq!((refused.status, refused.message().as_str()), (500, why));
        let place = format!("/apis/harbour.example.com/{version}");
        assert_eq!(server.get(&place).await.status, 404);
        assert_eq!(server.get(&format!("/openapi/v3{place}")).await.status, 404);
    }
    let mut mended = server.get(&path).await.json();
    mended["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = bundle;
    assert_eq!(server.put(&path, &mended).await.status, 200);
    established(&server, &mended).await;
    assert_eq!(server.post(&fleet("v2"), &second("a", "one", "80")).await.status, 201);
    assert_eq!(server.get("/apis/harbour.example.com/v1").await.status, 200);
    server.stop().await;
}
