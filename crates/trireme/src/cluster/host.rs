//! The machines of a cluster on this host: made, started, stopped, removed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use devnet::{Layout, Machine, Program};
use futures::future::join_all;
use node::cgroups::{Cgroups, Driver, Name};
use node::cri::Runtime as _;
use node::private;
use node::process::Process;

use super::Made;
use crate::component::Failure;

const FILE: &str = "cluster.json";
/// The configuration of the kubelets. The disk is the host's and everybody's: how full it is is no reason to end pods.
const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
imageGCHighThresholdPercent: 100
evictionHard:
  memory.available: 100Mi
  nodefs.available: 0%
  nodefs.inodesFree: 0%
  imagefs.available: 0%
  imagefs.inodesFree: 0%
";
const KUBELET_FILE: &str = "kubelet.yaml";
/// The port of the API, on the first machine.
const PORT: u16 = 6443;
/// How long a cluster that has just begun may take to say how it is joined.
const INVITATION: Duration = Duration::from_secs(60);
/// How long pods of a machine that goes may take to end.
const PODS: Duration = Duration::from_secs(30);
/// How long its container runtime may take.
const RUNTIME: Duration = Duration::from_secs(10);

/// A cluster on this host.
pub(super) struct Host {
    /// Where it keeps everything.
    pub(super) directory: PathBuf,
    pub(super) layout: Layout,
    made: Made,
}

impl Host {
    /// A new cluster. Nothing of it is made yet but its directory.
    pub(super) fn new(directory: &Path, made: Made) -> Result<Self, Failure> {
        let layout = made.layout()?;
        let directory = directory.join(&made.name);
        private::passage(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let directory = directory.canonicalize()?;
        private::write(&directory.join(KUBELET_FILE), KUBELET)?;
        private::write(&directory.join(FILE), serde_json::to_vec_pretty(&made)?)?;
        Ok(Self { directory, layout, made })
    }

    /// A cluster that was made before, if it was.
    pub(super) fn open(directory: &Path, name: &str) -> Result<Option<Self>, Failure> {
        let directory = directory.join(name);
        let file = directory.join(FILE);
        let text = match std::fs::read(&file) {
            Ok(text) => text,
            // Other files may lie beside the clusters.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            Err(error) => return Err(format!("{}: {error}", file.display()).into()),
        };
        let made: Made = serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Some(Self { directory: directory.canonicalize()?, layout: made.layout()?, made }))
    }

    /// The cluster of a node.
    pub(super) fn of_node(directory: &Path, node: &str) -> Result<Self, Failure> {
        let unknown = || Failure::from(format!("there is no node {node}: see `trireme cluster list`"));
        let (cluster, _) = node.rsplit_once('-').ok_or_else(unknown)?;
        let host = Self::open(directory, cluster)?.ok_or_else(unknown)?;
        host.machine(node)?;
        Ok(host)
    }

    fn machine(&self, node: &str) -> Result<&Machine, Failure> {
        let found = self.layout.machines.iter().find(|machine| machine.name == node);
        found.ok_or_else(|| format!("there is no node {node}: see `trireme cluster list`").into())
    }

    fn data(&self, machine: &Machine) -> PathBuf {
        devnet::directory(&self.directory, machine).join("data")
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.data(&self.layout.machines[0]).join("admin.kubeconfig")
    }

    /// Whether a machine is a server that joins the first.
    pub(super) fn joins_as_server(&self, machine: &Machine) -> bool {
        let servers = usize::from(self.made.servers);
        self.layout.machines.iter().take(servers).skip(1).any(|server| server == machine)
    }

    fn invitation(&self, machine: &Machine) -> PathBuf {
        devnet::directory(&self.directory, machine).join("server-token")
    }

