//! Between bytes and trees: JSON, YAML, protobuf and CBOR.
//!
//! A decoder answers with a tree, or with `400` and upstream's words for what is wrong. What a strict reader objects to
//! (a key given twice) does not fail: it is listed, and the caller decides.

pub mod cbor;
pub mod json;
pub mod protobuf;
pub mod typed;
pub mod yaml;

use serde_json::Value;

use crate::status::ApiError;

/// The deepest nesting of lists and objects that is read or made. Upstream stops at 10,000 levels; no object of any kind
/// comes near this lower bound, which keeps every recursive walk over a tree within a small stack.
pub const MAX_DEPTH: usize = 512;

/// The most complaints about one document; more would only be noise.
const MAX_DUPLICATES: usize = 100;

/// What a decoder accepts.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The deepest nesting.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: MAX_DEPTH }
    }
}

/// A decoded document.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The tree. Of a key given twice it has the last value.
    pub value: Value,
    /// What a strict reader objects to, such as `duplicate field "spec.replicas"`.
    pub duplicates: Vec<String>,
}

/// The answer to a body that is no object of the kind, once its `kind` is known, as upstream words it.
pub fn cannot_be_handled(kind: &str, version: &str, wanted: &str, why: &str) -> ApiError {
    ApiError::bad_request(format!("{kind} in version {version:?} cannot be handled as a {wanted}: {why}"))
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
    /// The document itself.
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
