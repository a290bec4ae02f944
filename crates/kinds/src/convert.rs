//! Between the version an object is stored in and the version a client asked for.
//!
//! Most versions of a kind differ in nothing but `apiVersion`; the few that differ in more have a `convert.rs` in their folder.

use std::borrow::Cow;
use std::sync::Arc;

use facts::Resource as Facts;
use machinery::object::{FieldPaths, Object};
use machinery::rest::WatchEvent;
use machinery::status::ApiError;
use machinery::{Value, value};

/// A stored object as the client asked for it. Nothing happens when that is the same.
pub fn from_storage(
    storage: &Facts,
    to: &Facts,
    object: Arc<Object>,
    fields: &FieldPaths,
) -> Result<Arc<Object>, ApiError> {
    if std::ptr::eq(storage, to) {
        return Ok(object);
    }
    let converted = between(storage, to, object.to_value());
    Object::from_value(&converted, object.revision(), fields).map(Arc::new).map_err(ApiError::internal)
}

/// An object that somebody else stored, upstream's API server for example, in the version in which it is stored here, with what is filled in where nothing is
/// said: whoever keeps protobuf keeps less than what clients are shown.
pub fn to_storage(storage: &Facts, mut object: Value) -> Value {
    let (was, will) = (value::text(&object, "apiVersion").to_owned(), storage.api_version());
    let group = |version: &str| version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
    if group(&was) != group(&will) || value::text(&object, "kind") != &*storage.kind {
        return object;
    }
    if was != will {
        convert(storage, &was, &will, &mut object);
    }
    if let Some(of) = storage.ty {
        machinery::schema::default(&mut object, of.def());
    }
    crate::strategy(&storage.group, &storage.kind).default(&mut object);
    if let Some(of) = storage.ty {
        machinery::schema::complete(&mut object, of.def());
    }
    object
}

fn convert(to: &Facts, was: &str, will: &str, object: &mut Value) {
    let row = crate::kind(&to.group, &to.kind);
    if let Some(conversion) = row.and_then(|row| row.conversion(was, will)) {
        (conversion.convert)(object);
    }
    value::set(object, "apiVersion", will);
    if let Some(of) = to.ty {
        machinery::schema::complete(object, of.def());
    }
}

/// A watch event as the client asked for it.
pub fn event(storage: &Facts, to: &Facts, event: WatchEvent, fields: &FieldPaths) -> WatchEvent {
    let convert = |object, make: fn(Arc<Object>) -> WatchEvent| match from_storage(storage, to, object, fields) {
        Ok(object) => make(object),
        Err(error) => WatchEvent::Error(error),
    };
    match event {
        WatchEvent::Added(object) => convert(object, WatchEvent::Added),
        WatchEvent::Modified(object) => convert(object, WatchEvent::Modified),
        WatchEvent::Deleted(object) => convert(object, WatchEvent::Deleted),
        other => other,
    }
}

/// An object of one version in another version of the same kind.
pub fn between(from: &Facts, to: &Facts, mut object: Value) -> Value {
    if is_same(from, to) {
        return object;
    }
    convert(to, &from.api_version(), &to.api_version(), &mut object);
    object
}

/// As [`between`], without a copy where the versions are the same.
pub fn seen<'a>(from: &Facts, to: &Facts, object: &'a Value) -> Cow<'a, Value> {
    match is_same(from, to) {
        true => Cow::Borrowed(object),
        false => Cow::Owned(between(from, to, object.clone())),
    }
}

fn is_same(from: &Facts, to: &Facts) -> bool {
    (&from.group, &from.version) == (&to.group, &to.version)
}
