//! A real node: many pods at once, churn that leaves nothing behind, and kills of everything that can be killed.
//! Short as a test, long as `make soak`.
//!
//! The node has a network namespace, cgroups and a container runtime of its own: whatever else runs on the machine, another node
//! perhaps, with the same ports, bridge and tables, neither disturbs it nor is disturbed.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::{Client, DeleteOptions};
use devnet::Layout;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use testkit::{Place, Server, ServerOptions, eventually, objects};
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard};

pub const BINARY: &str = env!("CARGO_BIN_EXE_trireme");
const IMAGE: &str = "trireme.local/node:1";

/// One node at a time, so that each has the processors to itself.
static MACHINE: Mutex<()> = Mutex::const_new(());

/// A cluster with a node on this machine, and an image for its pods.
pub struct Machine {
    pub server: Server,
    network: Network,
    _alone: MutexGuard<'static, ()>,
}

/// The node's network: a namespace that only the host's end of one link leads to. Gone with the test.
struct Network(Layout);

impl Network {
    async fn make() -> Self {
        let id = std::process::id();
        let range = format!("198.19.{}.0/24", (id + 125) % 250).parse().expect("a range");
        let layout = Layout::new(&format!("n{}", id % 1_000_000), 1, range, false).expect("a layout");
        let network = Self(layout);
        devnet::make(&network.0).await.expect("a network");
        network
    }

    fn place(&self) -> Place {
        let machine = &self.0.machines[0];
        Place { namespace: machine.namespace.clone(), address: machine.address.into(), port: None }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let machine = &self.0.machines[0];
        let namespaces = [&self.0.switch, &machine.namespace].map(|namespace| ["netns", "del", namespace]);
        for arguments in [["link", "del", &self.0.link]].into_iter().chain(namespaces) {
            let _ = std::process::Command::new("ip").args(arguments).output();
        }
    }
}

/// Where the pods' cgroups are: not where another node on this machine has its own.
fn cgroup_root() -> String {
    format!("trireme-test-{}", std::process::id())
}

fn soak() -> bool {
    std::env::var_os("TRIREME_SOAK").is_some()
}

impl Machine {
    pub async fn start(name: &str, image: &str) -> Self {
        Self::start_with(name, image, &[]).await
    }

    /// With further options of the server.
    pub async fn start_with(name: &str, image: &str, options: &[&str]) -> Self {
        let alone = MACHINE.lock().await;
        let network = Network::make().await;
        let own = [format!("--node-name={name}"), format!("--cgroup-root=/{}", cgroup_root())];
        let arguments = own.into_iter().chain(options.iter().map(|option| (*option).to_owned())).collect();
        let mut server = Server::start_in(ServerOptions { binary: BINARY.into(), arguments }, network.place()).await;
        let archive = server.data_dir().join("images/image.tar");
        let made = Command::new(BINARY).args(["image", "busybox", "--name", image]).arg(&archive).status().await;
        assert!(made.is_ok_and(|status| status.success()), "the image is made");
        // Images are imported at start; containers and their runtime outlive this.
        assert!(server.stop().await, "it stops cleanly:\n{}", server.log_text());
        server.spawn();
        server.ready().await;
        let machine = Self { server, network, _alone: alone };
        machine.node_ready(name).await;
        machine
    }

    pub async fn node_ready(&self, name: &str) {
        testkit::object(&self.server.client(), "", name, "a ready node", is_ready).await;
    }

    /// Where the node is, as this process reaches it.
    pub fn address(&self) -> std::net::IpAddr {
        self.network.place().address
    }

    fn agent(&self) -> PathBuf {
        self.server.data_dir().join("agent")
    }

    /// Stops everything, containers and runtime too.
    pub async fn clean(mut self) {
        assert!(self.server.stop().await, "it stops cleanly:\n{}", self.server.log_text());
        let agent = self.agent().canonicalize().expect("the node's directory");
        let mut clean = self.server.command(BINARY);
        clean.args(["node", "clean", "--cgroup-root", &format!("/{}", cgroup_root()), "--data-dir"]);
        let output = clean.arg(self.server.data_dir()).output().await.expect("the binary");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let cgroups = node::cgroups::Cgroups::detect(node::cgroups::Driver::detect()).expect("cgroups");
        cgroups.remove(&node::cgroups::Name::new([cgroup_root()])).await.expect("the node's own cgroup");
        assert_eq!(mounts_below(&agent), [] as [PathBuf; 0]);
        assert_eq!(processes_with(&agent.to_string_lossy()), [] as [u32; 0]);
    }

    /// The names of the links in the node's network that pods have one end of.
    async fn pod_links(&self) -> Vec<String> {
        let listed = self.server.command("ip").args(["-j", "link", "show", "type", "veth"]).output().await;
        let listed = listed.expect("ip").stdout;
        // Without any it says nothing at all.
        let links: Vec<serde_json::Value> =
            if listed.is_empty() { Vec::new() } else { serde_json::from_slice(&listed).expect("links") };
        let names = links.iter().filter_map(|link| Some(link["ifname"].as_str()?.to_owned()));
        // The one by which the test reaches the node is not a pod's.
        names.filter(|name| name != "eth0").collect()
    }

