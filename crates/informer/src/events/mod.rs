//! Events about objects, written for people: `kubectl describe` shows them.
//!
//! [`Recorder`] writes core/v1 events as upstream's controllers, kubelet and proxy do; [`Reporter`] writes events.k8s.io/v1 events as upstream's
//! scheduler does. Both hand an event over without waiting; a task of their own writes it. What must not flood the API is decided by the pure
//! [`correlator`] and [`series`].

mod correlator;
mod series;

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Kind, Patch};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;
use tokio::sync::mpsc;

use crate::Clock;
use correlator::{Correlator, Verdict};
pub use series::Reporter;

/// How many events wait to be written; further ones are dropped.
const CAPACITY: usize = 1000;
/// How often an event is tried when the API cannot be reached.
const TRIES: u32 = 12;
/// How long between two tries.
const RETRY: Duration = Duration::from_secs(10);

/// Whether an event is worth worrying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    /// It went as it should.
    Normal,
    /// Somebody should look at it.
    Warning,
}

impl EventType {
    /// As in the object.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

/// A reference to an object, as events have it.
pub fn reference<K: Kind>(object: &K) -> ObjectReference {
    let meta = object.metadata();
    ObjectReference {
        api_version: Some(K::API_VERSION.to_owned()),
        kind: Some(K::KIND.to_owned()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        resource_version: meta.resource_version.clone(),
        uid: meta.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Writes core/v1 events. Cheap to clone; its task ends when the last clone goes.
#[derive(Debug, Clone)]
pub struct Recorder {
    component: Arc<str>,
    host: Option<Arc<str>>,
    clock: Arc<dyn Clock>,
    queue: mpsc::Sender<Event>,
}

impl Recorder {
    /// A recorder for a component, such as `replicaset-controller`, which may run on a host of its own, such as a kubelet's.
    pub fn new(client: Client, component: &str, host: Option<&str>, clock: Arc<dyn Clock>) -> Self {
        let (queue, incoming) = mpsc::channel(CAPACITY);
        tokio::spawn(write_all(client, incoming, clock.clone()));
        Self { component: component.into(), host: host.map(Into::into), clock, queue }
    }

    /// Records that something happened to an object.
    pub fn event<K: Kind>(&self, object: &K, kind: EventType, reason: &str, message: impl Into<String>) {
        self.event_about(reference(object), kind, reason, message);
    }

    /// As [`Recorder::event`], about what a reference names, such as one container of a pod.
    pub fn event_about(&self, about: ObjectReference, kind: EventType, reason: &str, message: impl Into<String>) {
        let event = self.build(about, kind, reason, message.into());
        if self.queue.try_send(event).is_err() {
            tracing::warn!(component = %self.component, reason, "too many events wait to be written; dropping one");
        }
    }

    fn build(&self, about: ObjectReference, kind: EventType, reason: &str, message: String) -> Event {
        let now = self.clock.now();
        Event {
            metadata: event_meta(&about, now),
            involved_object: about,
            reason: Some(reason.to_owned()),
            message: Some(message),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            type_: Some(kind.text().to_owned()),
            source: Some(EventSource {
                component: Some(self.component.to_string()),
                host: self.host.as_ref().map(|host| host.to_string()),
            }),
            reporting_component: Some(self.component.to_string()),
            reporting_instance: Some(self.host.as_ref().map(|host| host.to_string()).unwrap_or_default()),
            ..Event::default()
        }
    }
}

/// Name and namespace of an event: unique by the nanosecond; events about cluster-scoped objects live in `default`.
fn event_meta(about: &ObjectReference, now: Timestamp) -> ObjectMeta {
    let name = about.name.as_deref().unwrap_or_default();
    let namespace = about.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default");
    ObjectMeta {
        name: Some(format!("{name}.{:x}", now.as_nanosecond())),
        namespace: Some(namespace.to_owned()),
        ..ObjectMeta::default()
    }
}

async fn write_all(client: Client, mut incoming: mpsc::Receiver<Event>, clock: Arc<dyn Clock>) {
    let mut correlator = Correlator::default();
    while let Some(event) = incoming.recv().await {
        match correlator.correlate(event, clock.monotonic()) {
            Verdict::Drop => {}
            Verdict::Create(event) => write(&client, &event, false, &clock, &mut correlator).await,
            Verdict::Count(event) => write(&client, &event, true, &clock, &mut correlator).await,
        }
    }
}

async fn write(client: &Client, event: &Event, mut known: bool, clock: &Arc<dyn Clock>, correlator: &mut Correlator) {
    let (namespace, name) =
        (event.metadata.namespace.as_deref().unwrap_or_default(), event.metadata.name.as_deref().unwrap_or_default());
    for _ in 0..TRIES {
        let answer = if known {
            let patch = Patch::Strategic(json!({
                "count": event.count,
                "lastTimestamp": event.last_timestamp,
                "message": event.message,
            }));
            client.patch::<Event>(namespace, name, &patch).await
        } else {
            client.create(event).await
        };
        match answer {
            Ok(written) => return correlator.written(&written),
            // It expired in the meantime: the count goes on in a new one.
            Err(error) if known && error.is_not_found() => known = false,
            // The API server answered, and would answer the same again (a namespace that ends, a quota, a conflict of names).
            Err(error) if error.code().is_some() => {
                return tracing::debug!(%error, namespace, name, "the event was refused");
            }
            Err(error) => {
                tracing::debug!(%error, namespace, name, "the event cannot be written; trying again");
                clock.sleep(RETRY).await;
            }
        }
    }
}
