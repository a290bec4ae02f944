//! NodeVolumeLimits: a volume driver attaches only so many volumes to a node.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::CSINode;
use rustc_hash::FxHashMap;

use super::volumes::{claim_class, is_for_pod, names_claim, not_found, volume_name};
use crate::framework::{
    Action, ClusterEvent, CycleState, Filter, Hint, Interest, Plugin, Points, PreFilter, PreFilterOutcome,
    PreFilterResult, Rejection, Resource, Verdict,
};
use crate::model::cluster::Cluster;
use crate::model::node::NodeInfo;
use crate::model::objects::{Object, Objects};
use crate::model::pod::{ClaimRef, PodInfo};

/// Rejects nodes where the pod's volumes would exceed a driver's limit.
pub struct NodeVolumeLimits;

/// Volumes by (driver, handle). A volume that several pods use is attached once.
type Volumes = FxHashMap<(String, String), ()>;

/// The driver and handle of a claim's volume; of a volume yet to be made, the driver of its class and a handle of our own.
fn attached_as(claim: &PersistentVolumeClaim, objects: &Objects) -> Option<(String, String)> {
    let name = volume_name(claim);
    if let Some(volume) = objects.volumes.named(name).filter(|_| !name.is_empty()) {
        let known = rules::migration::volume(volume).ok()?;
        let source = known.spec.as_ref()?.csi.as_ref()?;
        return Some((source.driver.clone(), source.volume_handle.clone()));
    }
    let class = objects.storage_classes.named(claim_class(claim))?;
    let part = |p: &Option<String>| p.clone().unwrap_or_default();
    let handle = format!("unbound-{}/{}", part(&claim.metadata.namespace), part(&claim.metadata.name));
    Some((rules::migration::driver_of(&class.provisioner).to_owned(), handle))
}

fn collect(pod: &PodInfo, objects: &Objects, is_new: bool, volumes: &mut Volumes) -> Result<(), Rejection> {
    for reference in pod.claim_names() {
        let name = reference.name();
        let Some(claim) = objects.claims.get(pod.namespace(), &name) else {
            if is_new {
                let missing = not_found("persistentvolumeclaim", &name);
                return Err(Rejection::unresolvable(format!("looking up PVC {}/{name}: {missing}", pod.namespace())));
            }
            // A placed pod whose claim is gone has nothing attached for it.
            continue;
        };
        if matches!(reference, ClaimRef::Ephemeral { .. }) {
            is_for_pod(claim, pod).map_err(Rejection::error)?;
        }
        if let Some(key) =
            attached_as(claim, objects).filter(|(driver, handle)| !driver.is_empty() && !handle.is_empty())
        {
            volumes.insert(key, ());
        }
    }
    Ok(())
}

fn limit(node: &CSINode, driver: &str) -> Option<i64> {
    let driver = node.spec.drivers.iter().find(|d| d.name == driver)?;
    driver.allocatable.as_ref()?.count.map(i64::from)
}

/// Whether a driver that insists on being there is.
fn is_missing(driver: &str, node: Option<&Arc<CSINode>>, objects: &Objects) -> bool {
    let insists = objects.csi_drivers.named(driver).and_then(|d| d.spec.prevent_pod_scheduling_if_missing);
    insists == Some(true) && !node.is_some_and(|n| n.spec.drivers.iter().any(|d| d.name == driver))
}

fn judge(wanted: &Volumes, node: &NodeInfo, objects: &Objects) -> Result<(), Rejection> {
    let csi_node = objects.csi_nodes.named(node.name());
    if let Some((driver, _)) = wanted.keys().find(|(driver, _)| is_missing(driver, csi_node, objects)) {
        let text = format!("{driver} CSI driver is not installed on the node");
        return Err(Rejection::unschedulable(text));
    }
    let Some(csi_node) = csi_node.filter(|_| !wanted.is_empty()) else { return Ok(()) };
    if csi_node.spec.drivers.iter().all(|d| d.allocatable.as_ref().and_then(|a| a.count).is_none()) {
        return Ok(());
    }
    let mut attached = Volumes::default();
    for placed in node.pods() {
        collect(placed, objects, false, &mut attached)?;
    }
    let added: Vec<_> = wanted.keys().filter(|key| !attached.contains_key(*key)).collect();
    // What is attached without a pod here counts too: it may be on its way out, but it is not out yet.
    for attachment in objects.attachments.on(node.name()) {
        let name = attachment.spec.source.persistent_volume_name.as_deref().unwrap_or_default();
        let known = objects.volumes.named(name).and_then(|volume| rules::migration::volume(volume).ok());
        let source = known.as_ref().and_then(|volume| volume.spec.as_ref()?.csi.as_ref());
        if let Some(source) = source.filter(|_| !attachment.spec.attacher.is_empty()) {
            attached.insert((attachment.spec.attacher.clone(), source.volume_handle.clone()), ());
        }
    }
    for (driver, _) in &added {
        let held = attached.keys().filter(|(d, _)| d == driver).count();
        let new = added.iter().filter(|(d, _)| d == driver).count();
        if limit(csi_node, driver).is_some_and(|limit| (held + new) as i64 > limit) {
            return Err(Rejection::unschedulable("node(s) exceed max volume count"));
        }
    }
    Ok(())
}

/// What the pod would have attached, or why that cannot be said.
#[derive(Clone)]
struct Wanted(Result<Volumes, Rejection>);

impl Default for Wanted {
    fn default() -> Self {
        Self(Ok(Volumes::default()))
    }
}

impl Plugin for NodeVolumeLimits {
    fn name(&self) -> &'static str {
        super::NODE_VOLUME_LIMITS
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_filter, filter)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::CsiNode, Action::ADD | Action::UPDATE),
            Interest::new(Resource::AssignedPod, Action::DELETE),
            Interest::new(Resource::PersistentVolumeClaim, Action::ADD),
            Interest::new(Resource::VolumeAttachment, Action::DELETE),
        ]
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent, _: &Cluster) -> Hint {
        let helps = match (&event.old, &event.new) {
            (Some(Object::CsiNode(old)), Some(Object::CsiNode(new))) => {
                new.spec.drivers.iter().any(|d| limit(new, &d.name).unwrap_or(0) > limit(old, &d.name).unwrap_or(0))
            }
            (_, Some(Object::PersistentVolumeClaim(claim))) => names_claim(pod, claim, true),
            (Some(Object::Pod(deleted)), None) => {
                deleted.node_name().or(deleted.nominated_node()).is_some() && deleted.claim_names().next().is_some()
            }
            (Some(Object::VolumeAttachment(_)), None) => pod.claim_names().any(|c| matches!(c, ClaimRef::Named(_))),
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }
}

impl PreFilter for NodeVolumeLimits {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, cluster: &Cluster) -> PreFilterResult {
        if pod.claim_names().next().is_none() {
            return Ok(PreFilterOutcome::Skip);
        }
        let mut volumes = Volumes::default();
        let collected = collect(pod, &cluster.objects, true, &mut volumes);
        state.get_or_default::<Wanted>().0 = collected.map(|()| volumes);
        Ok(PreFilterOutcome::Proceed)
    }
}

impl Filter for NodeVolumeLimits {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo, cluster: &Cluster) -> Verdict {
        let wanted = match &state.expect::<Wanted>().0 {
            Ok(wanted) => wanted,
            Err(rejection) => return Verdict::Reject(rejection.clone()),
        };
        judge(wanted, node, &cluster.objects).map_or_else(Verdict::Reject, |()| Verdict::Pass)
    }
}
