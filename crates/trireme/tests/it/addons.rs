//! What a cluster has besides its API is there for as long as the server runs.

use std::sync::Arc;
use std::time::Duration;

use client::{Client, DeleteOptions, Kind};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use pki::{Authority, Leaf, PrivateKey, Subject};
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

/// Other servers learn whom to believe from what this one was told.
#[tokio::test]
async fn who_is_believed_is_told_as_the_options_say() {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.to_str().expect("a path in UTF-8").to_owned()
    };
    let (now, day) = (jiff::Timestamp::now(), Duration::from_secs(86_400));
    let authority = |name: &str| {
        let key = PrivateKey::generate().expect("a key");
        Authority::new(name, key, now, day).expect("an authority")
    };
    let (clients, proxies) = (authority("clients"), authority("proxies"));
    let (clients_pem, proxies_pem) = (clients.certificate().to_pem(), proxies.certificate().to_pem());
    let key = PrivateKey::generate().expect("a key");
    let leaf = Leaf::client(Subject::new("aggregator", []), day);
    let own = proxies.issue(&leaf, &key.public(), now).expect("a certificate");
    let mut arguments: Vec<String> =
        ["--disable-agent", "--disable-controller-manager", "--disable-scheduler"].map(str::to_owned).into();
    arguments.extend([
        format!("--client-ca-file={}", write("clients.crt", &clients_pem)),
        format!("--requestheader-client-ca-file={}", write("proxies.crt", &proxies_pem)),
        "--requestheader-allowed-names=aggregator,gateway".to_owned(),
        "--requestheader-username-headers=X-User,X-Remote-User".to_owned(),
    ]);
    let own_options = [
        format!("--proxy-client-cert-file={}", write("proxy.crt", &own.to_pem())),
        format!("--proxy-client-key-file={}", write("proxy.key", key.to_pem())),
    ];
    for has_own in [false, true] {
        let mut arguments = arguments.clone();
        arguments.extend(own_options.iter().filter(|_| has_own).cloned());
        let server = Server::start(ServerOptions { binary: BINARY.into(), arguments }).await;
        let name = "extension-apiserver-authentication";
        let map = testkit::object::<ConfigMap>(&server.client(), SYSTEM, name, name, |map| map.is_some()).await;
        let data = map.and_then(|map| map.data.clone()).expect("data");
        assert!(data["client-ca-file"].contains(clients_pem.trim()));
        let certificates = data["requestheader-client-ca-file"].matches("BEGIN CERTIFICATE").count();
        assert!(data["requestheader-client-ca-file"].contains(proxies_pem.trim()));
        let names = &data["requestheader-allowed-names"];
        // Without a certificate of its own the server shows the cluster's, which others have to believe, too.
        match has_own {
            false => assert_eq!((certificates, &**names), (2, r#"["aggregator","gateway","front-proxy-client"]"#)),
            true => assert_eq!((certificates, &**names), (1, r#"["aggregator","gateway"]"#)),
        }
        assert_eq!(data["requestheader-username-headers"], r#"["X-User","X-Remote-User"]"#);
        assert_eq!(data["requestheader-group-headers"], r#"["X-Remote-Group"]"#);
        assert_eq!(data["requestheader-uid-headers"], r#"["X-Remote-Uid"]"#);
        assert_eq!(data["requestheader-extra-headers-prefix"], r#"["X-Remote-Extra-"]"#);
    }
}
