//! The embedded engine: the contract, and what only files can get wrong.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use store::embedded::{Embedded, Options};
use store::{Error, Expect, Op, Store, Txn, WriteId, admin};

use crate::contract;
use crate::support::{Fixture, next, take, within};

fn fixture(store: &Arc<Embedded>) -> Fixture {
    Fixture { store: Arc::clone(store) as _, root: "/registry/".into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    contract::run(Arc::clone(&store) as _).await;
    store.close().await;
}

/// Everything that can be rewritten is, all the time: segments of a few frames, no history kept by policy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract_in_tiny_segments() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options { segment_bytes: 4096, ..Options::default() }).unwrap();
    contract::run(Arc::clone(&store) as _).await;
    store.close().await;
}

#[tokio::test]
async fn a_directory_is_one_process_s() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    let second = Embedded::open(dir.path(), Options::default()).err().unwrap();
    assert!(second.to_string().contains("in use by another process"), "{second}");
    store.close().await;
    Embedded::open(dir.path(), Options::default()).unwrap();
}

/// As a server that was killed has it: its threads end one by one, and the last of them lets go.
#[tokio::test]
async fn a_predecessor_s_end_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    let path = dir.path().to_owned();
    let (tell, told) = std::sync::mpsc::channel();
    let successor = std::thread::spawn(move || {
        tell.send(()).unwrap();
        Embedded::open(&path, Options { predecessor: Duration::from_secs(60), ..Options::default() })
    });
    told.recv().unwrap();
    store.close().await;
    successor.join().unwrap().unwrap();
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    let f = fixture(&store);
    f.put("a", "1").await;
    let now = f.revision().await;
    let watch = f.watch(now).await;
    store.close().await;
    assert!(matches!(f.store.revision().await, Err(Error::Closed)));
    assert!(matches!(f.store.get("a").await, Err(Error::Closed)));
    assert!(matches!(f.store.compact(now).await, Err(Error::Closed)));
    let items: Vec<_> = futures::StreamExt::collect(watch).await;
    assert!(matches!(items[..], [Err(Error::Closed)]), "{items:?}");
}

/// Waits for something that only the compactor's thread brings about.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    within(what, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

fn small(segment_bytes: u64, history_revisions: u64) -> Options {
    Options { segment_bytes, history_revisions, history_time: Duration::ZERO, ..Options::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_directory_stays_bounded_under_updates_and_churn() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), small(64 << 10, 100)).unwrap();
    let f = fixture(&store);
    f.put("permanent", "x").await;
    let churn = |f: Fixture, writer: usize| async move {
        for i in 0..250 {
            f.put(&format!("updated-{writer}"), vec![b'x'; 1000]).await;
            f.put(&format!("short-lived-{writer}-{i}"), vec![b'y'; 1000]).await;
            f.delete(&format!("short-lived-{writer}-{i}")).await;
        }
    };
    join_all((0..8).map(|w| tokio::spawn(churn(f.clone(), w)))).await.into_iter().for_each(|r| r.unwrap());
    // 4 MB were written, and a few kilobytes live.
    until("a compact directory", || store.stats().disk_bytes < 400 << 10).await;
    assert!(store.stats().segments < 10, "{:?}", store.stats());
    let before = f.all().await;
    assert_eq!(before.records.len(), 9);
    store.close().await;
    drop(store);
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    assert_eq!(fixture(&store).all().await, before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn history_that_is_kept_outlives_rewriting_with_its_previous_values() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), small(8 << 10, u64::MAX)).unwrap();
    let f = fixture(&store);
    let mut expected = Vec::new();
    for i in 0..2000 {
        if i == 1000 {
            expected = f.all().await.records;
        }
        f.put(&format!("k{}", i % 50), format!("{i} {}", "x".repeat(100))).await;
    }
    let at = f.revision().await - 1000;
    let events = take(&mut f.watch(at).await, 1000).await;
    let before = store.stats().disk_bytes;
    store.compact(at).await.unwrap();
    until("a rewritten log", || store.stats().disk_bytes < before * 2 / 3).await;
    for life in 0..2 {
        let f = fixture(&store);
        assert_eq!(f.all_at(at).await.unwrap().records, expected, "life {life}");
        assert_eq!(take(&mut f.watch(at).await, 1000).await, events, "life {life}");
        let middle = events[499].revision;
        assert_eq!(take(&mut f.watch(middle).await, 500).await, events[500..], "life {life}");
        assert!(matches!(f.watch_error(at - 1).await, Error::Compacted { oldest } if oldest == at));
    }
    store.close().await;
    drop(store);
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    let f = fixture(&store);
    assert_eq!(f.all_at(at).await.unwrap().records, expected, "after a restart");
    assert_eq!(take(&mut f.watch(at).await, 1000).await, events, "after a restart");
    assert!(matches!(f.watch_error(at - 1).await, Error::Compacted { oldest } if oldest == at));
}

