//! A cluster of several nodes on this machine, as `trireme cluster` makes it, removed however a test ends.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Config, Kind};
use k8s_openapi::api::core::v1::Node;
use testkit::Kubectl;

pub const BINARY: &str = env!("CARGO_BIN_EXE_trireme");
pub const IMAGE: &str = "trireme.local/cluster:1";
/// Longer than anything that works takes, even on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

pub struct Dev {
    home: tempfile::TempDir,
    name: String,
    octet: u8,
    pub kubectl: Kubectl,
}

impl Dev {
    /// Makes a cluster whose name and addresses no other test on this machine has.
    pub fn up(nodes: u8) -> Self {
        Self::make('t', nodes, &[])
    }

    /// One whose nodes share no link: pods reach each other through a tunnel.
    pub fn tunnelled(nodes: u8) -> Self {
        Self::make('v', nodes, &["--pod-network", "vxlan"])
    }

    /// A cluster for network policies.
    pub fn policed(nodes: u8) -> Self {
        Self::make('p', nodes, &[])
    }

    /// A cluster for storage.
    pub fn stored(nodes: u8) -> Self {
        Self::make('s', nodes, &[])
    }

    /// A cluster whose authority is replaced.
    pub fn rotated(nodes: u8) -> Self {
        Self::make('c', nodes, &[])
    }

    /// One with a library that every process loads first, and what it is told.
    pub fn with_clock(nodes: u8, library: &Path, seconds: i64, further: &[&str]) -> Self {
        let shifted = format!("{}-2={seconds}", Self::place('h').0);
        let environment = [("LD_PRELOAD", library.display().to_string()), ("TRIREME_TEST_CLOCK", shifted)];
        Self::make_in('h', nodes, further, &environment)
    }

    /// Name and range of a cluster. The letter tells clusters of one test process apart.
    fn place(letter: char) -> (String, u8) {
        let id = std::process::id();
        let letters = ['v', 'p', 's', 'c', 'h'].iter().position(|known| *known == letter).map_or(0, |at| at + 1);
        let place = (id * 6 + u32::try_from(letters).expect("a few")) % 250;
        (format!("{letter}{}", id % 1_000_000), u8::try_from(place).expect("below 250"))
    }

    fn make(letter: char, nodes: u8, further: &[&str]) -> Self {
        Self::make_in(letter, nodes, further, &[])
    }

