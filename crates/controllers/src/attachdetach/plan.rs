//! Which nodes a volume is attached to, and what pods are told.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use informer::EventType;
use informer::clock::since;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, Node, PersistentVolume, Pod};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use rules::pods::is_node_ready;

use super::disks;
use crate::common::meta::MetaExt;
use crate::common::pods;

/// How long a node that does not answer may keep a volume.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(6 * 60);
/// How long an attacher may leave an attachment without an answer before pods are told.
const ATTACHER_WAIT: Duration = Duration::from_secs(2 * 60);
const MANAGED: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// A volume, who wants it, and where it is.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) volume: Arc<PersistentVolume>,
    pub(super) driver: Option<Arc<CSIDriver>>,
    /// Pods that use its claim.
    pub(super) pods: Vec<Arc<Pod>>,
    pub(super) attachments: Vec<Arc<VolumeAttachment>>,
    /// Nodes of both, as far as they exist.
    pub(super) nodes: BTreeMap<String, Arc<Node>>,
    pub(super) remembered: Remembered,
}

/// What no object says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Remembered {
    /// Since when nodes should not have the volume any more.
    pub(super) unwanted: BTreeMap<String, Timestamp>,
    /// Nodes whose pods were told that they have to wait for others.
    pub(super) warned: BTreeSet<String>,
    /// When pods were told last that nobody answers for their attachment, by node.
    pub(super) overdue: BTreeMap<String, Timestamp>,
    /// Uids of attachments that are deleted, whatever the cache says.
    pub(super) deleted: BTreeSet<String>,
    /// A disk, and the nodes that were given it, whatever the cache says.
    pub(super) given: Option<(Arc<PersistentVolume>, BTreeSet<String>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Attach(Box<VolumeAttachment>),
    /// The node may mount it. Whoever is the first to say so tells these pods: the cache may be older than what was said.
    Report {
        node: String,
        users: Vec<Arc<Pod>>,
    },
    Detach {
        node: String,
        attachment: String,
        uid: String,
        forced: Option<&'static str>,
    },
    /// The node may not mount a disk any more, unless it says that it uses it.
    Take {
        node: String,
        forced: Option<&'static str>,
    },
    /// It was told to go, and the cache does not show it going.
    Ask {
        attachment: String,
        uid: String,
    },
    Tell {
        pod: Arc<Pod>,
        kind: EventType,
        reason: &'static str,
        message: String,
    },
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    pub(super) remembered: Remembered,
    /// When to look again though nothing changed.
    pub(super) again: Option<Duration>,
}

/// The name of the driver that has a volume, whatever the volume calls it.
pub(super) fn driver(volume: &PersistentVolume) -> Option<&str> {
    let old = rules::migration::plugin_of(volume).map(|plugin| plugin.driver);
    old.or_else(|| Some(volume.spec.as_ref()?.csi.as_ref()?.driver.as_str()))
}

/// A volume as its driver knows it; nothing where that cannot be said.
pub(super) fn as_attached(volume: &Arc<PersistentVolume>) -> Option<Arc<PersistentVolume>> {
    match rules::migration::volume(volume) {
        Ok(Cow::Borrowed(_)) => Some(volume.clone()),
        Ok(Cow::Owned(translated)) => Some(Arc::new(translated)),
        Err(why) => {
            tracing::warn!(volume = volume.metadata.name(), why, "volume not translated for its driver");
            None
        }
    }
}

/// The driver's part of a volume.
pub(super) fn source(volume: &PersistentVolume) -> Option<&CSIPersistentVolumeSource> {
    volume.spec.as_ref()?.csi.as_ref()
}

/// Whether a driver's volumes have to be attached. One that says nothing of it has them attached.
fn needs_attaching(driver: Option<&CSIDriver>) -> bool {
    driver.and_then(|driver| driver.spec.attach_required) != Some(false)
}

/// A volume as nodes know it, whoever attaches it.
pub(super) fn name_on_nodes(volume: &PersistentVolume) -> Option<String> {
    let disk = rules::network_disks::unique_name(volume).map(|(_, name)| name);
    disk.or_else(|| Some(unique_name(volume.spec.as_ref()?.csi.as_ref()?)))
}

/// A driver's volume as nodes know it.
fn unique_name(source: &CSIPersistentVolumeSource) -> String {
    csi::names::unique(&source.driver, &source.volume_handle)
}

/// Whether several nodes may have a volume at once. Nobody knows of one without modes.
pub(super) fn is_shared(volume: &PersistentVolume) -> bool {
    let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    modes.is_empty() || modes.iter().any(|mode| mode == "ReadWriteMany" || mode == "ReadOnlyMany")
}

pub(super) fn is_in_use(node: &Node, volume: &str) -> bool {
    let names = node.status.as_ref().and_then(|status| status.volumes_in_use.as_deref()).unwrap_or_default();
    names.iter().any(|name| name == volume)
}

