//! One stored object: its encoding, shared by everybody, and the few fields that selectors and indexes need.
//!
//! The encoding is canonical JSON that starts with `apiVersion`, `kind` and `metadata` and has no `resourceVersion`: that
//! is the revision of the write, known only after it. It is spliced in when the object is sent, at an offset found once.
//! So the bytes in the store, in the watch cache and on the wire are the same bytes.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::{BufMut, Bytes, BytesMut};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

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

/// A field of a kind that field selectors can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// What selectors call it.
    pub label: Cow<'static, str>,
    /// What an object has that does not set it.
    pub unset: &'static str,
    /// Where it is, as dotted paths, of which the first that is set counts. Empty: where its label says.
    from: &'static [&'static str],
}

impl Field {
    /// One that is a text.
    pub const fn text(label: &'static str) -> Self {
        Self { label: Cow::Borrowed(label), unset: "", from: &[] }
    }

    /// One that a definition names at run time.
    pub fn named(label: String) -> Self {
        Self { label: Cow::Owned(label), unset: "", from: &[] }
    }

    /// One that is true or false.
    pub const fn flag(label: &'static str) -> Self {
        Self { label: Cow::Borrowed(label), unset: "false", from: &[] }
    }

    /// One that is a number.
    pub const fn count(label: &'static str) -> Self {
        Self { label: Cow::Borrowed(label), unset: "0", from: &[] }
    }

    /// As [`Field::text`], found elsewhere than its label says.
    pub const fn text_found_at(label: &'static str, from: &'static [&'static str]) -> Self {
        Self { label: Cow::Borrowed(label), unset: "", from }
    }

    /// As [`Field::count`], found elsewhere than its label says.
    pub const fn count_found_at(label: &'static str, from: &'static [&'static str]) -> Self {
        Self { label: Cow::Borrowed(label), unset: "0", from }
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        let own = self.from.is_empty().then_some(&*self.label);
        own.into_iter().chain(self.from.iter().copied())
    }
}

/// The fields of a kind that field selectors can name, besides `metadata.name` and `metadata.namespace`.
#[derive(Debug, Clone, Default)]
pub struct FieldPaths {
    fields: Vec<Field>,
    /// What selectors call them, shared by all objects.
    labels: Vec<Arc<str>>,
    /// The keys on the way to each place where one of the fields may be, in their order.
    split: Vec<Vec<Box<str>>>,
}

impl FieldPaths {
    pub fn new(fields: &[Field]) -> Self {
        let split =
            fields.iter().flat_map(Field::paths).map(|path| path.split('.').map(Into::into).collect()).collect();
        let labels = fields.iter().map(|field| Arc::from(&*field.label)).collect();
        Self { fields: fields.to_vec(), labels, split }
    }

    /// The field that selectors call so.
    pub fn get(&self, label: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.label == label)
    }
}

/// What selectors and indexes read without decoding the object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Meta {
    /// Empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// Unique in its namespace.
    pub name: Box<str>,
    /// Unique over all time.
    pub uid: Box<str>,
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The selectable fields that are set, in the order of the kind's [`FieldPaths`].
    pub fields: Box<[(Arc<str>, Box<str>)]>,
    /// Whether `deletionTimestamp` is set.
    pub deleting: bool,
}

impl Meta {
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(candidate, _)| (**candidate).cmp(key)).ok()?;
        Some(&self.labels[at].1)
    }

    /// The value of a selectable field, if it is set.
    pub fn field(&self, label: &str) -> Option<&str> {
        match label {
            "metadata.name" => Some(&self.name),
            "metadata.namespace" => Some(&self.namespace),
            _ => self.fields.iter().find(|(candidate, _)| **candidate == *label).map(|(_, value)| &**value),
        }
    }
}