    fn make_in(letter: char, nodes: u8, further: &[&str], environment: &[(&str, String)]) -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let (name, octet) = Self::place(letter);
        let kubeconfig = home.path().join(format!("{name}/{name}-1/data/admin.kubeconfig"));
        let kubectl = Kubectl::new(&kubeconfig, home.path());
        let dev = Self { home, name, octet, kubectl };
        let archive = dev.home.path().join("image.tar").display().to_string();
        said(Command::new(BINARY).args(["image", "busybox", "--name", IMAGE, &archive]));
        let (count, range) = (nodes.to_string(), format!("198.18.{octet}.0/24"));
        let more = ["--cluster-cidr", "10.210.0.0/16", "--service-cluster-ip-range", "10.211.0.0/16"];
        // A node renews its lease every ten seconds: half of upstream's patience is enough to tell the dead from the slow.
        let grace = "--server-arg=--node-monitor-grace-period=25";
        let up = ["up", "--name", &dev.name, "--nodes", &count, "--range", &range, "--image", &archive, grace];
        let environment = environment.iter().map(|(name, value)| (*name, value.as_str()));
        said(dev.cluster(&[&up[..], &more, further].concat()).envs(environment));
        dev
    }

    /// Runs `trireme cluster`.
    pub fn trireme(&self, arguments: &[&str]) -> String {
        said(&mut self.cluster(arguments))
    }

    fn cluster(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command.arg("cluster").arg("--directory").arg(self.home.path()).args(arguments);
        command
    }

    /// Runs a kubectl that waits, as often as it takes.
    pub async fn patiently(&self, arguments: &[&str]) {
        let started = std::time::Instant::now();
        loop {
            let output = self.kubectl.output(arguments, "").await;
            if output.success {
                return;
            }
            let said = format!("{}{}", output.stdout, output.stderr);
            assert!(started.elapsed() < PATIENCE, "kubectl {}: {said}{}", arguments.join(" "), self.logs());
        }
    }

    pub fn node(&self, number: u8) -> String {
        format!("{}-{number}", self.name)
    }

    pub fn address(&self, number: u8) -> String {
        format!("198.18.{}.{}", self.octet, 10 + number)
    }

    /// The directory of the whole cluster.
    pub fn directory(&self) -> PathBuf {
        self.home.path().join(&self.name)
    }

    /// A node's data directory.
    pub fn data(&self, number: u8) -> PathBuf {
        self.directory().join(format!("{}/data", self.node(number)))
    }

    /// The process id of a node's Trireme.
    pub fn pid(&self, number: u8) -> String {
        let file = self.home.path().join(format!("{}/{}/trireme.pid", self.name, self.node(number)));
        let text = std::fs::read_to_string(file).expect("a pid file");
        text.split_whitespace().next().expect("a pid").to_owned()
    }

    /// Runs a command in a node's network.
    pub fn on(&self, number: u8, command: &[&str]) -> String {
        said(Command::new("nsenter").arg(format!("--net=/run/netns/trireme-{}", self.node(number))).args(command))
    }

    /// A file that names a node's network.
    pub fn network(&self, number: u8) -> PathBuf {
        format!("/run/netns/trireme-{}", self.node(number)).into()
    }

    pub fn client(&self) -> Client {
        let config = Config::from_kubeconfig(self.data(1).join("admin.kubeconfig")).expect("a kubeconfig");
        Client::https(config).expect("a client")
    }

    /// Waits for an object, over restarts of the API server.
    pub async fn object<K: Kind>(
        &self,
        namespace: &str,
        name: &str,
        what: &str,
        mut met: impl FnMut(&K) -> bool,
    ) -> Arc<K> {
        let client = self.client();
        let follow = async {
            loop {
                match client.get::<K>(namespace, name).await {
                    Ok(object) if met(&object) => return Arc::new(object),
                    // Watches end with the server; looking again is what survives its restart.
                    _ => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
        };
        let waited = tokio::time::timeout(PATIENCE, follow).await;
        waited.unwrap_or_else(|_| panic!("did not happen: {what}; {}", self.logs()))
    }

    /// Waits until a node is ready, or is not.
    pub async fn ready(&self, number: u8, ready: bool) -> Arc<Node> {
        let what = format!("{} is {}ready", self.node(number), if ready { "" } else { "not " });
        self.object::<Node>("", &self.node(number), &what, |node| is_ready(node) == ready).await
    }

    /// The end of every node's log.
    pub fn logs(&self) -> String {
        let log = |number| {
            let file = self.home.path().join(format!("{}/{}/trireme.log", self.name, self.node(number)));
            let text = std::fs::read_to_string(file).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("\n--- {}\n{}", self.node(number), lines[lines.len().saturating_sub(30)..].join("\n"))
        };
        (1..=3).map(log).collect()
    }

    /// Asks for a page until there is one; what it says.
    pub fn page(&self, address: &str) -> String {
        let address: SocketAddr = address.parse().expect("an address");
        let started = std::time::Instant::now();
        loop {
            match get(address) {
                Ok(page) => return page,
                Err(error) => assert!(started.elapsed() < PATIENCE, "{address}: {error}; {}", self.logs()),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let arguments =
            ["cluster", "--directory", &self.home.path().display().to_string(), "down", "--name", &self.name];
        let down = Command::new(BINARY).args(arguments).output();
        if let Err(error) | Ok(Err(error)) =
            down.map(|output| if output.status.success() { Ok(()) } else { Err(std::io::Error::other(text(&output))) })
        {
            eprintln!("the cluster was not removed: {error}");
        }
    }
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| &status.conditions).flatten();
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn get(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.trim().to_owned()),
        _ => Err(std::io::Error::other(answer)),
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

pub fn said(command: &mut Command) -> String {
    let output = command.output().expect("the command runs");
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
