//! SIGKILL under load, and torn ends besides: nothing acknowledged is lost, nothing seen by a watcher is undone, history is what it was.
//!
//! The test binary runs itself again as the process to be killed. Every writer's operations follow from the seed, so what
//! a store may hold is known: all that was acknowledged and, per writer, at most the one operation under way.
//! `STORE_CRASH_ROUNDS` and `STORE_CRASH_SEED` make a longer or a particular run.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use store::embedded::{Embedded, Options};
use store::{Event, Expect, Op, Outcome, Revision, Store, Txn};

use crate::support::{Fixture, setting, take};

const WRITERS: u64 = 16;
const WATCHERS: usize = 4;
const KEYS: u64 = 6;
/// How a frame of the log begins, where it says what it is, and how it says that it is a segment's last.
const FRAME: &[u8] = b"\xf7TRB";
const KIND: usize = 12;
const SEAL: u8 = 1;

/// What a writer does at one step: a key of its own, and a value or none.
fn operation(seed: u64, writer: u64, step: u64) -> (String, Option<String>) {
    let mut rng = StdRng::seed_from_u64(seed ^ (writer << 40) ^ step);
    let key = format!("w{writer:02}/k{}", rng.random_range(0..KEYS));
    let length = rng.random_range(0..600);
    let value = (rng.random_range(0..5) > 0).then(|| format!("{step}:{}", "x".repeat(length)));
    (key, value)
}

/// A writer's keys after its first `steps` operations.
fn state(seed: u64, writer: u64, steps: u64) -> BTreeMap<String, String> {
    let mut state = BTreeMap::new();
    for step in 0..steps {
        match operation(seed, writer, step) {
            (key, Some(value)) => state.insert(key, value),
            (key, None) => state.remove(&key),
        };
    }
    state
}

/// Whether old history goes. Small segments either way, so that the kill meets every part of the engine.
fn options(compacting: bool) -> Options {
    let history_revisions = if compacting { 300 } else { u64::MAX };
    let past_unit = 8 << 10;
    Options {
        segment_bytes: 32 << 10,
        history_time: Duration::ZERO,
        history_revisions,
        past_unit,
        ..Options::default()
    }
}

/// The process that is killed; it does nothing unless it was started as such.
#[test]
fn child() {
    let Ok(dir) = std::env::var("STORE_CRASH_DIR") else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (seed, compacting) = (number("STORE_CRASH_CHILD_SEED"), number("STORE_CRASH_COMPACTING") == 1);
    let steps: Vec<u64> =
        std::env::var("STORE_CRASH_STEPS").unwrap().split(',').map(|step| step.parse().unwrap()).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async move {
        let store = Embedded::open(Path::new(&dir), options(compacting)).unwrap();
        let revision = store.revision().await.unwrap();
        for _ in 0..WATCHERS {
            let mut watch = store.watch("/registry/", revision).await.unwrap();
            tokio::spawn(async move {
                while let Some(Ok(event)) = watch.next().await {
                    say(&format!("saw {} {}", event.revision, event.key));
                }
            });
        }
        let writers = (0..WRITERS).map(|w| tokio::spawn(keep_writing(Arc::clone(&store), seed, w, steps[w as usize])));
        join_all(writers.collect::<Vec<_>>()).await;
    });
}

async fn keep_writing(store: Arc<Embedded>, seed: u64, writer: u64, from: u64) {
    for step in from.. {
        let (name, value) = operation(seed, writer, step);
        let key: Arc<str> = format!("/registry/{name}").into();
        let expect = store.get(&key).await.unwrap().map_or(Expect::Absent, |r| Expect::At(r.revision));
        let op = value.map_or(Op::Delete, |value| Op::Put { value: value.into(), ttl: None });
        match store.txn(Txn { key, expect, op, write: None, note: Default::default() }).await.unwrap() {
            Outcome::Committed(revision) => say(&format!("ack {writer} {step} {revision}")),
            Outcome::Conflict(current) => panic!("nobody else writes {name}: {current:?}"),
        }
    }
}

/// One whole line, or none, whenever the process is killed.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// What the killed process had reported.
#[derive(Default)]
struct Report {
    /// Per writer the number of acknowledged operations so far.
    acknowledged: BTreeMap<u64, u64>,
    /// Revisions that were acknowledged or seen by a watcher.
    known: BTreeMap<Revision, Option<String>>,
}

