//! Members of an etcd cluster killed under load: nothing acknowledged is lost, and watches that come and go miss, repeat
//! and reorder nothing. `STORE_CRASH_ROUNDS` and `STORE_CRASH_SEED` make a longer or a particular run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use store::{Error, Event, Expect, Op, Outcome, Revision, Txn};

use crate::etcd::{Cluster, fixture, ready};
use crate::support::{Fixture, setting, within};

const WRITERS: usize = 16;
const WATCHERS: usize = 20;

/// An operation that certainly took place: when, and what the key held then.
type Known = (Revision, String, Option<String>);

/// Writes keys of its own until told to stop; answers what was acknowledged, or found to be so afterwards.
async fn write(f: Fixture, writer: usize, seed: u64, stop: Arc<AtomicBool>) -> Vec<Known> {
    let mut rng = StdRng::seed_from_u64(seed ^ ((writer as u64) << 32));
    let mut known = Vec::new();
    for step in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let key = f.key(&format!("w{writer}/k{}", rng.random_range(0..4)));
        let value = (rng.random_range(0..5) > 0).then(|| format!("{writer}-{step}"));
        if let Some(revision) = attempt(&f, &key, value.as_deref()).await {
            known.push((revision, key, value));
        }
    }
    known
}

/// Brings the key to `value`; answers at which revision, or `None` if it was there already or nobody can tell when.
async fn attempt(f: &Fixture, key: &str, value: Option<&str>) -> Option<Revision> {
    let mut unknown = false;
    loop {
        let Ok(current) = f.store.get(key).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        match (&current, value) {
            (None, None) => return None,
            // Values are unique, so this one was written by the attempt that got no answer.
            (Some(current), Some(value)) if current.value == value => return unknown.then_some(current.revision),
            _ => {}
        }
        let expect = current.map_or(Expect::Absent, |r| Expect::At(r.revision));
        let op = value.map_or(Op::Delete, |value| Op::Put { value: value.to_owned().into(), ttl: None });
        match f.store.txn(Txn { key: key.into(), expect, op, write: None, note: Default::default() }).await {
            Ok(Outcome::Committed(revision)) => return Some(revision),
            // An earlier attempt without an answer may still come through.
            Ok(Outcome::Conflict(_)) => assert!(unknown, "nobody else writes {key}"),
            Err(Error::Unavailable(_)) => unknown = true,
            Err(other) => panic!("{other}"),
        }
    }
}

/// Watches until the end is written, leaving and coming back now and then.
async fn watch(f: Fixture, mut after: Revision, seed: u64) -> Vec<Event> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut events: Vec<Event> = Vec::new();
    loop {
        let Ok(mut watch) = f.store.watch(&f.root, after).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        for _ in 0..rng.random_range(1..300) {
            match within("an event", watch.next()).await {
                Some(Ok(event)) => {
                    assert!(event.revision > after, "{} after {after}", event.revision);
                    after = event.revision;
                    if *event.key == *f.key("end") {
                        return events;
                    }
                    events.push(event);
                }
                Some(Err(Error::Compacted { oldest })) => panic!("nobody compacts, but {oldest} is the oldest"),
                Some(Err(_)) | None => break,
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_killed_under_load_lose_nothing() {
    let (seed, rounds) = (setting("STORE_CRASH_SEED", 44), setting("STORE_CRASH_ROUNDS", 3));
    let mut cluster = Cluster::start(3);
    let store = cluster.store().await;
    let f = fixture(&store);
    let start = f.revision().await;
    let stop = Arc::new(AtomicBool::new(false));
    let watchers: Vec<_> = (0..WATCHERS).map(|w| tokio::spawn(watch(f.clone(), start, seed + w as u64))).collect();
    let writers: Vec<_> = (0..WRITERS).map(|w| tokio::spawn(write(f.clone(), w, seed, Arc::clone(&stop)))).collect();
    let mut rng = StdRng::seed_from_u64(seed);
    for _ in 0..rounds {
        progress(&f, 100).await;
        let victim = rng.random_range(0..3);
        cluster.kill(victim);
        progress(&f, 100).await;
        cluster.run(victim);
        ready(&cluster.member(victim)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let known: Vec<Known> = join_all(writers).await.into_iter().flat_map(|r| r.unwrap()).collect();
    f.put("end", "").await;
    let mut all: Option<Vec<Event>> = None;
    for watcher in join_all(watchers).await {
        let events = watcher.unwrap();
        assert_eq!(&events, all.get_or_insert_with(|| events.clone()), "seed {seed}: all watchers see the same");
    }
    let all = all.unwrap();
    for (revision, key, value) in known {
        let found = all.binary_search_by_key(&revision, |event| event.revision);
        let event = &all[found.unwrap_or_else(|_| panic!("seed {seed}: {key} at {revision} is lost"))];
        let text = event.value.as_ref().map(|v| String::from_utf8(v.to_vec()).unwrap());
        assert_eq!((&*event.key, text), (&*key, value), "seed {seed}");
    }
}

/// Waits until the writers have come further by so many revisions.
async fn progress(f: &Fixture, revisions: u64) {
    let mut goal = None;
    within("progress of the writers", async {
        loop {
            match f.store.revision().await {
                Ok(now) if now >= *goal.get_or_insert(now + revisions) => return,
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await;
}
