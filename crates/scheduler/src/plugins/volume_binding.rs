//! VolumeBinding: a pod runs where its volumes can be reached, and volumes that wait for it are bound or made there.
//!
//! Filtering is a pure function of the claims and a node ([`find()`]); Reserve repeats it for the chosen node and keeps what
//! it promised in an overlay until the API shows it, PreBind writes it and waits for the volume controller or provisioner.

mod find;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::CSINode;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::resource_score::broken_line;
pub use super::volumes::is_fully_bound;
use super::volumes::{
    BOUND_BY_CONTROLLER, Reach, SELECTED_NODE, capacity_bytes, claim_class, is_for_pod, names_claim, node_affinity,
    not_found, requested_bytes, volume_class, volume_name, waits_for_consumer,
};
use crate::config::VolumeBindingArgs;
use crate::framework::api::ApiFailure;
use crate::framework::{
    Action, ClusterEvent, CycleState, Filter, Hint, Interest, Plugin, Points, PreBind, PreFilter, PreFilterOutcome,
    PreFilterResult, PreScore, Rejection, Reserve, Resource, Score, Verdict, Work,
};
use crate::model::cluster::{Cluster, NodeList};
use crate::model::node::NodeInfo;
use crate::model::objects::{Object, Objects};
use crate::model::pod::{ClaimRef, PodInfo};
use crate::model::resources::whole;
use find::{Available, Bound, Claims, Delayed, capacities, find, is_claimed_by, suits, volume_limit};
use rules::migration::MIGRATED_PLUGINS;
use rules::selectors::LabelSelector;

/// Binds volumes as pods are scheduled.
pub struct VolumeBinding {
    timeout: Duration,
    shape: Vec<(i64, i64)>,
    promised: Mutex<Promised>,
}

impl Default for VolumeBinding {
    fn default() -> Self {
        Self::new(&VolumeBindingArgs::default())
    }
}

impl VolumeBinding {
    pub fn new(args: &VolumeBindingArgs) -> Self {
        Self {
            timeout: Duration::from_secs(args.bind_timeout_seconds),
            // Configured out of 10, computed out of 100.
            shape: args.shape.iter().map(|p| (p.utilization, p.score * 10)).collect(),
            promised: Mutex::default(),
        }
    }
}

/// Volumes and claims as they will be once the API has what Reserve promised.
#[derive(Default)]
struct Promised {
    volumes: FxHashMap<String, Promise<PersistentVolume>>,
    claims: FxHashMap<String, Promise<PersistentVolumeClaim>>,
}

struct Promise<T> {
    /// The pod it was made for.
    pod: Arc<str>,
    /// The version that was changed; a promise about another version is void.
    base: Option<String>,
    object: Arc<T>,
}

impl Promised {
    fn volume(&self, known: &Arc<PersistentVolume>) -> Arc<PersistentVolume> {
        let name = known.metadata.name.as_deref().unwrap_or_default();
        let promise = self.volumes.get(name).filter(|p| p.base == known.metadata.resource_version);
        promise.map_or_else(|| known.clone(), |p| p.object.clone())
    }

    fn claim(&self, key: &str, known: &Arc<PersistentVolumeClaim>) -> Arc<PersistentVolumeClaim> {
        let promise = self.claims.get(key).filter(|p| p.base == known.metadata.resource_version);
        promise.map_or_else(|| known.clone(), |p| p.object.clone())
    }
}

impl Plugin for VolumeBinding {
    fn name(&self) -> &'static str {
        super::VOLUME_BINDING
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_filter, filter, pre_score, score, reserve, pre_bind)
    }

    fn interests(&self) -> Vec<Interest> {
        let add_or_update = Action::ADD | Action::UPDATE;
        vec![
            Interest::new(Resource::StorageClass, add_or_update),
            Interest::new(Resource::PersistentVolumeClaim, add_or_update),
            Interest::new(Resource::PersistentVolume, add_or_update),
            Interest::new(Resource::Node, Action::ADD | Action::NODE_LABEL),
            Interest::new(Resource::CsiNode, add_or_update),
            Interest::new(Resource::CsiDriver, Action::UPDATE),
            Interest::new(Resource::CsiStorageCapacity, add_or_update),
        ]
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent, _: &Cluster) -> Hint {
        let helps = match (&event.old, &event.new) {
            (_, Some(Object::PersistentVolumeClaim(claim))) => names_claim(pod, claim, true),
            (Some(Object::StorageClass(old)), Some(Object::StorageClass(new))) => {
                old.allowed_topologies != new.allowed_topologies
            }
            (Some(Object::CsiNode(old)), Some(Object::CsiNode(new))) => {
                let migrated = |node: &CSINode| node.metadata.annotations.as_ref()?.get(MIGRATED_PLUGINS).cloned();
                migrated(old) != migrated(new)
            }
            (Some(Object::CsiStorageCapacity(old)), Some(Object::CsiStorageCapacity(new))) => {
                volume_limit(new).is_some_and(|limit| volume_limit(old).is_none_or(|before| limit > before))
            }
            (Some(Object::CsiDriver(old)), Some(Object::CsiDriver(new))) => {
                old.spec.storage_capacity == Some(true) && new.spec.storage_capacity != Some(true)
            }
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }
}

