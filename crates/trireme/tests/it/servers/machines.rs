//! Machines for servers that share a cluster: network namespaces, each with a server and its member of etcd. Gone with the test, etcd too.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::time::Duration;

use client::Client;
use devnet::{Layout, Machine};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use testkit::{Place, Server, ServerOptions, eventually};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

pub const BINARY: &str = env!("CARGO_BIN_EXE_trireme");
pub const PORT: u16 = 6443;

pub struct Machines {
    pub layout: Layout,
}

impl Machines {
    /// The letter tells clusters of one test process apart.
    pub async fn make(letter: char, number: u8) -> Self {
        let id = std::process::id();
        let octet = (id * 2 + u32::from(letter)) % 250;
        let range = format!("198.19.{octet}.0/24").parse().expect("a range");
        let layout = Layout::new(&format!("{letter}{}", id % 100_000), number, range, false).expect("a layout");
        let machines = Self { layout };
        devnet::make(&machines.layout).await.expect("machines");
        machines
    }

    pub fn machine(&self, number: usize) -> &Machine {
        &self.layout.machines[number - 1]
    }

    pub fn address(&self, number: usize) -> IpAddr {
        self.machine(number).address.into()
    }

    /// The host's own address among them.
    pub fn host(&self) -> IpAddr {
        self.layout.host().into()
    }

    /// What one machine sends to the server of another goes here instead, and it does not know; nowhere else for `None`.
    pub async fn divert(&self, from: usize, to: usize, instead: Option<SocketAddr>) {
        const TABLE: &str = "trireme-divert";
        let mut rules = format!("add table ip {TABLE}\ndelete table ip {TABLE}\n");
        if let Some(instead) = instead {
            rules.push_str(&format!(
                "table ip {TABLE} {{\n  chain out {{\n    type nat hook output priority -100;\n    \
                 ip daddr {} tcp dport {PORT} dnat to {instead}\n  }}\n}}\n",
                self.address(to)
            ));
        }
        let place = format!("--net=/run/netns/{}", self.machine(from).namespace);
        let mut command = Command::new("nsenter");
        let mut child = command.args([&place, "nft", "-f", "-"]).stdin(Stdio::piped()).spawn().expect("nft");
        child.stdin.take().expect("its input").write_all(rules.as_bytes()).await.expect("it reads");
        assert!(child.wait().await.is_ok_and(|status| status.success()), "{rules}");
    }

    pub fn url(&self, number: usize) -> String {
        format!("https://{}:{PORT}", self.address(number))
    }

    /// A server on a machine, ready.
    pub async fn server(&self, number: usize, arguments: &[&str]) -> Host {
        self.server_as(BINARY.into(), number, arguments).await
    }

    /// The same, started by another program.
    pub async fn server_as(&self, binary: PathBuf, number: usize, arguments: &[&str]) -> Host {
        let machine = self.machine(number);
        let place = Place { namespace: machine.namespace.clone(), address: machine.address.into(), port: Some(PORT) };
        // A control plane alone: what runs containers is tested elsewhere.
        let arguments = ["--disable-agent"].iter().chain(arguments).map(|&word| word.to_owned()).collect();
        Host { server: Server::start_in(ServerOptions { binary, arguments }, place).await }
    }

    /// Runs the binary on a machine, for so long at most; whether it succeeded and all that it said.
    pub async fn run(&self, number: usize, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.machine(number).namespace)).arg(BINARY).args(arguments);
        let output = command.kill_on_drop(true).output();
        let output = tokio::time::timeout(Duration::from_secs(120), output).await;
        said(&output.expect("it ends").expect("the binary runs"))
    }

    /// Joins a server with a token of its own.
    pub async fn join(&self, number: usize, first: &Host, further: &[&str]) -> Host {
        self.join_as(BINARY.into(), number, first, further).await
    }

    /// The same, started by another program.
    pub async fn join_as(&self, binary: PathBuf, number: usize, first: &Host, further: &[&str]) -> Host {
        let (url, token) = (self.url(1), first.server_token().await);
        self.server_as(binary, number, &[&["--join", &url, "--token", &token][..], further].concat()).await
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        let namespaces = self.layout.machines.iter().map(|machine| &machine.namespace).chain([&self.layout.switch]);
        for arguments in [["link", "del", &self.layout.link].map(str::to_owned).to_vec()]
            .into_iter()
            .chain(namespaces.map(|name| vec!["netns".to_owned(), "del".to_owned(), name.clone()]))
        {
            let _ = std::process::Command::new("ip").args(arguments).output();
        }
    }
}

