//! Between bytes and trees: JSON, YAML, protobuf and CBOR.
//!
//! A decoder answers with a tree, or with `400` and upstream's words for what is wrong. What a strict reader objects to
//! (a key given twice) does not fail: it is listed, and the caller decides.

pub mod cbor;
pub mod json;
pub mod numbers;
pub mod protobuf;
pub mod typed;
pub mod yaml;

use serde_json::Value;

use crate::gvk::GroupVersion;
use crate::patch::json_type;
use crate::status::{ApiError, Reason};
use crate::value;

/// The deepest nesting of lists and objects that is read or made. Upstream stops at 10,000 levels; no object of any kind
/// comes near this lower bound, which keeps every recursive walk over a tree within a small stack.
pub const MAX_DEPTH: usize = 512;

/// The most complaints about one document; more would only be noise.
const MAX_DUPLICATES: usize = 100;

/// What a decoder accepts.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: MAX_DEPTH }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The tree. Of a key given twice it has the last value.
    pub value: Value,
    /// What a strict reader objects to, such as `duplicate field "spec.replicas"`.
    pub duplicates: Vec<String>,
    /// Whether there are numbers of which the text says more than the tree: where a type decides what a number means, such as a
    /// quantity, `schema::exact` reads the text.
    pub rounded: bool,
}

/// The answer to a body that is no object of the kind, once its `kind` is known, as upstream words it.
pub fn cannot_be_handled(kind: &str, version: &str, wanted: &str, why: &str) -> ApiError {
    ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {wanted}: {why}"))
}

/// Why nobody can tell the kind of an object.
pub fn unreadable_kind(object: &Value) -> Option<String> {
    if object.is_null() {
        return None;
    }
    let failed = "couldn't get version/kind; json parse error: json: cannot unmarshal";
    let Value::Object(fields) = object else {
        let what = json_type(object);
        return Some(format!(
            "{failed} {what} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        ));
    };
    for field in ["apiVersion", "kind"] {
        if let Some(odd) = fields.get(field).filter(|value| !value.is_string() && !value.is_null()) {
            return Some(format!("{failed} {} into Go struct field .{field} of type string", json_type(odd)));
        }
    }
    let version = value::text(object, "apiVersion");
    let odd = !version.is_empty() && GroupVersion::parse(version).is_none();
    odd.then(|| format!("unexpected GroupVersion string: {version}"))
}

/// Decodes bytes of a media type.
pub fn decode(media: &str, bytes: &[u8]) -> Result<(Value, Vec<String>), ApiError> {
    let decoded = decode_typed(media, bytes)?;
    if decoded.rounded {
        numbers::in_range(bytes).map_err(ApiError::bad_request)?;
    }
    Ok((decoded.value, decoded.duplicates))
}

/// As [`decode`], for a body whose type says what its numbers may be: those of JSON that no float holds are the largest one in the tree.
pub fn decode_typed(media: &str, bytes: &[u8]) -> Result<Decoded, ApiError> {
    let plain = |value| Decoded { value, duplicates: Vec::new(), rounded: false };
    match media.to_ascii_lowercase().as_str() {
        "" | "application/json" => json::decode_clamped(bytes, Limits::default()),
        "application/yaml" => yaml::decode(bytes, Limits::default()),
        "application/cbor" => cbor::decode(bytes, Limits::default())
            .map(plain)
            .map_err(|error| ApiError::bad_request(format!("unable to decode CBOR: {error}"))),
        "application/vnd.kubernetes.protobuf" => Ok(plain(protobuf::decode(bytes, None)?)),
        _ => {
            let message = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf";
            Err(ApiError::new(Reason::UnsupportedMediaType, message))
        }
    }
}

/// The answer to a body that does not even tell its kind, as upstream words it.
pub fn unrecognized(wanted: &str, why: &str, body: &[u8]) -> ApiError {
    const SHOWN: usize = 30;
    let head = &body[..body.len().min(SHOWN)];
    let mut summary = match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(head).into_owned(),
        Some(_) => head.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if body.len() > SHOWN {
        summary.push_str(" ...");
    }
    ApiError::bad_request(format!("the object provided is unrecognized (must be of type {wanted}): {why} ({summary})"))
}

/// One step of a path from the root of a document, linked to the step before it: it lives on the stack and costs nothing
/// until somebody prints it.
#[derive(Clone, Copy)]
pub(crate) enum Path<'a> {
    Root,
    /// A field of an object.
    Key(&'a Path<'a>, &'a str),
    /// An entry of a map.
    Entry(&'a Path<'a>, &'a str),
    /// An element of a list.
    Index(&'a Path<'a>, usize),
}

impl std::fmt::Display for Path<'_> {
    /// As strict errors print it: `spec.containers[0].image`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Key(Path::Root, key) | Path::Entry(Path::Root, key) => f.write_str(key),
            Path::Key(parent, key) | Path::Entry(parent, key) => write!(f, "{parent}.{key}"),
            Path::Index(parent, at) => write!(f, "{parent}[{at}]"),
        }
    }
}