    fn create(&self, name: &str) -> Pod {
        serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "many"}},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main", "image": IMAGE,
                    // It waits without waking up, and goes when asked to.
                    "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 86400 & wait"],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}],
            },
        }))
        .unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

pub fn is_ready(node: Option<&Node>) -> bool {
    let conditions = node.and_then(|node| node.status.as_ref()?.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub fn pod_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn all_ready(client: &Client, count: usize) -> Vec<Arc<Pod>> {
    let what = format!("{count} ready pods");
    objects::<Pod>(client, "default", &what, |pods| pods.iter().filter(|pod| pod_ready(pod)).count() == count).await
}

async fn delete_all(client: &Client) {
    for pod in client.list::<Pod>("default", &Default::default()).await.expect("pods").items {
        let name = pod.metadata.name.clone().unwrap_or_default();
        client.delete::<Pod>("default", &name, &DeleteOptions::default()).await.map(drop).expect("the pod is deleted");
    }
    objects::<Pod>(client, "default", "no pods", <[_]>::is_empty).await;
}

/// Container ids and restarts, by the pod's name.
fn lives(pods: &[Arc<Pod>]) -> BTreeMap<String, (String, i32)> {
    let life = |pod: &Arc<Pod>| {
        let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
        Some((pod.metadata.name.clone()?, (status.container_id.clone()?, status.restart_count)))
    };
    pods.iter().filter_map(life).collect()
}

fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let mounts = node::mounts::list().expect("the mount table");
    mounts.into_iter().map(|mount| mount.target).filter(|target| target.starts_with(dir)).collect()
}

/// Processes whose command line has this in it.
fn processes_with(text: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| *id != std::process::id())
        .filter(|id| {
            let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(text)
        })
        .collect()
}

/// Cgroups of pods with these uids.
fn cgroups_of(uids: &HashSet<String>) -> Vec<PathBuf> {
    fn visit(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                found.push(entry.path());
                visit(&entry.path(), found);
            }
        }
    }
    let mut all = Vec::new();
    visit(Path::new("/sys/fs/cgroup"), &mut all);
    all.retain(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().replace('_', "-")).unwrap_or_default();
        uids.iter().any(|uid| name.contains(uid.as_str()))
    });
    all
}

/// What of pods is left on the machine; nothing when all is well.
async fn leftovers(machine: &Machine, uids: &HashSet<String>) -> Vec<String> {
    let agent = machine.agent();
    let mut left = Vec::new();
    let socket = agent.join("containerd/containerd.sock");
    let listed = Command::new("ctr")
        .arg("--address")
        .arg(&socket)
        .args(["--namespace", "k8s.io", "containers", "ls", "-q"])
        .output()
        .await
        .expect("ctr");
    left.extend(String::from_utf8_lossy(&listed.stdout).lines().map(|id| format!("container {id}")));
    let real = agent.canonicalize().expect("the node's directory");
    // The kubelet's root is shared with containers as long as there is a node.
    let mounts = mounts_below(&real).into_iter().filter(|path| *path != real.join("kubelet"));
    left.extend(mounts.map(|path| format!("mount {}", path.display())));
    let files = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    for network in files(agent.join("ipam")) {
        let leases = files(network.path()).filter_map(|entry| entry.file_name().into_string().ok());
        left.extend(leases.filter(|name| name.parse::<std::net::IpAddr>().is_ok()).map(|ip| format!("lease {ip}")));
    }
    left.extend(files(agent.join("kubelet/pods")).map(|entry| format!("directory {}", entry.path().display())));
    left.extend(files(agent.join("logs")).map(|entry| format!("log {}", entry.path().display())));
    left.extend(machine.pod_links().await.into_iter().map(|name| format!("link {name}")));
    left.extend(cgroups_of(uids).iter().map(|path| format!("cgroup {}", path.display())));
    left
}