fn said(output: &Output) -> (bool, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout) + &text(&output.stderr))
}

/// A server and its member of etcd.
pub struct Host {
    pub server: Server,
}

impl Host {
    pub fn client(&self) -> Client {
        self.server.client()
    }

    pub fn data_dir(&self) -> String {
        self.server.data_dir().display().to_string()
    }

    /// Where its member of etcd keeps everything.
    pub fn etcd_dir(&self) -> PathBuf {
        self.server.data_dir().join("etcd")
    }

    /// The process of its etcd, if that runs.
    pub fn etcd(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.etcd_dir().join("pid")).ok()?;
        let id = text.split_whitespace().next()?.to_owned();
        PathBuf::from(format!("/proc/{id}/exe")).exists().then_some(id)
    }

    /// Kills server and etcd, as the loss of the machine would.
    pub async fn lose(&mut self) {
        let etcd = self.etcd();
        self.server.kill().await;
        if let Some(id) = etcd {
            signal(&id, "-KILL").await;
        }
    }

    /// Starts it again, without the arguments of its first start.
    pub async fn start_again(&mut self) {
        self.start_again_with(&[]).await;
    }

    /// The same with others.
    pub async fn start_again_with(&mut self, arguments: &[&str]) {
        self.server.set_arguments(&[&["--disable-agent"], arguments].concat());
        self.server.spawn();
        self.server.ready().await;
    }

    /// A token that one server joins with.
    pub async fn server_token(&self) -> String {
        let kubeconfig = self.server.kubeconfig().display().to_string();
        eventually("a token", async {
            loop {
                let mut command = self.server.command(BINARY);
                command.args(["token", "create", "--server", "--bare", "--kubeconfig", &kubeconfig]);
                let (success, said) = said(&command.output().await.expect("the binary runs"));
                if success {
                    return said.trim().to_owned();
                }
                // A cluster that has just begun says a moment later how it is joined.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        })
        .await
    }

    /// Runs `trireme etcd` here.
    pub async fn etcd_command(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = self.server.command(BINARY);
        command.arg("etcd").args(arguments).args(["--data-dir", &self.data_dir()]);
        said(&command.output().await.expect("the binary runs"))
    }

    /// The servers in the endpoints of the `kubernetes` Service, as this one shows them.
    pub async fn listed(&self) -> Vec<String> {
        let slice = self.client().get::<EndpointSlice>("default", "kubernetes").await.expect("the slice");
        let mut all: Vec<String> =
            slice.endpoints.into_iter().flatten().flat_map(|endpoint| endpoint.addresses).collect();
        all.sort();
        all
    }

    /// Waits until these servers are listed, and no others.
    pub async fn lists(&self, wanted: &[IpAddr]) {
        let mut wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
        wanted.sort();
        let client = self.client();
        eventually(&format!("{wanted:?} are listed"), async {
            loop {
                let found = client.get::<EndpointSlice>("default", "kubernetes").await;
                let addresses =
                    found.into_iter().flat_map(|slice| slice.endpoints).flatten().flat_map(|one| one.addresses);
                let mut found: Vec<String> = addresses.collect();
                found.sort();
                if found == wanted {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        })
        .await;
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let end = |id: &str| drop(std::process::Command::new("kill").args(["-KILL", id]).output());
        // The server first: it would start its etcd again.
        if let Some(id) = self.server.id() {
            end(&id.to_string());
        }
        if let Some(id) = self.etcd() {
            end(&id);
        }
        // Where it has a file system of its own.
        let _ = std::process::Command::new("umount").arg("--lazy").arg(self.etcd_dir()).output();
    }
}

pub async fn signal(id: &str, name: &str) {
    let sent = Command::new("kill").args([name, id]).status().await;
    assert!(sent.is_ok_and(|status| status.success()), "{name} was sent to {id}");
}
