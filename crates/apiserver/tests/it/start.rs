//! What every cluster has from the beginning, and how often somebody tries again who is never the fastest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use rest::commit::MAX_RACES;
use serde_json::json;
use store::{Error, Event, Expect, Outcome, Page, Range, Record, Revision, Store, Txn, Watch};

use crate::server::Server;

#[tokio::test]
async fn the_first_objects_pass_the_gates() {
    let server = Server::default().await;
    for path in [
        "/api/v1/namespaces/kube-system",
        "/api/v1/namespaces/default/services/kubernetes",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin",
        "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/exempt",
    ] {
        let object = server.get(path).await;
        assert_eq!(object.status, 200, "{path}: {}", object.text());
        // Whoever writes by requests is recorded.
        let manager = &object.json()["metadata"]["managedFields"][0]["manager"];
        assert_eq!(manager, "kube-apiserver", "{path}");
    }
}

/// A store in which somebody else is always faster with one key, once it exists.
struct Raced {
    inner: Arc<dyn Store>,
    key: &'static str,
    lost: Arc<AtomicUsize>,
}

#[async_trait::async_trait]
impl Store for Raced {
    async fn revision(&self) -> Result<Revision, Error> {
        self.inner.revision().await
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, Error> {
        self.inner.get(key).await
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        self.inner.range(range).await
    }

    async fn txn(&self, txn: Txn) -> Result<Outcome, Error> {
        if let (true, Expect::At(_)) = (*txn.key == *self.key, &txn.expect) {
            let record = self.inner.get(&txn.key).await?.expect("an object that was read");
            let op = store::Op::Put { value: record.value, ttl: None };
            let faster =
                Txn { key: record.key, expect: Expect::At(record.revision), op, write: None, note: Default::default() };
            self.inner.txn(faster).await?;
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        self.inner.txn(txn).await
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        self.inner.watch(prefix, after).await
    }

    async fn history(&self, prefix: &str, after: Revision, until: Revision, limit: usize) -> Result<Vec<Event>, Error> {
        self.inner.history(prefix, after, until, limit).await
    }

    async fn at(&self, key: &str, revision: Revision) -> Result<Option<Record>, Error> {
        self.inner.at(key, revision).await
    }

    async fn changes(&self, query: store::Changes) -> Result<Vec<store::Change>, Error> {
        self.inner.changes(query).await
    }

    async fn moment(&self, time: u64) -> Result<Option<Revision>, Error> {
        self.inner.moment(time).await
    }

    async fn kept(&self) -> Result<store::Kept, Error> {
        self.inner.kept().await
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        self.inner.compact(revision).await
    }
}

async fn raced(key: &'static str) -> (Server, Arc<AtomicUsize>) {
    let lost = Arc::new(AtomicUsize::new(0));
    let counted = lost.clone();
    let server = Server::start(|config, _| {
        config.store = Arc::new(Raced { inner: config.store.clone(), key, lost: counted });
    });
    (server.await, lost)
}

#[tokio::test]
async fn a_change_that_is_never_the_fastest_ends() {
    let (server, lost) = raced("/registry/configmaps/default/a").await;
    let maps = "/api/v1/namespaces/default/configmaps";
    assert_eq!(server.post(maps, &json!({"metadata": {"name": "a"}})).await.status, 201);
    let patch = r#"{"data": {"k": "v"}}"#;
    let patched = server.patch(&format!("{maps}/a"), "application/merge-patch+json", patch).await;
    assert_eq!((patched.status, &patched.json()["reason"]), (409, &json!("Conflict")), "{}", patched.text());
    assert_eq!(lost.swap(0, Ordering::Relaxed), MAX_RACES);
    let deleted = server.send(Method::DELETE, &format!("{maps}/a"), &[], "").await;
    assert_eq!((deleted.status, lost.load(Ordering::Relaxed)), (409, MAX_RACES), "{}", deleted.text());
}

#[tokio::test]
async fn ports_that_others_always_take_first_are_refused_in_the_end() {
    let (server, lost) = raced("/registry/ranges/servicenodeports").await;
    let services = "/api/v1/namespaces/default/services";
    let service =
        |name: &str| json!({"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    // The first one makes the bitmap, and nobody is faster with what is not there.
    assert_eq!(server.post(services, &service("a")).await.status, 201);
    let refused = server.post(services, &service("b")).await;
    assert_eq!((refused.status, lost.load(Ordering::Relaxed)), (409, MAX_RACES), "{}", refused.text());
}
