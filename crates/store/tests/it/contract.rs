//! What every engine promises. Each case is a sentence; all of them run on every engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::future::{BoxFuture, FutureExt, join_all};
use store::{Error, Event, Expect, Op, Outcome, Range, Revision, Store};

use crate::fences::{
    a_write_behind_a_fence_needs_the_other_key_as_it_was, of_a_deposed_holder_nothing_is_written_however_close_it_is,
};
use crate::support::{Fixture, next, take, within};

type Case = fn(Fixture) -> BoxFuture<'static, ()>;

macro_rules! cases {
    ($($name:ident),* $(,)?) => {
        /// All cases, with their names.
        const CASES: &[(&str, Case)] = &[$((stringify!($name), |fixture| $name(fixture).boxed())),*];
    };
}

cases![
    a_key_is_created_once,
    an_update_needs_the_current_revision,
    a_delete_needs_the_current_revision,
    deleting_nothing_changes_nothing,
    a_write_behind_a_fence_needs_the_other_key_as_it_was,
    of_a_deposed_holder_nothing_is_written_however_close_it_is,
    concurrent_increments_all_count,
    values_are_any_bytes,
    a_range_is_ordered_and_stays_under_its_prefix,
    a_range_in_pages_is_the_whole_range,
    a_range_at_a_revision_is_the_state_of_that_time,
    a_range_at_a_future_revision_is_refused,
    a_key_at_a_revision_is_what_it_was,
    changes_are_told_newest_first_with_what_they_replaced,
    a_past_that_was_compacted_is_refused_with_the_oldest_that_is_left,
    a_watch_tells_creation_update_and_deletion,
    a_watch_from_the_past_goes_on_into_the_present,
    a_watch_from_the_future_skips_what_comes_before,
    a_watch_sees_only_its_prefix,
    watches_from_any_revision_see_the_same_under_concurrent_writers,
    a_slow_watch_loses_nothing_silently,
    history_between_revisions_is_complete_or_refused,
    large_values_are_taken_and_huge_ones_refused,
    keys_expire_at_their_time,
    a_later_put_makes_a_key_permanent,
    compaction_forgets_history_and_keeps_state,
    a_compaction_of_the_future_is_refused,
];

/// Runs every case on the store, one after the other, each under keys of its own.
pub async fn run(store: Arc<dyn Store>) {
    for (name, case) in CASES {
        println!("{name}");
        case(Fixture { store: Arc::clone(&store), root: format!("/registry/{name}/") }).await;
    }
}

pub fn put(value: &'static str) -> Op {
    Op::Put { value: value.into(), ttl: None }
}

pub fn committed(outcome: Result<Outcome, Error>) -> Revision {
    match outcome.unwrap() {
        Outcome::Committed(revision) => revision,
        Outcome::Conflict(current) => panic!("unexpected conflict with {current:?}"),
    }
}

async fn a_key_is_created_once(f: Fixture) {
    assert_eq!(f.get("a").await, None);
    let before = f.revision().await;
    let first = committed(f.txn("a", Expect::Absent, put("one")).await);
    assert_eq!(first, before + 1);
    assert_eq!(f.revision().await, first);
    let record = f.get("a").await.unwrap();
    assert_eq!((&*record.key, &*record.value, record.revision), (&*f.key("a"), &b"one"[..], first));
    let again = f.txn("a", Expect::Absent, put("two")).await.unwrap();
    assert_eq!(again, Outcome::Conflict(Some(record.clone())));
    assert_eq!(f.revision().await, first, "a conflict takes no revision");
    assert_eq!(f.get("a").await, Some(record));
}

async fn an_update_needs_the_current_revision(f: Fixture) {
    let first = f.put("a", "one").await;
    let second = committed(f.txn("a", Expect::At(first), put("two")).await);
    assert_eq!(second, first + 1);
    let current = f.get("a").await;
    assert_eq!(current.as_ref().unwrap().revision, second);
    assert_eq!(f.txn("a", Expect::At(first), put("three")).await.unwrap(), Outcome::Conflict(current));
    assert_eq!(f.txn("b", Expect::At(second), put("three")).await.unwrap(), Outcome::Conflict(None));
}

