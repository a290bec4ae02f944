//! Plain requests and their answers as JSON: what tests of the wire need and a typed client hides.

use client::Client;
use futures::TryStreamExt as _;
use http::Method;
use http::header::{ACCEPT, CONTENT_TYPE};
use machinery::rest::{Body, Payload};
use serde_json::Value;

/// A request's status code and body, errors included.
pub async fn call(client: &Client, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
    call_as(client, method, path, "application/json", body).await
}

/// As [`call`], with a content type.
pub async fn call_as(client: &Client, method: Method, path: &str, media: &str, body: Option<Value>) -> (u16, Value) {
    let body = body.map_or(Body::Empty, |body| Body::Bytes(body.to_string().into()));
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, media)
        .header(ACCEPT, "application/json")
        .body(body)
        .expect("a request");
    match client.request(request).await {
        Err(client::Error::Api(error)) => (error.code, error.to_value()),
        Err(other) => panic!("{path}: {other}"),
        Ok(response) => {
            let status = response.status().as_u16();
            let bytes = match response.into_body() {
                Payload::Bytes(bytes) => bytes.to_vec(),
                Payload::Stream(stream) => {
                    let pieces: Vec<bytes::Bytes> = stream.try_collect().await.expect("a whole body");
                    pieces.concat()
                }
                Payload::Empty => Vec::new(),
                _ => panic!("{path}: bytes were expected"),
            };
            (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
        }
    }
}

pub async fn post(client: &Client, path: &str, body: Value) -> (u16, Value) {
    call(client, Method::POST, path, Some(body)).await
}

pub async fn get(client: &Client, path: &str) -> (u16, Value) {
    call(client, Method::GET, path, None).await
}

pub async fn put(client: &Client, path: &str, body: Value) -> (u16, Value) {
    call(client, Method::PUT, path, Some(body)).await
}

pub async fn merge(client: &Client, path: &str, body: Value) -> (u16, Value) {
    call_as(client, Method::PATCH, path, "application/merge-patch+json", Some(body)).await
}

pub async fn delete(client: &Client, path: &str, options: Option<Value>) -> (u16, Value) {
    call(client, Method::DELETE, path, options).await
}
