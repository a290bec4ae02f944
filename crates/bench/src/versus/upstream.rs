//! Upstream's control plane from its own programs: etcd, kube-apiserver, kube-controller-manager and, where wanted, kube-scheduler, with certificates that
//! our own `pki` makes, on ports of their own of the loopback address.

use std::fs::File;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use testkit::free_port;
use tokio::process::{Child, Command};

use crate::Failure;

/// How long it may take to become ready.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a process may take to end.
const ENDING: Duration = Duration::from_secs(20);
/// An address of nobody: the server's own may not be loopback, and nobody is to reach it there.
const ADVERTISED: &str = "192.0.2.1";

const API_SERVER: &str = "kube-apiserver";

/// Its processes. They end with it.
pub struct Upstream {
    children: Vec<(&'static str, Child)>,
    directory: TempDir,
}

impl Upstream {
    pub async fn start(programs: &Path, scheduler: bool) -> Result<Self, Failure> {
        let mut upstream = Self::start_alone(programs).await?;
        upstream.start_client(programs, "kube-controller-manager")?;
        if scheduler {
            upstream.start_client(programs, "kube-scheduler")?;
        }
        Ok(upstream)
    }

    /// The API server with its store, and nothing else.
    pub async fn start_alone(programs: &Path) -> Result<Self, Failure> {
        let mut upstream = Self { children: Vec::new(), directory: tempfile::tempdir()? };
        let port = free_port();
        upstream.certificates(port)?;
        let endpoint = upstream.start_etcd(programs)?;
        upstream.start_api_server(programs, &endpoint, port)?;
        upstream.ready(port).await?;
        Ok(upstream)
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.path("admin.kubeconfig")
    }

    /// The process of the API server.
    pub fn api_server(&self) -> Option<u32> {
        self.children.iter().find(|(name, _)| *name == API_SERVER).and_then(|(_, child)| child.id())
    }

    /// The process ids, if all of them run.
    pub fn ids(&self) -> Result<Vec<u32>, Failure> {
        self.children.iter().map(|(name, child)| child.id().ok_or_else(|| format!("{name} is gone").into())).collect()
    }

    pub fn logs(&self) -> String {
        let log = |name: &str| std::fs::read_to_string(self.path(&format!("{name}.log"))).unwrap_or_default();
        // Warnings and errors, as klog marks them.
        let grave =
            |text: String| text.lines().filter(|line| line.starts_with(['E', 'F'])).collect::<Vec<_>>().join("\n");
        self.children.iter().map(|(name, _)| format!("{name}:\n{}\n", grave(log(name)))).collect()
    }

