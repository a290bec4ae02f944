//! A request that another server answers: what is sent there, and what of the answer comes back.
//!
//! The other server believes the headers that name the client, because this server's certificate comes with them. So the client's own
//! headers of these names never get there. Answers are passed on as they come; one that points elsewhere is refused, or
//! whoever runs the other server could make clients show their credentials to anybody.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, X_CONTENT_TYPE_OPTIONS};
use http::{Method, StatusCode, Uri};
use hyper::upgrade::OnUpgrade;
use machinery::rest::{Body, Payload, Response, User};

pub use crate::backend::read;
use crate::backend::{Backend, Target, Transport};

/// How long a server may take to say which resources it has: clients ask all of them, and wait for the slowest.
const DISCOVERY: Duration = Duration::from_secs(5);
/// How long an answer may take in all that is not meant to stay open.
const WHOLE_ANSWER: Duration = Duration::from_secs(60);

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A request to pass on.
pub struct Forward<'a> {
    pub method: Method,
    /// Its path and query, as the client wrote them.
    pub uri: &'a Uri,
    pub headers: &'a HeaderMap,
    /// Whom it is from.
    pub user: &'a User,
    /// Where it came from, if that was not this process.
    pub peer: Option<SocketAddr>,
    /// What audit logs call it.
    pub audit_id: Option<&'a HeaderValue>,
    pub body: Body,
    /// The client's connection, if it wants to use it for something else.
    pub upgrade: Option<OnUpgrade>,
    /// Whether its answer may go on for as long as the client likes.
    pub long_running: bool,
    /// What the transport is told besides.
    pub extensions: http::Extensions,
}

impl Backend {
    /// Passes a request on, and its answer back.
    pub async fn forward(&self, request: Forward<'_>) -> Response {
        if !self.is_available() {
            return text(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n");
        }
        if let Err(why) = self.trust() {
            return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n"));
        }
        let target = match self.target() {
            Ok(target) => target,
            Err(why) => {
                tracing::warn!(api_service = self.service.name, why, "an aggregated API cannot be resolved");
                return text(StatusCode::SERVICE_UNAVAILABLE, "service unavailable\n");
            }
        };
        let unreachable =
            |why: &str| text(StatusCode::SERVICE_UNAVAILABLE, format!("error trying to reach service: {why}\n"));
        let patience = is_discovery(request.uri.path()).then_some(DISCOVERY);
        match pass(&*self.transport, &target, request, patience).await {
            Ok(answer) => answer,
            Err(why) => unreachable(&why),
        }
    }
}

/// A question that is not a client's: a GET without a body.
pub fn question<'a>(uri: &'a Uri, headers: &'a HeaderMap, user: &'a User) -> Forward<'a> {
    Forward {
        method: Method::GET,
        uri,
        headers,
        user,
        peer: None,
        audit_id: None,
        body: Body::Empty,
        upgrade: None,
        long_running: false,
        extensions: http::Extensions::new(),
    }
}

/// Passes a request on to a server that believes in whose name it comes, and its answer back; or why it could not be reached. It may have to begin to answer in time.
pub async fn pass(
    transport: &dyn Transport,
    target: &Target,
    request: Forward<'_>,
    patience: Option<Duration>,
) -> Result<Response, String> {
    let mut outgoing = http::Request::new(request.body);
    *outgoing.method_mut() = request.method;
    let path = request.uri.path_and_query().map_or("/", |path| path.as_str());
    *outgoing.uri_mut() = match path.parse() {
        Ok(uri) => uri,
        Err(_) => return Ok(text(StatusCode::BAD_REQUEST, "the path cannot be passed on\n")),
    };
    *outgoing.extensions_mut() = request.extensions;
    let headers = outgoing.headers_mut();
    headers.extend(request.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
    identify(headers, request.user);
    forwarded(headers, request.peer);
    if let Some(id) = request.audit_id {
        headers.insert(HeaderName::from_static("audit-id"), id.clone());
    }
    let exchange = transport.exchange(target, outgoing, request.upgrade);
    let answer = match patience {
        None => exchange.await?,
        Some(patience) => match tokio::time::timeout(patience, exchange).await {
            Ok(answer) => answer?,
            Err(_) => return Err("context deadline exceeded".to_owned()),
        },
    };
    if answer.status().is_redirection() && answer.headers().contains_key(LOCATION) {
        return Ok(refused_redirect());
    }
    let open = request.long_running || answer.status() == StatusCode::SWITCHING_PROTOCOLS;
    Ok(if open { answer } else { ended(answer) })
}

/// Whether a path is that of a group version itself.
fn is_discovery(path: &str) -> bool {
    path.trim_matches('/').split('/').count() == 3
}

/// Names the client to the other server, and lets it name itself no other way.
pub(crate) fn identify(headers: &mut HeaderMap, user: &User) {
    let own = headers.keys().filter(|name| {
        let name = name.as_str();
        name == USER || name == UID || name == GROUP || name.starts_with(EXTRA) || name.starts_with("impersonate-")
    });
    let own: Vec<HeaderName> = own.cloned().collect();
    for name in own {
        headers.remove(name);
    }
    headers.remove(http::header::AUTHORIZATION);
    let mut add = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            headers.append(name, value);
        }
    };
    add(USER, &user.name);
    if !user.uid.is_empty() {
        add(UID, &user.uid);
    }
    for group in &user.groups {
        add(GROUP, group);
    }
    for (key, values) in &user.extra {
        let Ok(name) = HeaderName::try_from(format!("{EXTRA}{}", escaped(key))) else { continue };
        for value in values {
            add(name.clone(), value);
        }
    }
}