async fn a_delete_needs_the_current_revision(f: Fixture) {
    let first = f.put("a", "one").await;
    let second = f.put("a", "two").await;
    assert_eq!(f.txn("a", Expect::At(first), Op::Delete).await.unwrap(), Outcome::Conflict(f.get("a").await));
    let third = committed(f.txn("a", Expect::At(second), Op::Delete).await);
    assert_eq!((third, f.get("a").await), (second + 1, None));
    assert_eq!(f.txn("a", Expect::At(second), Op::Delete).await.unwrap(), Outcome::Conflict(None));
    let again = committed(f.txn("a", Expect::Absent, put("three")).await);
    assert_eq!(f.get("a").await.unwrap().revision, again);
}

async fn deleting_nothing_changes_nothing(f: Fixture) {
    let before = f.put("b", "one").await;
    assert_eq!(f.txn("a", Expect::Absent, Op::Delete).await.unwrap(), Outcome::Committed(before));
    assert_eq!(f.revision().await, before);
}

async fn concurrent_increments_all_count(f: Fixture) {
    let (writers, each) = (8, 25);
    let increment = |f: Fixture| async move {
        for _ in 0..each {
            let mut current = f.get("counter").await;
            loop {
                let count: u64 = current.as_ref().map_or(0, |r| String::from_utf8_lossy(&r.value).parse().unwrap());
                let expect = current.as_ref().map_or(Expect::Absent, |r| Expect::At(r.revision));
                let op = Op::Put { value: (count + 1).to_string().into(), ttl: None };
                match f.txn("counter", expect, op).await.unwrap() {
                    Outcome::Committed(_) => break,
                    Outcome::Conflict(actual) => current = actual,
                }
            }
        }
    };
    join_all((0..writers).map(|_| tokio::spawn(increment(f.clone())))).await.into_iter().for_each(|r| r.unwrap());
    assert_eq!(f.get("counter").await.unwrap().value, (writers * each).to_string());
}

async fn values_are_any_bytes(f: Fixture) {
    let binary: Bytes = (0..=255).collect::<Vec<u8>>().into();
    f.put("binary", binary.clone()).await;
    f.put("empty", "").await;
    f.put("schlüssel ☃", "x").await;
    assert_eq!(f.get("binary").await.unwrap().value, binary);
    assert_eq!(f.get("empty").await.unwrap().value, "");
    assert_eq!(f.get("schlüssel ☃").await.unwrap().value, "x");
}

async fn a_range_is_ordered_and_stays_under_its_prefix(f: Fixture) {
    for name in ["b/2", "a/1", "b/10", "b/1", "c/1", "bb"] {
        f.put(name, "x").await;
    }
    let under = async |prefix: &str| {
        let page = f.range(Range { prefix: f.key(prefix), ..Range::default() }).await.unwrap();
        assert_eq!((page.revision, page.remaining), (f.revision().await, 0));
        f.shown(&page.records)
    };
    assert_eq!(under("b/").await, ["b/1=x", "b/10=x", "b/2=x"]);
    assert_eq!(under("b").await, ["b/1=x", "b/10=x", "b/2=x", "bb=x"]);
    assert_eq!(under("d/").await, [""; 0]);
    assert_eq!(under("").await.len(), 6);
}

async fn a_range_in_pages_is_the_whole_range(f: Fixture) {
    for i in 0..7 {
        f.put(&format!("k{i}"), i.to_string()).await;
    }
    let whole = f.all().await;
    let (mut after, mut seen, mut remaining) = (None, Vec::new(), Vec::new());
    loop {
        let range = Range { prefix: f.root.clone(), after, limit: 3, at: Some(whole.revision) };
        let page = f.range(range).await.unwrap();
        assert_eq!(page.revision, whole.revision);
        after = page.records.last().map(|r| r.key.to_string());
        seen.extend(page.records);
        remaining.push(page.remaining);
        f.put("k00", "written between two pages").await;
        if page.remaining == 0 {
            break;
        }
    }
    assert_eq!((seen, remaining), (whole.records, vec![4, 1, 0]));
    let before_all = Range { prefix: f.root.clone(), after: Some("/".into()), limit: 1, at: None };
    assert_eq!(f.shown(&f.range(before_all).await.unwrap().records), ["k0=0"]);
    let after_all = Range { prefix: f.root.clone(), after: Some(f.key("k9")), limit: 1, at: None };
    assert_eq!(f.range(after_all).await.unwrap().records, []);
}

