//! Answers to requests below `/openapi`: which document, in which form, and for how long it may be kept.

use gates::answer::bytes;
use gates::exchange::Asked;
use gates::forms::Forms;
use http::StatusCode;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, EXPIRES, HeaderValue, LOCATION, VARY};
use http::request::Parts;
use machinery::rest::{Payload, Response};

use super::{Assembled, Encoding, Form, OpenApi};
use crate::aggregation::Aggregation;
use crate::documents::{known_or, tagged};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The same, as clients of old write it.
const PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

const PROTOBUF_V3: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
const PROTOBUF_V3_OLD: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

/// Longer documents are unpacked while they are sent.
const AT_ONCE: usize = 1 << 20;

/// A date far enough away: the address of a document changes with its content.
const NEVER: HeaderValue = HeaderValue::from_static("Fri, 31 Dec 9999 23:59:59 GMT");

impl OpenApi {
    /// Answers a request for the path with these segments below `/openapi`. What other servers have is merged into what is about everything.
    pub(crate) fn answer(
        &self,
        segments: &[&str],
        parts: &Parts,
        asked: &Asked,
        others: Option<&Aggregation>,
    ) -> Option<Response> {
        match segments {
            ["v2"] => {
                let Some(encoding) = encoding(&asked.forms, [PROTOBUF, PROTOBUF_OLD]) else {
                    return Some(not_acceptable());
                };
                let (form, content) = match encoding {
                    Encoding::Json => (Form::V2Json, JSON),
                    Encoding::Protobuf => (Form::V2Protobuf, PROTOBUF),
                };
                let document = others.map_or_else(|| self.v2(form).clone(), |others| others.openapi_v2(form, self));
                Some(packed(parts, &document, content, asked.forms.gzip))
            }
            ["v3"] => Some(match others {
                None => known_or(parts, self.root(), JSON),
                Some(others) => known_or(parts, &others.openapi_v3(self), JSON),
            }),
            ["v3", path @ ..] => {
                let path = path.join("/");
                let (form, content) = match encoding(&asked.forms, [PROTOBUF_V3, PROTOBUF_V3_OLD]) {
                    Some(Encoding::Json) => (Form::V3Json, JSON),
                    Some(Encoding::Protobuf) => (Form::V3Protobuf, PROTOBUF_V3),
                    None => return Some(not_acceptable()),
                };
                let offered = others.and_then(|others| others.offered_document(form, &path));
                let document = offered.or_else(|| self.document(form, &path))?;
                Some(answer_v3(&path, document, content, parts, asked))
            }
            _ => None,
        }
    }
}

/// `hash` is the tag that the address names: a client that has an old address is sent to the new one, and the
/// answer at the right address may be kept for good.
fn answer_v3(path: &str, document: &Assembled, content: &'static str, parts: &Parts, asked: &Asked) -> Response {
    let hash = asked.query.get("hash");
    if !hash.is_empty() && hash != document.etag {
        let mut response = Response::new(Payload::Empty);
        *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
        let location = format!("/openapi/v3/{path}?hash={}", document.etag);
        if let Ok(location) = HeaderValue::from_str(&location) {
            response.headers_mut().insert(LOCATION, location);
        }
        return response;
    }
    let mut response = packed(parts, document, content, asked.forms.gzip);
    if !hash.is_empty() {
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        response.headers_mut().insert(EXPIRES, NEVER);
    }
    response
}

