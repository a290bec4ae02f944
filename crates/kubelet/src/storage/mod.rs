//! Volumes of storage drivers: who the drivers are, and how a volume gets to a pod and away again.
//!
//! ```text
//! plugins_registry/*.sock ─► plugins ─► drivers ─► CSINode, node (node_object)
//! pod's worker ─► mount: attached? ▸ record ▸ NodeStage ▸ NodePublish ▸ group        ─► path
//! pod's end    ─► unmount: NodeUnpublish ▸ (nobody else?) NodeUnstage ▸ record away
//! ```
//! The disk is the memory. Before a driver is asked anything for a pod, a record is written into the pod's directory ([`data`]), under the
//! volume's lock, and it goes last. So whoever comes after a crash finds every volume that may be staged or published, the calls are
//! made again, which the contract allows, and a volume is unstaged only when no pod has a record of it. Nothing here is ever removed
//! with what is in it: a directory that is not empty may be somebody's data.

mod data;
mod device;
mod disks;
mod drivers;
mod expand;
mod growth;
mod in_use;
mod layout;
mod locks;
mod mount;
mod node_object;
mod plugins;
pub(crate) mod selinux;
mod shown;
mod source;
mod unmount;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::Client;
use informer::{Clock, Informer, Key};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSIDriver;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub(crate) use self::disks::WantedDisk;
use crate::shared::objects::OnChange;
pub(crate) use drivers::Drivers;
pub(crate) use expand::Grown;
use expand::Refusals;
pub(crate) use growth::Growth;
use in_use::InUse;
use locks::Locks;
pub(crate) use mount::{Mounted, NotMounted};
pub(crate) use plugins::Plugins;
use shown::AllShown;
pub(crate) use shown::{Knows, Shown};
pub(crate) use source::Source;

/// What mounts and unmounts volumes of drivers.
pub(crate) struct Storage {
    root: PathBuf,
    node: String,
    client: Client,
    clock: Arc<dyn Clock>,
    pub(crate) drivers: Arc<Drivers>,
    /// What cluster administrators say about drivers.
    pub(crate) objects: Informer<CSIDriver>,
    /// The node's own object.
    me: Informer<Node>,
    locks: Locks,
    /// The machine, as far as disks of storage networks concern it.
    disks: ::disks::Host,
    in_use: InUse,
    /// Volumes that this process has staged, by driver and handle, and with which SELinux label.
    staged: Mutex<HashMap<(String, String), Option<String>>>,
    /// Where this process has published volumes, and how large they were then or have become there.
    published: Mutex<HashMap<PathBuf, i64>>,
    refusals: Mutex<HashMap<(String, String), Refusals>>,
    shown: AllShown,
    /// Pods that wait until a volume is attached, or a driver is there.
    waiting: Arc<Mutex<HashSet<String>>>,
    status_changed: Arc<Notify>,
}

impl Storage {
    pub(crate) fn new(
        root: PathBuf,
        node: String,
        objects: Informer<CSIDriver>,
        me: Informer<Node>,
        (client, clock): (Client, Arc<dyn Clock>),
        (status_changed, disks): (Arc<Notify>, ::disks::Host),
        on_change: OnChange,
    ) -> Self {
        let waiting: Arc<Mutex<HashSet<String>>> = Arc::default();
        let (waiters, wake) = (waiting.clone(), on_change.clone());
        me.subscribe(move |change| {
            let lists = |node: Option<&Arc<Node>>| {
                let status = node.and_then(|node| node.status.clone()).unwrap_or_default();
                (status.volumes_attached, status.volumes_in_use)
            };
            if lists(change.before()) != lists(change.after()) {
                wake_all(&waiters, &wake);
            }
        });
        let (waiters, wake) = (waiting.clone(), on_change.clone());
        // A driver may say later that its volumes need no attaching.
        objects.subscribe(move |change| {
            let attaches = |object: Option<&Arc<CSIDriver>>| object.and_then(|object| object.spec.attach_required);
            if attaches(change.before()) != attaches(change.after()) {
                wake_all(&waiters, &wake);
            }
        });
        let waiters = waiting.clone();
        let drivers = Arc::new(Drivers::new(move || wake_all(&waiters, &on_change)));
        let in_use = InUse::of_disk(&root);
        Self {
            root,
            node,
            client,
            clock,
            drivers,
            objects,
            me,
            locks: Locks::default(),
            disks,
            in_use,
            staged: Mutex::default(),
            published: Mutex::default(),
            refusals: Mutex::default(),
            shown: AllShown::default(),
            waiting,
            status_changed,
        }
    }

    /// Volumes that must not be detached from this node, for its status.
    pub(crate) fn volumes_in_use(&self) -> Vec<String> {
        self.in_use.names()
    }

    async fn object(&self, driver: &str) -> Option<Arc<CSIDriver>> {
        self.objects.synced().await;
        self.objects.get(&Key::cluster(driver))
    }

    /// The pod's worker is told when something changed that volumes wait for.
    fn wait(&self, pod: &str) {
        self.waiting.lock().insert(pod.to_owned());
    }
}

/// Whether a driver has, or may have, volumes of a pod, or the pod has disks.
pub(crate) fn has_volumes(root: &Path, pod: &str) -> bool {
    !layout::published_to(root, pod).is_empty()
        || !layout::devices_to(root, pod).is_empty()
        || disks::has_disks(root, pod)
}

fn wake_all(waiting: &Mutex<HashSet<String>>, on_change: &OnChange) {
    let pods = std::mem::take(&mut *waiting.lock());
    pods.iter().for_each(|pod| on_change(pod));
}
