//! What all workers of a node share: the runtime, the API, what is true of the node, what pods were given ([`allocations`], [`users`]),
//! and what they refer to ([`objects`], [`tokens`], [`certificates`]).

pub mod allocations;
pub mod certificates;
pub mod objects;
pub mod tokens;
pub mod users;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use client::Client;
use informer::{Clock, EventType, Informer, Recorder};
use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::{ConfigMap, Node, ObjectReference, PersistentVolumeClaim, Pod, Secret, Service};
use node::cgroups::{Cgroups, Limits, Name};
use node::cri::Runtime;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::admission::sysctls::Allowed;
use crate::cri_config::NodeFacts;
use crate::figures::Figures;
use crate::images::Images;
use crate::pod::resources;
use crate::pod::spec::{self, Kind};
use crate::shared::allocations::Allocations;
use crate::shared::objects::Objects;
use crate::shared::tokens::Tokens;
use crate::shared::users::Users;
use crate::storage::Storage;
use crate::volumes;
use crate::worker::certificates::Requests;
use crate::worker::network::PodNetwork;
use rules::qos::{self, Class};

/// Settings that do not change while the kubelet runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Volumes and files of pods are in `<root>/pods`.
    pub root: PathBuf,
    /// Most processes of one pod; nothing for no limit.
    pub pod_pids: Option<i64>,
    /// The cgroup of all pods.
    pub cgroup_root: Name,
    /// Kernel parameters that pods may set.
    pub sysctls: Allowed,
    /// The label of files of containers, where the machine has SELinux.
    pub selinux: Option<node::selinux::Label>,
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
    pub(crate) storage: Arc<Storage>,
    pub(crate) config_maps: Objects<ConfigMap>,
    pub(crate) secrets: Objects<Secret>,
    pub(crate) trust_bundles: Objects<ClusterTrustBundle>,
    pub(crate) claims: Objects<PersistentVolumeClaim>,
    pub(crate) services: Informer<Service>,
    pub(crate) tokens: Tokens,
    /// Requests for certificates of this node's pods.
    pub(crate) requests: Requests,
    pub(crate) facts: watch::Receiver<Arc<NodeFacts>>,
    /// Why pods cannot have a network yet; nothing when they can.
    pub(crate) network: watch::Receiver<Option<String>>,
    /// Who has to know a pod before anything starts in it.
    pub(crate) pod_network: Option<Arc<dyn PodNetwork>>,
    pub(crate) owners: Owners,
    pub(crate) figures: Arc<Figures>,
    pub(crate) users: Users,
    /// The weight that burstable pods have together; zero when it was not set yet.
    pub(crate) shares: AtomicU64,
    /// What pods were given.
    pub(crate) allocations: Allocations,
    /// The node's own object.
    pub(crate) me: Informer<Node>,
    /// Cancelled when the kubelet stops: workers leave their pods as they are.
    pub(crate) stop: CancellationToken,
}

impl Shared {
    /// What is true of the node now.
    pub(crate) fn facts(&self) -> Arc<NodeFacts> {
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

    /// Gives the classes of pods their share of the processors: guaranteed pods have their own, the burstable ones together
    /// what they ask for, best effort ones what is left.
    pub(crate) async fn share_processors(&self) -> Result<(), node::cgroups::Error> {
        let Some(cgroups) = &self.cgroups else { return Ok(()) };
        let wanted = u64::try_from(resources::shares(self.allocations.burstable_milli())).unwrap_or(2);
        if self.shares.swap(wanted, Ordering::AcqRel) == wanted {
            return Ok(());
        }
        let root = &self.settings.cgroup_root;
        for (class, shares) in [("burstable", wanted), ("besteffort", u64::try_from(resources::shares(0)).unwrap_or(2))]
        {
            let limits = Limits { cpu_shares: Some(shares), ..Limits::default() };
            if let Err(error) = cgroups.create(&root.child(class), &limits).await {
                // Not done is not remembered as done.
                self.shares.store(0, Ordering::Release);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Gives back the images that were shown to a pod; no error when none were.
    pub(crate) async fn release_views(&self, uid: &str) -> Result<(), String> {
        let dir = volumes::images_dir(&self.settings.root, uid);
        if !dir.exists() {
            return Ok(());
        }
        let unmounted = tokio::task::spawn_blocking(move || node::mounts::unmount_below(&dir)).await;
        unmounted.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        self.runtime.release_views(uid).await.map_err(|error| error.to_string())
    }

    /// Gives back everything a pod had on disk: images that were shown to it, volumes of drivers, and then the rest.
    pub(crate) async fn give_back_volumes(&self, uid: &str) -> Result<(), String> {
        self.release_views(uid).await?;
        self.storage.unmount_pod(uid).await?;
        let (root, uid) = (self.settings.root.clone(), uid.to_owned());
        let removed = tokio::task::spawn_blocking(move || volumes::remove(&root, &uid)).await;
        removed.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
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
