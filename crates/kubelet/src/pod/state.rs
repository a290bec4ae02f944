//! What the runtime has of a pod: its sandboxes and containers, newest first.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use node::cri::{labels, v1};

use super::spec;

/// Annotation of a container: the hash of the specification it was made from.
pub const HASH: &str = "io.kubernetes.container.hash";
/// Annotation of a container: how often it was started before.
pub const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// Annotation of a container: where it leaves its last words.
pub const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Annotation of a container: where its last words are taken from.
pub const TERMINATION_MESSAGE_POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
/// Annotation of a container: the pod's grace period, for when the pod itself is not known any more.
pub const TERMINATION_GRACE_PERIOD: &str = "io.kubernetes.pod.terminationGracePeriod";

/// A sandbox: the namespaces a pod's containers share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    pub id: String,
    /// How many sandboxes the pod had before.
    pub attempt: u32,
    pub ready: bool,
    /// Nanoseconds since the epoch.
    pub created_at: i64,
    /// Its addresses, the main one first; none in the host's network.
    pub ips: Vec<String>,
    /// Whether it uses the host's network.
    pub host_network: bool,
}

/// The life of a container as the runtime sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Created,
    /// Its first process runs.
    Running,
    /// Its first process ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

impl Life {
    /// The word messages use.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Unknown => "unknown",
        }
    }
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    pub id: String,
    /// Its name in the pod.
    pub name: String,
    /// The sandbox it lives in.
    pub sandbox: String,
    /// How far it got.
    pub life: Life,
    /// Nanoseconds since the epoch.
    pub created_at: i64,
    /// Nanoseconds since the epoch; zero when it did not happen.
    pub started_at: i64,
    /// Nanoseconds since the epoch; zero when it did not happen.
    pub finished_at: i64,
    /// Meaningful once it exited.
    pub exit_code: i32,
    /// Why it ended, in one word.
    pub reason: String,
    pub message: String,
    /// The image as asked for.
    pub image: String,
    /// The image by digest.
    pub image_ref: String,
    /// Hash of what it was made from; empty when not known.
    pub hash: String,
    /// How often it was started before.
    pub restarts: u32,
    pub log_path: String,
    /// Limits in force, where the runtime says.
    pub resources: Option<v1::LinuxContainerResources>,
    /// User of its first process, where the runtime says.
    pub user: Option<v1::LinuxContainerUser>,
    /// Files and directories shown in it: path inside, path outside.
    pub mounts: Vec<(String, String)>,
    /// Images that are mounted in it.
    pub images: Vec<String>,
    /// Paths inside that are read-only all the way down.
    pub recursive_read_only: Vec<String>,
    /// The kubelet's own notes on it.
    pub annotations: std::collections::BTreeMap<String, String>,
}

impl Container {
    /// From the runtime's answer. `sandbox` comes from the list, which alone says it.
    pub fn new(status: v1::ContainerStatus, sandbox: &str) -> Self {
        let life = match status.state() {
            v1::ContainerState::ContainerCreated => Life::Created,
            v1::ContainerState::ContainerRunning => Life::Running,
            v1::ContainerState::ContainerExited => Life::Exited,
            v1::ContainerState::ContainerUnknown => Life::Unknown,
        };
        let label = |key: &str| status.labels.get(key).cloned().unwrap_or_default();
        let note = |key: &str| status.annotations.get(key).cloned().unwrap_or_default();
        let asked = status.image.as_ref().map(|image| {
            if image.user_specified_image.is_empty() { image.image.clone() } else { image.user_specified_image.clone() }
        });
        Self {
            name: label(labels::CONTAINER_NAME),
            sandbox: sandbox.to_owned(),
            life,
            created_at: status.created_at,
            started_at: status.started_at,
            finished_at: status.finished_at,
            exit_code: status.exit_code,
            image: asked.unwrap_or_default(),
            image_ref: status.image_ref.clone(),
            hash: note(HASH),
            restarts: note(RESTART_COUNT).parse().unwrap_or(0),
            resources: status.resources.as_ref().and_then(|resources| resources.linux.clone()),
            user: status.user.as_ref().and_then(|user| user.linux.clone()),
            mounts: status.mounts.iter().map(|m| (m.container_path.clone(), m.host_path.clone())).collect(),
            images: status.mounts.iter().filter_map(|m| Some(m.image.as_ref()?.image.clone())).collect(),
            recursive_read_only: status
                .mounts
                .iter()
                .filter(|mount| mount.recursive_read_only)
                .map(|mount| mount.container_path.clone())
                .collect(),
            reason: status.reason,
            message: status.message,
            log_path: status.log_path,
            annotations: status.annotations,
            id: status.id,
        }
    }
}

/// A time of the runtime, cut to the seconds the API keeps.
pub fn time(nanos: i64) -> Timestamp {
    Timestamp::from_second(nanos.div_euclid(1_000_000_000)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Everything the runtime has of one pod.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    pub sandboxes: Vec<Sandbox>,
    pub containers: Vec<Container>,
}

/// What has to be done about a pod's sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    Nothing,
    /// A new one, with this attempt, for this reason. `replaces` is set when there was one before.
    New {
        /// How many there were.
        attempt: u32,
        /// The one it takes the place of.
        replaces: Option<String>,
        /// For the condition's message.
        why: &'static str,
    },
}

