//! VolumeRestrictions: disks that one pod at a time may use, and claims that one pod at all may use.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Volume;

use super::volumes::{names_claim, not_found};
use crate::framework::{
    Action, ClusterEvent, CycleState, Filter, Hint, Interest, Plugin, Points, PreFilter, PreFilterExtensions,
    PreFilterOutcome, PreFilterResult, Rejection, Resource, Verdict,
};
use crate::model::cluster::Cluster;
use crate::model::node::NodeInfo;
use crate::model::objects::Object;
use crate::model::pod::{PodInfo, PodVolume};

/// Rejects nodes whose pods hold a disk that the pod needs, and all nodes while another pod holds its exclusive claim.
pub struct VolumeRestrictions;

/// Claims of the pod that one pod at all may use, and how often other pods use them.
#[derive(Clone, Default)]
struct Exclusive {
    claims: Vec<String>,
    conflicts: i64,
}

impl Exclusive {
    fn update(&mut self, changed: &PodInfo, pod: &PodInfo, delta: i64) {
        if changed.namespace() == pod.namespace() {
            let shared = changed.named_claims().filter(|claim| self.claims.iter().any(|held| held == claim));
            self.conflicts += delta * shared.count() as i64;
        }
    }
}

fn disks(pod: &PodInfo) -> impl Iterator<Item = &Volume> {
    pod.volumes().iter().filter_map(|v| if let PodVolume::Disk(disk) = v { Some(&**disk) } else { None })
}

fn conflict(a: &Volume, b: &Volume) -> bool {
    let both_read_only = |a: Option<bool>, b: Option<bool>| a == Some(true) && b == Some(true);
    if let (Some(a), Some(b)) = (&a.gce_persistent_disk, &b.gce_persistent_disk)
        && a.pd_name == b.pd_name
        && !both_read_only(a.read_only, b.read_only)
    {
        return true;
    }
    if let (Some(a), Some(b)) = (&a.aws_elastic_block_store, &b.aws_elastic_block_store)
        && a.volume_id == b.volume_id
    {
        return true;
    }
    if let (Some(a), Some(b)) = (&a.iscsi, &b.iscsi)
        && a.iqn == b.iqn
        && !both_read_only(a.read_only, b.read_only)
    {
        return true;
    }
    if let (Some(a), Some(b)) = (&a.rbd, &b.rbd) {
        return a.monitors.iter().any(|m| b.monitors.contains(m))
            && a.pool == b.pool
            && a.image == b.image
            && !both_read_only(a.read_only, b.read_only);
    }
    false
}

fn pods_conflict(pod: &PodInfo, other: &PodInfo) -> bool {
    disks(pod).any(|disk| disks(other).any(|held| conflict(disk, held)))
}

impl Plugin for VolumeRestrictions {
    fn name(&self) -> &'static str {
        super::VOLUME_RESTRICTIONS
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_filter, filter)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::AssignedPod, Action::DELETE),
            Interest::new(Resource::Node, Action::ADD),
            Interest::new(Resource::PersistentVolumeClaim, Action::ADD),
        ]
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent, _: &Cluster) -> Hint {
        let helps = match (&event.new, event.pods()) {
            (Some(Object::PersistentVolumeClaim(claim)), _) => names_claim(pod, claim, false),
            (_, (Some(deleted), None)) => {
                let shared = || deleted.named_claims().any(|claim| pod.named_claims().any(|own| own == claim));
                deleted.namespace() == pod.namespace() && (pods_conflict(pod, deleted) || shared())
            }
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }
}

impl PreFilter for VolumeRestrictions {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, cluster: &Cluster) -> PreFilterResult {
        let exclusive = state.get_or_default::<Exclusive>();
        exclusive.claims.clear();
        exclusive.conflicts = 0;
        for name in pod.named_claims() {
            let Some(claim) = cluster.objects.claims.get(pod.namespace(), name) else {
                return Err(Rejection::unresolvable(not_found("persistentvolumeclaim", name)));
            };
            let modes = claim.spec.as_ref().and_then(|s| s.access_modes.as_deref()).unwrap_or_default();
            if modes.iter().any(|m| m == "ReadWriteOncePod") {
                exclusive.conflicts += i64::from(cluster.claim_users(pod.namespace(), name) > 0);
                exclusive.claims.push(name.to_owned());
            }
        }
        let nothing_to_do = exclusive.conflicts == 0 && disks(pod).next().is_none();
        Ok(if nothing_to_do { PreFilterOutcome::Skip } else { PreFilterOutcome::Proceed })
    }

    fn extensions(&self) -> Option<&dyn PreFilterExtensions> {
        Some(self)
    }
}

impl PreFilterExtensions for VolumeRestrictions {
    fn add_pod(&self, state: &mut CycleState, pod: &PodInfo, added: &PodInfo, _: &NodeInfo, _: &Cluster) {
        state.expect_mut::<Exclusive>().update(added, pod, 1);
    }

    fn remove_pod(&self, state: &mut CycleState, pod: &PodInfo, removed: &PodInfo, _: &NodeInfo, _: &Cluster) {
        state.expect_mut::<Exclusive>().update(removed, pod, -1);
    }
}

impl Filter for VolumeRestrictions {
    fn filter(&self, state: &CycleState, pod: &PodInfo, node: &NodeInfo, _: &Cluster) -> Verdict {
        if node.pods().iter().any(|other| pods_conflict(pod, other)) {
            return Verdict::unschedulable("node(s) had no available disk");
        }
        if state.expect::<Exclusive>().conflicts > 0 {
            return Verdict::unschedulable(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
            );
        }
        Verdict::Pass
    }
}