async fn a_range_at_a_revision_is_the_state_of_that_time(f: Fixture) {
    let mut states = vec![(f.revision().await, Vec::new())];
    for step in 0..30 {
        let name = format!("k{}", step * 7 % 5);
        if step % 4 == 3 && f.get(&name).await.is_some() {
            f.delete(&name).await;
        } else {
            f.put(&name, step.to_string()).await;
        }
        let page = f.all().await;
        states.push((page.revision, page.records));
    }
    for (revision, records) in states {
        let page = f.all_at(revision).await.unwrap();
        assert_eq!((page.revision, f.shown(&page.records)), (revision, f.shown(&records)));
        assert_eq!(page.records, records);
    }
}

async fn a_range_at_a_future_revision_is_refused(f: Fixture) {
    let current = f.put("a", "one").await;
    match f.all_at(current + 100).await {
        Err(Error::Future { requested, current: at }) => assert_eq!((requested, at), (current + 100, current)),
        other => panic!("{other:?}"),
    }
}

async fn a_key_at_a_revision_is_what_it_was(f: Fixture) {
    let before = f.revision().await;
    let mut known: Vec<(Revision, Option<&str>)> = vec![(before, None)];
    for value in [Some("one"), Some("two"), None, Some("three")] {
        let revision = match value {
            Some(value) => f.put("a", value).await,
            None => f.delete("a").await,
        };
        known.push((revision, value));
        known.push((f.put("other", "x").await, value));
    }
    for (revision, value) in &known {
        let found = f.store.at(&f.key("a"), *revision).await.unwrap();
        assert_eq!(found.as_ref().map(|record| &*record.value), value.map(str::as_bytes), "at {revision}");
        assert!(found.is_none_or(|record| record.revision <= *revision && *record.key == *f.key("a")));
    }
    let current = f.revision().await;
    let future = f.store.at(&f.key("a"), current + 5).await;
    assert!(matches!(future, Err(Error::Future { requested, .. }) if requested == current + 5), "{future:?}");
}

async fn changes_are_told_newest_first_with_what_they_replaced(f: Fixture) {
    let before = f.revision().await;
    f.put("a", "1").await;
    f.put("ab", "2").await;
    f.put("a", "3").await;
    f.delete("a").await;
    let upto = f.put("a", "4").await;
    f.put("a", "later").await;
    let text = |value: Option<&Bytes>| value.map_or("-".into(), |v| String::from_utf8_lossy(v).into_owned());
    let told = |changes: Vec<store::Change>| -> Vec<String> {
        let show = |change: &store::Change| {
            let previous = change.previous.as_ref().map(|record| &record.value);
            format!("{}: {} -> {}", &change.key[f.root.len()..], text(previous), text(change.value.as_ref()))
        };
        changes.iter().map(show).collect()
    };
    let ask = |prefix: &str, exact: bool, after: Revision, upto: Revision, limit: usize| {
        f.store.changes(store::Changes { prefix: f.key(prefix), exact, after, upto, limit })
    };
    let all = ["a: - -> 4", "a: 3 -> -", "a: 1 -> 3", "ab: - -> 2", "a: - -> 1"];
    assert_eq!(told(ask("", false, before, upto, 100).await.unwrap()), all);
    assert_eq!(told(ask("", false, before, upto, 2).await.unwrap()), all[..2]);
    assert_eq!(told(ask("", false, before + 2, upto - 1, 100).await.unwrap()), all[1..3]);
    assert_eq!(
        told(ask("a", true, before, upto, 100).await.unwrap()),
        ["a: - -> 4", "a: 3 -> -", "a: 1 -> 3", "a: - -> 1"]
    );
    let revisions: Vec<_> = ask("a", false, before, upto, 9).await.unwrap().iter().map(|c| c.revision).collect();
    assert_eq!(revisions, (before + 1..=upto).rev().collect::<Vec<_>>());
    let future = ask("", false, before, upto + 100, 9).await;
    assert!(matches!(future, Err(Error::Future { .. })), "{future:?}");
}

