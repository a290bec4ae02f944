//! An API server with settings of the test's own, and kubectl for whoever the test wants to be.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{Client, Config};
use futures::TryStreamExt as _;
use http::HeaderMap;
use k8s_openapi::api::core::v1::ServiceAccount;
use machinery::rest::{Body, Payload, User};
use serde_json::Value;
use store::embedded::Embedded;
use tempfile::TempDir;
use testkit::Kubectl;
use testkit::build::service_account;

/// Sends a tree that no typed call is for: the headers and the tree of the answer, or the message of a refusal.
pub async fn post(client: &Client, path: &str, tree: Value) -> Result<(HeaderMap, Value), String> {
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(Body::Value(tree)).expect("a request");
    let answer = client.request(request).await.map_err(|error| error.to_string())?;
    let (parts, payload) = answer.into_parts();
    let tree = match payload {
        Payload::Value(tree) => tree,
        Payload::Object(object) => object.to_value(),
        Payload::Bytes(bytes) => serde_json::from_slice(&bytes).expect("a tree"),
        Payload::Stream(stream) => {
            let chunks: Vec<bytes::Bytes> = stream.try_collect().await.expect("the whole answer");
            serde_json::from_slice(&chunks.concat()).expect("a tree")
        }
        _ => panic!("an answer to a write is a tree"),
    };
    if parts.status.is_success() {
        Ok((parts.headers, tree))
    } else {
        Err(tree["message"].as_str().unwrap_or_default().to_owned())
    }
}

pub struct Server {
    server: apiserver::Server,
    store: Arc<Embedded>,
    pub keys: pki::Cluster,
    directory: TempDir,
}

impl Server {
    /// With the settings that a function makes of the default ones; it is told a directory for files.
    pub async fn start(configure: impl FnOnce(&mut apiserver::Config, &Path)) -> Self {
        Self::start_in(tempfile::tempdir().expect("a temporary directory"), configure).await
    }

    /// Stops it and starts another one on the same store, with settings of its own.
    pub async fn restart(self, configure: impl FnOnce(&mut apiserver::Config, &Path)) -> Self {
        self.server.stop().await;
        self.store.close().await;
        Self::start_in(self.directory, configure).await
    }

    async fn start_in(directory: TempDir, configure: impl FnOnce(&mut apiserver::Config, &Path)) -> Self {
        let options = store::embedded::Options { packed: apiserver::registry::packed(), ..Default::default() };
        let store = Embedded::open(&directory.path().join("store"), options).expect("a store");
        let options = pki::Options {
            now: jiff::Timestamp::now(),
            service_address: IpAddr::from([10, 96, 0, 1]),
            cluster_domain: "cluster.local".to_owned(),
            hosts: Vec::new(),
        };
        let keys = pki::Cluster::ensure(&directory.path().join("pki"), &options).expect("certificates");
        let tls = pki::Reception::new(&keys.server, &keys.authority_pem(), &pki::Handshake::default()).expect("TLS");
        let kubelet = pki::client_config(&keys.kubelet_client, &keys.authority_pem()).expect("TLS");
        let tokens = pki::PrivateKey::from_pem(keys.service_account_key.to_pem()).expect("our own key");
        let mut config = apiserver::Config::new(store.clone(), tls, kubelet, tokens);
        config.front_proxy_client = Some(keys.front_proxy_client.clone());
        configure(&mut config, directory.path());
        let server = apiserver::Server::start(config).await.expect("an API server");
        let started = Self { server, store, keys, directory };
        // A server that is started again has it already, and may refuse everything.
        if started.admin().get::<ServiceAccount>("default", "default").await.is_err() {
            started.admin().create(&service_account("default")).await.expect("the default service account");
        }
        // A read waits until the caches have it, so that the test's first pod finds it.
        let account = started.admin().get::<ServiceAccount>("default", "default").await;
        account.expect("the default service account");
        started
    }

    /// As every cluster is by default.
    pub async fn default() -> Self {
        Self::start(|_, _| {}).await
    }

    /// The administrator, in process.
    pub fn admin(&self) -> Client {
        self.as_user(User::new("kubernetes-admin", ["system:masters"]))
    }

    pub fn as_user(&self, user: User) -> Client {
        Client::in_process(self.server.handler(), user)
    }

    /// What is below it.
    pub fn store(&self) -> &Embedded {
        &self.store
    }

    pub fn address(&self) -> String {
        format!("https://{}", self.server.address)
    }

    /// A client over HTTPS that shows nothing yet.
    pub fn config(&self) -> Config {
        let mut config = Config::new(self.address());
        config.trust = client::config::Trust::bundle(self.keys.authority_pem().as_bytes()).expect("our own authority");
        config
    }

    /// The administrator over HTTPS.
    pub fn admin_config(&self) -> Config {
        let mut config = self.config();
        let pair = &self.keys.admin;
        config.credentials =
            client::config::Credentials::certificate(pair.chain_pem.as_bytes(), pair.key_pem.as_bytes())
                .expect("our own certificate");
        config
    }

    pub fn kubeconfig(&self) -> PathBuf {
        let path = self.path("admin.kubeconfig");
        let text = pki::kubeconfig(&self.address(), &self.keys.authority_pem(), "kubernetes-admin", &self.keys.admin);
        pki::write_private(&path, &text).expect("a kubeconfig");
        path
    }

    /// kubectl as the administrator.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig(), self.directory.path())
    }

    /// kubectl with a token and nothing else.
    pub fn kubectl_with_token(&self, token: &str) -> Kubectl {
        let name =
            format!("{}.kubeconfig", token.bytes().fold(7u64, |hash, byte| hash.wrapping_mul(31) + u64::from(byte)));
        let authority = self.path("ca.pem");
        std::fs::write(&authority, self.keys.authority_pem()).expect("a file");
        let text = format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{server: '{}', certificate-authority: '{}'}}}}], \
             users: [{{name: u, user: {{token: '{token}'}}}}]}}",
            self.address(),
            authority.display()
        );
        let path = self.path(&name);
        std::fs::write(&path, text).expect("a kubeconfig");
        Kubectl::new(&path, self.directory.path())
    }

    /// A file of the server's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub async fn stop(self) {
        self.server.stop().await;
        self.store.close().await;
    }
}
