//! Requests as kubectl sends them, and answers as it reads them: warnings are kept, refusals are failures.

use std::cell::{Cell, RefCell};

use bytes::{Bytes, BytesMut};
use client::Client;
use client::config::Dials;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, IF_NONE_MATCH, USER_AGENT, WARNING};
use http::{HeaderMap, Method, StatusCode};
use machinery::ApiError;
use machinery::rest::{Body, Payload};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::config::Connection;
use crate::error::{Failure, Outcome};
pub use crate::refusals::failure;
use crate::refusals::{asked, refusal};
use crate::trace::{Took, Trace};

pub const JSON: &str = "application/json";
/// How tables are asked for.
pub const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
/// The largest answer that is held in memory.
const MAX_ANSWER: usize = 1 << 30;

/// Bytes as they come.
pub type Chunks = BoxStream<'static, Result<Bytes, std::io::Error>>;

/// One server, and who we are there.
pub struct Api {
    client: Client,
    headers: HeaderMap,
    host: String,
    server: String,
    /// What the user wants every request to take at most, as the server is told.
    limit: Option<String>,
    /// Connections that were made since the last request that was logged.
    dials: Dials,
    warnings: RefCell<Vec<String>>,
    trace: Option<Trace>,
    /// Whether the client adds a token, which a log must not show but must not hide either.
    has_token: bool,
    /// The first request alone makes a connection: those beside it wait for it, or each would make one of its own.
    first: Mutex<()>,
    connected: Cell<bool>,
    /// Whether a server of another version is refused.
    must_match: bool,
    /// Whether it was found to be of ours.
    matched: OnceCell<()>,
}

impl Api {
    pub fn new(connection: &Connection, trace: Option<Trace>) -> Outcome<Self> {
        let host = connection.host();
        let mut config = connection.client.clone();
        let dials = trace.as_ref().filter(|trace| trace.tells_connections()).map(|_| Dials::default());
        config.dials.clone_from(&dials);
        let client = Client::https(config).map_err(|error| failure(&host, error))?;
        let client = client.with_user_agent(&agent());
        let server = connection.client.server.clone();
        let (headers, limit) = (connection.headers.clone(), connection.limit.clone());
        Ok(Self {
            client,
            headers,
            host,
            server,
            limit,
            dials: dials.unwrap_or_default(),
            warnings: RefCell::default(),
            trace,
            has_token: connection.has_token,
            first: Mutex::default(),
            connected: Cell::new(false),
            must_match: connection.must_match,
            matched: OnceCell::new(),
        })
    }

    /// Whether every request tells the server how long it may take.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// A path with the limit, where there is one. Queries are in the order of their names, as Go writes them.
    fn limited(&self, path: &str) -> String {
        let Some(limit) = &self.limit else { return path.to_owned() };
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let added = format!("timeout={limit}");
        let mut parts: Vec<&str> = query.split('&').filter(|part| !part.is_empty()).collect();
        parts.push(&added);
        parts.sort_by_key(|part| part.split('=').next().unwrap_or_default().to_owned());
        format!("{path}?{}", parts.join("&"))
    }

    /// What the server warned of since this was last asked.
    pub fn take_warnings(&self) -> Vec<String> {
        self.warnings.take()
    }

