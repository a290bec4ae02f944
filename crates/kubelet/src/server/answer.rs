//! Answers: a text, a JSON document, or bytes as they come.

use bytes::Bytes;
use futures::{Stream, TryStreamExt as _};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Frame;
use serde::Serialize;

/// The body of any answer.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;
/// Any answer.
pub type Answer = Response<Body>;

/// Bytes at hand.
pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

fn typed(status: StatusCode, content_type: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// A text for people.
pub fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    typed(status, "text/plain; charset=utf-8", full(text.into()))
}

/// Figures in the Prometheus text format.
pub fn figures(text: String) -> Answer {
    typed(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", full(text))
}

/// A document.
pub fn json(document: &impl Serialize) -> Answer {
    match serde_json::to_vec(document) {
        Ok(bytes) => typed(StatusCode::OK, "application/json", full(bytes)),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// A text that comes bit by bit.
pub fn stream(pieces: impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static) -> Answer {
    let body = StreamBody::new(pieces.map_ok(Frame::data)).boxed_unsync();
    typed(StatusCode::OK, "text/plain", body)
}