impl PreFilter for VolumeBinding {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, cluster: &Cluster) -> PreFilterResult {
        let found = state.get_or_default::<Claims>();
        *found = Claims::default();
        if pod.claim_names().next().is_none() {
            return Ok(PreFilterOutcome::Skip);
        }
        let objects = &cluster.objects;
        let promised = self.promised.lock();
        let mut immediate = false;
        for reference in pod.claim_names() {
            let claim = current_claim(pod, reference, objects).map_err(Rejection::unresolvable)?;
            let claim = promised.claim(&format!("{}/{}", pod.namespace(), reference.name()), claim);
            if is_fully_bound(&claim) {
                match objects.volumes.named(volume_name(&claim)) {
                    Some(volume) => found
                        .bound
                        .push(Bound::To(Reach::of(&promised.volume(volume), objects).map_err(Rejection::error)?)),
                    None => found.bound.push(Bound::ToNothing),
                }
            } else if waits_for_consumer(&claim, objects).map_err(Rejection::error)? && volume_name(&claim).is_empty() {
                found.delayed.push(delayed(claim, objects, &promised));
            } else {
                immediate = true;
            }
        }
        if immediate {
            return Err(Rejection::unresolvable("pod has unbound immediate PersistentVolumeClaims"));
        }
        // Small claims first, so that they do not take the large volumes.
        found.delayed.sort_by_key(|d| d.bytes);
        Ok(PreFilterOutcome::Proceed)
    }
}

/// The claim behind a pod's volume, or why there is none to work with.
fn current_claim<'a>(
    pod: &PodInfo,
    reference: ClaimRef<'_>,
    objects: &'a Objects,
) -> Result<&'a Arc<PersistentVolumeClaim>, String> {
    let name = reference.name();
    let Some(claim) = objects.claims.get(pod.namespace(), &name) else {
        return Err(match reference {
            ClaimRef::Named(_) => not_found("persistentvolumeclaim", &name),
            ClaimRef::Ephemeral { .. } => {
                format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}")
            }
        });
    };
    if claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Lost") {
        return Err(format!(
            "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {:?}",
            volume_name(claim)
        ));
    }
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
    }
    if matches!(reference, ClaimRef::Ephemeral { .. }) {
        is_for_pod(claim, pod)?;
    }
    Ok(claim)
}

fn delayed(claim: Arc<PersistentVolumeClaim>, objects: &Objects, promised: &Promised) -> Delayed {
    let class_name = claim_class(&claim).to_owned();
    let class = objects.storage_classes.named(&class_name).cloned();
    let bytes = requested_bytes(&claim).unwrap_or(0);
    let selector = claim.spec.as_ref().and_then(|s| s.selector.as_ref());
    let selector = selector.map(|s| LabelSelector::parse(Some(s)).unwrap_or_else(|_| LabelSelector::nothing()));
    let volumes = objects.volumes.iter().map(|v| promised.volume(v)).filter(|v| suits(v, &claim, &class_name, bytes));
    let available =
        volumes.map(|v| Available { affinity: node_affinity(&v), bytes: capacity_bytes(&v), volume: v }).collect();
    let capacities = class.as_ref().and_then(|c| capacities(c, &claim, objects));
    Delayed { class, selector, bytes, available, capacities, claim }
}

impl Filter for VolumeBinding {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo, _: &Cluster) -> Verdict {
        find(state.expect::<Claims>(), node).map_or_else(Verdict::Reject, |_| Verdict::Pass)
    }
}

impl PreScore for VolumeBinding {
    fn pre_score(&self, state: &mut CycleState, _: &PodInfo, _: &Cluster, _: NodeList<'_>) -> bool {
        !self.shape.is_empty() && !state.expect::<Claims>().delayed.is_empty()
    }
}

impl Score for VolumeBinding {
    fn score(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo) -> i64 {
        let Ok(found) = find(state.expect::<Claims>(), node) else { return 0 };
        let mut classes: Vec<(String, i64, i64)> = Vec::new();
        let mut class = |name: &str, requested: i64, capacity: &dyn Fn(i64) -> i64| match classes
            .iter_mut()
            .find(|(n, ..)| n == name)
        {
            Some((_, sum, held)) => {
                *sum += requested;
                *held = capacity(*held);
            }
            None => classes.push((name.to_owned(), requested, capacity(0))),
        };
        for (volume, claim) in &found.bindings {
            class(volume_class(volume), requested_bytes(claim).unwrap_or(0), &|held| held + capacity_bytes(volume));
        }
        if found.bindings.is_empty() {
            for (claim, capacity) in &found.provisions {
                let Some(capacity) = capacity else { continue };
                let bytes = capacity.capacity.as_ref().and_then(whole).unwrap_or(0);
                class(claim_class(claim), requested_bytes(claim).unwrap_or(0), &|_| bytes);
            }
        }
        if classes.is_empty() {
            return 0;
        }
        let score = |requested: i64, capacity: i64| {
            let utilization = if capacity == 0 || requested > capacity { 100 } else { requested * 100 / capacity };
            broken_line(&self.shape, utilization)
        };
        let sum: i64 = classes.iter().map(|(_, requested, capacity)| score(*requested, *capacity)).sum();
        (sum as f64 / classes.len() as f64).round() as i64
    }
}

