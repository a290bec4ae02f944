//! What a cluster has besides its API is there for as long as the server runs.

use std::sync::Arc;

use client::{Client, DeleteOptions, Kind};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde_json::json;
use testkit::{Server, ServerOptions};

const BINARY: &str = env!("CARGO_BIN_EXE_trireme");
const SYSTEM: &str = "kube-system";

/// Waits for an object, then deletes it and waits for the one that takes its place.
async fn comes_back<K: Kind>(admin: &Client, name: &str) -> Arc<K> {
    let first = testkit::object::<K>(admin, SYSTEM, name, name, |object| object.is_some()).await.expect("an object");
    admin.delete::<K>(SYSTEM, name, &DeleteOptions::default()).await.expect("deleted");
    let is_new = |now: Option<&K>| now.is_some_and(|now| now.metadata().uid != first.metadata().uid);
    testkit::object::<K>(admin, SYSTEM, name, name, is_new).await.expect("another one")
}

#[tokio::test]
async fn what_is_deleted_comes_back_and_what_said_too_much_is_gone() {
    let arguments = ["--disable-agent", "--disable-controller-manager", "--disable-scheduler"];
    let arguments: Vec<String> = arguments.map(str::to_owned).into();
    let server = Server::start(ServerOptions { binary: BINARY.into(), arguments }).await;
    let admin = server.client();
    comes_back::<Service>(&admin, "kube-dns").await;
    let map = comes_back::<ConfigMap>(&admin, "extension-apiserver-authentication").await;
    assert!(map.data.as_ref().is_some_and(|data| data.contains_key("client-ca-file")));
    // Every part but the store is switched off, or runs elsewhere: the ports of this machine say which.
    let statuses = admin.raw("/api/v1/componentstatuses/etcd-0").await.expect("a status");
    let status: serde_json::Value = serde_json::from_slice(&statuses).expect("a status");
    assert_eq!(status["conditions"], json!([{"type": "Healthy", "status": "True", "message": "ok"}]));
    // Nodes have this by the Node authorizer; a role for their group would be one for those without a name.
    let gone = "trireme:node-services";
    assert!(admin.get::<ClusterRole>("", gone).await.is_err_and(|error| error.is_not_found()));
    assert!(admin.get::<ClusterRoleBinding>("", gone).await.is_err_and(|error| error.is_not_found()));
}