/// Starts the child, kills it after `acks` acknowledgements, and reads what it had reported until then.
fn run_and_kill(dir: &Path, seed: u64, compacting: bool, steps: &[u64], acks: usize) -> Report {
    let steps: Vec<_> = steps.iter().map(u64::to_string).collect();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crash::child", "--exact", "--nocapture", "--test-threads=1"])
        .env("STORE_CRASH_DIR", dir)
        .env("STORE_CRASH_CHILD_SEED", seed.to_string())
        .env("STORE_CRASH_COMPACTING", u8::from(compacting).to_string())
        .env("STORE_CRASH_STEPS", steps.join(","))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut report = Report::default();
    let mut count = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["ack", writer, step, revision] => {
                report.acknowledged.insert(writer.parse().unwrap(), step.parse::<u64>().unwrap() + 1);
                report.known.entry(revision.parse().unwrap()).or_default();
                count += 1;
                if count == acks {
                    // What is in the pipe by then is still read.
                    child.kill().unwrap();
                }
            }
            ["saw", revision, key] => {
                report.known.insert(revision.parse().unwrap(), Some(key.to_owned()));
            }
            _ => {}
        }
    }
    child.wait().unwrap();
    assert!(count >= acks, "the child ended by itself after {count} acknowledgements");
    report
}

async fn survive(seed: u64, rounds: u64, compacting: bool) {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = StdRng::seed_from_u64(seed);
    let mut steps = vec![0; WRITERS as usize];
    let mut history: Vec<Event> = Vec::new();
    for round in 0..rounds {
        let acks = rng.random_range(1..1500);
        let report = run_and_kill(dir.path(), seed, compacting, &steps, acks);
        if compacting {
            tear(dir.path(), &mut rng);
        }
        let store = Embedded::open(dir.path(), options(compacting)).unwrap();
        let f = Fixture { store: Arc::clone(&store) as _, root: "/registry/".into() };
        let current = f.revision().await;
        let latest = report.known.keys().next_back().copied().unwrap_or(0);
        assert!(current >= latest, "seed {seed} round {round}: revision {latest} was known, {current} is left");
        for (writer, step) in steps.iter_mut().enumerate() {
            let acknowledged = report.acknowledged.get(&(writer as u64)).copied().unwrap_or(*step);
            *step = check_writer(&f, seed, writer as u64, acknowledged).await;
        }
        if !compacting {
            check_history(&f, &mut rng, &mut history, &report, current).await;
        }
        check_past(&f, &mut rng, &report, current).await;
        let page = f.all_at(current).await.unwrap();
        assert_eq!(page.records, f.all().await.records);
        // Every other life ends well, every other is a plain drop of a store that was not written to.
        if round % 2 == 0 {
            store.close().await;
        }
    }
}

/// What a machine that lost its power leaves besides: the beginning of a group that nobody had an answer for, at the end of the log, and half a
/// table of the past, once under the name that it has while it is made.
fn tear(dir: &Path, rng: &mut StdRng) {
    let named = |dir: &Path, extension: &str| {
        let files = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
        files.sort();
        files.pop()
    };
    let newest = named(dir, "log").expect("a log");
    let bytes = std::fs::read(&newest).unwrap();
    // No key and no value has these bytes.
    let last = bytes.windows(FRAME.len()).rposition(|window| window == FRAME);
    // Nothing is ever written after a seal.
    if last.is_none_or(|at| bytes.get(at + KIND) != Some(&SEAL)) {
        // A group as the last one, cut somewhere; or whatever was on the disk before.
        let torn: Vec<u8> = match (rng.random_range(0..3), last) {
            (0, Some(at)) => bytes[at..rng.random_range(at + 1..bytes.len())].to_vec(),
            (1, _) => (0..rng.random_range(1..5000)).map(|_| rng.random()).collect(),
            _ => vec![0; rng.random_range(1..5000)],
        };
        std::fs::OpenOptions::new().append(true).open(&newest).unwrap().write_all(&torn).unwrap();
    }
    let history = dir.join("history");
    if let Some(table) = named(&history, "past") {
        let table = std::fs::read(table).unwrap();
        let half = &table[..rng.random_range(0..table.len())];
        std::fs::write(history.join("00000000000000000007.tmp"), half).unwrap();
    }
}

