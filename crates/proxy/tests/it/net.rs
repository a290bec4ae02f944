//! A node, its pods and an outsider as network namespaces, removed when the test ends, however it ends.
//!
//! ```text
//! outsider 192.0.2.9 ──── 192.0.2.1 node ──── 10.1.0.2, 10.1.0.3, … pods (one namespace each, point to point)
//! ```

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const WAIT: Duration = Duration::from_secs(5);
/// Long enough for a refusal to arrive, short enough for a test of silence.
const SILENCE: Duration = Duration::from_millis(300);

/// The namespaces of one test.
pub struct Net {
    prefix: String,
    namespaces: Vec<String>,
}

impl Drop for Net {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let _ = Command::new("ip").args(["netns", "del", namespace]).stderr(Stdio::null()).status();
        }
    }
}

impl Net {
    /// A node with so many pods and one outsider.
    pub fn new(pods: u8) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("px{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut net = Self { prefix, namespaces: Vec::new() };
        net.add("node");
        net.ip("node", "link set lo up");
        net.set("node", "net/ipv4/ip_forward", "1");
        net.set("node", "net/ipv6/conf/all/forwarding", "1");
        net.join("out", "192.0.2.1", "192.0.2.9", 24);
        // Stands for the default route every node has; it leads nowhere but to the outsider.
        net.ip("node", "route add default via 192.0.2.9");
        net.ip("node", "addr add fd02::1/64 dev out nodad");
        net.ip("out", "addr add fd02::9/64 dev eth0 nodad");
        net.ip("out", "-6 route add default via fd02::1");
        net.ip("node", "-6 route add default via fd02::9");
        for pod in 0..pods {
            let name = format!("pod{pod}");
            net.join(&name, "10.1.0.1", &format!("10.1.0.{}", pod + 2), 32);
            net.ip("node", &format!("route add 10.1.0.{}/32 dev {name}", pod + 2));
            net.ip(&name, &format!("addr add fd01::{}/128 dev eth0 nodad", pod + 2));
            net.ip(&name, "-6 route add default via fe80::1 dev eth0");
            net.ip("node", &format!("addr add fe80::1/64 dev {name} nodad"));
            net.ip("node", &format!("-6 route add fd01::{}/128 dev {name}", pod + 2));
        }
        net
    }

    /// A node whose pods are behind one bridge, as CNI's bridge plugin makes it.
    pub fn bridged(pods: u8) -> Self {
        let mut net = Self::new(0);
        net.ip("node", "link add cni0 type bridge");
        net.ip("node", "link set cni0 up");
        net.ip("node", "addr add 10.1.0.1/24 dev cni0");
        // What crosses the bridge must meet the rules too: an answer has to be turned back where the question was turned.
        net.set("node", "net/bridge/bridge-nf-call-iptables", "1");
        for pod in 0..pods {
            let name = format!("pod{pod}");
            net.add(&name);
            net.ip("node", &format!("link add {name} type veth peer name eth0 netns {}", net.name(&name)));
            net.ip("node", &format!("link set {name} master cni0 up"));
            net.ip("node", &format!("link set {name} type bridge_slave hairpin on"));
            net.ip(&name, "link set lo up");
            net.ip(&name, "link set eth0 up");
            net.ip(&name, &format!("addr add 10.1.0.{}/24 dev eth0", pod + 2));
            net.ip(&name, "route add default via 10.1.0.1");
        }
        net
    }

    fn add(&mut self, name: &str) {
        let namespace = self.name(name);
        run(Command::new("ip").args(["netns", "add", &namespace]), "");
        self.namespaces.push(namespace);
    }

    /// A namespace joined to the node by a pair of interfaces: `name` on the node, `eth0` inside.
    fn join(&mut self, name: &str, near: &str, far: &str, prefix: u8) {
        self.add(name);
        self.ip("node", &format!("link add {name} type veth peer name eth0 netns {}", self.name(name)));
        self.ip("node", &format!("link set {name} up"));
        self.ip("node", &format!("addr add {near}/{prefix} dev {name}"));
        self.ip(name, "link set lo up");
        self.ip(name, "link set eth0 up");
        self.ip(name, &format!("addr add {far}/{prefix} dev eth0"));
        self.ip(name, &format!("route replace {near}/32 dev eth0"));
        self.ip(name, &format!("route add default via {near}"));
    }

    /// The namespace's name on this machine.
    pub fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Runs `ip` in a namespace.
    pub fn ip(&self, name: &str, args: &str) {
        let namespace = self.name(name);
        run(Command::new("ip").args(["-n", &namespace]).args(args.split(' ')), "");
    }

    /// Sets a switch of the kernel in a namespace.
    pub fn set(&self, name: &str, key: &str, value: &str) {
        let key = format!("/proc/sys/{key}");
        run(Command::new("ip").args(["netns", "exec", &self.name(name), "tee", &key]), value);
    }

