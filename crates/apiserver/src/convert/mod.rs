//! Between the version an object is stored in and the version a client asked for.
//!
//! Most versions of a kind differ in nothing but `apiVersion`; the few that differ in more have a file each.

pub mod autoscaling;
pub mod events;

use std::sync::Arc;

use facts::Resource as Facts;
use machinery::object::{FieldPaths, Object};
use machinery::rest::WatchEvent;
use machinery::status::ApiError;
use machinery::{Value, value};

/// A stored object as the client asked for it. Nothing happens when that is the same.
pub fn from_storage(
    storage: &'static Facts,
    to: &'static Facts,
    object: Arc<Object>,
    fields: &FieldPaths,
) -> Result<Arc<Object>, ApiError> {
    if std::ptr::eq(storage, to) {
        return Ok(object);
    }
    let converted = between(storage, to, object.to_value());
    Object::from_value(&converted, object.revision(), fields).map(Arc::new).map_err(ApiError::internal)
}

/// A watch event as the client asked for it.
pub fn event(storage: &'static Facts, to: &'static Facts, event: WatchEvent, fields: &FieldPaths) -> WatchEvent {
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
    if (&from.group, &from.version) == (&to.group, &to.version) {
        return object;
    }
    match (&*from.kind, &*from.group, &*from.version, &*to.group, &*to.version) {
        ("Event", "events.k8s.io", _, "", _) => events::to_core(&mut object),
        ("Event", "", _, "events.k8s.io", _) => events::from_core(&mut object),
        ("HorizontalPodAutoscaler", _, "v1", _, "v2") => autoscaling::v1_to_v2(&mut object),
        ("HorizontalPodAutoscaler", _, "v2", _, "v1") => autoscaling::v2_to_v1(&mut object),
        _ => {}
    }
    value::set(&mut object, "apiVersion", to.api_version());
    if let Some(of) = to.ty {
        machinery::schema::complete(&mut object, of.def());
    }
    object
}
