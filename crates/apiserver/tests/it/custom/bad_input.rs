//! Definitions and objects that were made to hurt: each is answered with upstream's words, soon, and nobody else notices.

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use super::{DEFINITIONS, define, fleet, serving, ship, ships, spec, version};
use crate::aggregation::{misbehaving, with_service};
use crate::server::Server;

/// Long enough for a loaded machine, and far shorter than anything that explodes.
const SOON: Duration = Duration::from_secs(20);

/// What a server says about a definition with this schema, and that it says so soon.
async fn refused(server: &Server, schema: Value) -> (u16, String) {
    let begun = Instant::now();
    let answer = server.post(DEFINITIONS, &ships(json!([version("v1", true, schema)]))).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(server.get("/api/v1/namespaces/default").await.status, 200, "others are answered");
    (answer.status, answer.message())
}

#[tokio::test]
async fn schemas_that_refer_to_themselves_or_have_no_end_are_refused() {
    let server = Server::default().await;
    let cycle = json!({"type": "object", "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},
        "properties": {"spec": {"$ref": "#/definitions/a"}}});
    let (status, message) = refused(&server, cycle).await;
    assert_eq!(status, 422);
    for said in [
        "properties[spec].$ref: Forbidden: $ref is not supported",
        "definitions: Forbidden: definitions is not supported",
    ] {
        assert!(message.contains(said), "{said} is not in {message}");
    }
    // As text: a tree of this depth would be too much for the test itself.
    let nested = |depth: usize| {
        let schema = format!(
            "{}{{\"type\":\"object\"}}{}",
            r#"{"type":"object","properties":{"d":"#.repeat(depth),
            "}}".repeat(depth)
        );
        ships(json!([version("v1", true, json!("HERE"))])).to_string().replace("\"HERE\"", &schema)
    };
    let json_body = [("content-type", "application/json")];
    for depth in [60, 2000, 30_000] {
        let begun = Instant::now();
        let answer = server.send(Method::POST, DEFINITIONS, &json_body, nested(depth)).await;
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert!(
            matches!(answer.status, 400 | 413 | 422) || (depth == 60 && answer.status == 201),
            "{depth}: {}",
            answer.text()
        );
        assert_eq!(server.get("/api/v1/namespaces/default").await.status, 200, "others are answered");
    }
    server.send(Method::DELETE, &format!("{DEFINITIONS}/ships.harbour.example.com"), &[], "").await;
    let mut wide = json!({"type": "object"});
    for _ in 0..14 {
        wide = json!({"type": "object", "properties": {"a": wide, "b": wide}});
    }
    // A megabyte of schemas in schemas is read and answered, whatever else is said of it.
    let (status, message) = refused(&server, wide).await;
    assert!(matches!(status, 201 | 400..=499), "{status} {message}");
    server.stop().await;
}

#[tokio::test]
async fn patterns_that_explode_do_not() {
    let server = Server::default().await;
    let text = |pattern: &str| spec(json!({"name": {"type": "string", "pattern": pattern}}));
    let (status, message) = refused(&server, text("((a{100}){100}){100}")).await;
    assert_eq!(status, 422);
    let said = "spec.validation.openAPIV3Schema.properties[spec].properties[name].pattern: Invalid value: \"((a{100}){100}){100}\": must be a valid regular expression, but isn't: error parsing regexp: invalid repeat count: `{100}`";
    assert!(message.contains(said), "{message}");
    define(&server, &ships(json!([version("v1", true, text("^(a+)+$"))]))).await;
    let long = format!("{}!", "a".repeat(100_000));
    let begun = Instant::now();
    let answer = server.post(&fleet("v1"), &ship("s", json!({"name": long}))).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(answer.status, 422);
    assert!(answer.message().ends_with("spec.name in body should match '^(a+)+$'"), "it does not match");
    server.stop().await;
}

