//! The real binary as a process of its own, that tests may kill at any moment and start again.

use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use client::{Client, Config};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::etcd::free_port;
use crate::kubectl::Kubectl;

/// How to start the binary.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    pub binary: PathBuf,
    /// Arguments besides the data directory and the address.
    pub arguments: Vec<String>,
}

/// Where in the network a server runs, if not beside the test.
#[derive(Debug, Clone)]
pub struct Place {
    /// The network namespace, by its name in `/run/netns`.
    pub namespace: String,
    /// The server's address there, which the test can reach.
    pub address: IpAddr,
    /// The server's port there, where it matters.
    pub port: Option<u16>,
}

/// `trireme server` with its own data directory and port, which stay the same over restarts.
pub struct Server {
    options: ServerOptions,
    place: Option<Place>,
    child: Option<Child>,
    port: u16,
    directory: TempDir,
}

impl Server {
    /// Starts it and waits until it is ready.
    pub async fn start(options: ServerOptions) -> Self {
        Self::start_at(options, None).await
    }

    /// The same in a network of its own.
    pub async fn start_in(options: ServerOptions, place: Place) -> Self {
        Self::start_at(options, Some(place)).await
    }

    async fn start_at(options: ServerOptions, place: Option<Place>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let port = place.as_ref().and_then(|place| place.port).unwrap_or_else(free_port);
        let mut server = Self { options, place, child: None, port, directory };
        server.spawn();
        server.ready().await;
        server
    }

    /// The same data directory and port with other arguments, from the next start on.
    #[must_use]
    pub fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.set_arguments(arguments);
        self
    }

    /// Other arguments, from the next start on.
    pub fn set_arguments(&mut self, arguments: &[&str]) {
        self.options.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
    }

    /// Starts the process without waiting for anything.
    pub fn spawn(&mut self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log()).expect("a log file");
        let address = self.place.as_ref().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |place| place.address);
        let mut command = self.command(&self.options.binary);
        command
            .arg("server")
            .arg("--data-dir")
            .arg(self.data_dir())
            .args(["--bind-address", &address.to_string(), "--https-port", &self.port.to_string()])
            .args(&self.options.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        self.child = Some(command.spawn().expect("the binary"));
    }

    /// A program that runs in the server's network. It becomes the program, so its process id is the program's.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(place) = &self.place else { return Command::new(program) };
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", place.namespace)).arg(program);
        command
    }

    /// Waits until `/readyz` says so, and says how long it took.
    pub async fn ready(&self) -> Duration {
        self.ready_within(Duration::from_secs(60)).await
    }

    /// As [`Server::ready`], with a patience of the caller's.
    pub async fn ready_within(&self, patience: Duration) -> Duration {
        let started = Instant::now();
        let ready = async {
            loop {
                if let Ok(config) = Config::from_kubeconfig(self.kubeconfig())
                    && let Ok(client) = Client::https(config)
                    && client.raw("/readyz").await.is_ok()
                {
                    return;
                }
                // There is nothing to watch before there is a server.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(patience, ready)
            .await
            .unwrap_or_else(|_| panic!("the server did not become ready:\n{}", self.log_text()));
        started.elapsed()
    }

    /// Kills it as a power cut would.
    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.expect("the server was running");
        }
    }

    /// Asks it to stop and waits until it has; whether it ended well.
    pub async fn stop(&mut self) -> bool {
        let Some(mut child) = self.child.take() else { return true };
        let id = child.id().expect("the server is running").to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status().await;
        assert!(asked.is_ok_and(|status| status.success()), "the signal was sent");
        let status = tokio::time::timeout(Duration::from_secs(30), child.wait()).await;
        status.expect("the server stops when asked").expect("its status").success()
    }

    /// The process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    pub fn client(&self) -> Client {
        Client::https(Config::from_kubeconfig(self.kubeconfig()).expect("a kubeconfig")).expect("a client")
    }

    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.kubeconfig(), self.directory.path())
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.data_dir().join("admin.kubeconfig")
    }

    pub fn data_dir(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Everything it logged so far, over all of its lives.
    pub fn log_text(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    fn log(&self) -> PathBuf {
        Path::new(self.directory.path()).join("log")
    }
}