    /// Sends a request and gives its answer as it comes; a refusal is a failure.
    pub async fn stream(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Bytes)>,
        accept: &str,
    ) -> Outcome<(HeaderMap, Chunks)> {
        self.matched().await?;
        let (_, headers, chunks) = self.ask(method, path, body, accept, None).await?;
        Ok((headers, chunks))
    }

    /// Reads what may be known already: the answer is 304 where it still has this tag.
    pub async fn changed(
        &self,
        path: &str,
        accept: &str,
        tag: Option<&str>,
    ) -> Outcome<(StatusCode, HeaderMap, Bytes)> {
        self.matched().await?;
        let (status, headers, chunks) = self.ask(Method::GET, path, None, accept, tag).await?;
        let answer = collect(chunks).await?;
        if let Some(trace) = &self.trace {
            trace.answer(&answer);
        }
        Ok((status, headers, answer))
    }

    /// Refuses a server of another version before anything else is asked of it, where the user wants that: all requests wait for it.
    pub async fn matched(&self) -> Outcome {
        if !self.must_match {
            return Ok(());
        }
        self.matched.get_or_try_init(|| self.compare()).await.copied()
    }

    async fn compare(&self) -> Outcome {
        let path = format!("/version?timeout={}", crate::discovery::PATIENCE);
        let path = if self.is_limited() { "/version" } else { &path };
        let unread =
            |failure: Failure| Failure::Message(format!("couldn't read version from server: {}", failure.bare()));
        let (_, _, chunks) = self.ask(Method::GET, path, None, JSON, None).await.map_err(unread)?;
        crate::version::must_match(&decode(&collect(chunks).await?)?)
    }

    /// A request, with the tag of what is known of its answer.
    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Bytes)>,
        accept: &str,
        tag: Option<&str>,
    ) -> Outcome<(StatusCode, HeaderMap, Chunks)> {
        let path = &self.limited(path);
        let asked = asked(&method, path);
        let mut builder = http::Request::builder().method(method).uri(path);
        builder = builder.header(ACCEPT, accept).header(USER_AGENT, agent());
        if let Some(tag) = tag {
            builder = builder.header(IF_NONE_MATCH, tag);
        }
        for (name, value) in &self.headers {
            builder = builder.header(name, value);
        }
        let body = match body {
            None => Body::Empty,
            Some((content_type, bytes)) => {
                builder = builder.header(CONTENT_TYPE, content_type);
                Body::Bytes(bytes)
            }
        };
        let request = builder.body(body).map_err(|error| Failure::Message(error.to_string()))?;
        let response = self.exchange(request, path).await?;
        let (head, payload) = response.into_parts();
        self.keep_warnings(&head.headers);
        let chunks = chunks(payload);
        if head.status.is_success() || head.status.is_redirection() {
            return Ok((head.status, head.headers, chunks));
        }
        let answer = collect(chunks).await?;
        if let Some(trace) = &self.trace {
            trace.answer(&answer);
        }
        Err(refusal(head.status, &answer, &asked))
    }

    /// Sends a request, and logs it and its answer.
    async fn exchange(&self, request: machinery::rest::Request, path: &str) -> Outcome<machinery::rest::Response> {
        let _held = self.turn().await;
        let Some(trace) = &self.trace else {
            let answer = self.client.request(request).await;
            self.connected.set(answer.is_ok());
            return answer.map_err(|error| failure(&self.host, error));
        };
        let (method, url) = (request.method().to_string(), format!("{}{path}", self.server));
        let body = if let Body::Bytes(bytes) = request.body() { Some(bytes.clone()) } else { None };
        let mut headers = request.headers().clone();
        if self.has_token && !headers.contains_key(AUTHORIZATION) {
            headers.insert(AUTHORIZATION, http::HeaderValue::from_static("Bearer <masked>"));
        }
        trace.request(&method, &url, &headers, body.as_deref());
        let begun = std::time::Instant::now();
        let answer = self.client.request(request).await;
        self.connected.set(answer.is_ok());
        let took = Took { whole: begun.elapsed(), dial: self.dials.lock().pop() };
        match &answer {
            Ok(response) => {
                let status = response.status().to_string();
                trace.response(&method, &url, &status, response.headers(), &took);
            }
            Err(_) => trace.response(&method, &url, "", &HeaderMap::new(), &took),
        }
        answer.map_err(|error| failure(&self.host, error))
    }

    /// Who sends the first request holds this until it is answered.
    async fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        if self.connected.get() {
            return None;
        }
        let held = self.first.lock().await;
        (!self.connected.get()).then_some(held)
    }

    /// Sends a request and gives its whole answer.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Bytes)>,
        accept: &str,
    ) -> Outcome<(HeaderMap, Bytes)> {
        let (headers, chunks) = self.stream(method, path, body, accept).await?;
        let answer = collect(chunks).await?;
        if let Some(trace) = &self.trace {
            trace.answer(&answer);
        }
        Ok((headers, answer))
    }

    /// What sends requests, and the headers that say as whom, for tasks of their own.
    pub fn parts(&self) -> (Client, HeaderMap) {
        (self.client.clone(), self.headers.clone())
    }

    /// Asks for another protocol, which the request names.
    pub async fn upgrade(&self, mut request: http::request::Builder) -> Outcome<client::Upgrade> {
        self.matched().await?;
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(()).map_err(|error| Failure::Message(error.to_string()))?;
        self.client.upgrade(request).await.map_err(|error| failure(&self.host, error))
    }

    pub async fn get(&self, path: &str) -> Outcome<Value> {
        self.get_as(path, JSON).await
    }

    pub async fn get_as(&self, path: &str, accept: &str) -> Outcome<Value> {
        let (_, bytes) = self.call(Method::GET, path, None, accept).await?;
        decode(&bytes)
    }

    /// Writes an object and gives what became of it.
    pub async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Outcome<Value> {
        let bytes = Bytes::from(serde_json::to_vec(body).map_err(|error| Failure::Message(error.to_string()))?);
        let (_, bytes) = self.call(method, path, Some((content_type, bytes)), JSON).await?;
        decode(&bytes)
    }

    /// The events of a watch.
    pub async fn watch(&self, path: &str, accept: &str) -> Outcome<Watch> {
        let (_, chunks) = self.stream(Method::GET, path, None, accept).await?;
        Ok(Watch { chunks, held: BytesMut::new(), ended: false })
    }

    fn keep_warnings(&self, headers: &HeaderMap) {
        for value in headers.get_all(WARNING).iter().filter_map(|value| value.to_str().ok()) {
            if let Some(text) = warning(value) {
                self.warnings.borrow_mut().push(text);
            }
        }
    }
}

