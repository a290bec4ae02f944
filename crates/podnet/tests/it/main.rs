//! Three nodes as network namespaces: two on one link, the third behind a router; one pod on each.
//!
//! ```text
//! pod 10.1.0.2 ─ a 192.0.2.1 ─┐
//!                             ├─ switch and router ─ 203.0.113.3 c ─ pod 10.1.2.2
//! pod 10.1.1.2 ─ b 192.0.2.2 ─┘
//! ```
//! No packet leaves them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod agent;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use podnet::apply;
use podnet::plan::{Here, Mode, Peer, plan};

struct Net {
    prefix: String,
    namespaces: Vec<String>,
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(std::env::temp_dir().join(self.name("counters")));
        for namespace in &self.namespaces {
            let _ = Command::new("ip").args(["netns", "del", namespace]).stderr(Stdio::null()).status();
        }
    }
}

/// The IPv6 address of who has an IPv4 address: the network by its first byte, the rest by its last.
fn six(address: &str) -> String {
    let octets = address.parse::<std::net::Ipv4Addr>().unwrap().octets();
    format!("2001:db8:{:x}::{:x}", octets[0], octets[3])
}

const NODES: [(&str, &str, &str, u8); 3] =
    [("a", "192.0.2.1", "br0", 0), ("b", "192.0.2.2", "br0", 1), ("c", "203.0.113.3", "br1", 2)];

impl Net {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("pn{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut net = Self { prefix, namespaces: Vec::new() };
        net.add("net");
        for (bridge, address) in [("br0", "192.0.2.254/24"), ("br1", "203.0.113.254/24")] {
            net.ip("net", &format!("link add {bridge} type bridge"));
            net.ip("net", &format!("link set {bridge} up"));
            net.ip("net", &format!("addr add {address} dev {bridge}"));
            let address = address.split('/').next().unwrap_or_default();
            net.ip("net", &format!("addr add {}/64 dev {bridge} nodad", six(address)));
        }
        net.inside("net", || std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap());
        net.inside("net", || std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap());
        for (name, address, bridge, number) in NODES {
            net.add(name);
            net.ip("net", &format!("link add to-{name} type veth peer name eth0 netns {}", net.name(name)));
            net.ip("net", &format!("link set to-{name} master {bridge} up"));
            net.ip(name, "link set lo up");
            net.ip(name, "link set eth0 up");
            net.ip(name, &format!("addr add {address}/24 dev eth0"));
            let router = if bridge == "br0" { "192.0.2.254" } else { "203.0.113.254" };
            net.ip(name, &format!("route add default via {router}"));
            let pod = format!("pod-{name}");
            net.add(&pod);
            net.ip(name, &format!("link add pods type veth peer name eth0 netns {}", net.name(&pod)));
            net.ip(name, "link set pods up");
            net.ip(name, &format!("addr add 10.1.{number}.1/24 dev pods"));
            net.ip(&pod, "link set eth0 up");
            net.ip(&pod, &format!("addr add 10.1.{number}.2/24 dev eth0"));
            net.ip(&pod, &format!("route add default via 10.1.{number}.1"));
            net.ip(name, &format!("addr add fd01:{number}::1/64 dev pods nodad"));
            net.ip(name, &format!("addr add {}/64 dev eth0 nodad", six(address)));
            net.ip(name, &format!("-6 route add default via {}", six(router)));
            net.ip(&pod, &format!("addr add fd01:{number}::2/64 dev eth0 nodad"));
            net.ip(&pod, &format!("-6 route add default via fd01:{number}::1"));
            net.inside(name, || apply::switch_on().unwrap());
        }
        net
    }

    fn add(&mut self, name: &str) {
        let namespace = self.name(name);
        run(Command::new("ip").args(["netns", "add", &namespace]));
        self.namespaces.push(namespace);
    }