async fn nothing_left(machine: &Machine, uids: &HashSet<String>) {
    let mut last = Vec::new();
    let gone = async {
        let mut pause = Duration::from_millis(20);
        loop {
            last = leftovers(machine, uids).await;
            if last.is_empty() {
                return;
            }
            // Nobody announces that a mount or a link is gone.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    };
    if tokio::time::timeout(Duration::from_secs(60), gone).await.is_err() {
        panic!("left behind: {last:#?}");
    }
}

/// What another container runtime and another node have on the machine: a link like a pod's, and the usual ports.
struct Others {
    link: String,
    _ports: Vec<std::net::TcpListener>,
}

impl Others {
    fn come() -> Self {
        let link = format!("vetho{}", std::process::id() % 1_000_000);
        let (kind, peer) = (["type", "veth", "peer", "name"], format!("{link}p"));
        let made = std::process::Command::new("ip").args(["link", "add", &link]).args(kind).arg(peer).status();
        assert!(made.is_ok_and(|status| status.success()), "a link");
        // Where somebody has a port already, that is as good.
        let ports = [6443, 9153, 10249, 10250, 10256, 10257, 10259];
        let listen = |port| std::net::TcpListener::bind(("0.0.0.0", port)).ok();
        Self { link, _ports: ports.into_iter().filter_map(listen).collect() }
    }

    fn are_here(&self) -> bool {
        Path::new("/sys/class/net").join(&self.link).exists()
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        let _ = std::process::Command::new("ip").args(["link", "del", &self.link]).output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_churn_leaves_nothing_behind() {
    let others = Others::come();
    let machine = Machine::start("churner", IMAGE).await;
    let client = machine.server.client();
    let (total, at_once) = if soak() { (500, 40) } else { (12, 6) };
    let mut uids = HashSet::new();
    let mut made = 0;
    while made < total {
        let count = at_once.min(total - made);
        for number in made..made + count {
            client.create(&machine.create(&format!("churn-{number}"))).await.expect("a pod");
        }
        let pods = all_ready(&client, count).await;
        uids.extend(pods.iter().filter_map(|pod| pod.metadata.uid.clone()));
        delete_all(&client).await;
        made += count;
    }
    assert_eq!(uids.len(), total);
    nothing_left(&machine, &uids).await;
    machine.clean().await;
    assert!(others.are_here(), "what is not ours stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_a_full_node() {
    let machine = Machine::start("full", IMAGE).await;
    let client = machine.server.client();
    let count = if soak() { 110 } else { 10 };
    for number in 0..count {
        client.create(&machine.create(&format!("full-{number}"))).await.expect("a pod");
    }
    let pods = all_ready(&client, count).await;
    let addresses: HashSet<_> = pods.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.clone()).collect();
    assert_eq!(addresses.len(), count, "every pod has an address of its own");
    delete_all(&client).await;
    let uids = pods.iter().filter_map(|pod| pod.metadata.uid.clone()).collect();
    nothing_left(&machine, &uids).await;
    machine.clean().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_kills_restart_nothing_that_had_not_died() {
    let mut machine = Machine::start("unkillable", IMAGE).await;
    let (count, rounds) = if soak() { (30, 60) } else { (4, 3) };
    let client = machine.server.client();
    for number in 0..count {
        client.create(&machine.create(&format!("kept-{number}"))).await.expect("a pod");
    }
    let mut before = lives(&all_ready(&client, count).await);
    for round in 0..rounds {
        let socket = machine.agent().join("containerd/containerd.sock").to_string_lossy().into_owned();
        let died = match round % 3 {
            0 => {
                machine.server.kill().await;
                machine.server.spawn();
                machine.server.ready().await;
                0
            }
            1 => {
                let file = machine.agent().join("containerd/containerd.pid");
                let pid = || std::fs::read_to_string(&file).unwrap_or_default();
                let old = pid();
                kill(old.split_whitespace().next().expect("a pid")).await;
                eventually("another containerd", async {
                    while pid() == old || pid().is_empty() {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                })
                .await;
                0
            }
            _ => {
                let shims: Vec<u32> = processes_with(&socket)
                    .into_iter()
                    .filter(|id| {
                        std::fs::read_to_string(format!("/proc/{id}/comm"))
                            .is_ok_and(|name| name.starts_with("containerd-shim"))
                    })
                    .collect();
                assert_eq!(shims.len(), count, "a shim for each pod");
                kill(&shims[round % shims.len()].to_string()).await;
                1
            }
        };
        let client = machine.server.client();
        machine.node_ready("unkillable").await;
        // A new pod that runs proves that the node has come round; then nothing of the old ones may have changed.
        let probe = format!("probe-{round}");
        client.create(&machine.create(&probe)).await.expect("a pod");
        let settled = |pods: &[Arc<Pod>]| {
            let now = lives(pods);
            let changed = before.iter().filter(|(name, life)| now.get(*name) != Some(life)).count();
            pods.len() == count + 1 && pods.iter().all(|pod| pod_ready(pod)) && changed >= died
        };
        let pods = objects::<Pod>(&client, "default", &format!("round {round}: all pods ready"), settled).await;
        let mut now = lives(&pods);
        now.remove(&probe);
        let changed: Vec<&String> =
            before.iter().filter(|(name, life)| now.get(*name) != Some(life)).map(|(n, _)| n).collect();
        assert_eq!(changed.len(), died, "round {round}: {changed:?}");
        client.delete::<Pod>("default", &probe, &DeleteOptions::default()).await.map(drop).expect("deleted");
        objects::<Pod>(&client, "default", "the probe is gone", |pods| pods.len() == count).await;
        before = now;
    }
    delete_all(&machine.server.client()).await;
    nothing_left(&machine, &HashSet::new()).await;
    machine.clean().await;
}

async fn kill(pid: &str) {
    let killed = Command::new("kill").args(["-KILL", pid]).status().await;
    assert!(killed.is_ok_and(|status| status.success()), "process {pid} was there");
}