async fn a_past_that_was_compacted_is_refused_with_the_oldest_that_is_left(f: Fixture) {
    let first = f.put("a", "1").await;
    let second = f.put("a", "2").await;
    f.put("a", "3").await;
    f.store.compact(second).await.unwrap();
    let gone = f.store.at(&f.key("a"), first).await;
    assert!(matches!(gone, Err(Error::Compacted { oldest }) if oldest >= second), "{gone:?}");
    assert_eq!(f.store.at(&f.key("a"), second).await.unwrap().unwrap().value, "2");
    let kept = f.store.kept().await.unwrap();
    assert!(kept.oldest >= second && kept.latest >= kept.oldest, "{kept:?}");
    let query = store::Changes { prefix: f.key("a"), exact: true, after: 0, upto: kept.latest, limit: 9 };
    let left = f.store.changes(query).await.unwrap();
    assert!(left.iter().all(|change| change.revision > second), "{left:?}");
}

async fn a_watch_tells_creation_update_and_deletion(f: Fixture) {
    let mut watch = f.watch(f.revision().await).await;
    let revisions = [f.put("a", "one").await, f.put("a", "two").await, f.delete("a").await, f.put("a", "three").await];
    let events = take(&mut watch, 4).await;
    assert_eq!(events.iter().map(|e| e.revision).collect::<Vec<_>>(), revisions);
    let told: Vec<_> = events.iter().map(|e| f.told(e)).collect();
    assert_eq!(told, ["a: - -> one", "a: one -> two", "a: two -> -", "a: - -> three"]);
    let previous: Vec<_> = events.iter().map(|e| e.previous.as_ref().map(|p| p.revision)).collect();
    assert_eq!(previous, [None, Some(revisions[0]), Some(revisions[1]), None]);
    assert!(events[1].previous.as_ref().is_some_and(|p| *p.key == *f.key("a")));
}

async fn a_watch_from_the_past_goes_on_into_the_present(f: Fixture) {
    let start = f.revision().await;
    f.put("a", "1").await;
    let middle = f.put("b", "2").await;
    f.delete("a").await;
    let mut from_start = f.watch(start).await;
    let mut from_middle = f.watch(middle).await;
    f.put("b", "3").await;
    let told: Vec<_> = take(&mut from_start, 4).await.iter().map(|e| f.told(e)).collect();
    assert_eq!(told, ["a: - -> 1", "b: - -> 2", "a: 1 -> -", "b: 2 -> 3"]);
    let told: Vec<_> = take(&mut from_middle, 2).await.iter().map(|e| f.told(e)).collect();
    assert_eq!(told, ["a: 1 -> -", "b: 2 -> 3"]);
}

async fn a_watch_from_the_future_skips_what_comes_before(f: Fixture) {
    let now = f.revision().await;
    let mut watch = f.watch(now + 2).await;
    for i in 1..=3 {
        f.put("a", i.to_string()).await;
    }
    let event = next(&mut watch).await;
    assert_eq!((event.revision, f.told(&event)), (now + 3, "a: 2 -> 3".to_owned()));
}

async fn a_watch_sees_only_its_prefix(f: Fixture) {
    let now = f.revision().await;
    let prefix = f.key("pods/");
    let mut watch = within("a watch", f.store.watch(&prefix, now)).await.unwrap();
    for name in ["pods", "pods/", "pods0", "podtemplates/a", "pods/a/b", "nodes/a"] {
        f.put(name, "x").await;
    }
    let names: Vec<_> = take(&mut watch, 2).await.iter().map(|e| e.key.to_string()).collect();
    assert_eq!(names, [f.key("pods/"), f.key("pods/a/b")]);
}

