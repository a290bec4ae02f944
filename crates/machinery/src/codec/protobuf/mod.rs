//! Kubernetes' protobuf, both ways, by the table of API facts: no message is written by hand, so none can be forgotten.
//!
//! On the wire an object is the four bytes `k8s\0` and a `runtime.Unknown` that names the kind and holds the message.

mod decode;
mod encode;
mod special;
mod wire;

use facts::Type;
use serde_json::Value;

use crate::gvk::GroupVersion;
use crate::status::ApiError;
use crate::value;

pub use encode::{LIST_TAIL, encode, encode_event, encode_message, envelope, item_len, list_head, put_item};

/// What every object starts with.
pub const MAGIC: &[u8] = b"k8s\0";

/// How deep messages may nest: a schema of schemas is the only one that goes deep at all.
const MAX_DEPTH: usize = 128;

/// Why bytes are no object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// They do not start as objects do.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoMagic,
    /// There are none at all.
    #[error("empty data")]
    NoData,
    /// There is nothing after the beginning.
    #[error("empty body")]
    NoBody,
    /// They end too early or are no protobuf.
    #[error("unexpected EOF")]
    Truncated,
    /// A field is not of the wire type that its number has.
    #[error("proto: wrong wireType = {got} for field {field}")]
    WireType {
        /// The wire type found.
        got: u8,
        field: String,
    },
    /// Text that is not UTF-8.
    #[error("proto: field {0} contains invalid UTF-8")]
    Utf8(String),
    #[error("proto: exceeded max recursion depth")]
    TooDeep,
    /// A kind that nobody knows.
    #[error("no kind {kind:?} is registered for version {version:?}")]
    UnknownKind {
        kind: String,
        /// Its `apiVersion`.
        version: String,
    },
}

impl From<Error> for ApiError {
    fn from(error: Error) -> Self {
        ApiError::bad_request(error.to_string())
    }
}

/// Reads an object. `kind` is what it is taken for when it does not say.
pub fn decode(bytes: &[u8], kind: Option<(&str, &Type)>) -> Result<Value, Error> {
    if bytes.is_empty() {
        return Err(Error::NoData);
    }
    let unknown = bytes.strip_prefix(MAGIC).ok_or(Error::NoMagic)?;
    if unknown.is_empty() {
        return Err(Error::NoBody);
    }
    let envelope = decode::Envelope::read(unknown)?;
    let parsed = GroupVersion::parse(&envelope.api_version);
    let known = parsed.and_then(|parsed| facts::type_of(&parsed.group, &parsed.version, &envelope.kind));
    let of = match (known, kind) {
        (Some(id), _) => id.def(),
        (None, Some((_, of))) if envelope.kind.is_empty() => of,
        _ => return Err(Error::UnknownKind { kind: envelope.kind, version: envelope.api_version }),
    };
    let mut object = decode::message(envelope.raw, of, MAX_DEPTH)?;
    for (key, text) in [("apiVersion", envelope.api_version), ("kind", envelope.kind)] {
        if !text.is_empty() {
            value::set(&mut object, key, text);
        }
    }
    Ok(object)
}

/// Reads a message without an envelope, such as the options of a deletion.
pub fn decode_message(bytes: &[u8], of: &Type) -> Result<Value, Error> {
    decode::message(bytes, of, MAX_DEPTH)
}

#[cfg(test)]
mod tests;
