//! Answers to HEAD requests.

use http::Response;
use http::header::CONTENT_LENGTH;
use http_body::Body;

/// The answer to a HEAD: everything but the body, and how long that would be. HTTP/1 leaves the body out by itself, HTTP/2 does not.
pub fn without_body<B: Body>(answer: Response<B>, empty: B) -> Response<B> {
    let (mut parts, body) = answer.into_parts();
    if let Some(length) = body.size_hint().exact() {
        parts.headers.entry(CONTENT_LENGTH).or_insert(length.into());
    }
    Response::from_parts(parts, empty)
}