    fn name(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    fn ip(&self, name: &str, args: &str) -> String {
        run(Command::new("ip").args(["-n", &self.name(name)]).args(args.split(' ')))
    }

    fn inside<T: Send>(&self, name: &str, what: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name(name));
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                enter(&path);
                what()
            });
            thread.join().unwrap()
        })
    }

    /// Runs something in a thread inside a namespace, without waiting for it.
    fn spawn_inside(&self, name: &str, what: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
        let path = format!("/run/netns/{}", self.name(name));
        std::thread::spawn(move || {
            enter(&path);
            what();
        })
    }

    /// A file with this text, gone with the test.
    fn file(&self, name: &str, text: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(self.name(name));
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Programs one node for these peers, as its agent would.
    fn program(&self, name: &str, peers: &[Peer], mode: Mode) {
        self.inside(name, || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let here = Here {
                    name: name.to_owned(),
                    links: apply::links().await.unwrap(),
                    cluster_ranges: vec!["10.1.0.0/16".parse().unwrap(), "fd01::/16".parse().unwrap()],
                };
                apply::apply(&plan(&here, peers, mode)).await.unwrap();
            });
        });
    }

    /// Listens in one namespace and connects from another; whom the listener sees, or nobody.
    fn seen(&self, from: &str, to: &str, address: &str) -> Option<IpAddr> {
        let address: SocketAddr = address.parse().unwrap();
        let listener = self.inside(to, || TcpListener::bind(address).unwrap());
        let connected = self.inside(from, || TcpStream::connect_timeout(&address, Duration::from_secs(10)));
        let mut stream = connected.ok()?;
        let (mut accepted, peer) = listener.accept().unwrap();
        // More than one packet of every size a pod may send.
        let sent = vec![7; 100_000];
        std::thread::scope(|scope| {
            scope.spawn(|| accepted.write_all(&sent).unwrap());
            let mut received = vec![0; sent.len()];
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            stream.read_exact(&mut received).unwrap();
        });
        Some(peer.ip())
    }
}

impl Net {
    /// Sends a datagram from one namespace to another and back; whom the receiver sees, or nobody.
    fn heard(&self, from: &str, to: &str, address: &str) -> Option<IpAddr> {
        let wait = Some(Duration::from_secs(5));
        let receiver = self.inside(to, || UdpSocket::bind(address).unwrap());
        receiver.set_read_timeout(wait).unwrap();
        let sender = self.inside(from, || {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect(address).unwrap();
            socket
        });
        sender.set_read_timeout(wait).unwrap();
        sender.send(b"?").unwrap();
        let mut byte = [0];
        let (_, peer) = receiver.recv_from(&mut byte).ok()?;
        receiver.send_to(b"!", peer).unwrap();
        sender.recv(&mut byte).ok()?;
        Some(peer.ip())
    }
}

/// Moves the calling thread into a namespace.
fn enter(path: &str) {
    let file = std::fs::File::open(path).unwrap();
    let kind = rustix::thread::LinkNameSpaceType::Network;
    rustix::thread::move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(kind)).unwrap();
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn peers() -> Vec<Peer> {
    let peer = |(name, address, _, number): (&str, &str, &str, u8)| Peer {
        name: name.into(),
        addresses: vec![address.parse().unwrap(), six(address).parse().unwrap()],
        ranges: vec![format!("10.1.{number}.0/24").parse().unwrap(), format!("fd01:{number}::/64").parse().unwrap()],
    };
    NODES.map(peer).into()
}

