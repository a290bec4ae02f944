//! Answers that are no objects.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use machinery::rest::{Payload, Response};

/// Bytes of a content type.
pub fn bytes(status: StatusCode, content: &str, body: Bytes) -> Response {
    let mut response = Response::new(Payload::Bytes(body));
    *response.status_mut() = status;
    if let Ok(content) = HeaderValue::from_str(content) {
        response.headers_mut().insert(CONTENT_TYPE, content);
    }
    response
}

pub fn text(status: StatusCode, body: String) -> Response {
    let mut response = bytes(status, "text/plain; charset=utf-8", Bytes::from(body));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