/// The writer's keys are as its acknowledged operations left them, or as the one after left them; answers how many it was.
async fn check_writer(f: &Fixture, seed: u64, writer: u64, acknowledged: u64) -> u64 {
    let prefix = format!("w{writer:02}/");
    let page = f.range(store::Range { prefix: f.key(&prefix), ..Default::default() }).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let found: BTreeMap<_, _> =
        page.records.iter().map(|r| (r.key[f.root.len()..].to_owned(), text(&r.value))).collect();
    // The one under way first: where both are the same, it makes no difference.
    for steps in [acknowledged + 1, acknowledged] {
        if found == state(seed, writer, steps) {
            return steps;
        }
    }
    panic!("seed {seed}: writer {writer} had {acknowledged} operations acknowledged, but holds {found:?}");
}

/// Watches from anywhere tell what they told before the crash, and then what was known of since.
async fn check_history(f: &Fixture, rng: &mut StdRng, history: &mut Vec<Event>, report: &Report, current: Revision) {
    for turn in 0..3 {
        let after = if turn == 0 { 1 } else { rng.random_range(1..=current) };
        let mut watch = f.watch(after).await;
        let events = take(&mut watch, (current - after) as usize).await;
        for (i, event) in events.iter().enumerate() {
            assert_eq!(event.revision, after + 1 + i as u64, "every revision once and in order");
            if let Some(Some(key)) = report.known.get(&event.revision) {
                assert_eq!(*event.key, **key, "a watcher saw something else at {}", event.revision);
            }
        }
        if turn == 0 {
            assert_eq!(events[..history.len()], history[..], "history changed");
            check_previous(&events);
            *history = events;
        } else {
            assert_eq!(events[..], history[(after - 1) as usize..]);
        }
    }
}

/// Whatever the log gave up, and wherever making tables and joining them was interrupted: every change is kept, and says what it replaced.
async fn check_past(f: &Fixture, rng: &mut StdRng, report: &Report, current: Revision) {
    let kept = f.store.kept().await.unwrap();
    assert_eq!((kept.oldest, kept.latest), (1, current), "nothing of the past was given up");
    let query = store::Changes { prefix: f.root.clone(), exact: false, after: 1, upto: current, limit: usize::MAX };
    let mut changes = f.store.changes(query).await.unwrap();
    changes.reverse();
    assert_eq!(changes.len() as u64, current - 1);
    let at = rng.random_range(1..=current);
    let mut state: BTreeMap<Arc<str>, (Revision, bytes::Bytes)> = BTreeMap::new();
    for (place, change) in changes.iter().enumerate() {
        assert_eq!(change.revision, place as u64 + 2, "every revision once and in order");
        if let Some(Some(key)) = report.known.get(&change.revision) {
            assert_eq!(*change.key, **key, "a watcher saw something else at {}", change.revision);
        }
        let previous = change.previous.as_ref().map(|p| (p.revision, p.value.clone()));
        assert_eq!(previous, state.remove(&change.key), "{change:?}");
        state.extend(change.value.clone().map(|value| (Arc::clone(&change.key), (change.revision, value))));
        if change.revision == at {
            let then = f.all_at(at).await.unwrap().records;
            let then: BTreeMap<_, _> = then.into_iter().map(|r| (r.key, (r.revision, r.value))).collect();
            assert_eq!(then, state, "the state at {at}");
        }
    }
}

fn check_previous(events: &[Event]) {
    let mut state: BTreeMap<Arc<str>, (Revision, bytes::Bytes)> = BTreeMap::new();
    for event in events {
        let previous = event.previous.as_ref().map(|p| (p.revision, p.value.clone()));
        assert_eq!(previous, state.remove(&event.key), "{event:?}");
        state.extend(event.value.clone().map(|value| (Arc::clone(&event.key), (event.revision, value))));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_under_load_it_keeps_what_it_acknowledged() {
    survive(setting("STORE_CRASH_SEED", 42), setting("STORE_CRASH_ROUNDS", 4), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_while_it_compacts_it_keeps_what_it_acknowledged() {
    survive(setting("STORE_CRASH_SEED", 43), setting("STORE_CRASH_ROUNDS", 4), true).await;
}
