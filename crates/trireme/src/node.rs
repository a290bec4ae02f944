//! `trireme node`: containers and their runtime outlive Trireme on purpose; this is how they are removed.

use std::path::{Path, PathBuf};

use node::cgroups::{Cgroups, Driver, Name};
use node::containerd::Containerd;
use node::cri::{Runtime, labels, v1};

use crate::component::Failure;
use crate::kubelet_root;
use crate::parts::agent;

/// What to do.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Stop and remove every container of a node that does not run any more, and its container runtime.
    ///
    /// Images, volumes of claims and everything the API knows stay. A node that starts again makes its pods anew.
    Clean {
        /// The data directory of the server or agent whose node it was.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
        /// What it was started with as its kubelet's root.
        #[arg(long, value_name = "DIR")]
        kubelet_root: Option<PathBuf>,
        /// What it was started with as its cgroup root.
        #[arg(long, value_name = "CGROUP", default_value = "/")]
        cgroup_root: String,
    },
}

pub async fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Clean { data_dir, kubelet_root, cgroup_root } => {
            let root = kubelet_root::of(data_dir, kubelet_root.as_deref());
            clean(data_dir, &root, &agent::cgroup(cgroup_root)).await
        }
    }
}

async fn clean(data_dir: &Path, root: &Path, groups: &Name) -> Result<(), Failure> {
    let dir = data_dir.join("agent");
    if !dir.join("containerd").is_dir() {
        return Err(format!("no node has run in {}", data_dir.display()).into());
    }
    kubelet_root::check(root, data_dir)?;
    // The runtime has to run to remove what it made, addresses and network links included.
    let containerd = Containerd::start(agent::containerd_config(&dir, &dir.join("cni"))?).await?;
    let runtime = containerd.client();
    let cgroups = Cgroups::detect(Driver::detect()).ok();
    let sandboxes = runtime.list_sandboxes(v1::PodSandboxFilter::default()).await?;
    println!("removing {} pods", sandboxes.len());
    for sandbox in sandboxes {
        runtime.stop_sandbox(&sandbox.id).await?;
        runtime.remove_sandbox(&sandbox.id).await?;
        if let (Some(cgroups), Some(uid)) = (&cgroups, sandbox.labels.get(labels::POD_UID)) {
            remove_groups(cgroups, groups, uid).await?;
        }
    }
    containerd.stop().await?;
    for below in [dir.canonicalize(), root.canonicalize()].into_iter().flatten() {
        node::mounts::unmount_below(&below)?;
    }
    // What pods had on this disk goes with them; claims lie elsewhere.
    remove_dir(&root.join("pods"))?;
    remove_dir(&dir.join("logs"))?;
    let net = node::net::Net::open()?;
    net.remove_link(agent::BRIDGE).await?;
    ::netpol::cleanup().await?;
    println!("container runtime stopped");
    Ok(())
}

async fn remove_groups(cgroups: &Cgroups, root: &Name, uid: &str) -> Result<(), Failure> {
    for parent in [root.clone(), root.child("burstable"), root.child("besteffort")] {
        cgroups.remove(&parent.child(&format!("pod{uid}"))).await?;
    }
    Ok(())
}

fn remove_dir(dir: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