async fn watches_from_any_revision_see_the_same_under_concurrent_writers(f: Fixture) {
    let (writers, writes) = (8, 40);
    let start = f.revision().await;
    let write = |f: Fixture, writer: usize| async move {
        for i in 0..writes {
            let name = format!("k{}", (writer + i) % 5);
            if i % 7 == 6 && f.get(&name).await.is_some() {
                // Whoever else deletes it first has done as well.
                let expect = f.get(&name).await.map_or(Expect::Absent, |r| Expect::At(r.revision));
                let _ = f.txn(&name, expect, Op::Delete).await.unwrap();
            }
            f.put(&name, format!("{writer}-{i}")).await;
        }
    };
    let collect = |f: Fixture, after: Revision| async move {
        let mut watch = f.watch(after).await;
        let mut events = Vec::new();
        loop {
            let event = next(&mut watch).await;
            if *event.key == *f.key("end") {
                return events;
            }
            events.push(event);
        }
    };
    let writing: Vec<_> = (0..writers).map(|w| tokio::spawn(write(f.clone(), w))).collect();
    let mut watching = vec![(start, tokio::spawn(collect(f.clone(), start)))];
    for i in 0..20 {
        f.put("k0", "paced by the watchers").await;
        let now = f.revision().await;
        let after = start + (now - start) * i / 20;
        watching.push((after, tokio::spawn(collect(f.clone(), after))));
    }
    join_all(writing).await.into_iter().for_each(|r| r.unwrap());
    f.put("end", "").await;
    let late = f.revision().await - 1;
    watching.push((late, tokio::spawn(collect(f.clone(), late))));
    let mut all: Vec<Event> = Vec::new();
    for (after, watch) in watching {
        let events = watch.await.unwrap();
        if all.is_empty() {
            consistent(&events);
            all = events;
            continue;
        }
        let expected: Vec<_> = all.iter().filter(|e| e.revision > after).cloned().collect();
        assert_eq!(events.len(), expected.len(), "watch after {after}");
        assert_eq!(events, expected, "watch after {after}");
    }
    assert!(all.len() >= writers * writes + 20);
}

/// Revisions rise, and each event's `previous` is what the events before it made of the key.
fn consistent(events: &[Event]) {
    let (mut state, mut last) = (BTreeMap::new(), 0);
    for event in events {
        assert!(event.revision > last, "{} after {last}", event.revision);
        last = event.revision;
        let previous = event.previous.as_ref().map(|p| (p.revision, p.value.clone()));
        assert_eq!(previous, state.remove(&event.key), "{event:?}");
        if let Some(value) = &event.value {
            state.insert(Arc::clone(&event.key), (event.revision, value.clone()));
        }
    }
}

async fn a_slow_watch_loses_nothing_silently(f: Fixture) {
    let start = f.revision().await;
    let mut slow = f.watch(start).await;
    let write = |f: Fixture, writer: usize| async move {
        let mut expect = Expect::Absent;
        for i in 0..400 {
            let op = Op::Put { value: i.to_string().into(), ttl: None };
            expect = Expect::At(committed(f.txn(&format!("k{writer}"), expect, op).await));
        }
    };
    join_all((0..32).map(|w| tokio::spawn(write(f.clone(), w)))).await.into_iter().for_each(|r| r.unwrap());
    let (mut last, mut count, total) = (start, 0, 32 * 400);
    while count < total {
        match within("an event or an error", slow.next()).await.unwrap() {
            Ok(event) => {
                assert_eq!(event.revision, last + 1, "nothing else writes here");
                (last, count) = (event.revision, count + 1);
            }
            Err(Error::Lagged) => {
                assert!(slow.next().await.is_none(), "an error ends the watch");
                slow = f.watch(last).await;
            }
            Err(other) => panic!("{other}"),
        }
    }
}