    /// Applies an nftables script on the node.
    pub fn nft(&self, script: &str) {
        self.nft_in("node", script);
    }

    /// Applies an nftables script in a namespace.
    pub fn nft_in(&self, name: &str, script: &str) {
        run(Command::new("ip").args(["netns", "exec", &self.name(name), "nft", "-f", "-"]), script);
    }

    /// Whether an echo request is answered.
    pub fn echoes(&self, from: &str, to: &str) -> bool {
        let args = ["netns", "exec", &self.name(from), "busybox", "ping", "-c", "1", "-W", "1", to];
        Command::new("ip").args(args).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }

    /// A table of the node as `nft -j` shows it.
    pub fn table(&self, family: &str, table: &str) -> Vec<u8> {
        let args = ["netns", "exec", &self.name("node"), "nft", "-j", "list", "table", family, table];
        run(Command::new("ip").args(args), "").into_bytes()
    }

    /// The node's rules as JSON.
    pub fn ruleset(&self) -> serde_json::Value {
        self.rules_of("node")
    }

    /// The rules of a namespace as JSON.
    pub fn rules_of(&self, name: &str) -> serde_json::Value {
        let args = ["netns", "exec", &self.name(name), "nft", "-j", "list", "ruleset"];
        serde_json::from_str(&run(Command::new("ip").args(args), "")).unwrap()
    }

    /// Runs something inside a namespace: sockets made there stay there.
    pub fn inside<T: Send>(&self, name: &str, what: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name(name));
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                enter(&path);
                what()
            });
            thread.join().unwrap()
        })
    }

    /// As [`Net::inside`], without waiting for it.
    pub fn spawn_inside(&self, name: &str, what: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
        let path = format!("/run/netns/{}", self.name(name));
        std::thread::spawn(move || {
            enter(&path);
            what();
        })
    }

    /// A TCP server in a namespace that says who it is, and who it sees, and closes.
    pub fn serve(&self, name: &str, address: &str) {
        let listener = self.inside(name, || TcpListener::bind(address).unwrap());
        let name = name.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let peer = stream.peer_addr().map(|peer| peer.ip().to_string()).unwrap_or_default();
                let _ = write!(stream, "{name} {peer}");
            }
        });
    }

    /// The same for datagrams.
    pub fn serve_udp(&self, name: &str, address: &str) {
        let socket = self.inside(name, || UdpSocket::bind(address).unwrap());
        let name = name.to_owned();
        std::thread::spawn(move || {
            let mut buffer = [0; 16];
            while let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                let _ = socket.send_to(format!("{name} {}", peer.ip()).as_bytes(), peer);
            }
        });
    }

    /// Connects from a namespace and reads the answer: `who whom-it-saw`, `refused` or `silence`.
    pub fn ask(&self, from: &str, to: &str) -> String {
        let to: SocketAddr = to.parse().unwrap();
        self.inside(from, move || match TcpStream::connect_timeout(&to, SILENCE) {
            Ok(mut stream) => {
                let mut answer = String::new();
                stream.set_read_timeout(Some(WAIT)).unwrap();
                stream.read_to_string(&mut answer).map_or_else(outcome, |_| answer)
            }
            Err(error) => outcome(error),
        })
    }

    /// A datagram socket connected from a namespace.
    pub fn flow(&self, from: &str, to: &str) -> UdpSocket {
        let local = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
        self.inside(from, || {
            let socket = UdpSocket::bind(local).unwrap();
            socket.set_read_timeout(Some(SILENCE)).unwrap();
            socket.connect(to).unwrap();
            socket
        })
    }

    /// Asks so many times; each answering name once, in order.
    pub fn ask_all(&self, from: &str, to: &str, times: usize) -> Vec<String> {
        let names = (0..times).map(|_| self.ask(from, to)).map(|a| a.split(' ').next().unwrap_or_default().to_owned());
        names.collect::<std::collections::BTreeSet<_>>().into_iter().collect()
    }
}

/// Moves the calling thread into a namespace.
fn enter(path: &str) {
    let file = std::fs::File::open(path).unwrap();
    let kind = rustix::thread::LinkNameSpaceType::Network;
    rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(kind)).unwrap();
}

/// One datagram there and back.
pub fn say(socket: &UdpSocket) -> String {
    let mut buffer = [0; 64];
    let answered = socket.send(b"?").and_then(|_| socket.recv(&mut buffer));
    answered.map_or_else(outcome, |length| String::from_utf8_lossy(&buffer[..length]).into_owned())
}

fn outcome(error: std::io::Error) -> String {
    use std::io::ErrorKind::{ConnectionRefused, HostUnreachable, TimedOut, WouldBlock};
    match error.kind() {
        ConnectionRefused => "refused".to_owned(),
        HostUnreachable => "unreachable".to_owned(),
        TimedOut | WouldBlock => "silence".to_owned(),
        _ => error.to_string(),
    }
}

fn run(command: &mut Command, input: &str) -> String {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}
