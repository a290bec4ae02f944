//! One stored object: its encoding, shared by everybody, and the few fields that selectors and indexes need.
//!
//! The encoding is canonical JSON that starts with `apiVersion`, `kind` and `metadata` and has no `resourceVersion`: that
//! is the revision of the write, known only after it. It is spliced in when the object is sent, at an offset found once.
//! So the bytes in the store, in the watch cache and on the wire are the same bytes.

mod managed;
mod meta;
mod text;

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use serde::de::Error as _;
use serde_json::Value;

use self::meta::extract;
pub use self::meta::{Field, FieldPaths, Meta};
use self::text::Text;
use crate::codec::{Limits, json, protobuf, typed};

/// What stands right before the place of `resourceVersion`.
const METADATA: &[u8] = b"\"metadata\":{";

/// Why bytes are not a stored object.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not JSON, or not of an object's shape.
    #[error("stored object cannot be read: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// One object as it is stored and served. Immutable; share it.
pub struct Object {
    json: Text,
    splice: u32,
    revision: u64,
    meta: Arc<Meta>,
    /// The protobuf message, from the first reader that wants one on.
    message: OnceLock<Text>,
}

impl Object {
    /// From an encoding made by [`encode`] (or read from the store), and the revision that wrote it.
    pub fn from_stored(json: Bytes, revision: u64, fields: &FieldPaths) -> Result<Self, Error> {
        let Some(splice) = splice_of(&json) else {
            // Written by somebody else, upstream's API server for example: brought into our form once.
            let foreign = if json.starts_with(protobuf::MAGIC) {
                protobuf::decode(&json, None).map_err(serde_json::Error::custom)?
            } else {
                json::decode(&json, Limits::default()).map_err(|e| serde_json::Error::custom(e.message))?.value
            };
            if !foreign.is_object() {
                return Err(serde_json::Error::custom("not an object").into());
            }
            return Self::from_stored(encode(&fields.settle(foreign)), revision, fields);
        };
        let mut deserializer = serde_json::Deserializer::from_slice(&json);
        let meta = Arc::new(extract(&mut deserializer, fields)?);
        deserializer.end()?;
        Ok(Self { json: Text::Plain(json), splice, revision, meta, message: OnceLock::new() })
    }

    pub fn from_value(value: &Value, revision: u64, fields: &FieldPaths) -> Result<Self, Error> {
        Ok(Draft::new(value, fields)?.at_revision(revision))
    }

    /// The same object at another revision, as deletion events have it.
    pub fn at_revision(&self, revision: u64) -> Self {
        Self {
            json: self.json.clone(),
            splice: self.splice,
            revision,
            meta: Arc::clone(&self.meta),
            message: OnceLock::new(),
        }
    }

    /// The same object in less memory, which costs a little more to read.
    pub fn packed(self) -> Self {
        Self { json: self.json.pack(), ..self }
    }

    /// The revision that wrote it.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Name, namespace, labels and the like.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Tells what was written at once from everything else: objects of one revision that share this are of one encoding.
    pub fn identity(&self) -> &Arc<Meta> {
        &self.meta
    }

    /// The encoding without `resourceVersion`.
    pub fn stored(&self) -> Bytes {
        self.json.bytes()
    }

    /// [`Object::stored`] without `managedFields` (see [`managed`]): what parts of the process read of an object.
    pub fn unmanaged(&self) -> Bytes {
        let json = self.json.bytes();
        match managed::member(&json, self.splice as usize) {
            Some(member) => [&json[..member.start], &json[member.end..]].concat().into(),
            None => json,
        }
    }

    /// What [`Object::unmanaged`] has up to the end of the metadata: a whole object, with nothing below.
    pub fn unmanaged_metadata(&self) -> Bytes {
        let json = self.json.bytes();
        match managed::member_and_end(&json, self.splice as usize) {
            Some((member, end)) => [&json[..member.start], &json[member.end..end], b"}}"].concat().into(),
            None => json,
        }
    }

    /// How long [`Object::stored`] is.
    pub fn stored_len(&self) -> usize {
        self.json.len()
    }

    /// How many bytes [`Object::write_json`] writes at most.
    pub fn json_len(&self) -> usize {
        self.json.len() + 48
    }

    /// Appends the served JSON, `resourceVersion` included.
    pub fn write_json(&self, out: &mut BytesMut) {
        self.write_from(0, out);
    }

    fn write_from(&self, start: usize, out: &mut BytesMut) {
        let json = self.json.look();
        let (head, tail) = json.split_at(self.splice as usize);
        let mut digits = itoa(self.revision);
        out.reserve(self.json_len());
        out.put_slice(&head[start..]);
        // What was never written, as in a dry run, has no version.
        if self.revision > 0 {
            out.put_slice(b"\"resourceVersion\":\"");
            out.put_slice(digits.text());
            out.put_slice(if tail.starts_with(b"}") { b"\"" } else { b"\"," });
        }
        out.put_slice(tail);
    }

    /// As [`Object::write_json`], without `apiVersion` and `kind`: what an item of a list is.
    pub fn write_item_json(&self, out: &mut BytesMut) {
        out.put_u8(b'{');
        let start = self.splice as usize - METADATA.len();
        self.write_from(start, out);
    }

    pub fn json(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(self.json_len());
        self.write_json(&mut out);
        out.freeze()
    }

    /// Its protobuf message, made once for all readers. The type is that of its own kind and version.
    pub fn message(&self, of: &facts::Type) -> Bytes {
        let message = self.message.get_or_init(|| {
            let mut message = crate::codec::protobuf::encode_message(&self.to_value(), of);
            message.shrink_to_fit();
            let message = Text::Plain(message.into());
            if matches!(self.json, Text::Packed(_)) { message.pack() } else { message }
        });
        message.bytes()
    }

