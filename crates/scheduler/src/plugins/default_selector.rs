//! The selector of the pods that belong with a pod: what its services and its controller select.

use crate::model::objects::Objects;
use crate::model::pod::PodInfo;
use rules::selectors::{LabelSelector, Labels};

/// The conjunction of the selectors of the pod's services and its controller; empty when it has neither.
pub fn default_selector(pod: &PodInfo, objects: &Objects) -> LabelSelector {
    let namespace = pod.namespace();
    let mut labels = Labels::new();
    for service in objects.services.in_namespace(namespace) {
        let Some(selector) = service.spec.as_ref().and_then(|s| s.selector.as_ref()) else { continue };
        if LabelSelector::from_labels(selector).matches(pod.labels()) {
            labels.extend(selector.clone());
        }
    }
    let Some(owner) = &pod.owner else {
        return LabelSelector::from_labels(&labels);
    };
    let of_controller = match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("v1", "ReplicationController") => {
            let controller = objects.replication_controllers.get(namespace, &owner.name);
            labels.extend(controller.map(|c| c.selector.clone()).unwrap_or_default());
            None
        }
        ("apps/v1", "ReplicaSet") => {
            let set = objects.replica_sets.get(namespace, &owner.name);
            set.map(|s| LabelSelector::parse(Some(&s.selector)))
        }
        ("apps/v1", "StatefulSet") => {
            let set = objects.stateful_sets.get(namespace, &owner.name);
            set.map(|s| LabelSelector::parse(Some(&s.selector)))
        }
        _ => None,
    };
    let selector = LabelSelector::from_labels(&labels);
    match of_controller {
        Some(Ok(other)) if !other.is_nothing() => selector.and(&other),
        _ => selector,
    }
}
