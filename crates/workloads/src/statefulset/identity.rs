//! Names and labels of the pods of a StatefulSet.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Volume};

use super::claims::volumes_of;
use crate::common::meta::MetaExt;

const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// `web-3` is number 3 of `web`.
pub(super) fn parent_and_ordinal(pod: &str) -> Option<(&str, i32)> {
    let (parent, ordinal) = pod.rsplit_once('-')?;
    let canonical = ordinal == "0" || !ordinal.starts_with(['0', '+']);
    Some((parent, ordinal.parse().ok().filter(|ordinal| *ordinal >= 0 && canonical)?))
}

pub(super) fn ordinal(pod: &Pod) -> i32 {
    parent_and_ordinal(pod.metadata.name()).map_or(-1, |(_, ordinal)| ordinal)
}

pub(super) fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name())
}

/// The labels that are part of a pod's identity.
pub(super) fn labels(_set: &StatefulSet, pod: &str) -> BTreeMap<String, String> {
    let index = parent_and_ordinal(pod).map(|(_, ordinal)| ordinal.to_string()).unwrap_or_default();
    BTreeMap::from([(NAME_LABEL.to_owned(), pod.to_owned()), (INDEX_LABEL.to_owned(), index)])
}

/// Whether name, labels and volumes are as they should be.
pub(super) fn matches(set: &StatefulSet, pod: &Pod) -> bool {
    let labelled = labels(set, pod.metadata.name()).iter().all(|(key, value)| pod.metadata.label(key) == Some(value));
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    let mounted = volumes_of(set, pod.metadata.name()).iter().all(|wanted| {
        let claim = |volume: &Volume| volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
        volumes.iter().any(|volume| volume.name == wanted.name && claim(volume) == claim(wanted))
    });
    labelled && mounted
}
