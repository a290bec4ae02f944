//! What all workers of a node share: the runtime, the API, caches, and what is true of the node.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use client::Client;
use informer::{Clock, EventType, Informer, Recorder};
use k8s_openapi::api::core::v1::{ConfigMap, Node, ObjectReference, Pod, Secret, Service};
use node::cgroups::{Cgroups, Name};
use node::cri::Runtime;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::allocations::Allocations;
use crate::config::Facts;
use crate::figures::Figures;
use crate::images::Images;
use crate::objects::Objects;
use crate::pod::qos::{self, Class};
use crate::pod::spec::{self, Kind};
use crate::tokens::Tokens;

/// Settings that do not change while the kubelet runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Volumes and files of pods are in `<root>/pods`.
    pub root: PathBuf,
    /// Most processes of one pod; nothing for no limit.
    pub pod_pids: Option<i64>,
    /// The cgroup of all pods.
    pub cgroup_root: Name,
}

/// Which pod a container or sandbox of the runtime belongs to, by its id.
pub type Owners = Mutex<HashMap<String, String>>;

/// Shared by all workers.
pub struct Shared {
    pub(crate) settings: Settings,
    pub(crate) runtime: Arc<dyn Runtime>,
    /// Prefix of container ids, such as `containerd`.
    pub(crate) runtime_name: String,
    pub(crate) client: Client,
    pub(crate) recorder: Recorder,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) cgroups: Option<Cgroups>,
    pub(crate) images: Images,
    pub(crate) config_maps: Objects<ConfigMap>,
    pub(crate) secrets: Objects<Secret>,
    pub(crate) services: Informer<Service>,
    pub(crate) tokens: Tokens,
    pub(crate) facts: watch::Receiver<Arc<Facts>>,
    /// Why pods cannot have a network yet; nothing when they can.
    pub(crate) network: watch::Receiver<Option<String>>,
    pub(crate) owners: Owners,
    pub(crate) figures: Arc<Figures>,
    /// What pods were given.
    pub(crate) allocations: Allocations,
    /// The node's own object.
    pub(crate) me: Informer<Node>,
    /// Cancelled when the kubelet stops: workers leave their pods as they are.
    pub(crate) stop: CancellationToken,
}

impl Shared {
    /// What is true of the node now.
    pub(crate) fn facts(&self) -> Arc<Facts> {
        self.facts.borrow().clone()
    }

    /// The cgroup of a pod: by its class, then by its uid.
    pub(crate) fn cgroup(&self, pod: &Pod) -> Name {
        self.cgroup_of(qos::class(pod), spec::uid(pod))
    }

    /// The cgroups a pod with this uid could have, whatever its class.
    pub(crate) fn possible_cgroups(&self, uid: &str) -> [Name; 3] {
        [Class::Guaranteed, Class::Burstable, Class::BestEffort].map(|class| self.cgroup_of(class, uid))
    }

    fn cgroup_of(&self, class: Class, uid: &str) -> Name {
        let root = &self.settings.cgroup_root;
        let parent = match class {
            Class::Guaranteed => root.clone(),
            Class::Burstable => root.child("burstable"),
            Class::BestEffort => root.child("besteffort"),
        };
        parent.child(&format!("pod{uid}"))
    }

    /// Records an event about a pod.
    pub(crate) fn event(&self, pod: &Pod, kind: EventType, reason: &str, message: impl Into<String>) {
        self.recorder.event(pod, kind, reason, message);
    }

    /// Records an event about a container of a pod.
    pub(crate) fn container_event(
        &self,
        pod: &Pod,
        kind: Kind,
        name: &str,
        event: EventType,
        reason: &str,
        message: &str,
    ) {
        let list = match kind {
            Kind::Init => "initContainers",
            Kind::Regular => "containers",
            Kind::Ephemeral => "ephemeralContainers",
        };
        let about =
            ObjectReference { field_path: Some(format!("spec.{list}{{{name}}}")), ..informer::events::reference(pod) };
        self.recorder.event_about(about, event, reason, message);
    }
}
