//! `AdmissionReview`: the question a webhook is asked, and its answer. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::status::{ApiError, Reason};
use machinery::{Value, value};
use serde_json::json;

use super::hook::Version;

/// The one form of a patch that there is.
const JSON_PATCH: &str = "JSONPatch";

/// What a webhook says.
#[derive(Debug, PartialEq)]
pub struct Answer {
    /// Whether the request may go on.
    pub allowed: bool,
    /// Why not: a `Status`.
    pub status: Value,
    /// What to change, encoded, and in which form.
    pub patch: Option<(String, String)>,
    /// What to tell the client.
    pub warnings: Vec<String>,
    pub annotations: Vec<(String, String)>,
}

impl Version {
    fn api_version(self) -> &'static str {
        match self {
            Self::V1 => "admission.k8s.io/v1",
            Self::V1beta1 => "admission.k8s.io/v1beta1",
        }
    }
}

pub fn question(version: Version, request: Value) -> Value {
    json!({"kind": "AdmissionReview", "apiVersion": version.api_version(), "request": request})
}

/// Reads an answer to the question with this uid. Only a webhook that may change the object may answer with a patch.
pub fn read(answer: &Value, version: Version, uid: &str, mutating: bool) -> Result<Answer, String> {
    let Some(response) = answer.get("response").filter(|response| response.is_object()) else {
        return Err("webhook response was absent".to_owned());
    };
    let patch = response["patch"].as_str().filter(|patch| !patch.is_empty());
    let kind = response["patchType"].as_str();
    if version == Version::V1 {
        check_v1(answer, response, uid)?;
        match (mutating, patch, kind) {
            (true, Some(_), None) => {
                return Err("webhook returned response.patch but not response.patchType".to_owned());
            }
            (true, None, Some(_)) => {
                return Err("webhook returned response.patchType but not response.patch".to_owned());
            }
            (true, Some(_), Some("")) => return Err("webhook returned invalid response.patchType of \"\"".to_owned()),
            (false, Some(_), _) => return Err("validating webhook may not return response.patch".to_owned()),
            (false, _, Some(_)) => return Err("validating webhook may not return response.patchType".to_owned()),
            _ => {}
        }
    }
    let annotations = response["auditAnnotations"].as_object().into_iter().flatten();
    Ok(Answer {
        allowed: value::flag(response, "allowed"),
        status: response["status"].clone(),
        patch: patch.filter(|_| mutating).map(|patch| (patch.to_owned(), kind.unwrap_or(JSON_PATCH).to_owned())),
        warnings: value::list(response, "warnings").iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        annotations: annotations
            .map(|(key, text)| (key.clone(), text.as_str().unwrap_or_default().to_owned()))
            .collect(),
    })
}

/// Answers of the old version were never checked, so nobody may begin to.
fn check_v1(answer: &Value, response: &Value, uid: &str) -> Result<(), String> {
    let named = value::text(response, "uid");
    if named != uid {
        return Err(format!("expected response.uid={uid:?}, got {named:?}"));
    }
    let (version, kind) = (value::text(answer, "apiVersion"), value::text(answer, "kind"));
    if (version, kind) != (Version::V1.api_version(), "AdmissionReview") {
        let got = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
        return Err(format!(
            "expected webhook response of {}, Kind=AdmissionReview, got {got}, Kind={kind}",
            Version::V1.api_version()
        ));
    }
    Ok(())
}

/// Why an answer is not read at all: it is something else, or in another version than the question.
pub fn foreign(answer: &Value, version: Version) -> Option<String> {
    let no_kind = |version: &str, kind: &str| {
        let scheme = "k8s.io/apiserver/pkg/util/webhook/client.go:74";
        Some(format!("no kind {kind:?} is registered for version {version:?} in scheme {scheme:?}"))
    };
    let got = (value::text(answer, "apiVersion"), value::text(answer, "kind"));
    match got {
        // What is left out counts as what was asked for; the older version was never checked beyond that.
        ("", _) | (_, "") => None,
        (given, "AdmissionReview") if given == version.api_version() => None,
        (given @ ("admission.k8s.io/v1" | "admission.k8s.io/v1beta1"), "AdmissionReview") => {
            let short = |version: &str| version.rsplit('/').next().unwrap_or_default().to_owned();
            Some(format!(
                "converting ({}.AdmissionReview) to ({}.AdmissionReview): unknown conversion",
                short(given),
                short(version.api_version())
            ))
        }
        (given, kind) => no_kind(given, kind),
    }
}

/// The operations of a patch, at least one.
pub fn operations(patch: &str, kind: &str) -> Result<Option<Value>, String> {
    let undecodable = |why: &dyn std::fmt::Display| format!("received undecodable patch in webhook response: {why}");
    let bytes = STANDARD.decode(patch).map_err(|error| undecodable(&error))?;
    let limits = machinery::codec::Limits::default();
    let tree = machinery::codec::json::decode(&bytes, limits).map_err(|error| undecodable(&error.message))?.value;
    match tree.as_array() {
        Some(operations) if operations.is_empty() => Ok(None),
        Some(_) if kind != JSON_PATCH => Err(format!("unsupported patch type {kind:?}")),
        Some(_) => Ok(Some(tree)),
        None => Err(undecodable(&"json: cannot unmarshal object into Go value of type jsonpatch.Patch")),
    }
}

