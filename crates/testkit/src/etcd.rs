//! A real etcd on free ports, with its own directory, that tests may kill and start again.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

pub struct Etcd {
    child: Option<Child>,
    client_port: u16,
    peer_port: u16,
    data: PathBuf,
    _directory: TempDir,
}

impl Etcd {
    pub async fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut etcd = Self {
            child: None,
            client_port: free_port(),
            peer_port: free_port(),
            data: directory.path().join("data"),
            _directory: directory,
        };
        etcd.start_again().await;
        etcd
    }

    /// Where clients reach it.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.client_port)
    }

    /// Kills it as a power cut would.
    pub async fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.expect("etcd was running");
        }
    }

    /// Starts it on the same ports with the same data, and waits until it listens.
    pub async fn start_again(&mut self) {
        let (client, peer) = (self.endpoint(), format!("http://127.0.0.1:{}", self.peer_port));
        let mut command = Command::new("etcd");
        command
            .arg("--data-dir")
            .arg(&self.data)
            .args(["--name", "m1", "--logger", "zap", "--log-level", "error"])
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("m1={peer}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        self.child = Some(command.spawn().expect("etcd on PATH (Debian: etcd-server)"));
        crate::eventually("etcd listens", listening(self.client_port)).await;
    }
}

/// A port that a process can take, and take again after it was killed. Never one that the system hands to outgoing
/// connections: a client that tries to reach a dead server would sooner or later be given the server's own port, talk to
/// itself, and keep the server from coming back.
pub fn free_port() -> u16 {
    let free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    std::iter::repeat_with(|| rand::random_range(10_000..30_000)).find(free).expect("a free port")
}

/// A process that does not say when it listens can only be asked.
pub(crate) async fn listening(port: u16) {
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