    /// Makes the token that a server joins with.
    pub(super) async fn invite(&self, machine: &Machine) -> Result<(), Failure> {
        let client = crate::standalone::connect(&self.kubeconfig())?;
        let made = async {
            loop {
                match crate::token::make(&client, 1, true).await {
                    Ok((token, _)) => return token,
                    // A cluster that has just begun says a moment later how it is joined.
                    Err(error) => tracing::debug!("{error}"),
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let token = tokio::time::timeout(INVITATION, made).await.map_err(|_| "no token could be made")?;
        Ok(private::write(&self.invitation(machine), token.reveal())?)
    }

    /// How it was made.
    #[cfg(test)]
    pub(super) fn made(&self) -> &Made {
        &self.made
    }

    /// What runs on a machine.
    pub(super) fn program(&self, machine: &Machine) -> Program {
        let first = &self.layout.machines[0];
        let data = self.data(machine).display().to_string();
        let kubelet = self.directory.join(KUBELET_FILE).display().to_string();
        let mut arguments: Vec<String> = Vec::new();
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(|&word| word.to_owned()));
        let (own, api) = (machine.address.to_string(), first.address.to_string());
        let server = machine == first || self.joins_as_server(machine);
        if self.joins_as_server(machine) {
            let token = self.invitation(machine).display().to_string();
            add(&["server", "--join", &format!("https://{api}:{PORT}"), "--token-file", &token]);
        } else if server {
            add(&["server"]);
            if self.made.servers > 1 {
                add(&["--cluster-init"]);
            }
        }
        if server {
            add(&["--bind-address", &own, "--advertise-address", &own, "--https-port", &PORT.to_string()]);
            add(&["--cluster-cidr", &self.made.cluster_cidr, "--service-cluster-ip-range", &self.made.service_range]);
        } else {
            let token = self.data(first).join("token").display().to_string();
            add(&["agent", "--server", &format!("https://{api}:{PORT}"), "--token-file", &token]);
        }
        add(&["--data-dir", &data, "--node-name", &machine.name, "--node-ip", &own, "--kubelet-config", &kubelet]);
        add(&["--pod-network", &self.made.pod_network, "--cgroup-root", &format!("/trireme/{}", machine.name)]);
        if server {
            arguments.extend(self.made.server_arguments.iter().cloned());
        }
        arguments.extend(self.made.node_arguments.iter().cloned());
        let path = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("trireme"));
        Program { path, arguments, directory: devnet::directory(&self.directory, machine) }
    }

    /// Makes the machines and gives them their images.
    pub(super) async fn prepare(&self, images: &[PathBuf]) -> Result<(), Failure> {
        for machine in &self.layout.machines {
            let folder = self.data(machine).join("images");
            private::passage(&self.data(machine))?;
            private::directory(&folder)?;
            for image in images {
                let name = image.file_name().ok_or_else(|| format!("{} is not an archive", image.display()))?;
                std::fs::copy(image, folder.join(name)).map_err(|error| format!("{}: {error}", image.display()))?;
            }
        }
        Ok(devnet::make(&self.layout).await?)
    }

    /// Starts a machine's Trireme. Running already is no error.
    pub(super) async fn boot(&self, node: &str) -> Result<(), Failure> {
        let machine = self.machine(node)?;
        Ok(self.program(machine).start(machine).await?)
    }

    /// Stops everything on a machine: Trireme, pods, container runtime.
    pub(super) async fn halt(&self, node: &str) -> Result<(), Failure> {
        let machine = self.machine(node)?;
        self.program(machine).stop(machine).await?;
        // One whose server was killed before.
        if let Some(process) = Process::from_pid_file(&self.data(machine).join("etcd/pid")) {
            process.stop(RUNTIME).await?;
        }
        let runtime = self.data(machine).join("agent/containerd");
        if let Some(process) = Process::from_pid_file(&runtime.join("containerd.pid")) {
            let socket = runtime.join("containerd.sock").display().to_string();
            if tokio::time::timeout(PODS, end_pods(&socket)).await.is_err() {
                tracing::warn!("{node}: its pods did not end in time");
            }
            process.stop(RUNTIME).await?;
        }
        node::mounts::unmount_below(&self.data(machine))?;
        Ok(())
    }

    /// Cuts a machine off, or joins it again.
    pub(super) async fn connect(&self, node: &str, connected: bool) -> Result<(), Failure> {
        Ok(devnet::connect(self.machine(node)?, connected).await?)
    }

    /// Stops and removes everything.
    pub(super) async fn remove(self) -> Result<(), Failure> {
        let halted = join_all(self.layout.machines.iter().map(|machine| self.halt(&machine.name))).await;
        for outcome in halted {
            outcome?;
        }
        if let Ok(cgroups) = Cgroups::detect(Driver::detect()) {
            for machine in &self.layout.machines {
                if let Err(error) = cgroups.remove(&Name::new(["trireme", &machine.name])).await {
                    tracing::debug!("{}: {error}", machine.name);
                }
            }
        }
        devnet::remove(&self.layout.name).await?;
        std::fs::remove_dir_all(&self.directory)
            .map_err(|error| Failure::from(format!("{}: {error}", self.directory.display())))
    }
}

/// Ends and removes all pods of a runtime; what does not end is said and left.
async fn end_pods(socket: &str) {
    let ended = async {
        let runtime = node::cri::Client::new(socket)?;
        let pods = runtime.list_sandboxes(node::cri::v1::PodSandboxFilter::default()).await?;
        let end = async |id: &str| {
            runtime.stop_sandbox(id).await?;
            runtime.remove_sandbox(id).await
        };
        for outcome in join_all(pods.iter().map(|pod| end(&pod.id))).await {
            outcome?;
        }
        Ok::<(), node::cri::Error>(())
    };
    if let Err(error) = ended.await {
        tracing::warn!("{error}");
    }
}
