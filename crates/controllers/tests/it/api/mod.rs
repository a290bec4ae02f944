//! The API server's semantics in memory, deterministic: what controllers can observe of it and no more.
//!
//! Names, uids and revisions come from counters; time comes from the test's clock; faults (conflicts, dropped watches) come from a seed. It knows
//! resources and merge keys from the table of facts, finalizers, graceful deletion, preconditions, generations and subresources. It does not validate.

mod line;
mod request;
mod store;

use std::collections::HashMap;
use std::sync::Arc;

use futures::{StreamExt, stream};
use http::{Method, StatusCode};
use informer::Clock;
use machinery::ApiError;
use machinery::object::{Field, FieldPaths, Object};
use machinery::rest::{Body, List, Payload, Request, Response, WatchEvent};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

pub use line::Line;
use request::Target;
pub use store::{Faults, Store};

/// The simulated API server.
pub struct Api {
    store: Mutex<Store>,
    /// Answers of aggregated API servers, by path without a query.
    aggregated: Mutex<HashMap<String, Value>>,
}

impl Api {
    pub fn new(clock: Arc<dyn Clock>, faults: Faults) -> Arc<Self> {
        Arc::new(Self { store: Mutex::new(Store::new(clock, faults)), aggregated: Mutex::default() })
    }

    /// Direct access, for the parts of the world that are not under test.
    pub fn with<T>(&self, f: impl FnOnce(&mut Store) -> T) -> T {
        f(&mut self.store.lock())
    }

    /// Lets an aggregated API server answer at a path.
    pub fn aggregate(&self, path: &str, answer: Value) {
        self.aggregated.lock().insert(path.to_owned(), answer);
    }

    fn answer(&self, target: &Target, method: &Method, body: Value) -> Result<Payload, ApiError> {
        let mut store = self.store.lock();
        let resource = target.resource();
        if store.is_hostile() && &*resource.plural == "events" && method != Method::GET {
            // Half of all writes would be about events, and no promise is about them.
            return Err(ApiError::method_not_allowed());
        }
        match (method.as_str(), target.name.as_deref(), target.subresource.as_str()) {
            ("GET", Some(name), "scale") => {
                store.get(resource, &target.namespace, name).map(|value| Payload::Value(scale(&value)))
            }
            ("PUT", Some(name), "scale") => {
                let mut value = store.get(resource, &target.namespace, name)?;
                value["spec"]["replicas"] = body["spec"]["replicas"].clone();
                store.update(resource, &target.namespace, name, "", value).map(|value| Payload::Value(scale(&value)))
            }
            ("GET", Some(name), _) => store.get(resource, &target.namespace, name).map(|value| payload(&value)),
            ("GET", None, _) if target.flag("watch") => {
                if !target.flag("sendInitialEvents") && store.forgets() {
                    return Err(ApiError::expired("too old resource version"));
                }
                Ok(watch(&mut store, target))
            }
            ("GET", None, _) => Ok(Payload::List(list(&store, target))),
            ("POST", None, _) => store.create(resource, &target.namespace, body).map(|value| payload(&value)),
            ("POST", Some(name), "eviction") => {
                store.delete(resource, &target.namespace, name, &json!({}))?;
                Ok(Payload::Value(ok()))
            }
            ("PUT", Some(name), sub) => {
                store.update(resource, &target.namespace, name, sub, body).map(|value| payload(&value))
            }
            ("PATCH", Some(name), sub) => {
                let kind = target.content_type.clone();
                store.patch(resource, &target.namespace, name, sub, &kind, body).map(|value| payload(&value))
            }
            ("DELETE", Some(name), _) => {
                store.delete(resource, &target.namespace, name, &body)?;
                Ok(Payload::Value(ok()))
            }
            ("DELETE", None, _) => {
                for (namespace, name) in store.names(resource, &target.namespace) {
                    store.delete(resource, &namespace, &name, &body)?;
                }
                Ok(Payload::Value(ok()))
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn respond(&self, request: Request) -> Response {
        let (parts, body) = request.into_parts();
        let body = match body {
            Body::Value(value) => value,
            Body::Bytes(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
            Body::Empty | Body::Incoming(_) => Value::Null,
        };
        let aggregated = self.aggregated.lock().get(parts.uri.path()).cloned();
        let answer = match aggregated.or_else(|| request::discovery(parts.uri.path())) {
            Some(document) => Ok(Payload::Value(document)),
            None => match Target::parse(&parts) {
                Some(target) => self.answer(&target, &parts.method, body),
                None => Err(ApiError::no_such_path()),
            },
        };
        let (code, payload) = match answer {
            Ok(payload) => (StatusCode::OK, payload),
            Err(error) => {
                (StatusCode::from_u16(error.code).expect("errors have valid codes"), Payload::Value(error.to_value()))
            }
        };
        let mut response = Response::new(payload);
        *response.status_mut() = code;
        response
    }
}

fn scale(value: &Value) -> Value {
    let labels = value["spec"]["selector"]["matchLabels"].as_object().cloned().unwrap_or_default();
    let selector: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": value["metadata"],
        "spec": {"replicas": value["spec"]["replicas"]},
        "status": {"replicas": value["status"]["replicas"].as_i64().unwrap_or_default(), "selector": selector.join(",")},
    })
}

fn ok() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Success"})
}

/// The fields that selectors of the controllers name.
pub fn fields() -> FieldPaths {
    FieldPaths::new(&[Field::text("spec.nodeName"), Field::text("spec.signerName"), Field::text("type")])
}

fn object(value: &Value) -> Arc<Object> {
    let revision = value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
    Arc::new(Object::from_value(value, revision, &fields()).expect("stored objects are well-formed"))
}

fn payload(value: &Value) -> Payload {
    Payload::Object(object(value))
}

fn list(store: &Store, target: &Target) -> List {
    let resource = target.resource();
    let items = store.list(resource, &target.namespace).into_iter().map(|value| object(&value));
    List {
        api_version: resource.api_version(),
        kind: resource.list_kind.to_string(),
        revision: store.revision(),
        next: None,
        remaining: None,
        items: items.filter(|object| target.selects(object.meta())).collect(),
    }
}

fn watch(store: &mut Store, target: &Target) -> Payload {
    let resource = target.resource();
    let (sender, receiver) = mpsc::unbounded_channel();
    if target.flag("sendInitialEvents") {
        let now = list(store, target);
        for item in now.items {
            let _ = sender.send(WatchEvent::Added(item));
        }
        let _ = sender.send(WatchEvent::Bookmark { revision: now.revision, initial_events_end: true });
    } else {
        let from = target.query("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or_default();
        for (kind, value) in store.history(resource, &target.namespace, from) {
            let event = event(kind, &value);
            let _ = sender.send(event);
        }
    }
    store.add_watcher(resource, &target.namespace, sender);
    let selecting = target.clone();
    let events =
        stream::unfold(receiver, |mut receiver| async move { receiver.recv().await.map(|event| (event, receiver)) });
    let events = events.filter(move |event| {
        let selected = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                selecting.selects(object.meta())
            }
            _ => true,
        };
        futures::future::ready(selected)
    });
    Payload::Watch(events.boxed())
}

/// What became of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    Added,
    Modified,
    Deleted,
}

fn event(happened: Happened, value: &Value) -> WatchEvent {
    match happened {
        Happened::Added => WatchEvent::Added(object(value)),
        Happened::Modified => WatchEvent::Modified(object(value)),
        Happened::Deleted => WatchEvent::Deleted(object(value)),
    }
}
