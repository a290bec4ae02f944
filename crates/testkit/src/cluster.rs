//! `Cluster::start()`: a real API server on a port of its own with a store of its own, in the test's process.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use client::{Client, Config};
use jiff::Timestamp;
use machinery::rest::{Handler, User};
use tempfile::TempDir;

use crate::kubectl::Kubectl;

/// What a test may want different from the default.
#[derive(Clone, Default)]
pub struct Options {
    /// As `--runtime-config`.
    pub runtime_config: String,
    /// Changes the configuration of the server before it starts.
    pub configure: Option<Arc<Configure>>,
}

pub type Configure = dyn Fn(&mut apiserver::Config) + Send + Sync;

/// A running control plane without controllers: what a test needs beyond the API it starts itself.
pub struct Cluster {
    server: Option<apiserver::Server>,
    store: Arc<store::embedded::Embedded>,
    keys: pki::Cluster,
    kubeconfig: std::path::PathBuf,
    handler: Arc<dyn Handler>,
    // The last field: removed after everything in it is closed.
    directory: TempDir,
}

impl Cluster {
    /// A new, empty cluster.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// A new, empty cluster with options.
    pub async fn start_with(options: Options) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = open(directory.path());
        let keys = pki::Cluster::ensure(
            &directory.path().join("pki"),
            &pki::Options {
                now: Timestamp::now(),
                service_address: IpAddr::from([10, 96, 0, 1]),
                cluster_domain: "cluster.local".to_owned(),
                hosts: Vec::new(),
            },
        )
        .expect("certificates");
        let server = serve(&store, &keys, &options).await;
        let kubeconfig = directory.path().join("admin.kubeconfig");
        let address = format!("https://{}", server.address);
        let text = pki::kubeconfig(&address, &keys.authority_pem(), "kubernetes-admin", &keys.admin);
        pki::write_private(&kubeconfig, &text).expect("a kubeconfig");
        let handler = server.handler();
        let cluster = Self { server: Some(server), store, keys, kubeconfig, handler, directory };
        // What the service account controller would make, so that tests can make pods.
        let account = crate::build::service_account("default");
        cluster.in_process().create(&account).await.expect("the default service account");
        cluster
    }

    /// The administrator, over HTTPS.
    pub fn client(&self) -> Client {
        Client::https(self.config()).expect("a client for the cluster's own kubeconfig")
    }

    /// How the administrator connects, to be changed by tests that want to be somebody else.
    pub fn config(&self) -> Config {
        Config::from_kubeconfig(&self.kubeconfig).expect("the cluster's own kubeconfig")
    }

    /// The administrator, in process.
    pub fn in_process(&self) -> Client {
        self.in_process_as(User::new("kubernetes-admin", ["system:masters"]))
    }

    pub fn in_process_as(&self, user: User) -> Client {
        Client::in_process(Arc::clone(&self.handler), user)
    }

    /// The whole server, for requests that bring credentials without a connection.
    pub fn handler(&self) -> Arc<dyn Handler> {
        Arc::clone(&self.handler)
    }

    /// A node's kubelet, over HTTPS with its own certificate.
    pub fn node_client(&self, node: &str) -> Client {
        let pair = self.keys.node_client(node).expect("a node's certificate");
        let mut config = self.config();
        config.credentials =
            client::config::Credentials::certificate(pair.chain_pem.as_bytes(), pair.key_pem.as_bytes())
                .expect("credentials from our own certificate");
        Client::https(config).expect("a client")
    }

    /// A real kubectl for this cluster.
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig, self.directory.path())
    }

    pub fn keys(&self) -> &pki::Cluster {
        &self.keys
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The address it listens on.
    pub fn address(&self) -> std::net::SocketAddr {
        self.server.as_ref().expect("a cluster has a server until it stops").address
    }

    /// Stops the server, opens the store anew and serves again: all that a restart of the process would lose is lost.
    pub async fn restart(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
        self.store.close().await;
        self.store = open(self.directory.path());
        let server = serve(&self.store, &self.keys, &Options::default()).await;
        let address = format!("https://{}", server.address);
        let text = pki::kubeconfig(&address, &self.keys.authority_pem(), "kubernetes-admin", &self.keys.admin);
        pki::write_private(&self.kubeconfig, &text).expect("a kubeconfig");
        self.handler = server.handler();
        self.server = Some(server);
    }

    /// Stops the server and closes the store.
    pub async fn stop(mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
        self.store.close().await;
    }
}

fn open(directory: &Path) -> Arc<store::embedded::Embedded> {
    let options = store::embedded::Options { packed: apiserver::registry::packed(), ..Default::default() };
    store::embedded::Embedded::open(&directory.join("store"), options).expect("a store in an empty directory")
}

async fn serve(store: &Arc<store::embedded::Embedded>, keys: &pki::Cluster, options: &Options) -> apiserver::Server {
    let tls = pki::Reception::new(&keys.server, &keys.authority_pem(), &pki::Handshake::default())
        .expect("TLS from our own certificates");
    let kubelet = pki::client_config(&keys.kubelet_client, &keys.authority_pem()).expect("TLS from our own keys");
    let tokens = pki::PrivateKey::from_pem(keys.service_account_key.to_pem()).expect("our own key");
    let mut config = apiserver::Config::new(store.clone(), tls, kubelet, tokens);
    // Nobody here watches over nodes: the taint that new ones get would stay.
    config.admission =
        apiserver::admission::Settings::parse("", "TaintNodesByCondition").expect("the name of a plug-in");
    config.runtime_config =
        apiserver::registry::RuntimeConfig::parse(&options.runtime_config).expect("a valid runtime-config");
    if let Some(configure) = &options.configure {
        configure(&mut config);
    }
    apiserver::Server::start(config).await.expect("an API server")
}
