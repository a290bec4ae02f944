//! Concurrent writers and watchers that survive the server's death, and write down everything they saw.
//!
//! Writers swap values on a few shared keys and record every operation with its outcome. Watchers resume from the last
//! revision they saw and never list again; together they must see one and the same sequence of events.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client::{Client, DeleteOptions, Error, Event, ListParams, WatchParams};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use testkit::build::config_map;
use testkit::linear::{Operation, Outcome, Recorded, Register, linearizable};
use tokio_util::sync::CancellationToken;

/// How long a client waits after a refused connection. Shorter than any restart, so none is missed.
const PAUSE: Duration = Duration::from_millis(5);

/// What writers did, by key, and which writes were acknowledged at which revision.
pub struct Histories {
    start: Instant,
    next_value: AtomicU64,
    operations: Mutex<HashMap<String, Vec<Recorded<Operation>>>>,
    acknowledged: Mutex<Vec<(u64, String, u64)>>,
    failure: Mutex<String>,
    pace: Mutex<Pace>,
    /// Nanoseconds for which the machine let nobody run, as whoever sees that counts them.
    pub stalled: AtomicU64,
}

/// When writes were acknowledged.
struct Pace {
    last: Instant,
    stalled: u64,
    longest: Duration,
}

impl Pace {
    /// How long it is since the last write, but for the time in which nobody could run.
    fn pause(&self, stalled: u64) -> Duration {
        self.last.elapsed().saturating_sub(Duration::from_nanos(stalled.saturating_sub(self.stalled)))
    }
}

impl Histories {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            next_value: AtomicU64::new(1),
            operations: Mutex::default(),
            acknowledged: Mutex::default(),
            failure: Mutex::default(),
            pace: Mutex::new(Pace { last: Instant::now(), stalled: 0, longest: Duration::ZERO }),
            stalled: AtomicU64::new(0),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).expect("a test is shorter than centuries")
    }

    fn record(&self, key: &str, called: u64, operation: Operation, known: bool) {
        let returned = known.then(|| self.now());
        let recorded = Recorded { called, returned, operation };
        self.operations.lock().entry(key.to_owned()).or_default().push(recorded);
    }

    /// Every key's history must be explainable one operation after the other.
    pub fn check_linearizable(&self, seed: u64) {
        for (key, history) in self.operations.lock().drain() {
            assert!(
                linearizable(&Register, &history),
                "seed {seed}: the history of {key} ({} operations) is not linearizable",
                history.len()
            );
        }
    }

    /// What last went wrong, for whoever finds that nothing goes right any more.
    pub fn last_failure(&self) -> String {
        self.failure.lock().clone()
    }

    fn fail(&self, what: &str, error: &Error) {
        *self.failure.lock() = format!("{what}: {error:?}");
    }

    fn acknowledge(&self, revision: u64, key: &str, value: u64) {
        self.acknowledged.lock().push((revision, key.to_owned(), value));
        self.paced(|_| ());
    }

    /// The longest time without an acknowledged write since this was asked for the last time, that since the last write included.
    pub fn longest_pause(&self) -> Duration {
        self.paced(|pace| std::mem::take(&mut pace.longest))
    }

    fn paced<T>(&self, then: impl FnOnce(&mut Pace) -> T) -> T {
        let stalled = self.stalled.load(Ordering::Relaxed);
        let mut pace = self.pace.lock();
        pace.longest = pace.longest.max(pace.pause(stalled));
        (pace.last, pace.stalled) = (Instant::now(), stalled.max(pace.stalled));
        then(&mut pace)
    }

    /// How many writes were acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.lock().len()
    }
}

/// A key as last read.
#[derive(Clone)]
struct Seen {
    value: u64,
    revision: String,
}

fn seen(map: &ConfigMap) -> Seen {
    let value = map.data.as_ref().and_then(|data| data.get("v")).and_then(|text| text.parse().ok());
    Seen { value: value.expect("every value is a number"), revision: revision(map) }
}

fn revision(map: &ConfigMap) -> String {
    map.metadata.resource_version.clone().expect("every stored object has a revision")
}

/// Reads a key and writes down what it held; `None` if no answer came.
pub async fn read(client: &Client, histories: &Histories, key: &str) -> Option<Option<u64>> {
    read_seen(client, histories, key).await.map(|held| held.map(|seen| seen.value))
}

async fn read_seen(client: &Client, histories: &Histories, key: &str) -> Option<Option<Seen>> {
    let called = histories.now();
    let held = match client.get::<ConfigMap>("default", key).await {
        Ok(map) => Some(seen(&map)),
        Err(error) if error.is_not_found() => None,
        Err(error) => {
            histories.fail("read", &error);
            return None;
        }
    };
    histories.record(key, called, Operation::Read(held.as_ref().map(|seen| seen.value)), true);
    Some(held)
}