/// A denial as the client sees it.
pub fn denial(webhook: &str, status: &Value) -> ApiError {
    let by = format!("admission webhook {webhook:?} denied the request");
    let message = match (value::text(status, "message"), value::text(status, "reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    // A denial is never a success, whatever code it carries.
    let code =
        value::int(status, "code").and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code));
    let mut error = ApiError::from_value(code.unwrap_or(400), status);
    error.code = code.unwrap_or(400);
    error.message = message;
    error
}

/// A webhook that could not be asked, where that refuses the request.
pub fn failure(webhook: &str, why: &str) -> ApiError {
    ApiError::internal(format!("failed calling webhook {webhook:?}: {why}"))
}

/// A webhook that cannot be asked without consequences, in a request that must have none.
pub fn not_dry(webhook: &str) -> ApiError {
    ApiError::new(Reason::BadRequest, format!("admission webhook {webhook:?} does not support dry run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(response: Value) -> Value {
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response})
    }

    #[test]
    fn answers_are_checked() {
        let check = |tree: Value, mutating: bool, expect: Result<bool, &str>| {
            let outcome = read(&tree, Version::V1, "u", mutating).map(|answer| answer.patch.is_some());
            assert_eq!(outcome, expect.map_err(str::to_owned), "{tree}");
        };
        let patch = STANDARD.encode(r#"[{"op":"add","path":"/a","value":1}]"#);
        check(answer(json!({"uid": "u", "allowed": true})), false, Ok(false));
        check(answer(json!({"uid": "x"})), false, Err("expected response.uid=\"u\", got \"x\""));
        check(answer(json!(null)), false, Err("webhook response was absent"));
        check(json!({"kind": "Pod"}), false, Err("webhook response was absent"));
        check(
            json!({"apiVersion": "v1", "kind": "Pod", "response": {"uid": "u"}}),
            false,
            Err("expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /v1, Kind=Pod"),
        );
        let patched = |kind: Value| answer(json!({"uid": "u", "allowed": true, "patch": patch, "patchType": kind}));
        check(patched(json!("JSONPatch")), true, Ok(true));
        check(patched(json!("JSONPatch")), false, Err("validating webhook may not return response.patch"));
        check(patched(json!(null)), true, Err("webhook returned response.patch but not response.patchType"));
        assert_eq!(operations(&patch, "Merge"), Err("unsupported patch type \"Merge\"".to_owned()));
        assert_eq!(operations(&STANDARD.encode("[]"), "Merge"), Ok(None), "nothing is changed in any form");
        let junk = operations(&STANDARD.encode("junk"), JSON_PATCH).expect_err("no patch");
        assert!(junk.starts_with("received undecodable patch in webhook response: invalid character 'j'"), "{junk}");
        check(
            answer(json!({"uid": "u", "patchType": "JSONPatch"})),
            true,
            Err("webhook returned response.patchType but not response.patch"),
        );
        // The old version is taken at its word.
        let old = json!({"response": {"allowed": true, "patch": patch}});
        assert!(read(&old, Version::V1beta1, "u", true).expect("fine").patch.is_some());
        assert!(read(&old, Version::V1beta1, "u", false).expect("fine").patch.is_none());
    }

    #[test]
    fn answers_of_another_kind_are_not_read() {
        let check = |version: &str, kind: &str, expect: Option<&str>| {
            let answer = json!({"apiVersion": version, "kind": kind});
            assert_eq!(foreign(&answer, Version::V1).as_deref(), expect, "{answer}");
        };
        check("admission.k8s.io/v1", "AdmissionReview", None);
        check("", "", None);
        check(
            "v1",
            "Pod",
            Some(
                "no kind \"Pod\" is registered for version \"v1\" in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:74\"",
            ),
        );
        check(
            "admission.k8s.io/v1beta1",
            "AdmissionReview",
            Some("converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion"),
        );
    }

    #[test]
    fn denials_carry_the_webhooks_words_and_never_a_success() {
        let error = denial("h", &json!({"message": "no", "code": 200}));
        assert_eq!((error.code, error.message.as_str()), (400, "admission webhook \"h\" denied the request: no"));
        let error = denial("h", &json!({"code": 403, "reason": "Forbidden"}));
        assert_eq!(
            (error.code, error.message.as_str()),
            (403, "admission webhook \"h\" denied the request: Forbidden")
        );
        // A reason of its own is passed on as it is.
        let error = denial("h", &json!({"reason": "too-late", "message": "no"}));
        assert_eq!((error.to_value()["reason"].as_str(), error.code), (Some("too-late"), 400));
        assert_eq!(denial("h", &Value::Null).message, "admission webhook \"h\" denied the request without explanation");
        assert_eq!(failure("h", "x").message, "Internal error occurred: failed calling webhook \"h\": x");
    }
}
