//! What every cluster has from the beginning, and how often somebody tries again who is never the fastest.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use http::Method;
use rest::commit::MAX_RACES;
use serde_json::json;
use store::{Expect, Op, Store, Txn};

use crate::interposed::Interposed;
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

/// A server with a store in which somebody else is always faster with one key, once it exists; and how often they were.
async fn raced(key: &'static str) -> (Server, Arc<AtomicUsize>) {
    let lost = Arc::new(AtomicUsize::new(0));
    let counted = lost.clone();
    let server = Server::start(|config, _| {
        let inner = config.store.clone();
        let below = inner.clone();
        let before = move |txn: &Txn| {
            let concerned = *txn.key == *key && matches!(txn.expect, Expect::At(_));
            let (below, counted) = (below.clone(), counted.clone());
            async move {
                if concerned {
                    rewrite(&*below, key).await;
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
            .boxed()
        };
        config.store = Arc::new(Interposed { inner, before: Box::new(before) });
    });
    (server.await, lost)
}

/// Writes what is there already.
async fn rewrite(store: &dyn Store, key: &str) {
    let record = store.get(key).await.expect("a store").expect("an object that was read");
    let (op, expect) = (Op::Put { value: record.value, ttl: None }, Expect::At(record.revision));
    let faster = Txn { key: record.key, expect, op, write: None, note: Default::default() };
    store.txn(faster).await.expect("a store");
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
