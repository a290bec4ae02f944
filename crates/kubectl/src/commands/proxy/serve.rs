//! The proxy itself: each request is filtered, sent on with the user's credentials, and answered as the server answers it.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use client::{Client, Upgrade};
use futures::{StreamExt as _, TryStreamExt as _};
use http::header::{ACCEPT, CONNECTION, HOST, HeaderValue, UPGRADE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use machinery::rest::{Body, Payload};
use tokio::io::{AsyncRead, AsyncWrite};

use super::files;
use super::filter::Filter;

/// The largest body of a request that is passed on.
const MOST: usize = 64 << 20;

/// What a page puts behind the query of a watch by WebSocket that is to be of tables: browsers let no header be set there.
const TABLES: &str = "&as=Table";
const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1,application/json";

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

/// What every connection needs.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    client: Client,
    headers: HeaderMap,
    prefix: String,
    files: Option<(String, PathBuf)>,
    filter: Option<Filter>,
}

impl Server {
    pub fn new(
        client: Client,
        headers: HeaderMap,
        prefix: String,
        files: Option<(String, PathBuf)>,
        filter: Option<Filter>,
    ) -> Self {
        Self(Arc::new(Inner { client, headers, prefix, files, filter }))
    }

    pub async fn serve(self, listener: tokio::net::TcpListener) {
        while let Ok((socket, _)) = listener.accept().await {
            let _ = socket.set_nodelay(true);
            self.clone().take(socket);
        }
    }

    pub async fn serve_unix(self, listener: tokio::net::UnixListener) {
        while let Ok((socket, _)) = listener.accept().await {
            self.clone().take(socket);
        }
    }

    fn take(self, socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let service = service_fn(move |request| {
            let inner = self.0.clone();
            async move { Ok::<_, std::convert::Infallible>(inner.answer(request).await) }
        });
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service);
        tokio::spawn(async move {
            // Whoever hangs up in the middle has nothing more to be told.
            let _ = connection.with_upgrades().await;
        });
    }
}

fn plain(answer: Response<Bytes>) -> Answer {
    answer.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync())
}

/// A path without empty, `.` and `..` parts, where it has any.
fn clean(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/').skip(1) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let mut clean = format!("/{}", parts.join("/"));
    if clean != "/" && path.ends_with('/') {
        clean.push('/');
    }
    (clean != path).then_some(clean)
}

impl Inner {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let path = request.uri().path().to_owned();
        // As Go's servers do, before they look who answers.
        if let Some(clean) = clean(&path) {
            let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
            return plain(files::moved(&format!("{clean}{query}")));
        }
        if let Some((prefix, directory)) = &self.files
            && prefix.len() >= self.prefix.len()
            && let Some(rest) = path.strip_prefix(prefix.as_str())
        {
            return plain(files::answer(directory, rest));
        }
        let Some(path) = self.api_path(&path) else { return plain(files::missing()) };
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if self.filter.as_ref().is_some_and(|filter| !filter.accepts(request.method().as_str(), &path, host)) {
            return plain(files::forbidden());
        }
        let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
        match self.pass(request, &format!("{path}{query}")).await {
            Ok(answer) => answer,
            Err(why) => plain(files::failed(&why)),
        }
    }

    /// The path on the server; nothing for what is not below the prefix.
    fn api_path(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(self.prefix.as_str())?;
        if self.prefix.starts_with("/api") {
            return Some(path.to_owned());
        }
        Some(format!("/{}", rest.trim_start_matches('/')))
    }

    async fn pass(&self, mut request: Request<Incoming>, path: &str) -> Result<Answer, String> {
        let mut headers = request.headers().clone();
        headers.remove(HOST);
        headers.extend(self.headers.clone());
        if headers.contains_key(UPGRADE) {
            let waiting = hyper::upgrade::on(&mut request);
            if path.ends_with(TABLES) {
                headers.insert(ACCEPT, HeaderValue::from_static(TABLE));
            }
            let path = path.strip_suffix(TABLES).unwrap_or(path);
            return self.switch(request.method().clone(), path, headers, waiting).await;
        }
        for name in ["connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding"] {
            headers.remove(name);
        }
        let method = request.method().clone();
        let body = Limited::new(request.into_body(), MOST).collect().await.map_err(|error| error.to_string())?;
        let mut sent = http::Request::new(Body::Bytes(body.to_bytes()));
        *sent.method_mut() = method;
        *sent.uri_mut() = path.parse().map_err(|_| format!("invalid path {path:?}"))?;
        *sent.headers_mut() = headers;
        let response = self.client.request(sent).await.map_err(|error| error.to_string())?;
        let (mut head, payload) = response.into_parts();
        head.headers.remove(CONNECTION);
        head.version = http::Version::HTTP_11;
        head.extensions.clear();
        let body = match payload {
            Payload::Stream(chunks) => StreamBody::new(chunks.map_ok(Frame::data).boxed()).boxed_unsync(),
            Payload::Bytes(bytes) => Full::new(bytes).map_err(|never| match never {}).boxed_unsync(),
            _ => Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync(),
        };
        Ok(Response::from_parts(head, body))
    }

    /// Another protocol: once both sides speak it, bytes go both ways as they are.
    async fn switch(
        &self,
        method: http::Method,
        path: &str,
        headers: HeaderMap,
        waiting: hyper::upgrade::OnUpgrade,
    ) -> Result<Answer, String> {
        let mut request = Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| format!("invalid path {path:?}"))?;
        *request.headers_mut() = headers;
        match self.client.upgrade(request).await.map_err(|error| error.to_string())? {
            Upgrade::Refused(response) => Ok(plain(response)),
            Upgrade::Switched(headers, mut far) => {
                tokio::spawn(async move {
                    if let Ok(near) = waiting.await {
                        let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(near), &mut *far).await;
                    }
                });
                let mut answer = plain(Response::new(Bytes::new()));
                *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                *answer.headers_mut() = headers;
                Ok(answer)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn paths_are_cleaned() {
        for (path, expected) in [
            ("/api/v1/", None),
            ("/", None),
            ("//custom/healthz", Some("/custom/healthz")),
            ("/a/../b/./c/", Some("/b/c/")),
            ("/../..", Some("/")),
        ] {
            assert_eq!(clean(path).as_deref(), expected, "{path}");
        }
    }
}
