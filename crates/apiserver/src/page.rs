//! `/ui/`: the files of the page, for whoever may `get` that path. What they show is asked of the API, by the user's own credentials.

use std::sync::LazyLock;

use bytes::Bytes;
use gates::Exchange;
use gates::answer::bytes;
use http::header::{CONTENT_ENCODING, HeaderName, HeaderValue, LOCATION, VARY};
use http::{Method, StatusCode};
use machinery::rest::{Payload, Response};
use machinery::status::ApiError;
use packed::Packed;
use page::File;

use crate::discovery::etag;
use crate::documents::{no_such_page, tagged};

/// A file, ready to be sent.
struct Ready {
    file: &'static File,
    etag: String,
    gzip: Bytes,
}

/// Made when somebody first looks: a server whose page nobody opens pays nothing for it.
static READY: LazyLock<Vec<Ready>> = LazyLock::new(|| {
    let ready = |file: &'static File| {
        let packed = Packed::new(file.body);
        Ready { file, etag: etag(file.body), gzip: packed::gzip(std::iter::once(&packed)).into() }
    };
    page::FILES.iter().map(ready).collect()
});

/// Answers a request at or below `/ui`.
pub fn answer(exchange: &Exchange) -> Result<Response, ApiError> {
    let Exchange { parts, info, .. } = exchange;
    if parts.method != Method::GET {
        return Err(ApiError::method_not_allowed());
    }
    let Some(path) = info.path.strip_prefix("/ui/") else { return Ok(moved()) };
    let Some(file) = page::find(path) else { return Ok(no_such_page()) };
    let Some(ready) = READY.iter().find(|ready| ready.file.path == file.path) else { return Ok(no_such_page()) };
    let gzip = exchange.forms().gzip;
    let mut response = tagged(parts, &ready.etag, || {
        let body = if gzip { ready.gzip.clone() } else { Bytes::from_static(ready.file.body) };
        let mut response = bytes(StatusCode::OK, ready.file.content_type, body);
        if gzip {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    });
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    for (name, value) in page::HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    Ok(response)
}

/// To the folder, by a relative address: behind a proxy the path has more before it.
fn moved() -> Response {
    let mut response = Response::new(Payload::Empty);
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static("ui/"));
    response
}
