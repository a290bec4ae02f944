//! How the graph keeps up with the caches.

use std::sync::Arc;

use machinery::object::{Draft, FieldPaths};
use machinery::rest::User;
use serde_json::json;
use storage::Lookup;
use storage::cache::{Cache, Caches, Keeping};
use store::{Expect, Op, Outcome, Store as _, Txn};

use super::super::{Attributes, Authorizer as _};
use super::Node;

struct Registry(Arc<Caches>);

impl Lookup for Registry {
    fn objects(&self, _: &str, plural: &str) -> Option<Arc<Cache>> {
        self.0.get(&format!("/registry/{plural}/"))
    }
}

#[tokio::test]
async fn the_graph_keeps_up_with_what_nodes_tell_of_pods_once_somebody_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = store::embedded::Embedded::open(directory.path(), Default::default()).expect("a store");
    let prefixes = ["pods", "persistentvolumes"].map(|plural| (format!("/registry/{plural}/"), Keeping::default()));
    let caches = Caches::start(store.clone(), prefixes).await.expect("caches");
    let node = Node::new(&Registry(caches.clone())).expect("its caches are there");
    let user = User::new("system:node:n", ["system:nodes"]);
    let tell = Attributes::question(&user, "patch", "", "pods", "p").in_namespace("d").of_subresource("status");
    let read = Attributes::question(&user, "get", "", "secrets", "s").in_namespace("d");

    assert!(node.authorize(&tell).allows());
    assert!(!node.state.read().pods.has_begun(), "nobody asked what pods refer to");
    assert!(!node.authorize(&read).allows());

    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "d"},
        "spec": {"nodeName": "n", "containers": [], "volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
    });
    let value = Draft::new(&pod, &FieldPaths::default()).expect("a draft").stored().clone();
    let op = Op::Put { value, ttl: None };
    let key = "/registry/pods/d/p".into();
    let txn = Txn { key, expect: Expect::Absent, op, write: None, note: Default::default() };
    let Outcome::Committed(revision) = store.txn(txn).await.expect("a write") else { panic!("nobody else writes") };
    caches.reach(revision).await.expect("it is followed");
    assert!(node.state.read().pods.is_behind(&node.pods));
    assert!(node.authorize(&tell).allows());
    assert!(!node.state.read().pods.is_behind(&node.pods), "what is new is taken in when a node tells of a pod");
    assert!(node.authorize(&read).allows());
    caches.stop();
}