/// A document as it is kept, for a client that reads gzip; others get it unpacked, at once or as it is unpacked.
fn packed(parts: &Parts, document: &Assembled, content: &str, gzip: bool) -> Response {
    let mut response = tagged(parts, &document.etag, || {
        let payload = match gzip {
            true => Payload::Bytes(document.gzip()),
            false if document.len() > AT_ONCE => Payload::Stream(document.stream()),
            false => Payload::Bytes(document.bytes().into()),
        };
        let mut response = Response::new(payload);
        if let Ok(content) = HeaderValue::from_str(content) {
            response.headers_mut().insert(CONTENT_TYPE, content);
        }
        if gzip {
            response.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    });
    response.headers_mut().append(VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

fn not_acceptable() -> Response {
    bytes(StatusCode::NOT_ACCEPTABLE, "text/plain; charset=utf-8", "406 Not Acceptable\n".into())
}

/// The form that a client prefers: the first that it names and that there is. `protobuf` has the names of the other one.
fn encoding(forms: &Forms, protobuf: [&str; 2]) -> Option<Encoding> {
    if forms.named().next().is_none() {
        return Some(Encoding::Json);
    }
    forms.named().find_map(|media| match media {
        "" | "*/*" | "application/*" | JSON => Some(Encoding::Json),
        named if protobuf.contains(&named) => Some(Encoding::Protobuf),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;
    use crate::discovery::built_in;

    fn openapi() -> OpenApi {
        super::super::tests::openapi(built_in(|group, version| group == "apps" && version.default_on))
    }

    fn get(openapi: &OpenApi, path: &str, accept: &str) -> Option<Response> {
        let request = http::Request::get(format!("/openapi/{path}")).header(ACCEPT, accept).body(());
        let (parts, ()) = request.expect("a request").into_parts();
        let segments: Vec<&str> = path.split('?').next().unwrap_or_default().split('/').collect();
        openapi.answer(&segments, &parts, &Asked::of(&parts), None)
    }

    #[test]
    fn version_2_comes_in_two_forms() {
        let openapi = openapi();
        for (accept, status, content) in [
            ("", 200, JSON),
            ("*/*", 200, JSON),
            ("application/json, */*", 200, JSON),
            (PROTOBUF_OLD, 200, PROTOBUF),
            (PROTOBUF, 200, PROTOBUF),
            (&format!("{JSON};q=0.5, {PROTOBUF};q=0.9"), 200, PROTOBUF),
            ("text/html", 406, "text/plain; charset=utf-8"),
        ] {
            let response = get(&openapi, "v2", accept).expect("there");
            assert_eq!(response.status(), status, "{accept}");
            assert_eq!(response.headers()["content-type"], content, "{accept}");
        }
    }

    #[test]
    fn version_3_comes_in_two_forms_with_one_tag() {
        let openapi = openapi();
        let json = get(&openapi, "v3/apis/apps/v1", JSON).expect("there");
        let protobuf = get(&openapi, "v3/apis/apps/v1", PROTOBUF_V3_OLD).expect("there");
        assert_eq!(protobuf.headers()["content-type"], PROTOBUF_V3);
        assert_eq!(protobuf.headers()["etag"], json.headers()["etag"]);
        assert_eq!(get(&openapi, "v3/apis/apps/v1", "text/html").expect("there").status(), 406);
        let document = openapi.document(super::Form::V3Protobuf, "apis/apps/v1").expect("there").bytes();
        // `openapi: 3.0.0`, then the information.
        assert!(document.starts_with(b"\x0a\x053.0.0\x12"), "{:?}", &document[..16]);
    }

    #[test]
    fn an_old_address_leads_to_the_new_one() {
        let openapi = openapi();
        let tag = &openapi.document(super::Form::V3Json, "apis/apps/v1").expect("served").etag;
        let old = get(&openapi, "v3/apis/apps/v1?hash=OLD", JSON).expect("there");
        assert_eq!(old.status(), 301);
        assert_eq!(old.headers()["location"], format!("/openapi/v3/apis/apps/v1?hash={tag}"));
        let new = get(&openapi, &format!("v3/apis/apps/v1?hash={tag}"), JSON).expect("there");
        assert_eq!(
            (new.status().as_u16(), &new.headers()["cache-control"]),
            (200, &HeaderValue::from_static("public, immutable"))
        );
        let plain = get(&openapi, "v3/apis/apps/v1", JSON).expect("there");
        assert!(plain.headers().get("cache-control").is_none());
        assert!(get(&openapi, "v3/apis/batch/v1", JSON).is_none() && get(&openapi, "v4", JSON).is_none());
    }
}
