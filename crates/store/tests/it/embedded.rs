//! The embedded engine: the contract, and what only files can get wrong.

use std::sync::Arc;

use store::Error;
use store::embedded::{Embedded, Options};

use crate::contract;
use crate::support::Fixture;

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