impl State {
    /// Puts both lists into their order.
    pub fn new(mut sandboxes: Vec<Sandbox>, mut containers: Vec<Container>) -> Self {
        sandboxes.sort_by_key(|sandbox| std::cmp::Reverse((sandbox.created_at, sandbox.attempt)));
        containers.sort_by_key(|container| std::cmp::Reverse((container.created_at, container.restarts)));
        Self { sandboxes, containers }
    }

    pub fn sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first()
    }

    /// The newest container of this name.
    pub fn latest(&self, name: &str) -> Option<&Container> {
        self.containers.iter().find(|container| container.name == name)
    }

    /// The newest container of this name, if it lives in the newest sandbox.
    pub fn active(&self, name: &str) -> Option<&Container> {
        let sandbox = &self.sandbox()?.id;
        self.latest(name).filter(|container| container.sandbox == *sandbox)
    }

    /// The pod's addresses: those of its sandbox, or the node's when it is in the node's network.
    pub fn ips<'a>(&'a self, pod: &Pod, host_ips: &'a [String]) -> &'a [String] {
        if spec::is_host_network(pod) {
            return host_ips;
        }
        self.sandbox().filter(|sandbox| sandbox.ready).map(|sandbox| sandbox.ips.as_slice()).unwrap_or_default()
    }

    /// The first of them, which probes and hooks are sent to; empty while there is none.
    pub fn ip<'a>(&'a self, pod: &Pod, host_ips: &'a [String]) -> &'a str {
        self.ips(pod, host_ips).first().map(String::as_str).unwrap_or_default()
    }

    /// How long init containers that are not sidecars have run.
    pub fn time_of_init(&self, pod: &Pod) -> Duration {
        let inits = spec::init_containers(pod).iter().filter(|container| !spec::is_sidecar(container));
        let runs = inits.filter_map(|container| self.latest(&container.name));
        let ran = |one: &Container| u64::try_from(one.finished_at.saturating_sub(one.started_at)).unwrap_or(0);
        Duration::from_nanos(runs.filter(|one| one.life == Life::Exited).map(ran).sum())
    }

    /// Whether anything of it still runs.
    pub fn is_running(&self) -> bool {
        self.sandboxes.iter().any(|sandbox| sandbox.ready)
            || self.containers.iter().any(|container| matches!(container.life, Life::Running | Life::Unknown))
    }

    /// Whether any of the regular containers was started in the newest sandbox: then the pod is past its initialization.
    pub fn regular_started(&self, pod: &Pod) -> bool {
        spec::containers(pod).iter().any(|container| {
            self.active(&container.name).is_some_and(|c| matches!(c.life, Life::Running | Life::Exited | Life::Unknown))
        })
    }

    /// Whether any of the regular containers was made at all.
    pub fn regular_created(&self, pod: &Pod) -> bool {
        spec::containers(pod).iter().any(|container| self.latest(&container.name).is_some())
    }

    /// Whether the sandbox serves, or a new one is needed.
    pub fn need(&self, pod: &Pod) -> Need {
        let Some(sandbox) = self.sandbox() else {
            return Need::New { attempt: 0, replaces: None, why: "no pod sandbox exists" };
        };
        let again = |replaces: bool, why| Need::New {
            attempt: sandbox.attempt + 1,
            replaces: replaces.then(|| sandbox.id.clone()),
            why,
        };
        if self.sandboxes.iter().filter(|sandbox| sandbox.ready).count() > 1 {
            return again(true, "multiple pod sandboxes are ready and need to be reconciled");
        }
        if !sandbox.ready {
            return again(true, "pod sandbox is not ready");
        }
        if sandbox.host_network != spec::is_host_network(pod) {
            return again(false, "network namespace mode changed and sandbox needs to be recreated");
        }
        if !sandbox.host_network && sandbox.ips.is_empty() {
            return again(true, "pod sandbox has no IP address");
        }
        Need::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_in_the_nodes_network_has_the_nodes_addresses() {
        let sandbox = Sandbox {
            id: "s".into(),
            attempt: 0,
            ready: true,
            created_at: 1,
            ips: vec!["10.0.0.1".into()],
            host_network: false,
        };
        let (own, node) = (sandbox.ips.clone(), ["192.0.2.1".to_owned(), "2001:db8::1".to_owned()]);
        let pod = |host_network: bool| {
            let spec = serde_json::json!({"spec": {"hostNetwork": host_network, "containers": []}});
            serde_json::from_value::<Pod>(spec).unwrap()
        };
        let state = State::new(vec![sandbox], Vec::new());
        assert_eq!(state.ips(&pod(false), &node), own);
        assert_eq!(state.ips(&pod(true), &node), node);
        // Its first container needs them before there is a sandbox.
        assert_eq!(State::default().ips(&pod(true), &node), node);
        assert!(State::default().ips(&pod(false), &node).is_empty());
    }
}