fn ip(text: &str) -> Option<IpAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn pods_reach_pods_on_every_node_as_themselves() {
    let net = Net::new();
    for (name, ..) in NODES {
        net.program(name, &peers(), Mode::Vxlan);
        // A second time changes nothing and fails at nothing.
        net.program(name, &peers(), Mode::Vxlan);
    }
    assert_eq!(net.seen("pod-a", "pod-b", "10.1.1.2:80"), ip("10.1.0.2"), "on one link");
    assert_eq!(net.seen("pod-a", "pod-c", "10.1.2.2:80"), ip("10.1.0.2"), "through the tunnel");
    assert_eq!(net.seen("pod-c", "pod-b", "10.1.1.2:80"), ip("10.1.2.2"), "and back");
    assert!(net.seen("a", "pod-c", "10.1.2.2:80").is_some(), "nodes reach pods");
    assert_eq!(net.seen("pod-a", "c", "203.0.113.3:80"), ip("10.1.0.2"), "pods reach nodes");
    assert_eq!(net.heard("pod-a", "pod-b", "10.1.1.2:53"), ip("10.1.0.2"), "with datagrams, on one link");
    assert_eq!(net.heard("pod-a", "pod-c", "10.1.2.2:53"), ip("10.1.0.2"), "with datagrams, through the tunnel");
    assert!(net.heard("a", "pod-a", "10.1.0.2:53").is_some(), "nodes send datagrams to their pods");
    assert!(net.heard("a", "pod-c", "10.1.2.2:53").is_some(), "and to those of others");
    assert_eq!(net.seen("pod-a", "pod-b", "[fd01:1::2]:80"), ip("fd01:0::2"), "on one link, in the second family");
    assert_eq!(
        net.seen("pod-a", "pod-c", "[fd01:2::2]:80"),
        ip("fd01:0::2"),
        "through the tunnel, in the second family"
    );
    let direct = net.ip("a", "route show proto 84");
    assert!(direct.contains("10.1.1.0/24 via 192.0.2.2 dev eth0"), "{direct}");
    assert!(direct.contains("10.1.2.0/24 via 10.1.2.0 dev trireme.vxlan onlink"), "{direct}");
    assert!(direct.contains("unreachable 10.1.0.0/16"), "{direct}");
    assert!(net.ip("a", "link show trireme.vxlan").contains("mtu 1450"));
}

#[test]
fn what_leaves_the_cluster_takes_the_nodes_address() {
    let net = Net::new();
    net.program("a", &peers(), Mode::HostGw);
    assert_eq!(net.seen("pod-a", "net", "203.0.113.254:80"), ip("192.0.2.1"));
}

#[test]
fn a_node_that_leaves_takes_its_routes_along() {
    let net = Net::new();
    for (name, ..) in NODES {
        net.program(name, &peers(), Mode::HostGw);
    }
    assert!(net.seen("pod-a", "pod-b", "10.1.1.2:80").is_some());
    let left: Vec<Peer> = peers().into_iter().filter(|peer| peer.name != "b").collect();
    net.program("a", &left, Mode::HostGw);
    assert_eq!(net.seen("pod-a", "pod-b", "10.1.1.2:80"), None);
    assert!(!net.ip("a", "route show").contains("10.1.1.0/24"));
    net.inside("a", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(podnet::cleanup()).unwrap();
    });
    assert_eq!(net.ip("a", "route show proto 84"), "");
}

/// Counts, behind the nodes, what passes for addresses of pods.
const COUNTERS: &str = "table inet seen { chain in { type filter hook prerouting priority -300; \
     ip daddr 10.1.0.0/16 counter; ip6 daddr fd01::/16 counter; }; }";

#[test]
fn nothing_for_a_pod_that_is_not_there_leaves_the_machine() {
    let net = Net::new();
    for (name, ..) in NODES {
        net.program(name, &peers(), Mode::HostGw);
    }
    let counting = net.file("counters", COUNTERS);
    run(Command::new("ip").args(["netns", "exec", &net.name("net"), "nft", "-f"]).arg(&counting));
    let leaked = || {
        let listed =
            run(Command::new("ip").args(["netns", "exec", &net.name("net"), "nft", "list", "table", "inet", "seen"]));
        listed.matches("packets 0 ").count() < 2
    };
    for from in ["a", "pod-a"] {
        // A range of no node, the range of a node that is not reached, and no address of any range of the cluster's.
        for address in ["10.1.77.1:80", "10.1.2.2:80", "[fd01:77::1]:80", "[fd01:2::2]:80"] {
            let address: SocketAddr = address.parse().unwrap();
            let refused =
                net.inside(from, || TcpStream::connect_timeout(&address, Duration::from_secs(10))).unwrap_err();
            use std::io::ErrorKind::{HostUnreachable, NetworkUnreachable};
            assert!(matches!(refused.kind(), HostUnreachable | NetworkUnreachable), "{address} from {from}: {refused}");
        }
    }
    assert!(!leaked());
    // The counters do count.
    net.inside("a", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(podnet::cleanup()).unwrap();
    });
    let gone: SocketAddr = "10.1.77.1:80".parse().unwrap();
    let _ = net.inside("a", || TcpStream::connect_timeout(&gone, Duration::from_millis(300)));
    assert!(leaked());
}