#[tokio::test]
async fn segments_that_a_rewritten_one_replaced_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), small(2000, 1)).unwrap();
    let f = fixture(&store);
    for i in 0..20 {
        f.put("a", format!("{i} {}", "x".repeat(100))).await;
    }
    let old: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    let old: Vec<_> = old.into_iter().filter(|p| p.extension().is_some_and(|e| e == "log")).collect();
    let bytes: Vec<_> = old.iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    for i in 0..200 {
        f.put("a", format!("{i} {}", "x".repeat(100))).await;
    }
    until("a replaced segment", || old.iter().any(|path| !path.exists())).await;
    let expected = f.all().await;
    store.close().await;
    drop(store);
    // As if the process had been killed after the rename and before the removals.
    for (path, bytes) in bytes.iter().filter(|(path, _)| !path.exists()) {
        std::fs::write(path, bytes).unwrap();
    }
    std::fs::write(dir.path().join("00000000000000000002-00000000.tmp"), "half of a rewritten segment").unwrap();
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    assert_eq!(fixture(&store).all().await, expected);
}

#[tokio::test]
async fn a_restart_keeps_revisions_history_and_expiry() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    let f = fixture(&store);
    let start = f.revision().await;
    f.put("a", "1").await;
    f.put("a", "2").await;
    f.put_ttl("short", "x", 1).await;
    f.delete("a").await;
    let (revision, events) = (f.revision().await, take(&mut f.watch(start).await, 4).await);
    drop(f);
    drop(store);
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    let f = fixture(&store);
    assert_eq!(f.revision().await, revision);
    let mut watch = f.watch(start).await;
    assert_eq!(take(&mut watch, 4).await, events);
    assert_eq!(f.told(&next(&mut watch).await), "short: x -> -", "it expires although the store was closed meanwhile");
    assert_eq!(f.put("a", "3").await, revision + 2);
}