async fn history_between_revisions_is_complete_or_refused(f: Fixture) {
    let start = f.revision().await;
    f.put("a/1", "one").await;
    f.put("b/1", "other").await;
    let until = f.put("a/1", "two").await;
    f.put("a/1", "three").await;
    let prefix = f.key("a/");
    let events = within("history", f.store.history(&prefix, start, until, 10)).await.unwrap();
    assert_eq!(events.iter().map(|e| f.told(e)).collect::<Vec<_>>(), ["a/1: - -> one", "a/1: one -> two"]);
    let until_other = until - 1;
    assert_eq!(within("history", f.store.history(&prefix, start, until_other, 1)).await.unwrap().len(), 1);
    assert_eq!(within("history", f.store.history(&prefix, until, until, 1)).await.unwrap(), []);
    let refused = within("history", f.store.history(&prefix, start, until, 1)).await;
    assert!(matches!(refused, Err(Error::TooLarge)), "{refused:?}");
}

async fn large_values_are_taken_and_huge_ones_refused(f: Fixture) {
    let mut watch = f.watch(f.revision().await).await;
    let large = Bytes::from(vec![7; 1 << 20]);
    f.put("a", large.clone()).await;
    f.put("a", large.slice(..1000)).await;
    let events = take(&mut watch, 2).await;
    assert_eq!(events[0].value, Some(large.clone()));
    assert_eq!(events[1].previous.as_ref().unwrap().value, large);
    let huge = Op::Put { value: vec![7; 20 << 20].into(), ttl: None };
    let refused = f.txn("b", Expect::Absent, huge).await;
    assert!(matches!(refused, Err(Error::TooLarge)), "{:?}", refused.err());
    assert_eq!(f.get("b").await, None);
}

async fn keys_expire_at_their_time(f: Fixture) {
    let mut watch = f.watch(f.revision().await).await;
    let put = f.put_ttl("a", "short", 1).await;
    assert!(f.get("a").await.is_some());
    let events = take(&mut watch, 2).await;
    assert_eq!(events.iter().map(|e| f.told(e)).collect::<Vec<_>>(), ["a: - -> short", "a: short -> -"]);
    assert_eq!(events[1].previous.as_ref().unwrap().revision, put);
    assert_eq!(f.get("a").await, None);
}

async fn a_later_put_makes_a_key_permanent(f: Fixture) {
    f.put_ttl("kept", "1", 1).await;
    f.put_ttl("gone", "1", 2).await;
    f.put("kept", "2").await;
    let mut watch = f.watch(f.revision().await).await;
    assert_eq!(f.told(&next(&mut watch).await), "gone: 1 -> -", "its time is later than the other's was");
    assert!(f.get("kept").await.is_some());
}

async fn compaction_forgets_history_and_keeps_state(f: Fixture) {
    f.put("old", "unchanged").await;
    let first = f.put("a", "1").await;
    f.put("gone", "1").await;
    f.delete("gone").await;
    let at = f.put("a", "2").await;
    let mut running = f.watch(at).await;
    f.put("a", "3").await;
    f.store.compact(at).await.unwrap();
    f.store.compact(at).await.expect("compacting again is no error");
    f.store.compact(first).await.expect("compacting less is no error");
    assert_eq!(f.shown(&f.all().await.records), ["a=3", "old=unchanged"]);
    assert_eq!(f.shown(&f.all_at(at).await.unwrap().records), ["a=2", "old=unchanged"]);
    assert!(matches!(f.all_at(first).await, Err(Error::Compacted { oldest }) if oldest == at));
    assert!(matches!(f.watch_error(first).await, Error::Compacted { oldest } if oldest == at));
    let history = within("history", f.store.history(&f.root, first, at + 1, 100)).await;
    assert!(matches!(history, Err(Error::Compacted { oldest }) if oldest == at), "{history:?}");
    let mut resumed = f.watch(at).await;
    f.delete("old").await;
    for watch in [&mut running, &mut resumed] {
        let told: Vec<_> = take(watch, 2).await.iter().map(|e| f.told(e)).collect();
        assert_eq!(told, ["a: 2 -> 3", "old: unchanged -> -"]);
    }
}

async fn a_compaction_of_the_future_is_refused(f: Fixture) {
    let current = f.put("a", "1").await;
    let refused = f.store.compact(current + 1000).await;
    assert!(matches!(refused, Err(Error::Future { .. })), "{refused:?}");
}
