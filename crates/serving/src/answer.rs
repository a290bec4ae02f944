//! Answers: a text, figures, a JSON document, a refusal.

use bytes::Bytes;
use http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, WARNING, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use machinery::ApiError;
use rules::zpages::{Component, Page};
use serde::Serialize;

/// The body of any answer.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;
pub type Answer = Response<Body>;

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// A body of this type.
pub fn typed(status: StatusCode, content_type: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

/// A text for people.
pub fn text(status: StatusCode, text: impl Into<String>) -> Answer {
    typed(status, "text/plain; charset=utf-8", full(text.into()))
}

/// Figures in the form that a scraper wants.
pub fn figures(request: &HeaderMap, write: impl FnOnce(&mut String)) -> Answer {
    let mut page = page(request);
    write(&mut page);
    scraped(page)
}

/// An empty page of figures for a scraper, for those who take their time to write it.
pub fn page(request: &HeaderMap) -> String {
    figures::page(request.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default())
}

/// A page of figures that is complete.
pub fn scraped(page: String) -> Answer {
    let (content, page) = figures::finished(page);
    typed(StatusCode::OK, content, full(page))
}

pub fn json(document: &impl Serialize) -> Answer {
    match serde_json::to_vec(document) {
        Ok(bytes) => typed(StatusCode::OK, "application/json", full(bytes)),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// What a component says of itself at a path, in the form that the client wants; none where it says nothing.
pub fn about(component: &Component, path: &str, request: &HeaderMap) -> Option<Answer> {
    let accept = request.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    Some(match component.page(Page::at(path)?, accept, Timestamp::now()) {
        Ok(page) => {
            let mut answer = typed(StatusCode::OK, page.content_type, full(page.body));
            if let Some(warning) = page.warning.and_then(|warning| HeaderValue::try_from(warning).ok()) {
                answer.headers_mut().insert(WARNING, warning);
            }
            answer
        }
        Err(error) => refusal(&error),
    })
}

/// A refusal, as the API server would word it.
pub(crate) fn refusal(error: &ApiError) -> Answer {
    let status = StatusCode::from_u16(error.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    typed(status, "application/json", full(error.to_value().to_string()))
}

/// What every answer of a component says beside its content.
pub(crate) fn finished(mut answer: Answer) -> Answer {
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
