//! The node's own object: registered, kept alive by a lease, its status written when it changes.
//!
//! [`machine`] reads the machine, [`status`] makes a status of it, purely; [`Registration::run`] keeps both the object and the lease.

pub mod enforcement;
pub mod machine;
pub mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use client::Patch;
use informer::{EventType, Filter, Informers, Key, Recorder, guard};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::{Node, NodeSpec, NodeStatus, ObjectReference, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, OwnerReference};
use node::cri::Runtime;
use rules::names::NODE_LEASES;
use threads::prompt::{self, Lane};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::cri_config::{Abilities, NodeFacts};
use crate::pressure::Conditions;
use crate::pressure::thresholds::Threshold;
use crate::storage::Storage;
use machine::Machine;
use status::Reading;

/// How often the lease is renewed, and how long it lasts.
const RENEW: Duration = Duration::from_secs(10);
const LEASE_SECONDS: i32 = 40;
/// How often the machine is looked at, and the longest an unchanged status goes unwritten.
const LOOK: Duration = Duration::from_secs(10);
const REPORT: Duration = Duration::from_secs(300);

/// What an administrator configures of the node.
#[derive(Debug, Clone)]
pub struct Config {
    pub name: String,
    pub hostname: String,
    /// Its addresses, the main one first.
    pub addresses: Vec<String>,
    /// Labels besides the usual ones.
    pub labels: BTreeMap<String, String>,
    /// What other parts of the node say of themselves.
    pub annotations: BTreeMap<String, String>,
    /// Taints it registers with.
    pub taints: Vec<Taint>,
    pub max_pods: u32,
    /// Processor time kept from pods, in thousandths.
    pub reserved_cpu_milli: i64,
    /// Memory kept from pods, in bytes.
    pub reserved_memory: i64,
    /// Disk kept from pods, in bytes.
    pub reserved_storage: i64,
    /// Processes kept from pods.
    pub reserved_pids: i64,
    /// Whether what is reserved is kept from pods by the kernel, and not only by the scheduler.
    pub enforced: bool,
    /// What is too little, which pods cannot have either.
    pub eviction: Vec<Threshold>,
    /// The port of the kubelet's own API.
    pub port: u16,
    /// Which file system pods write to.
    pub root: std::path::PathBuf,
}

impl Config {
    /// The node, for events about it. Its name stands for its uid, as upstream's kubelet has it.
    pub(crate) fn reference(&self) -> ObjectReference {
        ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(self.name.clone()),
            uid: Some(self.name.clone()),
            ..ObjectReference::default()
        }
    }
}

/// Keeps the node's object and lease.
pub struct Registration {
    pub(crate) config: Config,
    pub(crate) informers: Informers,
    pub(crate) recorder: Recorder,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) facts: watch::Sender<Arc<NodeFacts>>,
    /// Why pods cannot have a network; nothing when they can.
    pub(crate) network: watch::Sender<Option<String>>,
    /// What the node is short of.
    pub(crate) pressure: watch::Receiver<Conditions>,
    /// Set while the machine goes down.
    pub(crate) shutdown: watch::Receiver<bool>,
    /// Told when the status may have changed.
    pub(crate) status_changed: Arc<Notify>,
    pub(crate) storage: Arc<Storage>,
}