#[tokio::test]
async fn rules_without_end_are_refused_or_stopped() {
    let server = Server::default().await;
    let ruled = |limits: Value, rule: &str| {
        let mut list =
            json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": rule}]});
        for (name, limit) in limits.as_object().expect("limits") {
            list[name] = limit.clone();
        }
        spec(json!({"list": list}))
    };
    let (status, message) =
        refused(&server, ruled(json!({}), "self.all(a, self.all(b, self.all(c, a + b + c > 0)))")).await;
    assert_eq!(status, 422);
    let said = "x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)";
    assert!(message.contains(said), "{message}");
    // What may be asked by its estimate may still be more than one object is allowed to cost.
    define(
        &server,
        &ships(json!([version("v1", true, ruled(json!({"maxItems": 600}), "self.all(a, self.all(b, a + b >= 0))"))])),
    )
    .await;
    let begun = Instant::now();
    let answer = server.post(&fleet("v1"), &ship("s", json!({"list": vec![1; 600]}))).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert_eq!(answer.status, 422);
    let said = "no further validation rules will be run due to call cost exceeds limit for rule: self.all(a, self.all(b, a + b >= 0))";
    assert!(answer.message().contains(said), "{}", answer.message());
    server.stop().await;
}

#[tokio::test]
async fn ten_thousand_properties_are_served() {
    let properties: Map<String, Value> =
        (0..10_000).map(|number| (format!("field{number}"), json!({"type": "integer", "default": 1}))).collect();
    let begun = Instant::now();
    let server = serving(&ships(json!([version("v1", true, spec(Value::Object(properties)))]))).await;
    let made = server.post(&fleet("v1"), &ship("s", json!({"field7": 2}))).await;
    assert_eq!((made.status, &made.json()["spec"]["field9999"]), (201, &json!(1)));
    assert_eq!(server.get("/openapi/v3/apis/harbour.example.com/v1").await.status, 200);
    assert!(begun.elapsed() < 3 * SOON, "{:?}", begun.elapsed());
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_that_says_nothing_is_not_waited_for_longer_than_the_client_waits() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    // Accepted and never answered.
    let held = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            held.push(stream);
        }
    });
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut definition = ships(json!([version("v1", true, any.clone()), version("v2", false, any)]));
    definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "conversionReviewVersions": ["v1"], "clientConfig": {"url": format!("https://127.0.0.1:{port}/convert")}}});
    let server = serving(&definition).await;
    assert_eq!(server.post(&fleet("v1"), &ship("a", json!({}))).await.status, 201);
    let begun = Instant::now();
    let answer = server.get(&format!("{}/a?timeout=1s", fleet("v2"))).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert!(matches!(answer.status, 500 | 504), "{} {}", answer.status, answer.text());
    assert_eq!(server.get(&format!("{}/a", fleet("v1"))).await.status, 200, "nobody is asked for what is stored so");
    held.abort();
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_that_redirects_or_answers_without_end_is_told_of() {
    let (port, authority) = misbehaving().await;
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut definition = ships(json!([version("v1", true, any.clone()), version("v2", false, any)]));
    let asks = |what: &str| {
        json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {
            "service": {"namespace": "default", "name": "api", "port": port, "path": format!("/apis/bad.example.com/v1/{what}")},
            "caBundle": STANDARD.encode(&authority),
        }}})
    };
    definition["spec"]["conversion"] = asks("redirect");
    let server = serving(&definition).await;
    with_service(&server).await;
    assert_eq!(server.post(&fleet("v1"), &ship("a", json!({}))).await.status, 201);
    for (what, why) in [
        ("redirect", "the server responded with the status code 302 but did not return more information"),
        ("endless", "unexpected error when reading response body. Please retry. Original error: length limit exceeded"),
    ] {
        let patch = json!({"spec": {"conversion": asks(what)}}).to_string();
        let path = format!("{DEFINITIONS}/ships.harbour.example.com");
        assert_eq!(server.patch(&path, "application/merge-patch+json", &patch).await.status, 200);
        let begun = Instant::now();
        let answer = server.get(&format!("{}/a", fleet("v2"))).await;
        assert!(begun.elapsed() < SOON, "{what}: {:?}", begun.elapsed());
        let said = format!("conversion webhook for harbour.example.com/v1, Kind=Ship failed: {why}");
        assert!(answer.status == 500 && answer.message().ends_with(&said), "{what}: {}", answer.text());
        // The rest of the API does not notice.
        assert_eq!(server.get(&format!("{}/a", fleet("v1"))).await.status, 200);
        assert_eq!(server.get("/api/v1/namespaces/default").await.status, 200);
    }
    server.stop().await;
}
