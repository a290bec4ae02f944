//! events.k8s.io/v1 events: the first of a kind is created, the following ones become its series.

use std::sync::Arc;
use std::time::Duration;

use client::{Client, Patch};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use serde_json::json;
use tokio::sync::mpsc;

use super::correlator::Recent;
use super::{CAPACITY, EventType, RETRY, TRIES, event_meta};
use crate::Clock;

/// A series that got nothing for so long is over.
const SERIES_ENDS: Duration = Duration::from_secs(6 * 60);

/// Writes events.k8s.io/v1 events. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Reporter {
    controller: Arc<str>,
    instance: Arc<str>,
    clock: Arc<dyn Clock>,
    queue: mpsc::Sender<Event>,
}

impl Reporter {
    /// A reporter for a controller, such as `default-scheduler`, and the instance of it, such as `default-scheduler-host1`.
    pub fn new(client: Client, controller: &str, instance: &str, clock: Arc<dyn Clock>) -> Self {
        let (queue, incoming) = mpsc::channel(CAPACITY);
        tokio::spawn(write_all(client, incoming, clock.clone()));
        Self { controller: controller.into(), instance: instance.into(), clock, queue }
    }

    /// Reports what was done, or tried, with an object.
    pub fn event(
        &self,
        regarding: ObjectReference,
        related: Option<ObjectReference>,
        kind: EventType,
        reason: &str,
        action: &str,
        note: impl Into<String>,
    ) {
        let now = self.clock.now();
        let event = Event {
            metadata: event_meta(&regarding, now),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(self.controller.to_string()),
            reporting_instance: Some(self.instance.to_string()),
            action: Some(action.to_owned()),
            reason: Some(reason.to_owned()),
            regarding: Some(regarding),
            related,
            note: Some(note.into()),
            type_: Some(kind.text().to_owned()),
            ..Event::default()
        };
        if self.queue.try_send(event).is_err() {
            tracing::warn!(controller = %self.controller, reason, "too many events wait to be written; dropping one");
        }
    }
}

/// What makes two events the same thing happening again.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Identity([String; 10]);

impl Identity {
    fn of(event: &Event) -> Self {
        let (regarding, related) = (event.regarding.as_ref(), event.related.as_ref());
        let parts = [
            event.type_.as_ref(),
            event.action.as_ref(),
            event.reason.as_ref(),
            event.reporting_controller.as_ref(),
            event.reporting_instance.as_ref(),
            regarding.and_then(|object| object.kind.as_ref()),
            regarding.and_then(|object| object.namespace.as_ref()),
            regarding.and_then(|object| object.name.as_ref()),
            regarding.and_then(|object| object.uid.as_ref()),
            related.and_then(|object| object.uid.as_ref()),
        ];
        Self(parts.map(|part| part.cloned().unwrap_or_default()))
    }
}

/// The first event of a series, and when it last got another.
#[derive(Debug)]
struct Known {
    event: Event,
    last: Duration,
}

/// The event to write, and whether it is a series that goes on.
fn correlate(known: &mut Recent<Identity, Known>, event: Event, now: Duration) -> (Event, bool) {
    let identity = Identity::of(&event);
    if let Some(series) = known.get(&identity)
        && now.saturating_sub(series.last) < SERIES_ENDS
    {
        let count = series.event.series.as_ref().map_or(1, |series| series.count);
        let last = event.event_time.unwrap_or(MicroTime(jiff::Timestamp::UNIX_EPOCH));
        series.event.series = Some(EventSeries { count: count.saturating_add(1), last_observed_time: last });
        series.last = now;
        return (series.event.clone(), true);
    }
    known.remove(&identity);
    known.insert(identity, Known { event: event.clone(), last: now });
    (event, false)
}

async fn write_all(client: Client, mut incoming: mpsc::Receiver<Event>, clock: Arc<dyn Clock>) {
    let mut known = Recent::default();
    while let Some(event) = incoming.recv().await {
        let (event, goes_on) = correlate(&mut known, event, clock.monotonic());
        write(&client, &event, goes_on, &clock).await;
    }
}

async fn write(client: &Client, event: &Event, mut goes_on: bool, clock: &Arc<dyn Clock>) {
    let (namespace, name) =
        (event.metadata.namespace.as_deref().unwrap_or_default(), event.metadata.name.as_deref().unwrap_or_default());
    for _ in 0..TRIES {
        let answer = if goes_on {
            client.patch::<Event>(namespace, name, &Patch::Strategic(json!({"series": event.series}))).await
        } else {
            client.create(event).await
        };
        match answer {
            Ok(_) => return,
            Err(error) if goes_on && error.is_not_found() => goes_on = false,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn event(reason: &str, note: &str) -> Event {
        Event { reason: Some(reason.into()), note: Some(note.into()), ..Event::default() }
    }

    #[test]
    fn the_same_thing_again_becomes_a_series_until_it_is_quiet() {
        let mut known = Recent::default();
        let (first, goes_on) = correlate(&mut known, event("FailedScheduling", "0/1 nodes"), Duration::ZERO);
        assert!(!goes_on && first.series.is_none());
        for count in 2..4 {
            let (again, goes_on) =
                correlate(&mut known, event("FailedScheduling", "0/2 nodes"), Duration::from_secs(60));
            assert!(goes_on);
            assert_eq!(again.series.map(|series| series.count), Some(count));
        }
        let (other, goes_on) = correlate(&mut known, event("Scheduled", ""), Duration::from_secs(60));
        assert!(!goes_on && other.series.is_none());
        let later = Duration::from_secs(60) + SERIES_ENDS;
        assert!(!correlate(&mut known, event("FailedScheduling", ""), later).1);
    }
}
