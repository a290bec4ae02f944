//! events.k8s.io/v1 events: the first of a kind is created, the following ones become its series.
//!
//! The second tells that there is a series; from then on it is summed here and written when it is over, or when its event would expire otherwise, as
//! upstream's are. So thousands of objects that are tried again and again cost two writes each, however often they are tried. What is summed
//! is bounded: who has waited longest is written and forgotten first.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Patch};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use rustc_hash::FxBuildHasher;
use serde_json::json;
use tokio::sync::mpsc;

use super::{CAPACITY, EventType, RETRY, TRIES, event_meta};
use crate::Clock;

/// A series that got nothing for so long is over.
const SERIES_ENDS: Duration = Duration::from_secs(6 * 60);
/// A series that goes on is written again after so long: its event would expire otherwise.
const REFRESH: Duration = Duration::from_secs(30 * 60);
/// So many are summed at a time.
const REMEMBERED: usize = 65_536;
/// Writers beside each other. One after the other would wait for a disk each time; those of one series keep their order.
const LANES: usize = 8;

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

/// What makes two events the same thing happening again, as a number that no two others share.
fn identity(event: &Event) -> u128 {
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
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, parts).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

/// A series that may get more.
#[derive(Debug)]
struct Known {
    namespace: Box<str>,
    name: Box<str>,
    count: i32,
    last_observed: MicroTime,
    /// When it last got another, and when it was last written.
    last: Duration,
    written: Duration,
    /// Whether it got more than was written.
    unsaved: bool,
}

impl Known {
    /// The series as it stands, to be written.
    fn write(&mut self, now: Duration, again: Option<Event>) -> Write {
        (self.unsaved, self.written) = (false, now);
        let series = EventSeries { count: self.count, last_observed_time: self.last_observed.clone() };
        Write::Series { namespace: self.namespace.clone(), name: self.name.clone(), series, again: again.map(Box::new) }
    }
}

/// Something to write.
#[derive(Debug)]
enum Write {
    Create(Box<Event>),
    Series {
        namespace: Box<str>,
        name: Box<str>,
        series: EventSeries,
        /// What is created instead if the event has gone in the meantime.
        again: Option<Box<Event>>,
    },
}

impl Write {
    /// Writes about one event go through one lane.
    fn lane(&self) -> usize {
        let name = match self {
            Self::Create(event) => event.metadata.name.as_deref().unwrap_or_default(),
            Self::Series { name, .. } => name,
        };
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        hasher.finish() as usize % LANES
    }
}

/// All series that may get more.
#[derive(Debug, Default)]
struct Sums {
    known: HashMap<u128, Known, FxBuildHasher>,
}

impl Sums {
    /// Takes an event; what is to be written because of it.
    fn take(&mut self, event: Event, now: Duration) -> Vec<Write> {
        let identity = identity(&event);
        let observed = event.event_time.clone().unwrap_or(MicroTime(jiff::Timestamp::UNIX_EPOCH));
        if let Some(known) = self.known.get_mut(&identity)
            && now.saturating_sub(known.last) < SERIES_ENDS
        {
            known.count = known.count.saturating_add(1);
            (known.last_observed, known.last, known.unsaved) = (observed, now, true);
            return if known.count == 2 { vec![known.write(now, Some(event))] } else { Vec::new() };
        }
        let mut writes = Vec::new();
        if let Some(mut ended) = self.known.remove(&identity)
            && ended.unsaved
        {
            writes.push(ended.write(now, None));
        }
        if self.known.len() >= REMEMBERED {
            self.make_room(now, &mut writes);
        }
        let owned = |text: &Option<String>| text.clone().unwrap_or_default().into_boxed_str();
        let (namespace, name) = (owned(&event.metadata.namespace), owned(&event.metadata.name));
        let (last, written, unsaved) = (now, now, false);
        self.known
            .insert(identity, Known { namespace, name, count: 1, last_observed: observed, last, written, unsaved });
        writes.push(Write::Create(Box::new(event)));
        writes
    }

    /// What is over is written for the last time and forgotten; what goes on is written if it was not for long.
    fn due(&mut self, now: Duration) -> Vec<Write> {
        let mut writes = Vec::new();
        self.known.retain(|_, known| {
            let goes_on = now.saturating_sub(known.last) < SERIES_ENDS;
            if known.unsaved && (!goes_on || now.saturating_sub(known.written) >= REFRESH) {
                writes.push(known.write(now, None));
            }
            goes_on
        });
        writes
    }

    /// Forgets the quarter that waited longest.
    fn make_room(&mut self, now: Duration, writes: &mut Vec<Write>) {
        let mut ages: Vec<Duration> = self.known.values().map(|known| known.last).collect();
        let (_, oldest, _) = ages.select_nth_unstable(REMEMBERED / 4);
        let oldest = *oldest;
        self.known.retain(|_, known| {
            let stays = known.last > oldest;
            if !stays && known.unsaved {
                writes.push(known.write(now, None));
            }
            stays
        });
    }
}