/// One object as it is stored and served. Immutable; share it.
pub struct Object {
    json: Bytes,
    splice: u32,
    revision: u64,
    meta: Arc<Meta>,
    /// The protobuf message, from the first reader that wants one on.
    message: OnceLock<Box<[u8]>>,
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
            return Self::from_stored(encode(&foreign), revision, fields);
        };
        let mut deserializer = serde_json::Deserializer::from_slice(&json);
        let meta = Arc::new(extract(&mut deserializer, fields)?);
        deserializer.end()?;
        Ok(Self { json, splice, revision, meta, message: OnceLock::new() })
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

    /// The revision that wrote it.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Name, namespace, labels and the like.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The encoding without `resourceVersion`.
    pub fn stored(&self) -> &Bytes {
        &self.json
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
        let (head, tail) = self.json.split_at(self.splice as usize);
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
    pub fn message(&self, of: &facts::Type) -> &[u8] {
        self.message.get_or_init(|| crate::codec::protobuf::encode_message(&self.to_value(), of).into_boxed_slice())
    }

    /// `apiVersion` and `kind`, which stand before everything else, so that nothing else is read.
    pub fn type_meta(&self) -> (String, String) {
        let mut head = self.json[..self.splice as usize - METADATA.len()].to_vec();
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
        let mut value: Value = json::decode_own(&self.json).expect("an object's encoding was parsed when it was made");
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
        Object { json, splice, revision, meta, message: OnceLock::new() }
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

/// One pass over an encoding or a tree that keeps what [`Meta`] needs and skips the rest.
fn extract<'de, D>(from: D, fields: &FieldPaths) -> Result<Meta, Error>
where
    D: Deserializer<'de, Error = serde_json::Error>,
{
    let mut found = Found { meta: Meta::default(), values: vec![None; fields.split.len()], path: Vec::new() };
    Level { found: &mut found, fields }.deserialize(from)?;
    let mut meta = found.meta;
    let mut values = found.values.into_iter();
    let mut value = |field: &Field| {
        let places = values.by_ref().take(field.paths().count());
        places.fold(None, |first, value| first.or(value.filter(|value| !value.is_empty())))
    };
    let labelled = fields.fields.iter().zip(&fields.labels);
    meta.fields = labelled.filter_map(|(field, label)| Some((label.clone(), value(field)?.into_boxed_str()))).collect();
    Ok(meta)
}

struct Found<'f> {
    meta: Meta,
    values: Vec<Option<String>>,
    /// The keys on the way to where the reader is.
    path: Vec<&'f str>,
}

/// An object on the way to one of the wanted fields.
struct Level<'a, 'f> {
    found: &'a mut Found<'f>,
    fields: &'f FieldPaths,
}

impl<'de> DeserializeSeed<'de> for Level<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let at_metadata = self.found.path == ["metadata"];
        let depth = self.found.path.len();
        while let Some(key) = map.next_key_seed(Key)? {
            if at_metadata && self.metadata(&key, &mut map)? {
                continue;
            }
            let next = self.fields.split.iter().find_map(|path| {
                let leads = path.len() > depth && *path[depth] == *key && is_beginning(&self.found.path, path);
                leads.then(|| &*path[depth])
            });
            match next.or((depth == 0 && key == "metadata").then_some("metadata")) {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(step) => {
                    self.found.path.push(step);
                    map.next_value_seed(Level { found: self.found, fields: self.fields })?;
                    self.found.path.pop();
                }
            }
        }
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        self.value(|| text.to_owned());
        Ok(())
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.value(|| value.to_string());
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.value(|| value.to_string());
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.value(|| value.to_string());
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.value(|| value.to_string());
        Ok(())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        if self.found.path.is_empty() {
            return Err(A::Error::custom("an object was expected, not a list"));
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

fn is_beginning(way: &[&str], path: &[Box<str>]) -> bool {
    way.len() <= path.len() && way.iter().zip(path).all(|(step, key)| **step == **key)
}

/// A key, borrowed from the encoding unless it has escapes: most keys are only looked at and skipped.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, key: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

impl Level<'_, '_> {
    fn value(self, text: impl FnOnce() -> String) {
        // More than one field may be found at a place.
        let split = &self.fields.split;
        let here = |path: &Vec<Box<str>>| path.len() == self.found.path.len() && is_beginning(&self.found.path, path);
        let places: Vec<usize> = (0..split.len()).filter(|at| here(&split[*at])).collect();
        let Some((first, others)) = places.split_first() else { return };
        let text = text();
        others.iter().for_each(|at| self.found.values[*at] = Some(text.clone()));
        self.found.values[*first] = Some(text);
    }

    /// Takes one field of `metadata`; false if it is not one that [`Meta`] keeps.
    fn metadata<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error> {
        let meta = &mut self.found.meta;
        match key {
            "name" => meta.name = map.next_value::<Option<Box<str>>>()?.unwrap_or_default(),
            "namespace" => meta.namespace = map.next_value::<Option<Box<str>>>()?.unwrap_or_default(),
            "uid" => meta.uid = map.next_value::<Option<Box<str>>>()?.unwrap_or_default(),
            "deletionTimestamp" => meta.deleting = map.next_value::<Option<IgnoredAny>>()?.is_some(),
            "labels" => {
                type Labels = std::collections::BTreeMap<Box<str>, Option<Box<str>>>;
                let labels = map.next_value::<Option<Labels>>()?.unwrap_or_default();
                meta.labels = labels.into_iter().map(|(key, value)| (key, value.unwrap_or_default())).collect();
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Objects are passed around behind this.
pub type Shared = Arc<Object>;

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod_fields() -> FieldPaths {
        FieldPaths::new(&[Field::text("spec.nodeName"), Field::text("status.phase"), Field::flag("spec.hostNetwork")])
    }

    #[test]
    fn what_upstream_stored_is_read() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"k": "dg=="},
            "metadata": {"name": "a", "namespace": "d", "uid": "7", "creationTimestamp": "2026-01-02T03:04:05Z"}});
        let of = facts::type_of("", "v1", "Secret").expect("a type").def();
        let stored = Bytes::from(protobuf::encode(&secret, of));
        let object = Object::from_stored(stored, 9, &FieldPaths::default()).expect("an object");
        assert_eq!((&*object.meta().name, object.revision()), ("a", 9));
        assert_eq!(object.to_value()["data"], secret["data"]);
        assert!(Object::from_stored(Bytes::from_static(b"k8s\0junk"), 9, &FieldPaths::default()).is_err());
    }

    #[test]
    fn the_revision_is_spliced_into_shared_bytes() {
        let value = json!({
            "spec": {"nodeName": "n1", "hostNetwork": true, "containers": [{"name": "c"}]},
            "data": {"metadata": {"name": "decoy"}},
            "kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": "a", "namespace": "d", "resourceVersion": "1", "labels": {"b": "2", "a": "1"}},
        });
        let object = Object::from_value(&value, 42, &pod_fields()).expect("an object");
        let mut served = value;
        served["metadata"]["resourceVersion"] = json!("42");
        assert_eq!(serde_json::from_slice::<Value>(&object.json()).expect("JSON"), served);
        assert_eq!(object.to_value(), served);
        let mut item = BytesMut::new();
        object.write_item_json(&mut item);
        let served = served.as_object_mut().expect("an object");
        served.retain(|key, _| key != "kind" && key != "apiVersion");
        assert_eq!(serde_json::from_slice::<Value>(&item).expect("JSON"), Value::Object(served.clone()));
        let meta = object.meta();
        assert_eq!((&*meta.name, &*meta.namespace), ("a", "d"));
        assert_eq!(meta.label("b"), Some("2"));
        assert_eq!(meta.field("spec.nodeName"), Some("n1"));
        assert_eq!(meta.field("spec.hostNetwork"), Some("true"));
        assert_eq!(meta.field("status.phase"), None);
    }

    #[test]
    fn a_tree_says_of_itself_what_its_encoding_says() {
        let fields = pod_fields();
        for value in [
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": "a", "namespace": "d", "uid": "u", "labels": {"b": null, "a": "1"},
                    "deletionTimestamp": "2026-01-02T03:04:05Z"},
                "spec": {"nodeName": "n\"1\"", "hostNetwork": true}, "status": {"phase": 3}}),
            json!({"metadata": {"name": null, "deletionTimestamp": null, "labels": null}, "spec": ["x"], "status": null}),
            json!({"kind": "X"}),
        ] {
            let draft = Draft::new(&value, &fields).expect("a draft");
            let stored = Object::from_stored(draft.stored().clone(), 3, &fields).expect("an object");
            assert_eq!(draft.at_revision(3).meta(), stored.meta(), "{value}");
            assert_eq!(draft.at_revision(3).json(), stored.json());
        }
        assert!(Draft::new(&json!({"metadata": {"name": 3}}), &fields).is_err());
    }

    #[test]
    fn foreign_encodings_are_brought_into_our_form() {
        let foreign = br#"{"metadata":{"resourceVersion":"7","name":"x"},"kind":"Node","apiVersion":"v1"}"#;
        let object = Object::from_stored(Bytes::from_static(foreign), 9, &FieldPaths::default()).expect("an object");
        assert!(object.json().starts_with(br#"{"apiVersion":"v1","kind":"Node","metadata":{"resourceVersion":"9","#));
    }

    #[test]
    fn an_empty_metadata_splices_too() {
        let object = Object::from_value(&json!({"kind": "X"}), 5, &FieldPaths::default()).expect("an object");
        assert_eq!(object.json(), r#"{"kind":"X","metadata":{"resourceVersion":"5"}}"#);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for bytes in ["", "[]", "{\"metadata\":{\"name\":3}}", "{\"metadata\":{}} x"] {
            assert!(Object::from_stored(Bytes::from(bytes), 1, &FieldPaths::default()).is_err(), "{bytes}");
        }
    }
}