    /// Clients first, the store last.
    pub async fn stop(&mut self) {
        for (_, mut child) in self.children.drain(..).rev() {
            if let Some(id) = child.id() {
                let _ = Command::new("kill").args(["-TERM", &id.to_string()]).status().await;
            }
            if tokio::time::timeout(ENDING, child.wait()).await.is_err() {
                let _ = child.kill().await;
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn certificates(&self, port: u16) -> Result<(), Failure> {
        let options = pki::Options {
            now: jiff::Timestamp::now(),
            service_address: IpAddr::from([10, 96, 0, 1]),
            cluster_domain: "cluster.local".to_owned(),
            hosts: Vec::new(),
        };
        let cluster = pki::Cluster::ensure(&self.path("pki"), &options)?;
        let server = format!("https://127.0.0.1:{port}");
        let users = [
            ("admin", "kubernetes-admin", &cluster.admin),
            ("kube-controller-manager", "system:kube-controller-manager", &cluster.controller_manager),
            ("kube-scheduler", "system:kube-scheduler", &cluster.scheduler),
        ];
        for (file, user, pair) in users {
            let text = pki::kubeconfig(&server, &cluster.authority_pem(), user, pair);
            pki::write_private(&self.path(&format!("{file}.kubeconfig")), &text)?;
        }
        Ok(())
    }

    /// The last resort is the one on PATH.
    fn start_etcd(&mut self, programs: &Path) -> Result<String, Failure> {
        let own = programs.join("etcd");
        let mut command = Command::new(if own.exists() { own } else { PathBuf::from("etcd") });
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let (client, peer) = (url(free_port()), url(free_port()));
        command
            .arg("--data-dir")
            .arg(self.path("etcd"))
            .args(["--name", "m1", "--logger", "zap", "--log-level", "error"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("m1={peer}")]);
        self.spawn("etcd", command)?;
        Ok(client)
    }

    fn start_api_server(&mut self, programs: &Path, etcd: &str, port: u16) -> Result<(), Failure> {
        let mut command = Command::new(programs.join(API_SERVER));
        command.args(api_server_arguments(self.directory.path(), &self.path("pki"), port));
        command.args([
            &format!("--etcd-servers={etcd}"),
            "--bind-address=127.0.0.1",
            &format!("--advertise-address={ADVERTISED}"),
        ]);
        self.spawn(API_SERVER, command)
    }

    /// A part that is a client of the API server.
    fn start_client(&mut self, programs: &Path, name: &'static str) -> Result<(), Failure> {
        let kubeconfig = self.path(&format!("{name}.kubeconfig"));
        let mut command = Command::new(programs.join(name));
        command.args(["--bind-address=127.0.0.1", &format!("--secure-port={}", free_port())]);
        command.args(client_arguments(name, &kubeconfig, &self.path("pki")));
        self.spawn(name, command)
    }

    fn spawn(&mut self, name: &'static str, mut command: Command) -> Result<(), Failure> {
        let log = File::create(self.path(&format!("{name}.log")))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let child = command.spawn().map_err(|error| format!("{name}: {error}"))?;
        self.children.push((name, child));
        Ok(())
    }

    async fn ready(&mut self, port: u16) -> Result<(), Failure> {
        let client = client::Client::https(client::Config::from_kubeconfig(self.kubeconfig())?)?;
        let ready = async {
            while client.raw("/readyz").await.is_err() {
                // There is nothing to watch before there is a server.
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, ready).await {
            Ok(()) => Ok(()),
            Err(_) => Err(format!("upstream's server at port {port} did not become ready:\n{}", self.logs()).into()),
        }
    }
}

/// What a kube-apiserver is told wherever it is, but for its store and its address.
pub fn api_server_arguments(directory: &Path, pki: &Path, port: u16) -> Vec<String> {
    let file = |name: &str| pki.join(name).display().to_string();
    vec![
        format!("--secure-port={port}"),
        format!("--cert-dir={}", directory.join("made").display()),
        format!("--tls-cert-file={}", file("apiserver.crt")),
        format!("--tls-private-key-file={}", file("apiserver.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={}", file("sa.key")),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--enable-bootstrap-token-auth=true".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--requestheader-client-ca-file={}", file("front-proxy-ca.crt")),
        format!("--proxy-client-cert-file={}", file("front-proxy-client.crt")),
        format!("--proxy-client-key-file={}", file("front-proxy-client.key")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
    ]
}

/// What its clients are told: where it is, and no limits of their own, which would be measured otherwise (20 requests a second for controllers, 50 for the
/// scheduler).
pub fn client_arguments(name: &str, kubeconfig: &Path, pki: &Path) -> Vec<String> {
    let file = |name: &str| pki.join(name).display().to_string();
    let mut arguments: Vec<String> = ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
        .map(|flag| format!("--{flag}={}", kubeconfig.display()))
        .into();
    arguments.extend(["--kube-api-qps=5000", "--kube-api-burst=5000"].map(str::to_owned));
    if name == "kube-controller-manager" {
        arguments.extend([
            "--use-service-account-credentials=true".to_owned(),
            format!("--service-account-private-key-file={}", file("sa.key")),
            format!("--root-ca-file={}", file("ca.crt")),
            format!("--cluster-signing-cert-file={}", file("ca.crt")),
            format!("--cluster-signing-key-file={}", file("ca.key")),
        ]);
    }
    arguments
}