impl Registration {
    /// Registers the node, then keeps it until it is stopped.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let name = self.config.name.clone();
        let nodes = self.informers.filtered::<Node>(Filter::fields(format!("metadata.name={name}")));
        let key = Key::cluster(&name);
        let status_changed = self.status_changed.clone();
        nodes.subscribe(move |change| {
            // What others put into the capacity is reported as allocatable at once.
            if let (Some(old), Some(new)) = (change.before(), change.after())
                && !status::same_resources(old.status.as_ref(), new.status.as_ref())
            {
                status_changed.notify_one();
            }
        });
        let me = self.register_until_done().await;
        self.recorder.event_about(self.config.reference(), EventType::Normal, "Starting", "Starting kubelet.");
        let _lease = AbortOnDropHandle::new(prompt::spawn(Lane::Promises, {
            let (informers, me, clock) = (self.informers.clone(), me.clone(), self.informers.clock().clone());
            async move {
                guard::restarted("node lease", &*clock, || keep_lease(informers.clone(), me.clone())).await;
            }
        }));
        let mut known = me.status.clone().unwrap_or_default();
        let mut written = self.informers.clock().monotonic();
        while !stop.is_cancelled() {
            let reading = self.read().await;
            let node = nodes.get(&key);
            let old = node.as_ref().and_then(|n| n.status.clone()).unwrap_or_else(|| known.clone());
            let new = status::status(&self.config, &reading, &old, self.informers.clock().now());
            let due = self.informers.clock().monotonic() - written >= REPORT;
            if due || !status::same(&new, &known) || !status::same_resources(Some(&new), Some(&old)) {
                match self.write(&[&known, &old], &new).await {
                    Ok(()) => {
                        self.report_changes(&known, &new);
                        known = new;
                        written = self.informers.clock().monotonic();
                    }
                    Err(error) if error.is_not_found() => {
                        tracing::warn!("the node's object is gone; registering again");
                        known = self.register_until_done().await.status.unwrap_or_default();
                        continue;
                    }
                    Err(error) => tracing::warn!(%error, "node status not written"),
                }
            }
            // A network that is not there yet is looked for more often: pods wait for it.
            let pause = if self.network.borrow().is_some() { Duration::from_millis(100) } else { LOOK };
            tokio::select! {
                () = self.informers.clock().sleep(pause) => {}
                () = self.status_changed.notified() => {}
                () = stop.cancelled() => {}
            }
        }
    }

    async fn register_until_done(&self) -> Node {
        let mut backoff = informer::Backoff::new(Duration::from_millis(100), Duration::from_secs(7), 0.2);
        loop {
            match self.register().await {
                Ok(node) => return node,
                Err(error) => {
                    tracing::warn!(%error, "node not registered; trying again");
                    tokio::time::sleep(backoff.delay()).await;
                }
            }
        }
    }

    /// Creates the node's object, or brings the labels of an earlier one up to date.
    async fn register(&self) -> Result<Node, client::Error> {
        let client = self.informers.client();
        let labels = self.labels();
        let mut annotations = self.config.annotations.clone();
        let reading = self.read().await;
        annotations.insert("volumes.kubernetes.io/controller-managed-attach-detach".to_owned(), "true".to_owned());
        let fresh = Node {
            metadata: ObjectMeta {
                name: Some(self.config.name.clone()),
                labels: Some(labels.clone()),
                annotations: Some(annotations),
                ..ObjectMeta::default()
            },
            spec: Some(NodeSpec {
                taints: (!self.config.taints.is_empty()).then(|| self.config.taints.clone()),
                ..NodeSpec::default()
            }),
            status: Some(status::status(&self.config, &reading, &NodeStatus::default(), self.informers.clock().now())),
        };
        match client.create(&fresh).await {
            Ok(node) => {
                tracing::info!(node = self.config.name, "node registered");
                Ok(node)
            }
            Err(error) if error.is_already_exists() => {
                let patch = serde_json::json!({"metadata": {"labels": labels, "annotations": self.config.annotations}});
                let known = client.patch::<Node>("", &self.config.name, &Patch::Strategic(patch)).await?;
                match known.status.as_ref().and_then(status::without_extended) {
                    Some(patch) => client.patch_status("", &self.config.name, &Patch::Strategic(patch)).await,
                    None => Ok(known),
                }
            }
            Err(error) => Err(error),
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let architecture = node::oci::architecture();
        let mut labels: BTreeMap<String, String> = [
            ("kubernetes.io/hostname", self.config.hostname.as_str()),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", architecture),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", architecture),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        labels.extend(self.config.labels.clone());
        labels
    }

    /// Looks at the machine and the runtime, and lets the pods know.
    async fn read(&self) -> Reading {
        let machine = Machine::read(&self.config.root);
        let runtime = self.runtime.status().await;
        let version = self.runtime.version().await.ok();
        let images = self.runtime.list_images().await.unwrap_or_default();
        let condition = |name: &str| {
            let status = runtime.as_ref().ok()?.status.as_ref()?;
            let found = status.conditions.iter().find(|c| c.r#type == name)?;
            (!found.status)
                .then(|| format!("container runtime {}: {} message:{}", words(name), found.reason, found.message))
        };
        let mut problems = Vec::new();
        if *self.shutdown.borrow() {
            problems.push("node is shutting down".to_owned());
        }
        match &runtime {
            Err(error) => problems.push(format!("container runtime is down: {error}")),
            Ok(_) => problems.extend(condition("RuntimeReady")),
        }
        let no_network =
            if runtime.is_err() { Some("container runtime is down".to_owned()) } else { condition("NetworkReady") };
        problems.extend(no_network.clone().filter(|_| runtime.is_ok()));
        self.network.send_if_modified(|present| {
            let news = *present != no_network;
            *present = no_network;
            news
        });
        let handlers: BTreeMap<String, Abilities> = runtime
            .iter()
            .flat_map(|answer| &answer.runtime_handlers)
            .map(|one| (one.name.clone(), abilities(one)))
            .collect();
        let capacity = status::capacity(&self.config, &machine);
        self.facts.send_if_modified(|present| {
            let allocatable = &capacity.allocatable;
            let same = present.cpu_milli == allocatable.cpu_milli
                && present.memory == allocatable.memory
                && present.ephemeral_storage == allocatable.ephemeral_storage
                && (runtime.is_err() || present.handlers == handlers);
            if !same {
                let mut next = NodeFacts::clone(present);
                next.cpu_milli = allocatable.cpu_milli;
                next.memory = allocatable.memory;
                next.ephemeral_storage = allocatable.ephemeral_storage;
                if runtime.is_ok() {
                    next.handlers.clone_from(&handlers);
                }
                *present = Arc::new(next);
            }
            !same
        });
        let pressure = self.pressure.borrow().clone();
        let volumes_in_use = self.storage.volumes_in_use();
        Reading { machine, problems, pressure, runtime: version, images, handlers, volumes_in_use }
    }

    async fn write(&self, before: &[&NodeStatus], new: &NodeStatus) -> Result<(), client::Error> {
        let patch = status::patch(before, new);
        self.informers.client().patch_status::<Node>("", &self.config.name, &Patch::Strategic(patch)).await.map(drop)
    }

    /// Events for conditions that changed.
    fn report_changes(&self, old: &NodeStatus, new: &NodeStatus) {
        for event in status::changes(old, new) {
            let message = format!("Node {} status is now: {event}", self.config.name);
            self.recorder.event_about(self.config.reference(), EventType::Normal, event, message);
        }
    }
}

fn abilities(handler: &node::cri::v1::RuntimeHandler) -> Abilities {
    let features = handler.features.unwrap_or_default();
    Abilities { recursive_read_only: features.recursive_read_only_mounts, user_namespaces: features.user_namespaces }
}

fn words(condition: &str) -> &'static str {
    if condition == "NetworkReady" { "network not ready" } else { "not ready" }
}