/// Reads and swaps on random keys until told to stop.
pub async fn write(client: Client, histories: Arc<Histories>, keys: Arc<[String]>, seed: u64, stop: CancellationToken) {
    let mut random = StdRng::seed_from_u64(seed);
    while !stop.is_cancelled() {
        let key = keys.choose(&mut random).expect("there are keys");
        let Some(held) = read_seen(&client, &histories, key).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let value = histories.next_value.fetch_add(1, Ordering::Relaxed);
        let delete = held.is_some() && random.random_bool(0.1);
        let called = histories.now();
        let result = match &held {
            None => client.create(&config_map(key, "v", &value.to_string())).await.map(Some),
            Some(seen) if delete => {
                let options =
                    DeleteOptions { resource_version: Some(seen.revision.clone()), ..DeleteOptions::default() };
                client.delete::<ConfigMap>("default", key, &options).await.map(|()| None)
            }
            Some(seen) => {
                let mut map = config_map(key, "v", &value.to_string());
                map.metadata.resource_version = Some(seen.revision.clone());
                client.update(&map).await.map(Some)
            }
        };
        let outcome = match &result {
            Ok(_) => Outcome::Done,
            Err(error) if refused(error) => Outcome::Refused,
            Err(error) => {
                histories.fail("write", error);
                Outcome::Unknown
            }
        };
        let swap = Operation::Swap { expected: held.map(|seen| seen.value), new: (!delete).then_some(value), outcome };
        histories.record(key, called, swap, outcome != Outcome::Unknown);
        if let Ok(Some(map)) = &result {
            let at = revision(map).parse().expect("revisions are numbers");
            histories.acknowledge(at, key, value);
        }
        if outcome == Outcome::Unknown {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The server looked at it and said no; anything else leaves open what happened.
fn refused(error: &Error) -> bool {
    error.is_conflict() || error.is_already_exists() || error.is_not_found()
}

/// One event, as every watcher must see it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Observed {
    revision: u64,
    change: &'static str,
    key: String,
    value: u64,
}

/// The one sequence of events that all watchers must agree on.
#[derive(Default)]
pub struct Sequence {
    events: Mutex<Vec<Observed>>,
    relists: AtomicU64,
}

impl Sequence {
    /// Takes a watcher's `index`-th event: the first watcher to get there says what it is, all others must agree.
    fn take(&self, index: usize, event: Observed) {
        let mut events = self.events.lock();
        if let Some(known) = events.get(index) {
            assert_eq!(*known, event, "two watchers saw different events as number {index}");
            return;
        }
        assert_eq!(index, events.len(), "a watcher is ahead by more than one event");
        if let Some(last) = events.last() {
            assert!(last.revision < event.revision, "{event:?} came after {last:?}");
        }
        events.push(event);
    }

    /// Every acknowledged write must be among the events, with its value.
    pub fn check_complete(&self, histories: &Histories, seed: u64) {
        let events = self.events.lock();
        let by_revision: HashMap<u64, &Observed> = events.iter().map(|event| (event.revision, event)).collect();
        for (revision, key, value) in histories.acknowledged.lock().iter() {
            let event = by_revision.get(revision);
            assert!(
                event.is_some_and(|event| event.key == *key && event.value == *value),
                "seed {seed}: {key}={value} was acknowledged at {revision}, watchers saw {event:?}"
            );
        }
        assert_eq!(self.relists.load(Ordering::Relaxed), 0, "seed {seed}: watchers were told to list again");
    }

    /// How many events there were.
    pub fn len(&self) -> usize {
        self.events.lock().len()
    }
}

/// Watches from `from` on, over every death of the server, until the object `last` is seen.
pub async fn watch(client: Client, sequence: Arc<Sequence>, mut from: String, last: &'static str) {
    let mut index = 0;
    loop {
        let params = WatchParams { resource_version: Some(from.clone()), bookmarks: true, ..WatchParams::default() };
        let mut events = match client.watch::<ConfigMap>("default", &params).await {
            Ok(events) => events,
            Err(error) => {
                note_relist(&sequence, &error);
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        while let Some(event) = events.next().await {
            let (change, map) = match event {
                Ok(Event::Added(map)) => ("ADDED", map),
                Ok(Event::Modified(map)) => ("MODIFIED", map),
                Ok(Event::Deleted(map)) => ("DELETED", map),
                Ok(Event::Bookmark { revision, .. }) => {
                    from = revision;
                    continue;
                }
                Ok(Event::Undecodable { object, .. }) => panic!("cannot be read: {object:?}"),
                Err(error) => {
                    note_relist(&sequence, &error);
                    break;
                }
            };
            from = revision(&map);
            let key = map.metadata.name.clone().unwrap_or_default();
            if key == last {
                return;
            }
            let revision = from.parse().expect("revisions are numbers");
            sequence.take(index, Observed { revision, change, key, value: seen(&map).value });
            index += 1;
        }
    }
}

fn note_relist(sequence: &Sequence, error: &Error) {
    if error.is_gone() {
        sequence.relists.fetch_add(1, Ordering::Relaxed);
    }
}

/// The revision to watch from, before the first write. Whatever is there already is no part of the test.
pub async fn revision_now(client: &Client) -> String {
    client.list::<ConfigMap>("default", &ListParams::default()).await.expect("a list").revision
}
