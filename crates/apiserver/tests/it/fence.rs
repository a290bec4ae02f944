//! Two servers on one etcd: a leader that is deposed through one of them writes nothing more through the other, not even what that one is about to write.

use std::sync::{Arc, Mutex};

use client::{Client, Guard};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::HeaderValue;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use store::Store;
use store::etcd::{Etcd, Options};
use testkit::build::config_map;

use crate::interposed::Interposed;
use crate::server::Server;

/// A leader that believes it is one.
#[derive(Debug)]
struct Sure;

impl Guard for Sure {
    fn holds(&self) -> bool {
        true
    }

    fn lease(&self) -> HeaderValue {
        HeaderValue::from_static("kube-system/part/one")
    }
}

/// What is done once, right before the next write of a ConfigMap.
type Next = Arc<Mutex<Option<BoxFuture<'static, ()>>>>;

fn lease(holder: &str) -> Lease {
    let lease = json!({"metadata": {"name": "part", "namespace": "kube-system"}, "spec": {"holderIdentity": holder}});
    serde_json::from_value(lease).expect("a Lease")
}

/// Gives the lease to somebody, or to whom it is given already once more.
async fn give(client: Client, holder: &'static str, transitions: i32) {
    let mut lease = client.get::<Lease>("kube-system", "part").await.expect("a lease");
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(holder.to_owned());
    spec.lease_transitions = Some(transitions);
    client.update(&lease).await.expect("written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_leaders_write_never_lands() {
    let etcd = testkit::Etcd::start().await;
    let open = || Etcd::open(&Options { endpoints: vec![etcd.endpoint()], ..Options::default() }).expect("a store");
    let next = Next::default();
    let planned = Arc::clone(&next);
    let one = Server::start(|config, _| {
        let before = move |txn: &store::Txn| {
            let wanted = txn.key.starts_with("/registry/configmaps/default/");
            let planned = wanted.then(|| planned.lock().expect("no panic").take()).flatten();
            planned.unwrap_or_else(|| async {}.boxed())
        };
        config.store = Arc::new(Interposed { inner: open(), before: Box::new(before) });
    });
    let one = one.await;
    let other = Server::start(|config, _| config.store = open()).await;
    let plan = |what: BoxFuture<'static, ()>| *next.lock().expect("no panic") = Some(what);
    one.admin().create(&lease("one")).await.expect("a lease");
    let leader = one.admin().with_guard(Arc::new(Sure));

    leader.create(&config_map("a", "k", "v")).await.expect("it leads");
    // The holder renews between the look at its lease and the write: it still leads.
    plan(give(other.admin(), "one", 1).boxed());
    leader.create(&config_map("b", "k", "v")).await.expect("it leads");
    assert!(next.lock().expect("no panic").is_none(), "it was renewed in between");

    for change in ["create", "update", "delete"] {
        give(other.admin(), "one", 2).await;
        plan(give(other.admin(), "two", 3).boxed());
        let refused = match change {
            "create" => leader.create(&config_map("c", "k", "late")).await.map(drop),
            "update" => leader.update(&config_map("b", "k", "late")).await.map(drop),
            _ => leader.delete::<ConfigMap>("default", "b", &client::DeleteOptions::default()).await.map(drop),
        };
        let refused = refused.expect_err(change);
        assert!(next.lock().expect("no panic").is_none(), "{change}: the lease was given away in between");
        assert!(refused.is_conflict(), "{change}: {refused}");
        assert!(refused.to_string().contains("under a lease that \"one\" does not hold"), "{change}: {refused}");
    }
    let below = open();
    assert!(below.get("/registry/configmaps/default/c").await.expect("etcd answers").is_none(), "nothing was created");
    let kept = other.admin().get::<ConfigMap>("default", "b").await.expect("nothing was deleted");
    assert_eq!(kept.data.expect("data")["k"], "v", "nothing was changed");
    one.stop().await;
    other.stop().await;
}