pub(super) fn is_reported(node: &Node, volume: &str) -> bool {
    let attached = node.status.as_ref().and_then(|status| status.volumes_attached.as_deref()).unwrap_or_default();
    attached.iter().any(|one| one.name == volume)
}

fn is_out_of_service(node: &Node) -> bool {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).any(|taint| taint.key == pods::OUT_OF_SERVICE)
}

pub(super) fn plan(observed: &Observed, now: Timestamp) -> Plan {
    if rules::network_disks::unique_name(&observed.volume).is_some() {
        return disks::plan(observed, now);
    }
    let mut plan = Plan::default();
    let Some(source) = source(&observed.volume) else { return plan };
    let name = observed.volume.metadata.name();
    // A driver may have had its volumes attached before it said that it needs none of that: those are let go of.
    let wanted = if needs_attaching(observed.driver.as_deref()) { wanted(observed) } else { BTreeMap::new() };
    // Attachments by node; one that is on its way out still keeps others from the volume.
    let present: BTreeMap<&str, (&VolumeAttachment, bool)> = observed
        .attachments
        .iter()
        .filter(|one| {
            one.metadata.name() == csi::names::attachment(&source.volume_handle, &source.driver, &one.spec.node_name)
        })
        .map(|one| (one.spec.node_name.as_str(), (&**one, is_leaving(one, observed))))
        .collect();
    plan.remembered.deleted = present
        .values()
        .map(|(one, _)| one.metadata.uid().to_owned())
        .filter(|uid| observed.remembered.deleted.contains(uid))
        .collect();
    for (node, (attachment, leaving)) in &present {
        if *leaving && !attachment.metadata.is_deleting() {
            let (attachment, uid) = (attachment.metadata.name().to_owned(), attachment.metadata.uid().to_owned());
            plan.steps.push(Step::Ask { attachment, uid });
        } else if !*leaving
            && !wanted.contains_key(*node)
            && let Some(forced) = let_go(observed, &unique_name(source), node, now, &mut plan)
        {
            let (attachment, uid) = (attachment.metadata.name().to_owned(), attachment.metadata.uid().to_owned());
            plan.steps.push(Step::Detach { node: (*node).to_owned(), attachment, uid, forced });
        }
    }
    let mut taken = !present.is_empty();
    for (node, users) in &wanted {
        match present.get(node.as_str()) {
            Some((_, true)) => {}
            Some((attachment, false)) => follow(observed, source, users, attachment, now, &mut plan),
            None if taken && !is_shared(&observed.volume) => {
                wait(observed, |other| present.contains_key(other), &wanted, node, &mut plan);
            }
            None => {
                plan.steps.push(Step::Attach(Box::new(attachment(name, source, node))));
                taken = true;
            }
        }
    }
    plan
}

/// Pods that want the volume, by the nodes that they are on.
pub(super) fn wanted(observed: &Observed) -> BTreeMap<String, Vec<Arc<Pod>>> {
    let mut wanted: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
    for pod in observed.pods.iter().filter(|pod| !pods::is_terminal(pod)) {
        let Some(name) = pods::node_name(pod) else { continue };
        let managed = |node: &Arc<Node>| node.metadata.annotation(MANAGED) == Some("true");
        if observed.nodes.get(name).is_some_and(managed) {
            wanted.entry(name.to_owned()).or_default().push(pod.clone());
        }
    }
    wanted
}

fn is_leaving(attachment: &VolumeAttachment, observed: &Observed) -> bool {
    attachment.metadata.is_deleting() || observed.remembered.deleted.contains(attachment.metadata.uid())
}

/// Whether a volume is taken from a node now, and by which force: the node does not use it, or cannot be asked.
pub(super) fn let_go(
    observed: &Observed,
    unique: &str,
    node: &str,
    now: Timestamp,
    plan: &mut Plan,
) -> Option<Option<&'static str>> {
    let asked = observed.remembered.unwanted.get(node).copied().unwrap_or(now);
    let known = observed.nodes.get(node);
    let in_use = known.is_some_and(|known| is_in_use(known, unique));
    let waited = since(now, asked);
    let healthy = known.is_some_and(|known| is_node_ready(known));
    match known {
        _ if !in_use => Some(None),
        Some(known) if is_out_of_service(known) => Some(Some("out-of-service")),
        _ if !healthy && waited >= MAX_WAIT => Some(Some("timeout")),
        _ => {
            plan.remembered.unwanted.insert(node.to_owned(), asked);
            // A node that answers lets go by itself, and is heard of.
            if !healthy {
                let left = MAX_WAIT - waited;
                plan.again = Some(plan.again.map_or(left, |sooner| sooner.min(left)));
            }
            None
        }
    }
}