/// A watch under way: one JSON document after the other.
pub struct Watch {
    chunks: Chunks,
    held: BytesMut,
    ended: bool,
}

impl Watch {
    /// The next event; nothing when the server ended the watch.
    pub async fn next(&mut self) -> Outcome<Option<(String, Value)>> {
        loop {
            if let Some(end) = self.held.iter().position(|byte| *byte == b'\n') {
                let line = self.held.split_to(end + 1);
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return event(&line).map(Some);
            }
            if self.ended {
                let rest = self.held.split();
                return if rest.iter().all(u8::is_ascii_whitespace) { Ok(None) } else { event(&rest).map(Some) };
            }
            match self.chunks.next().await {
                Some(Ok(chunk)) => self.held.extend_from_slice(&chunk),
                Some(Err(_)) | None => self.ended = true,
            }
        }
    }
}

fn event(line: &[u8]) -> Outcome<(String, Value)> {
    let mut event: Value = decode(line)?;
    let kind = event.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let object = event.get_mut("object").map(Value::take).unwrap_or_default();
    if kind == "ERROR" {
        let code = object.get("code").and_then(Value::as_u64).and_then(|code| u16::try_from(code).ok());
        return Err(ApiError::from_value(code.unwrap_or(500), &object).into());
    }
    Ok((kind, object))
}

/// Reads an answer.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Outcome<T> {
    serde_json::from_slice(bytes).map_err(|error| {
        // Go's words, where Go would refuse it too.
        let told = machinery::codec::json::decode(bytes, machinery::codec::Limits::default()).err();
        Failure::Message(told.map_or_else(|| error.to_string(), |told| told.to_string()))
    })
}

/// The bytes of an answer, as they come.
pub fn chunks(payload: Payload) -> Chunks {
    match payload {
        Payload::Stream(chunks) => chunks,
        Payload::Bytes(bytes) => futures::stream::iter([Ok(bytes)]).boxed(),
        _ => futures::stream::empty().boxed(),
    }
}

/// All of an answer.
pub async fn collect(mut chunks: Chunks) -> Outcome<Bytes> {
    let mut whole = BytesMut::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| Failure::Message(error.to_string()))?;
        if whole.len() + chunk.len() > MAX_ANSWER {
            return Err(Failure::Message(format!("the server's answer is larger than {MAX_ANSWER} bytes")));
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

/// As whom kubectl introduces itself.
fn agent() -> String {
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("kubectl/{} ({}/{machine}) kubernetes/trireme", rules::names::VERSION, std::env::consts::OS)
}

/// The text of a `Warning` header: `299 - "text"`.
fn warning(header: &str) -> Option<String> {
    let quoted = header.strip_prefix("299 ")?.split_once('"')?.1;
    let mut text = String::new();
    let mut letters = quoted.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => text.extend(letters.next()),
            '"' => return Some(text),
            other => text.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_read_from_their_header() {
        assert_eq!(warning(r#"299 - "a \"b\" c""#).as_deref(), Some("a \"b\" c"));
        assert_eq!(warning("199 - \"x\""), None);
        assert_eq!(warning("299 - \"x"), None);
    }
}