    /// `apiVersion` and `kind`, which stand before everything else, so that nothing else is read.
    pub fn type_meta(&self) -> (String, String) {
        let mut head = self.json.look()[..self.splice as usize - METADATA.len()].to_vec();
        match head.last_mut() {
            Some(comma @ b',') => *comma = b'}',
            _ => head.push(b'}'),
        }
        let head: Value = json::decode_own(&head).unwrap_or_default();
        let text = |key: &str| crate::value::text(&head, key).to_owned();
        (text("apiVersion"), text("kind"))
    }

    /// The tree, `resourceVersion` included.
    pub fn to_value(&self) -> Value {
        let mut value: Value =
            json::decode_own(&self.json.look()).expect("an object's encoding was parsed when it was made");
        if self.revision > 0 {
            crate::value::set(&mut value, "metadata.resourceVersion", self.revision.to_string());
        }
        value
    }

    /// Reads it into a typed struct.
    pub fn decode<T: serde::de::DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        typed::from_slice(&self.json(), ("", ""))
    }
}

impl fmt::Debug for Object {
    /// Names it and never shows its content, which may be a Secret's.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({}/{}@{})", self.meta.namespace, self.meta.name, self.revision)
    }
}

/// An object that is about to be written: everything but the revision, which the write gives it.
#[derive(Clone)]
pub struct Draft {
    json: Bytes,
    splice: u32,
    meta: Arc<Meta>,
}

impl Draft {
    /// From a tree, which is not read again once it is encoded.
    pub fn new(value: &Value, fields: &FieldPaths) -> Result<Self, Error> {
        let json = encode(value);
        let splice = splice_of(&json).ok_or_else(|| serde_json::Error::custom("apiVersion or kind is not a word"))?;
        let meta = if value.is_object() { extract(value, fields)? } else { Meta::default() };
        Ok(Self { json, splice, meta: Arc::new(meta) })
    }

    /// The encoding without `resourceVersion`, as it is stored.
    pub fn stored(&self) -> &Bytes {
        &self.json
    }

    /// The object that the write at `revision` made.
    pub fn at_revision(&self, revision: u64) -> Object {
        let Self { json, splice, meta } = self.clone();
        Object { json: Text::Plain(json), splice, revision, meta, message: OnceLock::new() }
    }
}

thread_local! {
    /// Where encodings grow: what is kept of each is exactly as long as it is.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// How much room for encodings a thread keeps.
const SCRATCH_BYTES: usize = 64 << 10;

/// The canonical encoding: `apiVersion`, `kind`, `metadata` without `resourceVersion`, then the rest by name.
pub fn encode(value: &Value) -> Bytes {
    SCRATCH.with_borrow_mut(|out| {
        out.clear();
        write_canonical(value, out);
        let encoded = Bytes::copy_from_slice(out);
        out.shrink_to(SCRATCH_BYTES);
        encoded
    })
}

fn write_canonical(value: &Value, out: &mut Vec<u8>) {
    let Some(object) = value.as_object() else { return out.extend_from_slice(b"{\"metadata\":{}}") };
    fn put(out: &mut Vec<u8>, value: &(impl serde::Serialize + ?Sized)) {
        serde_json::to_writer(out, value).expect("a tree of JSON values always encodes into memory");
    }
    out.push(b'{');
    for key in ["apiVersion", "kind"] {
        if let Some(text) = object.get(key) {
            put(out, key);
            out.push(b':');
            put(out, text);
            out.push(b',');
        }
    }
    out.extend_from_slice(METADATA);
    let metadata = object.get("metadata").and_then(Value::as_object).into_iter().flatten();
    for (at, (key, value)) in metadata.filter(|(key, _)| *key != "resourceVersion").enumerate() {
        if at > 0 {
            out.push(b',');
        }
        put(out, key);
        out.push(b':');
        put(out, value);
    }
    out.push(b'}');
    for (key, value) in object.iter().filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata")) {
        out.push(b',');
        put(out, key);
        out.push(b':');
        put(out, value);
    }
    out.push(b'}');
}

/// Where `resourceVersion` belongs in a canonical encoding: right after `"metadata":{`. `None` if the bytes are not canonical.
fn splice_of(json: &[u8]) -> Option<u32> {
    let mut at = 1;
    for key in [&b"\"apiVersion\":\""[..], b"\"kind\":\""] {
        if json.get(at..)?.starts_with(key) {
            // Neither an apiVersion nor a kind holds a quote or an escape; other bytes are not ours.
            at += key.len() + memchr::memchr(b'"', &json[at + key.len()..])? + 2;
        }
    }
    if !json.get(at..)?.starts_with(METADATA) {
        return None;
    }
    at += METADATA.len();
    (!json[at..].starts_with(b"\"resourceVersion\"")).then(|| u32::try_from(at).ok()).flatten()
}

struct Digits([u8; 20], usize);

impl Digits {
    fn text(&mut self) -> &[u8] {
        &self.0[self.1..]
    }
}

/// Decimal digits without an allocation: this runs once per object of every list.
fn itoa(mut number: u64) -> Digits {
    let mut digits = Digits([0; 20], 20);
    loop {
        digits.1 -= 1;
        digits.0[digits.1] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return digits;
        }
    }
}

/// Objects are passed around behind this.
pub type Shared = Arc<Object>;

#[cfg(test)]
mod tests;
