//! Answers to requests below `/openapi`: which document, in which form, and for how long it may be kept.

use gates::answer::bytes;
use gates::exchange::Asked;
use gates::forms::Forms;
use http::StatusCode;
use http::header::{CACHE_CONTROL, EXPIRES, HeaderValue, LOCATION};
use http::request::Parts;
use machinery::rest::{Payload, Response};

use super::OpenApi;
use crate::aggregation::Aggregation;
use crate::discovery::Document;
use crate::documents::tagged;

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// The same, as clients of old write it.
const PROTOBUF_OLD: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";

const PROTOBUF_V3: &str = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf";
const PROTOBUF_V3_OLD: &str = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";

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
            ["v2"] => Some(match (form(&asked.forms, [PROTOBUF, PROTOBUF_OLD]), others) {
                (Some(Form::Json), None) => tagged(parts, self.v2_json(), JSON),
                (Some(Form::Json), Some(others)) => tagged(parts, &others.openapi_v2(self), JSON),
                (Some(Form::Protobuf), None) => tagged(parts, self.v2_protobuf(), PROTOBUF),
                (Some(Form::Protobuf), Some(others)) => tagged(parts, &others.openapi_v2_protobuf(self), PROTOBUF),
                (None, _) => not_acceptable(),
            }),
            ["v3"] => Some(match others {
                None => tagged(parts, self.root(), JSON),
                Some(others) => tagged(parts, &others.openapi_v3(self), JSON),
            }),
            ["v3", path @ ..] => {
                let path = path.join("/");
                let hash = asked.query.get("hash");
                if let Some(offered) = others.and_then(|others| others.offered_document(&path)) {
                    return Some(match form(&asked.forms, [PROTOBUF_V3, PROTOBUF_V3_OLD]) {
                        Some(Form::Json) => answer_v3(&path, &offered.json, JSON, parts, hash),
                        Some(Form::Protobuf) => answer_v3(&path, &offered.protobuf, PROTOBUF_V3, parts, hash),
                        None => not_acceptable(),
                    });
                }
                let (document, content) = match form(&asked.forms, [PROTOBUF_V3, PROTOBUF_V3_OLD]) {
                    Some(Form::Json) => (self.document(&path)?, JSON),
                    Some(Form::Protobuf) => (self.protobuf(&path)?, PROTOBUF_V3),
                    None => return Some(not_acceptable()),
                };
                Some(answer_v3(&path, document, content, parts, hash))
            }
            _ => None,
        }
    }
}

/// `hash` is the tag that the address names: a client that has an old address is sent to the new one, and the
/// answer at the right address may be kept for good.
fn answer_v3(path: &str, document: &Document, content: &'static str, parts: &Parts, hash: &str) -> Response {
    if !hash.is_empty() && hash != document.etag {
        let mut response = Response::new(Payload::Empty);
        *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
        let location = format!("/openapi/v3/{path}?hash={}", document.etag);
        if let Ok(location) = HeaderValue::from_str(&location) {
            response.headers_mut().insert(LOCATION, location);
        }
        return response;
    }
    let mut response = tagged(parts, document, content);
    if !hash.is_empty() {
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, immutable"));
        response.headers_mut().insert(EXPIRES, NEVER);
    }
    response
}

#[derive(Debug, PartialEq, Eq)]
enum Form {
    Json,
    Protobuf,
}

fn not_acceptable() -> Response {
    bytes(StatusCode::NOT_ACCEPTABLE, "text/plain; charset=utf-8", "406 Not Acceptable\n".into())
}

/// The form that a client prefers: the first that it names and that there is. `protobuf` has the names of the other one.
fn form(forms: &Forms, protobuf: [&str; 2]) -> Option<Form> {
    if forms.named().next().is_none() {
        return Some(Form::Json);
    }
    forms.named().find_map(|media| match media {
        "" | "*/*" | "application/*" | JSON => Some(Form::Json),
        named if protobuf.contains(&named) => Some(Form::Protobuf),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use http::header::ACCEPT;

    use super::*;
    use crate::discovery::built_in;

    fn openapi() -> OpenApi {
        OpenApi::new(built_in(|group, version| group == "apps" && version.default_on), "v1.37.0")
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
        let document = openapi.protobuf("apis/apps/v1").expect("there");
        // `openapi: 3.0.0`, then the information.
        assert!(document.body.starts_with(b"\x0a\x053.0.0\x12"), "{:?}", &document.body[..16]);
    }

    #[test]
    fn an_old_address_leads_to_the_new_one() {
        let openapi = openapi();
        let tag = &openapi.document("apis/apps/v1").expect("served").etag;
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
