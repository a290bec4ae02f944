//! Bad input is answered with upstream's 4xx or a closed connection: never a panic, never a 5xx, never unbounded memory.

use bytes::Bytes;
use client::Client;
use machinery::rest::{Body, Payload, Request};
use testkit::Cluster;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Sends bytes and returns the status code and the `Status` message.
async fn send(client: &Client, method: &str, path: &str, content_type: &str, body: impl Into<Bytes>) -> (u16, String) {
    let request: Request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .body(Body::Bytes(body.into()))
        .expect("a request");
    let response = client.request(request).await.expect("an answer");
    let code = response.status().as_u16();
    let Payload::Stream(mut chunks) = response.into_body() else { panic!("bytes over the wire") };
    let mut text = Vec::new();
    while let Some(chunk) = futures::StreamExt::next(&mut chunks).await {
        text.extend_from_slice(&chunk.expect("a whole answer"));
    }
    let status: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    (code, status["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn bodies_that_make_no_sense_are_refused() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let deep = |open: &str, close: &str| format!("{{\"data\":{}{}}}", open.repeat(200_000), close.repeat(200_000));
    let aliases = "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                   d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\n\
                   g: &g [*f,*f,*f,*f,*f,*f,*f,*f]\nh: &h [*g,*g,*g,*g,*g,*g,*g,*g]\ni: [*h,*h,*h,*h,*h,*h,*h,*h]\n";
    let json = "application/json";
    let yaml = "application/yaml";
    let cases: Vec<(&str, &str, Vec<u8>, &[u16])> = vec![
        ("nothing", json, Vec::new(), &[400]),
        ("truncated JSON", json, b"{\"apiVersion\":\"v1\",\"kind\":\"Conf".to_vec(), &[400]),
        ("malformed JSON", json, b"{\"apiVersion\":}".to_vec(), &[400]),
        ("two documents", json, b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\"} {}".to_vec(), &[400]),
        ("a list", json, b"[]".to_vec(), &[400]),
        ("a string", json, b"\"x\"".to_vec(), &[400]),
        (
            "no UTF-8",
            json,
            b"{\"kind\":\"ConfigMap\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"\xff\"}}".to_vec(),
            &[400, 422],
        ),
        ("nested arrays", json, deep("[", "]").into_bytes(), &[400]),
        ("nested objects", json, deep("{\"a\":", "1}").into_bytes(), &[400]),
        ("malformed YAML", yaml, b"kind: [ConfigMap".to_vec(), &[400]),
        ("alias bomb", yaml, aliases.as_bytes().to_vec(), &[400]),
        ("nested YAML", yaml, "- ".repeat(100_000).into_bytes(), &[400]),
        (
            "a wrong type",
            json,
            br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"k":3}}"#.to_vec(),
            &[400],
        ),
        ("a wrong metadata type", json, br#"{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}"#.to_vec(), &[400]),
        ("another kind", json, br#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}"#.to_vec(), &[400]),
        ("an unknown media type", "text/csv", b"a,b".to_vec(), &[415]),
        ("broken protobuf", "application/vnd.kubernetes.protobuf", b"k8s\x00\xff\xff\xff\xff".to_vec(), &[400]),
        ("no protobuf", "application/vnd.kubernetes.protobuf", b"hello".to_vec(), &[400]),
        ("3 MiB and a byte", json, vec![b' '; 3 * 1024 * 1024 + 1], &[413]),
    ];
    for (what, content_type, body, codes) in cases {
        let (code, message) = send(&client, "POST", MAPS, content_type, body).await;
        assert!(codes.contains(&code), "{what}: {code} {message}");
        assert!(!message.is_empty() && message.len() < 4096, "{what}: {message}");
    }
    assert_eq!(client.raw("/readyz").await.expect("still alive"), "ok");
    cluster.stop().await;
}

#[tokio::test]
async fn strict_field_validation_names_what_is_wrong() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let strict = format!("{MAPS}?fieldValidation=Strict");
    let duplicate = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","name":"y"},"data":{}}"#;
    let (code, message) = send(&client, "POST", &strict, "application/json", duplicate).await;
    assert_eq!(code, 400, "{message}");
    assert!(message.contains("duplicate field \"metadata.name\""), "{message}");
    let unknown = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"dat":{}}"#;
    let (code, message) = send(&client, "POST", &strict, "application/json", unknown).await;
    assert_eq!(code, 400, "{message}");
    assert!(message.contains("unknown field \"dat\""), "{message}");
    cluster.stop().await;
}

#[tokio::test]
async fn requests_that_make_no_sense_are_refused() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let cases: &[(&str, &str, u16)] = &[
        ("GET", "/api/v1/nonsense", 404),
        ("GET", "/apis/none.example.com/v1/things", 404),
        ("GET", "/api/v2/pods", 404),
        ("GET", "/api/v1/namespaces/default/pods/a/b/c/d", 404),
        ("GET", "/api/v1/namespaces/default/configmaps?labelSelector=a%20in%20(", 400),
        ("GET", "/api/v1/namespaces/default/configmaps?labelSelector=%3D%3D", 400),
        ("GET", "/api/v1/namespaces/default/configmaps?fieldSelector=spec.nothing%3Dx", 400),
        ("GET", "/api/v1/namespaces/default/configmaps?fieldSelector=%00", 400),
        ("GET", "/api/v1/namespaces/default/configmaps?resourceVersion=banana", 400),
        ("GET", "/api/v1/namespaces/default/configmaps?resourceVersion=1&resourceVersionMatch=Nonsense", 422),
        ("GET", "/api/v1/namespaces/default/configmaps?resourceVersionMatch=Exact", 422),
        ("GET", "/api/v1/namespaces/default/configmaps?continue=rubbish", 400),
        ("GET", "/api/v1/namespaces/default/configmaps?limit=banana", 400),
        ("GET", "/api/v1/namespaces/default/configmaps?watch=true&resourceVersion=banana", 400),
        ("GET", "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=x", 400),
        ("POST", "/api/v1/namespaces/default/configmaps/name", 405),
        ("PUT", "/api/v1/namespaces/default/configmaps", 405),
        ("PATCH", "/api/v1/namespaces/default/configmaps", 405),
        ("DELETE", "/version", 405),
    ];
    for (method, path, expected) in cases {
        let (code, message) = send(&client, method, path, "application/json", "").await;
        assert_eq!(code, *expected, "{method} {path}: {message}");
    }
    let limit = "/api/v1/namespaces/default/configmaps?limit=9223372036854775807";
    assert_eq!(send(&client, "GET", limit, "application/json", "").await.0, 200, "an absurd limit is no limit");
    cluster.stop().await;
}
