//! A disk that fails: what could not be made durable is never acknowledged, nor shown to anybody.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::StreamExt;

use super::disk::{Disk, Os};
use super::{Embedded, Options};
use crate::{Error, Expect, Op, Outcome, Range, Revision, Store, Txn};

/// A disk whose writes and syncs fail while told so.
struct Faulty {
    writes_fail: AtomicBool,
    /// No larger write goes well.
    room: AtomicUsize,
    syncs_fail: AtomicBool,
    syncs: AtomicUsize,
}

impl Default for Faulty {
    fn default() -> Self {
        let room = AtomicUsize::new(usize::MAX);
        Self { writes_fail: false.into(), room, syncs_fail: false.into(), syncs: 0.into() }
    }
}

impl Disk for Faulty {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.writes_fail.load(Ordering::Relaxed) || bytes.len() > self.room.load(Ordering::Relaxed) {
            // As a full disk does: some of it gets there.
            Os.write(file, &bytes[..bytes.len() / 2], offset)?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        Os.write(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if self.syncs_fail.load(Ordering::Relaxed) { Err(io::Error::other("I/O error")) } else { Os.sync(file) }
    }
}

fn open(dir: &Path) -> (Arc<Faulty>, Arc<Embedded>) {
    let disk = Arc::new(Faulty::default());
    let store = Embedded::open_on(dir, Options::default(), Arc::clone(&disk) as _).expect("an empty directory opens");
    (disk, store)
}

async fn create(store: &Embedded, key: &str) -> Result<Revision, Error> {
    let op = Op::Put { value: "value".into(), ttl: None };
    match store.txn(Txn { key: key.into(), expect: Expect::Absent, op, write: None, note: Default::default() }).await? {
        Outcome::Committed(revision) => Ok(revision),
        Outcome::Conflict(record) => panic!("{key} is new, but there is {record:?}"),
    }
}

async fn keys(store: &Embedded) -> Vec<String> {
    let page = store.range(Range::default()).await.expect("reads need no disk");
    page.records.iter().map(|record| record.key.to_string()).collect()
}

#[tokio::test]
async fn after_a_failed_sync_nothing_is_acknowledged_until_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let (disk, store) = open(dir.path());
    let first = create(&store, "/a").await.expect("a good disk");
    let mut watch = store.watch("/", first).await.expect("a watch");
    disk.syncs_fail.store(true, Ordering::Relaxed);
    assert!(matches!(create(&store, "/b").await, Err(Error::Unavailable(what)) if what.contains("sync failed")));
    disk.syncs_fail.store(false, Ordering::Relaxed);
    let syncs = disk.syncs.load(Ordering::Relaxed);
    assert!(
        matches!(create(&store, "/c").await, Err(Error::Unavailable(_))),
        "the kernel may have lost what came before"
    );
    assert_eq!(disk.syncs.load(Ordering::Relaxed), syncs, "it is not even tried");
    assert_eq!((keys(&store).await, store.revision().await.ok()), (vec!["/a".to_owned()], Some(first)));
    assert!(watch.next().now_or_never().is_none(), "nor does a watcher see it");
    store.close().await;
    drop(store);
    let (_, store) = open(dir.path());
    create(&store, "/c").await.expect("a restart has found out what the disk holds");
    assert!(keys(&store).await.starts_with(&["/a".to_owned()]));
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_takes_them_again_when_it_has_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let (disk, store) = open(dir.path());
    for round in 0..3 {
        disk.writes_fail.store(true, Ordering::Relaxed);
        assert!(matches!(create(&store, "/lost").await, Err(Error::Unavailable(_))), "round {round}");
        disk.writes_fail.store(false, Ordering::Relaxed);
        assert_eq!(create(&store, &format!("/{round}")).await.ok(), Some(2 + round));
    }
    let expected = ["/0", "/1", "/2"];
    assert_eq!(keys(&store).await, expected);
    drop(store);
    assert_eq!(keys(&open(dir.path()).1).await, expected);
}

#[tokio::test]
async fn writers_that_wait_together_share_a_sync() {
    let dir = tempfile::tempdir().expect("a directory");
    let (disk, store) = open(dir.path());
    let names: Vec<_> = (0..500).map(|i| format!("/{i}")).collect();
    let all = futures::future::join_all(names.iter().map(|name| create(&store, name))).await;
    assert!(all.into_iter().all(|result| result.is_ok()));
    let syncs = disk.syncs.load(Ordering::Relaxed);
    assert!(syncs < 250, "{syncs} syncs for 500 writes");
}

/// Waits for what only the writer's thread brings about.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), wait).await.is_ok(), "{what} did not happen");
}

#[tokio::test]
async fn a_full_disk_is_told_until_there_is_room_again_and_nobody_has_to_ask() {
    let dir = tempfile::tempdir().expect("a directory");
    let (disk, store) = open(dir.path());
    create(&store, "/a").await.expect("a good disk");
    for round in 0..2 {
        assert_eq!(store.write_failure(), None);
        disk.writes_fail.store(true, Ordering::Relaxed);
        create(&store, "/lost").await.expect_err("a full disk");
        assert!(
            store.write_failure().is_some_and(|why| why.contains("no storage space")),
            "{:?}",
            store.write_failure()
        );
        disk.writes_fail.store(false, Ordering::Relaxed);
        until("room", || store.write_failure().is_none()).await;
        create(&store, &format!("/{round}")).await.expect("nothing of the attempts is left");
    }
    drop(store);
    assert_eq!(keys(&open(dir.path()).1).await, ["/0", "/1", "/a"]);
}

#[tokio::test]
async fn room_for_little_is_not_room_enough() {
    let dir = tempfile::tempdir().expect("a directory");
    let (disk, store) = open(dir.path());
    create(&store, "/a").await.expect("a good disk");
    disk.room.store(1 << 20, Ordering::Relaxed);
    let large = Op::Put { value: vec![0; 2 << 20].into(), ttl: None };
    let large = Txn { key: "/large".into(), expect: Expect::Absent, op: large, write: None, note: Default::default() };
    store.txn(large.clone()).await.expect_err("too large for the disk");
    create(&store, "/b").await.expect("for this there is room");
    assert!(store.write_failure().is_some());
    disk.room.store(usize::MAX, Ordering::Relaxed);
    until("room", || store.write_failure().is_none()).await;
    store.txn(large).await.expect("room enough");
}

#[tokio::test]
async fn a_key_that_expires_while_the_disk_is_full_goes_afterwards() {
    let dir = tempfile::tempdir().expect("a directory");
    let (disk, store) = open(dir.path());
    let op = Op::Put { value: "value".into(), ttl: Some(1) };
    store
        .txn(Txn { key: "/short".into(), expect: Expect::Absent, op, write: None, note: Default::default() })
        .await
        .expect("a good disk");
    disk.writes_fail.store(true, Ordering::Relaxed);
    until("an attempt to remove it", || store.write_failure().is_some()).await;
    disk.writes_fail.store(false, Ordering::Relaxed);
    let mut watch = store.watch("/", 1).await.expect("a watch");
    let gone = async { while watch.next().await.is_some_and(|event| event.expect("an event").value.is_some()) {} };
    assert!(tokio::time::timeout(Duration::from_secs(30), gone).await.is_ok(), "it stays");
}
