//! A store moves from one engine to the other and back, and every object keeps its revision.

use std::os::unix::fs::PermissionsExt as _;

use store::embedded::{Embedded, Options as EmbeddedOptions};
use store::etcd::{to_embedded, to_etcd};
use store::{Error, Range, Store};

use crate::etcd::Cluster;
use crate::support::Fixture;

async fn everything(store: &dyn Store) -> Vec<(String, Vec<u8>, u64)> {
    let page = store.range(Range { prefix: "/registry/".to_owned(), ..Range::default() }).await.unwrap();
    page.records.into_iter().map(|record| (record.key.to_string(), record.value.to_vec(), record.revision)).collect()
}

#[tokio::test]
async fn objects_keep_their_revisions_on_the_way_into_an_etcd_and_back() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = Embedded::open(old.path(), EmbeddedOptions::default()).unwrap();
    let fixture = Fixture { store: store.clone(), root: "/registry/".to_owned() };
    for round in 0..3 {
        for name in ["a", "b", "c"] {
            fixture.put(name, format!("{name}{round}")).await;
        }
    }
    fixture.put_ttl("event", "gone in an hour", 3600).await;
    fixture.delete("b").await;
    let (before, last) = (everything(&*store).await, fixture.revision().await);
    store.close().await;
    drop((store, fixture));

    let cluster = Cluster::start(1);
    let etcd = cluster.store().await;
    let summary = to_etcd(old.path(), &etcd).await.unwrap();
    assert_eq!(summary.revision, last);
    assert_eq!(everything(&*etcd).await, before);
    assert!(etcd.revision().await.unwrap() > last, "what is written from now on is later than everything that was");
    assert!(etcd.get("/trireme.moving").await.unwrap().is_none());
    // Who had seen everything resumes; who had not is told.
    assert!(etcd.history("/registry/", last, last + 1, 10).await.unwrap().is_empty());
    assert!(matches!(etcd.history("/registry/", 3, last, 100).await, Err(Error::Compacted { .. })));
    let again = to_etcd(old.path(), &etcd).await.unwrap_err().to_string();
    assert!(again.contains("only a fresh one"), "{again}");

    let at = new.path().join("store");
    to_embedded(&etcd, &at).await.unwrap();
    let back = Embedded::open(&at, EmbeddedOptions::default()).unwrap();
    assert_eq!(everything(&*back).await, before);
    assert!(back.revision().await.unwrap() >= last);
    back.close().await;
}

#[tokio::test]
async fn a_snapshot_is_whole_and_members_say_how_they_are() {
    let cluster = Cluster::start(1);
    let etcd = cluster.store().await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("snapshot");
    let members = etcd.members();
    let size = members.snapshot(&file).await.unwrap();
    let written = std::fs::metadata(&file).unwrap();
    assert_eq!(written.len(), size);
    assert_eq!(written.permissions().mode() & 0o077, 0, "Secrets are in it");
    assert!(members.snapshot(&file).await.is_err(), "one that is there is not written over");
    let all = members.list(true).await.unwrap();
    assert_eq!((all.len(), all[0].learner), (1, false));
    let health = members.health().await.unwrap();
    assert_eq!(health.leader, all[0].id);
    members.defragment().await.unwrap();
    // A second one that never starts has no vote, and takes nothing from the first.
    let with = members.add_learner("http://127.0.0.1:1").await.unwrap().unwrap();
    let learner = with.iter().find(|member| member.learner).unwrap();
    assert!(!members.promote(learner.id).await.unwrap(), "it has not caught up");
    assert!(members.add_learner("http://127.0.0.1:2").await.is_err(), "one at a time");
    assert_eq!(members.remove(learner.id).await.unwrap().len(), 1);
    etcd.revision().await.unwrap();
    // Members that are others from now on.
    etcd.set_endpoints(&["http://127.0.0.1:1".to_owned(), cluster.options().endpoints[0].clone()]).unwrap();
    etcd.revision().await.unwrap();
}