/// Renews the lease for ever: the sign of life that others wait for.
async fn keep_lease(informers: Informers, me: Node) {
    let name = me.metadata.name.clone().unwrap_or_default();
    let client = informers.client();
    let mut known: Option<Lease> = None;
    loop {
        let mut lease = match known.take() {
            Some(lease) => lease,
            None => client.get::<Lease>(NODE_LEASES, &name).await.unwrap_or_else(|_| fresh_lease(&me)),
        };
        let spec = lease.spec.get_or_insert_default();
        spec.renew_time = Some(MicroTime(informers.clock().now()));
        spec.holder_identity = Some(name.clone());
        spec.lease_duration_seconds = Some(LEASE_SECONDS);
        let written = if lease.metadata.resource_version.is_some() {
            client.update(&lease).await
        } else {
            client.create(&lease).await
        };
        let pause = match written {
            Ok(lease) => {
                known = Some(lease);
                RENEW
            }
            Err(error) => {
                tracing::warn!(%error, "lease not renewed");
                Duration::from_secs(1)
            }
        };
        informers.clock().sleep(pause).await;
    }
}

fn fresh_lease(me: &Node) -> Lease {
    let name = me.metadata.name.clone().unwrap_or_default();
    Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(NODE_LEASES.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: name.clone(),
                uid: me.metadata.uid.clone().unwrap_or_default(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec::default()),
    }
}