/// Tells the node, and its pods, what came of attaching.
fn follow(
    observed: &Observed,
    source: &CSIPersistentVolumeSource,
    users: &[Arc<Pod>],
    attachment: &VolumeAttachment,
    now: Timestamp,
    plan: &mut Plan,
) {
    let (name, node) = (observed.volume.metadata.name(), attachment.spec.node_name.as_str());
    let status = attachment.status.clone().unwrap_or_default();
    if !status.attached {
        let why = match status.attach_error {
            Some(error) => Some(error.message.unwrap_or_default()),
            None => overdue(observed, source, attachment, now, plan),
        };
        if let Some(why) = why {
            let message = format!("AttachVolume.Attach failed for volume {name:?} : {why}");
            tell(users, EventType::Warning, "FailedAttachVolume", |_| message.clone(), plan);
        }
        return;
    }
    if !observed.nodes.get(node).is_some_and(|known| is_reported(known, &unique_name(source))) {
        plan.steps.push(Step::Report { node: node.to_owned(), users: users.to_vec() });
    }
}

/// What to say of an attachment that nobody answers, each time that it was waited for long enough: perhaps the driver's attacher does not run.
fn overdue(
    observed: &Observed,
    source: &CSIPersistentVolumeSource,
    attachment: &VolumeAttachment,
    now: Timestamp,
    plan: &mut Plan,
) -> Option<String> {
    let node = &attachment.spec.node_name;
    let made = attachment.metadata.creation_timestamp.as_ref().map_or(now, |made| made.0);
    let told = observed.remembered.overdue.get(node).copied().filter(|told| *told >= made);
    let waited = since(now, told.unwrap_or(made));
    let is_overdue = waited >= ATTACHER_WAIT;
    let left = if is_overdue { ATTACHER_WAIT } else { ATTACHER_WAIT - waited };
    plan.again = Some(plan.again.map_or(left, |sooner| sooner.min(left)));
    plan.remembered.overdue.extend(is_overdue.then_some(now).or(told).map(|told| (node.clone(), told)));
    let (driver, handle) = (&source.driver, &source.volume_handle);
    is_overdue
        .then(|| format!("timed out waiting for external-attacher of {driver} CSI driver to attach volume {handle}"))
}

/// Tells the pods of a node, once, why their volume is not attached there.
pub(super) fn wait(
    observed: &Observed,
    has_it: impl Fn(&str) -> bool,
    wanted: &BTreeMap<String, Vec<Arc<Pod>>>,
    node: &str,
    plan: &mut Plan,
) {
    plan.remembered.warned.insert(node.to_owned());
    if observed.remembered.warned.contains(node) {
        return;
    }
    let others: Vec<&Arc<Pod>> = wanted.iter().filter(|(other, _)| has_it(other)).flat_map(|(_, pods)| pods).collect();
    let why = |pod: &Pod| {
        let (near, far): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
            others.iter().copied().partition(|other| other.metadata.namespace() == pod.metadata.namespace());
        let names: Vec<&str> = near.iter().map(|other| other.metadata.name()).collect();
        match (names.is_empty(), far.len()) {
            (true, 0) => "Volume is already exclusively attached to one node, waiting on detach before it can be attached to another node".to_owned(),
            (true, far) => format!("Volume is already used by {far} pod(s) in different namespaces"),
            (false, 0) => format!("Volume is already used by pod(s) {}", names.join(", ")),
            (false, far) => format!("Volume is already used by pod(s) {} and {far} pod(s) in different namespaces", names.join(", ")),
        }
    };
    let name = observed.volume.metadata.name();
    let message = |pod: &Pod| format!("Waiting for detach for volume {name:?} {}", why(pod));
    let users = wanted.get(node).map(Vec::as_slice).unwrap_or_default();
    tell(users, EventType::Warning, "FailedAttachVolume", message, plan);
}

fn tell(users: &[Arc<Pod>], kind: EventType, reason: &'static str, message: impl Fn(&Pod) -> String, plan: &mut Plan) {
    let steps = users.iter().map(|pod| Step::Tell { pod: pod.clone(), kind, reason, message: message(pod) });
    plan.steps.extend(steps);
}

fn attachment(volume: &str, source: &CSIPersistentVolumeSource, node: &str) -> VolumeAttachment {
    VolumeAttachment {
        metadata: ObjectMeta {
            name: Some(csi::names::attachment(&source.volume_handle, &source.driver, node)),
            ..ObjectMeta::default()
        },
        spec: VolumeAttachmentSpec {
            attacher: source.driver.clone(),
            node_name: node.to_owned(),
            source: VolumeAttachmentSource {
                persistent_volume_name: Some(volume.to_owned()),
                ..VolumeAttachmentSource::default()
            },
        },
        status: None,
    }
}
