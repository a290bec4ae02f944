//! A disk that fails: what could not be made durable is never acknowledged, nor shown to anybody.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::FutureExt;
use futures::StreamExt;

use super::disk::{Disk, Os};
use super::{Embedded, Options};
use crate::{Error, Expect, Op, Outcome, Range, Revision, Store, Txn};

/// A disk whose writes and syncs fail while told so.
#[derive(Default)]
struct Faulty {
    writes_fail: AtomicBool,
    syncs_fail: AtomicBool,
    syncs: AtomicUsize,
}

impl Disk for Faulty {
    fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.writes_fail.load(Ordering::Relaxed) {
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
    match store.txn(Txn { key: key.into(), expect: Expect::Absent, op }).await? {
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