/// What PreBind will write.
#[derive(Clone, Default)]
struct ToBind {
    pod: Option<Arc<str>>,
    volumes: Vec<Arc<PersistentVolume>>,
    claims: Vec<Arc<PersistentVolumeClaim>>,
    waiting: Vec<String>,
}

impl Reserve for VolumeBinding {
    fn reserve(
        &self,
        state: &mut CycleState,
        pod: &Arc<PodInfo>,
        node: &NodeInfo,
        _: &Cluster,
    ) -> Result<(), Rejection> {
        *state.get_or_default::<ToBind>() = ToBind::default();
        if pod.claim_names().next().is_none() {
            return Ok(());
        }
        let found = find(state.expect::<Claims>(), node)?;
        let mut promised = self.promised.lock();
        let to_bind = state.expect_mut::<ToBind>();
        to_bind.pod = Some(pod.uid().clone());
        for (volume, claim) in found.bindings {
            to_bind.waiting.push(claim.metadata.name.clone().unwrap_or_default());
            if is_claimed_by(&volume, &claim)
                && volume.spec.as_ref().is_some_and(|s| s.claim_ref.as_ref().is_some_and(|r| r.uid.is_some()))
            {
                continue;
            }
            let bound = Arc::new(claimed(&volume, &claim));
            let name = volume.metadata.name.clone().unwrap_or_default();
            let promise = Promise {
                pod: pod.uid().clone(),
                base: volume.metadata.resource_version.clone(),
                object: bound.clone(),
            };
            promised.volumes.insert(name, promise);
            to_bind.volumes.push(bound);
        }
        for (claim, _) in found.provisions {
            let name = claim.metadata.name.clone().unwrap_or_default();
            let mut selected = (*claim).clone();
            selected.metadata.annotations.get_or_insert_default().insert(SELECTED_NODE.into(), node.name().to_owned());
            let selected = Arc::new(selected);
            let promise = Promise {
                pod: pod.uid().clone(),
                base: claim.metadata.resource_version.clone(),
                object: selected.clone(),
            };
            promised.claims.insert(format!("{}/{name}", pod.namespace()), promise);
            to_bind.claims.push(selected);
            to_bind.waiting.push(name);
        }
        Ok(())
    }

    fn unreserve(&self, pod: &PodInfo) {
        let mut promised = self.promised.lock();
        promised.volumes.retain(|_, p| p.pod != *pod.uid());
        promised.claims.retain(|_, p| p.pod != *pod.uid());
    }
}

fn claimed(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> PersistentVolume {
    let mut volume = volume.clone();
    let spec = volume.spec.get_or_insert_default();
    if spec.claim_ref.is_none() {
        volume.metadata.annotations.get_or_insert_default().insert(BOUND_BY_CONTROLLER.into(), "yes".into());
    }
    spec.claim_ref = Some(ObjectReference {
        kind: Some("PersistentVolumeClaim".into()),
        api_version: Some("v1".into()),
        namespace: claim.metadata.namespace.clone(),
        name: claim.metadata.name.clone(),
        uid: claim.metadata.uid.clone(),
        resource_version: claim.metadata.resource_version.clone(),
        ..Default::default()
    });
    volume
}

impl PreBind for VolumeBinding {
    fn pre_bind(&self, state: &CycleState, pod: &Arc<PodInfo>, _: &NodeInfo, _: &Cluster) -> Option<Work> {
        pod.claim_names().next()?;
        let to_bind = state.expect::<ToBind>().clone();
        if to_bind.waiting.is_empty() {
            return None;
        }
        let (namespace, timeout) = (pod.namespace().to_owned(), self.timeout);
        Some(Box::new(move |api| {
            async move {
                for volume in to_bind.volumes {
                    api.update_volume((*volume).clone()).await?;
                }
                for claim in to_bind.claims {
                    api.update_claim((*claim).clone()).await?;
                }
                let bound = api.claims_bound(&namespace, to_bind.waiting, timeout).await;
                bound.map_err(|error| ApiFailure::Other(format!("binding volumes: {error}")))
            }
            .boxed()
        }))
    }
}

#[cfg(test)]
mod tests;
