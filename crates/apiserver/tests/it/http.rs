//! Plain requests over HTTPS and their answers: what tests of the wire need and a typed client hides.

use futures::TryStreamExt as _;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method};
use machinery::rest::{Body, Payload};
use serde_json::Value;

use crate::server::Server;

pub struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The message of a `Status`.
    pub fn message(&self) -> String {
        self.json()["message"].as_str().unwrap_or_default().to_owned()
    }

    /// What the server warned about.
    pub fn warnings(&self) -> Vec<String> {
        let texts = self.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok());
        let unquoted = |text: &str| {
            let text = text.strip_prefix("299 - \"").and_then(|text| text.strip_suffix('"')).unwrap_or(text);
            text.replace("\\\"", "\"")
        };
        texts.map(unquoted).collect()
    }
}

impl Server {
    /// Sends a request as the administrator. The headers are added to those for JSON.
    pub async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: impl Into<Vec<u8>>) -> Answer {
        let client = client::Client::https(self.admin_config()).expect("a client");
        let mut request = http::Request::builder().method(method).uri(path);
        for (name, value) in [(CONTENT_TYPE.as_str(), "application/json"), (ACCEPT.as_str(), "application/json")] {
            if !headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name)) {
                request = request.header(name, value);
            }
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body: Vec<u8> = body.into();
        let body = if body.is_empty() { Body::Empty } else { Body::Bytes(body.into()) };
        let response = match client.request(request.body(body).expect("a request")).await {
            Ok(response) => response,
            Err(error) => panic!("{path}: {error}"),
        };
        let (parts, body) = response.into_parts();
        let body = match body {
            Payload::Bytes(bytes) => bytes.to_vec(),
            Payload::Stream(stream) => {
                let pieces: Vec<bytes::Bytes> = stream.try_collect().await.expect("a whole body");
                pieces.concat()
            }
            Payload::Value(value) => value.to_string().into_bytes(),
            Payload::Empty => Vec::new(),
            _ => panic!("{path}: bytes were expected"),
        };
        Answer { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, &[], "").await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, &[], body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::PUT, path, &[], body.to_string()).await
    }

    /// PATCH of some media type.
    pub async fn patch(&self, path: &str, media: &str, body: &str) -> Answer {
        self.send(Method::PATCH, path, &[("content-type", media)], body).await
    }
}
