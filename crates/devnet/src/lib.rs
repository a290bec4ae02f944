//! Several machines on one: network namespaces as the nodes of a development cluster.
//!
//! A machine is a namespace with one link to a bridge, and the processes started in it. The bridge has a namespace too, which the host has a link to. It can be cut off
//! and joined again by its link, stopped and started by its processes. Machines reach each other and the host, and
//! nothing beyond it unless asked: without a default route no packet finds a way out. Nor does one from the host: ranges
//! that are a cluster's own, such as its pods', are unreachable there.
//!
//! Nothing is remembered here but what the kernel shows and pid files say, so any later process can list, change and
//! remove what an earlier one made.

mod layout;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use node::process::{Process, spawn_detached};
use node::{nft, private, run};

pub use layout::{Error as LayoutError, Layout, MOST, Machine};

const LIMIT: Duration = Duration::from_secs(30);
/// How long a process has to end by itself.
const GRACE: Duration = Duration::from_secs(30);

/// Why the machines are not as asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Command(#[from] run::Error),
    /// The host's rules were refused.
    #[error(transparent)]
    Rules(#[from] nft::Error),
    /// What was pinned in a machine stayed there.
    #[error(transparent)]
    Programs(#[from] node::bpf::Error),
    /// `ip` said something unexpected.
    #[error("read links and namespaces: {0}")]
    Read(#[from] serde_json::Error),
    /// A process could not be started or stopped.
    #[error("{operation} {program} on {machine}: {source}")]
    Process {
        operation: &'static str,
        program: String,
        machine: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// A machine as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub namespace: String,
    /// Whether its link is up.
    pub connected: bool,
}

/// Makes the machines. What was there under the same cluster name is removed first.
pub async fn make(layout: &Layout) -> Result<(), Error> {
    remove(&layout.name).await?;
    ip(&["-batch", "-"], &layout.make()).await?;
    ip(&["-netns", &layout.switch, "-batch", "-"], &layout.bridge()).await?;
    for machine in &layout.machines {
        ip(&["-netns", &machine.namespace, "-batch", "-"], &layout.furnish(machine)).await?;
    }
    Ok(nft::apply(&layout.rules()).await?)
}

/// Removes the machines of a cluster; their processes have to be stopped before. None there is no error.
pub async fn remove(cluster: &str) -> Result<(), Error> {
    let mut batch = String::new();
    let own = layout::link(cluster);
    // The link first: it would go with the namespace of its other end, but only some time later.
    if links(None).await?.iter().any(|link| link.ifname == own) {
        batch.push_str(&format!("link del {own}\n"));
    }
    for route in routes(layout::metric(cluster)).await? {
        batch.push_str(&format!("route del unreachable {} metric {}\n", route.dst, layout::metric(cluster)));
    }
    let (prefix, switch) = (layout::namespace_prefix(cluster), layout::switch(cluster));
    let ours = |name: &str| name == switch || number(name, &prefix).is_some();
    for name in namespaces().await?.iter().filter(|name| ours(name)) {
        // Programs that are pinned would keep the namespace, without a name.
        node::bpf::release(&Path::new("/run/netns").join(name))?;
        batch.push_str(&format!("netns del {name}\n"));
    }
    if !batch.is_empty() {
        ip(&["-batch", "-"], &batch).await?;
    }
    let table = layout::rules_table(cluster);
    Ok(nft::apply(&format!("add table ip {table}\ndelete table ip {table}\n")).await?)
}

#[derive(serde::Deserialize)]
struct Namespace {
    name: String,
}

#[derive(serde::Deserialize)]
struct Route {
    dst: String,
    metric: Option<u32>,
}

#[derive(serde::Deserialize)]
struct Link {
    ifname: String,
    flags: Vec<String>,
}

/// The machines of a cluster, in order.
pub async fn list(cluster: &str) -> Result<Vec<Seen>, Error> {
    let (prefix, switch) = (layout::namespace_prefix(cluster), layout::switch(cluster));
    let namespaces = namespaces().await?;
    let links = if namespaces.contains(&switch) { links(Some(&switch)).await? } else { Vec::new() };
    let mut seen: Vec<(u8, Seen)> = namespaces
        .into_iter()
        .filter_map(|namespace| {
            let number = number(&namespace, &prefix)?;
            let link = format!("{}-{number}", layout::link(cluster));
            let up = |l: &Link| l.ifname == link && l.flags.iter().any(|flag| flag == "UP");
            Some((number, Seen { namespace, connected: links.iter().any(up) }))
        })
        .collect();
    seen.sort_by_key(|(number, _)| *number);
    Ok(seen.into_iter().map(|(_, seen)| seen).collect())
}

/// The number of the machine whose namespace this is.
fn number(namespace: &str, prefix: &str) -> Option<u8> {
    namespace.strip_prefix(prefix)?.parse().ok()
}

async fn namespaces() -> Result<Vec<String>, Error> {
    let text = ip(&["-j", "netns", "list"], "").await?;
    // Without any namespace it says nothing at all.
    let namespaces: Vec<Namespace> = if text.is_empty() { Vec::new() } else { serde_json::from_slice(&text)? };
    Ok(namespaces.into_iter().map(|namespace| namespace.name).collect())
}

/// The host's unreachable ranges with this metric.
async fn routes(metric: u32) -> Result<Vec<Route>, Error> {
    let text = ip(&["-j", "-4", "route", "show", "type", "unreachable"], "").await?;
    let mut routes: Vec<Route> = if text.is_empty() { Vec::new() } else { serde_json::from_slice(&text)? };
    routes.retain(|route| route.metric == Some(metric));
    Ok(routes)
}

/// The links of a namespace, or the host's.
async fn links(namespace: Option<&str>) -> Result<Vec<Link>, Error> {
    let place = namespace.map(|namespace| ["-netns", namespace]);
    let args: Vec<&str> = place.into_iter().flatten().chain(["-j", "link", "show"]).collect();
    Ok(serde_json::from_slice(&ip(&args, "").await?)?)
}

/// Cuts a machine off the others, or joins it again.
pub async fn connect(machine: &Machine, connected: bool) -> Result<(), Error> {
    let state = if connected { "up" } else { "down" };
    ip(&["-netns", &machine.switch, "link", "set", &machine.link, state], "").await.map(drop)
}

/// What is lost of a machine's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    Nothing,
    /// It hears nobody, and is heard.
    Incoming,
    /// Nobody hears it, and it hears all.
    Outgoing,
}

/// Cuts a machine off in one direction, as a broken switch or a firewall does, or in none again.
pub async fn lose(machine: &Machine, loss: Loss) -> Result<(), Error> {
    let place = format!("--net=/run/netns/{}", machine.namespace);
    run::output("nsenter", &[&place, "nft", "-f", "-"], layout::losing(loss).as_bytes(), LIMIT).await?;
    Ok(())
}

/// A program that runs on a machine, known again by its pid file.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<String>,
    /// Where its pid file and its log are.
    pub directory: PathBuf,
}

impl Program {
    fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }

    fn pid_file(&self) -> PathBuf {
        self.directory.join(format!("{}.pid", self.name()))
    }

    pub fn log(&self) -> PathBuf {
        self.directory.join(format!("{}.log", self.name()))
    }

    /// Starts it on a machine; it outlives this process. Running already is no error.
    pub async fn start(&self, machine: &Machine) -> Result<(), Error> {
        if self.running().is_some() {
            return Ok(());
        }
        let failed = |source| self.failed("start", machine, source);
        // Killed a moment ago, it may still have its ports and its locks.
        Process::until_gone(&self.pid_file(), GRACE).await.map_err(failed)?;
        // A node's containers are below it.
        private::passage(&self.directory).map_err(failed)?;
        let log = private::append(&self.log()).map_err(failed)?;
        let mut command = tokio::process::Command::new("nsenter");
        // `nsenter` becomes the program, so its process id is the program's. Only the network is the machine's own: with mounts
        // of its own, as `ip netns exec` would give it, a program started again would not find those of its predecessor.
        command.arg(format!("--net=/run/netns/{}", machine.namespace)).arg(&self.path).args(&self.arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone().map_err(failed)?).stderr(log);
        let child = spawn_detached(&mut command).map_err(failed)?;
        let pid = child.id().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
        Process::open(pid).and_then(|process| process.write_pid_file(&self.pid_file())).map_err(failed)
    }

    /// The process, if it runs.
    pub fn running(&self) -> Option<Process> {
        Process::from_pid_file(&self.pid_file())
    }

    /// Stops it and waits for its end. Not running is no error.
    pub async fn stop(&self, machine: &Machine) -> Result<(), Error> {
        match self.running() {
            Some(process) => process.stop(GRACE).await.map_err(|source| self.failed("stop", machine, source)),
            None => Ok(()),
        }
    }

    fn failed(&self, operation: &'static str, machine: &Machine, source: std::io::Error) -> Error {
        Error::Process { operation, program: self.name(), machine: machine.name.clone(), source }
    }
}

/// Where a machine's files are, below a cluster's directory.
pub fn directory(cluster: &Path, machine: &Machine) -> PathBuf {
    cluster.join(&machine.name)
}

async fn ip(args: &[&str], input: &str) -> Result<Vec<u8>, Error> {
    Ok(run::output("ip", args, input.as_bytes(), LIMIT).await?)
}
