//! Requests on definitions with the traits of those that projects publish, answered as upstream's own server answered them.
//!
//! `recorded/requests.jsonl` has valid objects made from the schemas in `recorded/definitions.yaml` and one mutation of each, sent as create,
//! update, patch and apply. `recorded/answers.jsonl` has what upstream v1.37 answered to each; what no two servers have in common is masked in
//! both. To record anew: `RECORD_CUSTOM_FROM=<kubeconfig of a server without these definitions> cargo test -p apiserver recorded`.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use client::{Client, Config};
use futures::TryStreamExt as _;
use http::Method;
use machinery::rest::{Body, Payload};
use regex::Regex;
use serde_json::{Value, json};

use super::{DEFINITIONS, condition};
use crate::server::Server;

static MASKS: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let masks = [
        (r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
        (r"20(2[5-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
        (r#"resourceVersion\\+":\\+"\d+"#, "REVISION"),
    ];
    masks.into_iter().map(|(pattern, mask)| (Regex::new(pattern).expect("a pattern"), mask)).collect()
});

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/custom/recorded").join(name)
}

fn lines(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(file(name)).expect("a recorded file");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

async fn ask(client: &Client, method: &str, path: &str, media: &str, body: Option<String>) -> (u16, Value) {
    let request = http::Request::builder()
        .method(Method::from_bytes(method.as_bytes()).expect("a method"))
        .uri(path)
        .header("accept", "application/json")
        .header("content-type", media)
        .header("user-agent", "recorded")
        .body(body.map_or(Body::Empty, |body| Body::Bytes(body.into())))
        .expect("a request");
    let answer = client.request(request).await.expect("an answer");
    let (parts, Payload::Stream(stream)) = answer.into_parts() else { panic!("an answer over HTTPS is a stream") };
    let chunks: Vec<bytes::Bytes> = stream.try_collect().await.expect("the whole answer");
    (parts.status.as_u16(), serde_json::from_slice(&chunks.concat()).expect("a tree"))
}

/// What is left of an answer that two servers can have in common. Errors of several fields have no order.
fn masked(code: u16, mut body: Value) -> Value {
    if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in ["uid", "resourceVersion", "creationTimestamp"] {
            metadata.entry(key).and_modify(|value| *value = "*".into());
        }
        if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            entries.iter_mut().for_each(|entry| entry["time"] = Value::Null);
            entries.sort_by_key(Value::to_string);
        }
    }
    let mut text = body.to_string();
    for (pattern, mask) in MASKS.iter() {
        text = pattern.replace_all(&text, *mask).into_owned();
    }
    let mut body: Value = serde_json::from_str(&text).expect("JSON as before");
    if body["kind"] == "Status" {
        let mut message: Vec<&str> =
            body["message"].as_str().unwrap_or_default().split([',', '[', ']', '\n']).collect();
        message.iter_mut().for_each(|part| *part = part.trim());
        message.sort_unstable();
        body["message"] = message.join(", ").into();
        if let Some(causes) = body.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
            causes.sort_by_key(Value::to_string);
        }
        // What upstream answers with 500, although the client is to blame, is a bad request here.
        if code == 500 || (code == 400 && body["reason"] == "BadRequest") {
            return json!({"code": "bad", "message": body["message"]});
        }
    }
    json!({"code": code, "body": body})
}

/// Sends everything; what was answered to each request.
async fn answers(client: &Client) -> Vec<Value> {
    let text = std::fs::read_to_string(file("definitions.yaml")).expect("the definitions");
    for definition in text.split("\n---\n") {
        let (definition, _) = machinery::codec::decode("application/yaml", definition.as_bytes()).expect("YAML");
        let (code, said) = ask(client, "POST", DEFINITIONS, "application/json", Some(definition.to_string())).await;
        assert_eq!(code, 201, "{said}");
        let path = format!("{DEFINITIONS}/{}", definition["metadata"]["name"].as_str().expect("a name"));
        let established = async {
            let is = |found: &Value| condition(found, "Established").is_some_and(|found| found["status"] == "True");
            while !is(&ask(client, "GET", &path, "application/json", None).await.1) {
                // Another server is asked, too, with which nothing but requests is shared.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        testkit::eventually("the definition is established", established).await;
    }
    let mut answers = Vec::new();
    for request in lines("requests.jsonl") {
        let (method, path) = (request["method"].as_str().expect("a method"), request["path"].as_str().expect("a path"));
        let media = request["type"].as_str().unwrap_or("application/json");
        let mut body = request.get("body").map(Value::to_string);
        if body.as_ref().is_some_and(|body| body.contains("@REVISION@")) {
            let current = ask(client, "GET", path.split('?').next().unwrap_or(path), media, None).await.1;
            let revision = current["metadata"]["resourceVersion"].as_str().unwrap_or("1").to_owned();
            body = body.map(|body| body.replace("@REVISION@", &revision));
        }
        let (code, answer) = ask(client, method, path, media, body).await;
        answers.push(masked(code, answer));
    }
    answers
}

#[tokio::test]
async fn custom_resources_are_answered_as_upstream_answers_them() {
    if let Some(kubeconfig) = std::env::var_os("RECORD_CUSTOM_FROM") {
        let config = Config::from_kubeconfig(kubeconfig).expect("a kubeconfig");
        let found = answers(&Client::https(config).expect("a client")).await;
        let text: String = found.iter().map(|answer| format!("{answer}\n")).collect();
        return std::fs::write(file("answers.jsonl"), text).expect("recorded");
    }
    let server = Server::default().await;
    let found = answers(&Client::https(server.admin_config()).expect("a client")).await;
    server.stop().await;
    let (requests, expected) = (lines("requests.jsonl"), lines("answers.jsonl"));
    assert_eq!(found.len(), expected.len());
    let differing = found.iter().zip(&expected).zip(&requests).filter(|((found, expected), _)| found != expected);
    let shown: Vec<String> = differing
        .map(|((found, expected), request)| format!("{request}\n--- upstream\n{expected}\n--- here\n{found}\n"))
        .collect();
    assert!(shown.is_empty(), "{} of {} answers differ:\n{}", shown.len(), found.len(), shown.join("\n"));
}