/// A key of extra information as part of a header's name: what has no place there, and the mark itself, in hexadecimal digits.
fn escaped(key: &str) -> String {
    let mut name = String::new();
    for byte in key.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => name.push(char::from(byte)),
            b'!' | b'#' | b'$' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~' => {
                name.push(char::from(byte));
            }
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

fn forwarded(headers: &mut HeaderMap, peer: Option<SocketAddr>) {
    let Some(peer) = peer else { return };
    let mut through: Vec<String> =
        headers.get_all(FORWARDED_FOR).iter().filter_map(|by| by.to_str().ok()).map(str::to_owned).collect();
    through.push(peer.ip().to_string());
    if let Ok(value) = HeaderValue::try_from(through.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

fn refused_redirect() -> Response {
    let mut answer =
        text(StatusCode::BAD_GATEWAY, "the backend attempted to redirect this request, which is not permitted");
    answer.headers_mut().remove(X_CONTENT_TYPE_OPTIONS);
    answer
}

/// An answer that ends in time: a server that never stops sending must not hold a client's request for ever.
fn ended(answer: Response) -> Response {
    let (parts, payload) = answer.into_parts();
    let payload = match payload {
        Payload::Stream(pieces) => {
            let end = tokio::time::sleep(WHOLE_ANSWER);
            let late = futures::stream::once(async move {
                end.await;
                Err(std::io::Error::from(std::io::ErrorKind::TimedOut))
            });
            // Whichever has something first: the end of the pieces ends the answer, and so does the deadline.
            let pieces = pieces.map(Some).chain(futures::stream::iter([None]));
            let both = futures::stream::select(pieces, late.map(Some));
            Payload::Stream(ends_with_error(both.take_while(|piece| std::future::ready(piece.is_some())).boxed()))
        }
        payload => payload,
    };
    Response::from_parts(parts, payload)
}

type Piece = Result<Bytes, std::io::Error>;

fn ends_with_error(
    pieces: futures::stream::BoxStream<'static, Option<Piece>>,
) -> futures::stream::BoxStream<'static, Piece> {
    let unfolded = futures::stream::unfold(Some(pieces), |pieces| async move {
        let mut pieces = pieces?;
        let piece = pieces.next().await.flatten()?;
        let rest = piece.is_ok().then_some(pieces);
        Some((piece, rest))
    });
    unfolded.boxed()
}

/// Plain text, as Go's servers say what went wrong.
fn text(status: StatusCode, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Payload::Bytes(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_cannot_name_themselves() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-uid", "0"),
            ("x-remote-extra-scopes", "all"),
            ("authorization", "Bearer secret"),
            ("impersonate-user", "root"),
            ("accept", "application/json"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let mut user = User::new("jane", ["dev"]);
        user.extra.insert("example.com/tenant%".to_owned(), vec!["a".to_owned(), "b".to_owned()]);
        identify(&mut headers, &user);
        let mut all: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().expect("text"))).collect();
        all.sort();
        assert_eq!(
            all,
            [
                "accept: application/json",
                "x-remote-extra-example.com%2ftenant%25: a",
                "x-remote-extra-example.com%2ftenant%25: b",
                "x-remote-group: dev",
                "x-remote-group: system:authenticated",
                "x-remote-user: jane",
            ]
        );
    }

    #[test]
    fn only_the_path_of_a_group_version_is_discovery() {
        assert!(is_discovery("/apis/g/v1") && is_discovery("/apis/g/v1/"));
        assert!(!is_discovery("/apis/g/v1/things") && !is_discovery("/apis/g"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_end_ends() {
        let endless = futures::stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok(Bytes::from_static(b"x")), ()))
        });
        let Payload::Stream(mut pieces) = ended(Response::new(Payload::Stream(endless.boxed()))).into_body() else {
            panic!("a stream stays one");
        };
        let mut count = 0;
        let last = loop {
            match pieces.next().await {
                Some(Ok(_)) => count += 1,
                other => break other,
            }
        };
        assert!(matches!(last, Some(Err(_))) && (50..=60).contains(&count), "{count}");
        let short = futures::stream::iter([Ok(Bytes::from_static(b"x"))]);
        let Payload::Stream(pieces) = ended(Response::new(Payload::Stream(short.boxed()))).into_body() else {
            panic!("a stream stays one");
        };
        assert_eq!(pieces.count().await, 1);
    }
}