#[tokio::test]
async fn readers_and_watchers_share_one_copy_of_a_value() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    let f = fixture(&store);
    let start = f.revision().await;
    let mut watch = f.watch(start).await;
    f.put("a", "a value").await;
    let one = f.get("a").await.unwrap().value;
    assert_eq!(one.as_ptr(), f.all().await.records[0].value.as_ptr());
    assert_eq!(one.as_ptr(), next(&mut watch).await.value.unwrap().as_ptr());
    store.close().await;
    drop((f, store));
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    let f = fixture(&store);
    let one = f.get("a").await.unwrap().value;
    assert_eq!(one.as_ptr(), next(&mut f.watch(start).await).await.value.unwrap().as_ptr(), "from the log too");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_that_are_dropped_cost_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    let f = fixture(&store);
    let now = f.revision().await;
    let mut watches = Vec::new();
    for i in 0..1000 {
        watches.push(f.store.watch(&format!("/registry/ns-{i}/"), now).await.unwrap());
    }
    assert_eq!(store.stats().watchers, 1000);
    f.put("ns-7/a", "x").await;
    assert_eq!(&*next(&mut watches[7]).await.key, "/registry/ns-7/a");
    drop(watches);
    assert_eq!(store.stats().watchers, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_under_load_is_one_moment_and_can_be_restored() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(&dir.path().join("store"), Options::default()).unwrap();
    let f = fixture(&store);
    f.put_ttl("expiring", "x", 3600).await;
    // Both keys of a writer move in step, so a backup of two moments would show.
    let write = |f: Fixture, writer: usize| async move {
        for i in 0..200 {
            f.put(&format!("{writer}-first"), i.to_string()).await;
            f.put(&format!("{writer}-second"), i.to_string()).await;
        }
    };
    let writers: Vec<_> = (0..4).map(|w| tokio::spawn(write(f.clone(), w))).collect();
    let file = dir.path().join("backup");
    let summary = store.backup(&file).await.unwrap();
    join_all(writers).await.into_iter().for_each(|r| r.unwrap());
    assert!(store.backup(&file).await.is_err(), "a backup is never overwritten");
    let then = f.all_at(summary.revision).await.unwrap();
    let restored_dir = dir.path().join("restored");
    assert_eq!(admin::restore(&file, &restored_dir).unwrap(), summary);
    assert!(admin::restore(&file, &restored_dir).unwrap_err().to_string().contains("not empty"));
    let checked = admin::check(&restored_dir).unwrap();
    assert_eq!((checked.revision, checked.keys, checked.bytes), (summary.revision, summary.keys, summary.bytes));
    let restored = Embedded::open(&restored_dir, Options::default()).unwrap();
    let g = fixture(&restored);
    assert_eq!(g.all().await, then);
    assert!(matches!(g.watch_error(summary.revision - 1).await, Error::Compacted { .. }));
    let mut watch = g.watch(summary.revision).await;
    assert_eq!(g.put("new", "x").await, summary.revision + 1);
    assert_eq!(g.told(&next(&mut watch).await), "new: - -> x");
}

#[tokio::test]
async fn a_store_at_rest_is_backed_up_and_checked_and_one_in_use_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (store_dir, file) = (dir.path().join("store"), dir.path().join("backup"));
    let store = Embedded::open(&store_dir, Options::default()).unwrap();
    fixture(&store).put("a", "1").await;
    assert!(admin::check(&store_dir).unwrap_err().to_string().contains("in use"));
    assert!(admin::backup(&store_dir, &file).unwrap_err().to_string().contains("in use"));
    store.close().await;
    let checked = admin::check(&store_dir).unwrap();
    assert_eq!((checked.revision, checked.keys), (2, 1));
    assert_eq!(admin::backup(&store_dir, &file).unwrap().keys, 1);
    assert!(admin::check(&dir.path().join("nowhere")).is_err());
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    assert!(matches!(admin::restore(&file, &dir.path().join("new")), Err(Error::Damaged(_))));
    assert!(!dir.path().join("new").exists());
}

#[tokio::test]
async fn an_empty_store_is_backed_up_and_restored_too() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two, file) = (dir.path().join("one"), dir.path().join("two"), dir.path().join("backup"));
    Embedded::open(&one, Options::default()).unwrap().backup(&file).await.unwrap();
    assert_eq!(admin::restore(&file, &two).unwrap().keys, 0);
    let store = Embedded::open(&two, Options::default()).unwrap();
    assert_eq!(fixture(&store).put("a", "1").await, 2);
}

#[tokio::test]
async fn an_event_names_the_write_that_it_came_of() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options::default()).unwrap();
    let f = fixture(&store);
    let mut watch = f.watch(f.revision().await).await;
    let ids = [Some(WriteId::new()), None, Some(WriteId::new())];
    for (at, write) in ids.into_iter().enumerate() {
        let op = Op::Put { value: "same".into(), ttl: None };
        let txn =
            Txn { key: f.key(&format!("k{at}")).into(), expect: Expect::Absent, op, write, note: Default::default() };
        within("a transaction", store.txn(txn)).await.unwrap();
    }
    let named: Vec<Option<WriteId>> = take(&mut watch, 3).await.into_iter().map(|event| event.write).collect();
    assert_eq!(named, ids);
}