async fn write_all(client: Client, mut incoming: mpsc::Receiver<Event>, clock: Arc<dyn Clock>) {
    let lanes: Vec<mpsc::Sender<Write>> = (0..LANES).map(|_| lane(client.clone(), clock.clone())).collect();
    let mut sums = Sums::default();
    // While there are series, their ends are looked for; an idle reporter waits for nothing.
    let mut look: Option<futures::future::BoxFuture<'static, ()>> = None;
    loop {
        let ended = async {
            match &mut look {
                Some(look) => look.await,
                None => std::future::pending().await,
            }
        };
        let writes = tokio::select! {
            event = incoming.recv() => match event {
                Some(event) => sums.take(event, clock.monotonic()),
                None => return,
            },
            () = ended => {
                look = None;
                sums.due(clock.monotonic())
            }
        };
        if look.is_none() && !sums.known.is_empty() {
            look = Some(clock.sleep(SERIES_ENDS));
        }
        for write in writes {
            if lanes[write.lane()].send(write).await.is_err() {
                return;
            }
        }
    }
}

fn lane(client: Client, clock: Arc<dyn Clock>) -> mpsc::Sender<Write> {
    let (sender, mut receiver) = mpsc::channel(CAPACITY / LANES);
    tokio::spawn(async move {
        while let Some(next) = receiver.recv().await {
            write(&client, next, &clock).await;
        }
    });
    sender
}

async fn write(client: &Client, mut write: Write, clock: &Arc<dyn Clock>) {
    for _ in 0..TRIES {
        let answer = match &write {
            Write::Create(event) => client.create(&**event).await,
            Write::Series { namespace, name, series, .. } => {
                client.patch::<Event>(namespace, name, &Patch::Strategic(json!({"series": series}))).await
            }
        };
        let Err(error) = answer else { return };
        if error.is_not_found()
            && let Write::Series { again, .. } = &mut write
        {
            // It expired in the meantime: the series goes on in a new one.
            let Some(event) = again.take() else { return };
            write = Write::Create(event);
        } else if error.code().is_some() {
            return tracing::debug!(%error, "the event was refused");
        } else {
            tracing::debug!(%error, "the event cannot be written; trying again");
            clock.sleep(RETRY).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(reason: &str, number: usize) -> Event {
        let regarding = ObjectReference { name: Some(format!("p{number}")), ..ObjectReference::default() };
        let metadata = event_meta(&regarding, jiff::Timestamp::UNIX_EPOCH);
        Event { metadata, regarding: Some(regarding), reason: Some(reason.into()), ..Event::default() }
    }

    /// What was written: 0 for a create, otherwise the count of a series.
    fn counts(writes: &[Write]) -> Vec<i32> {
        let count = |write: &Write| match write {
            Write::Create(_) => 0,
            Write::Series { series, .. } => series.count,
        };
        writes.iter().map(count).collect()
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_same_thing_again_is_summed_until_it_is_quiet() {
        let mut sums = Sums::default();
        let mut take = |reason, minute: u32| counts(&sums.take(event(reason, 0), MINUTE * minute));
        assert_eq!(take("FailedScheduling", 0), [0]);
        assert_eq!(take("FailedScheduling", 1), [2], "there is a series");
        assert_eq!(take("FailedScheduling", 2), [0; 0]);
        assert_eq!(take("FailedScheduling", 3), [0; 0]);
        assert_eq!(take("Scheduled", 3), [0], "it is something else");
        assert_eq!(counts(&sums.due(MINUTE * 5)), [0; 0], "it may go on");
        assert_eq!(counts(&sums.due(MINUTE * 9)), [4], "it is over");
        assert!(sums.known.is_empty());
        assert_eq!(counts(&sums.take(event("FailedScheduling", 0), MINUTE * 10)), [0], "another begins");
    }

    #[test]
    fn a_series_that_ended_unseen_is_written_before_the_next_begins() {
        let mut sums = Sums::default();
        for minute in 0..3 {
            sums.take(event("FailedScheduling", 0), MINUTE * minute);
        }
        assert_eq!(counts(&sums.take(event("FailedScheduling", 0), MINUTE * 20)), [3, 0]);
    }

    #[test]
    fn a_series_that_goes_on_is_written_before_its_event_expires() {
        let mut sums = Sums::default();
        let mut written = Vec::new();
        for minute in 0..70 {
            written.extend(counts(&sums.take(event("FailedScheduling", 0), MINUTE * minute)));
            written.extend(counts(&sums.due(MINUTE * minute)));
        }
        assert_eq!(written, [0, 2, 32, 62]);
    }

    #[test]
    fn thousands_that_fail_again_and_again_cost_two_writes_each_and_their_ends() {
        const PODS: usize = 5_000;
        let mut sums = Sums::default();
        let attempts = (0..10).flat_map(|attempt| (0..PODS).map(move |pod| (attempt, pod)));
        let writes: usize =
            attempts.map(|(at, pod)| sums.take(event("FailedScheduling", pod), MINUTE * at).len()).sum();
        assert_eq!(writes, 2 * PODS);
        assert_eq!(counts(&sums.due(MINUTE * 30)), vec![10; PODS]);
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_is_written() {
        let mut sums = Sums::default();
        let moment = |number: usize| Duration::from_millis(number as u64);
        let mut finals = 0;
        for number in 0..2 * REMEMBERED {
            for _ in 0..3 {
                let writes = counts(&sums.take(event("FailedScheduling", number), moment(number)));
                finals += writes.iter().filter(|count| **count == 3).count();
            }
            assert!(sums.known.len() <= REMEMBERED);
        }
        assert_eq!(finals + sums.known.len(), 2 * REMEMBERED);
    }
}
