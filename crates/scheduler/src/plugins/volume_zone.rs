//! VolumeZone: a volume that is labelled with a zone is used in that zone.

use std::sync::Arc;

use k8s_openapi::api::core::v1::PersistentVolume;

use super::volumes::{claim_class, names_claim, not_found, volume_name};
use crate::framework::{
    Action, ClusterEvent, CycleState, Filter, Hint, Interest, Plugin, Points, PreFilter, PreFilterOutcome,
    PreFilterResult, Rejection, Resource, Verdict,
};
use crate::model::cluster::Cluster;
use crate::model::node::NodeInfo;
use crate::model::objects::Object;
use crate::model::pod::PodInfo;
use rules::selectors::NodeFacts;

/// Rejects nodes outside the zones of the pod's volumes.
pub struct VolumeZone;

const LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];

/// The name that replaced a label.
fn current(label: &str) -> &str {
    match label {
        "failure-domain.beta.kubernetes.io/zone" => "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region" => "topology.kubernetes.io/region",
        other => other,
    }
}

/// Labels that the node must have, each with one of some values.
#[derive(Clone, Default)]
struct Zones(Vec<(&'static str, Vec<String>)>);

/// The zones of a volume. Several zones in one label are joined by `__`; a label with an empty part says nothing.
fn zones(volume: &PersistentVolume) -> Vec<(&'static str, Vec<String>)> {
    let labels = volume.metadata.labels.as_ref();
    LABELS
        .iter()
        .filter_map(|label| {
            let values: Vec<String> = labels?.get(*label)?.split("__").map(|v| v.trim().to_owned()).collect();
            (!values.iter().any(String::is_empty)).then_some((*label, values))
        })
        .collect()
}

impl Plugin for VolumeZone {
    fn name(&self) -> &'static str {
        super::VOLUME_ZONE
    }

    fn points(self: Arc<Self>) -> Points {
        points!(self: pre_filter, filter)
    }

    fn interests(&self) -> Vec<Interest> {
        vec![
            Interest::new(Resource::StorageClass, Action::ADD),
            Interest::new(Resource::Node, Action::ADD | Action::NODE_LABEL),
            Interest::new(Resource::PersistentVolumeClaim, Action::ADD | Action::UPDATE),
            Interest::new(Resource::PersistentVolume, Action::ADD | Action::UPDATE),
        ]
    }

    fn hint(&self, pod: &PodInfo, event: &ClusterEvent, _: &Cluster) -> Hint {
        let helps = match (&event.old, &event.new) {
            (_, Some(Object::StorageClass(class))) => {
                class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
            }
            (_, Some(Object::PersistentVolumeClaim(claim))) => names_claim(pod, claim, false),
            (Some(Object::PersistentVolume(old)), Some(Object::PersistentVolume(new))) => zones(old) != zones(new),
            _ => true,
        };
        if helps { Hint::Queue } else { Hint::Skip }
    }
}

impl PreFilter for VolumeZone {
    fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo, cluster: &Cluster) -> PreFilterResult {
        let wanted = &mut state.get_or_default::<Zones>().0;
        wanted.clear();
        let objects = &cluster.objects;
        for name in pod.named_claims() {
            let Some(claim) = objects.claims.get(pod.namespace(), name) else {
                return Err(Rejection::unresolvable(not_found("persistentvolumeclaim", name)));
            };
            let volume = volume_name(claim);
            if volume.is_empty() {
                let name = claim_class(claim);
                if name.is_empty() {
                    return Err(Rejection::unresolvable("PersistentVolumeClaim had no pv name and storageClass name"));
                }
                let Some(class) = objects.storage_classes.named(name) else {
                    return Err(Rejection::unresolvable(not_found("storageclass.storage.k8s.io", name)));
                };
                match class.volume_binding_mode.as_deref() {
                    None => {
                        return Err(Rejection::unresolvable(format!(
                            "VolumeBindingMode not set for StorageClass {name:?}"
                        )));
                    }
                    Some("WaitForFirstConsumer") => continue,
                    Some(_) => return Err(Rejection::unresolvable("PersistentVolume had no name")),
                }
            }
            let Some(volume) = objects.volumes.named(volume) else {
                return Err(Rejection::unresolvable(not_found("persistentvolume", volume)));
            };
            wanted.extend(zones(volume));
        }
        Ok(if wanted.is_empty() { PreFilterOutcome::Skip } else { PreFilterOutcome::Proceed })
    }
}

impl Filter for VolumeZone {
    fn filter(&self, state: &CycleState, _: &PodInfo, node: &NodeInfo, _: &Cluster) -> Verdict {
        let label = |key: &str| node.labels().and_then(|l| l.get(key));
        // A node that is in no zone at all is taken to reach every volume.
        if !LABELS.iter().any(|key| label(key).is_some()) {
            return Verdict::Pass;
        }
        for (key, values) in &state.expect::<Zones>().0 {
            if !label(key).or_else(|| label(current(key))).is_some_and(|v| values.contains(v)) {
                return Verdict::unresolvable("node(s) had no available volume zone");
            }
        }
        Verdict::Pass
    }
}
