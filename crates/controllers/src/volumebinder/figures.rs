//! How many volumes and claims there are, counted when metrics are read.

use std::collections::BTreeMap;
use std::sync::Arc;

use figures::{Family, Gauge};
use informer::Informer;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::plan::class_of;
use crate::common::meta::MetaExt;
use crate::metrics::Collect;

/// Counts from the caches.
pub(super) struct Collector {
    pub(super) volumes: Informer<PersistentVolume>,
    pub(super) claims: Informer<PersistentVolumeClaim>,
}

impl Collect for Collector {
    fn collect(&self, text: &mut String) {
        write(&self.volumes.list(), &self.claims.list(), text);
    }
}

const CLAIM_LABELS: &[&str] = &["namespace", "storage_class", "volume_attributes_class"];

fn write(volumes: &[Arc<PersistentVolume>], claims: &[Arc<PersistentVolumeClaim>], text: &mut String) {
    let total = Gauge::new(
        "pv_collector_total_pv_count",
        "[ALPHA] Gauge measuring total number of persistent volumes",
        &["plugin_name", "volume_mode"],
    );
    let bound = Gauge::new(
        "pv_collector_bound_pv_count",
        "[ALPHA] Gauge measuring number of persistent volume currently bound",
        &["storage_class"],
    );
    let unbound = Gauge::new(
        "pv_collector_unbound_pv_count",
        "[ALPHA] Gauge measuring number of persistent volume currently unbound",
        &["storage_class"],
    );
    let class = |volume: &PersistentVolume| {
        volume.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()).unwrap_or_default()
    };
    let is_bound = |phase: Option<&str>| phase == Some("Bound");
    let phase = |volume: &PersistentVolume| is_bound(volume.status.as_ref().and_then(|status| status.phase.as_deref()));
    fill(&total, volumes.iter().map(|volume| [plugin(volume).to_owned(), mode(volume)]));
    fill(&bound, volumes.iter().filter(|volume| phase(volume)).map(|volume| [class(volume)]));
    fill(&unbound, volumes.iter().filter(|volume| !phase(volume)).map(|volume| [class(volume)]));

    let bound_claims = Gauge::new(
        "pv_collector_bound_pvc_count",
        "[ALPHA] Gauge measuring number of persistent volume claim currently bound",
        CLAIM_LABELS,
    );
    let unbound_claims = Gauge::new(
        "pv_collector_unbound_pvc_count",
        "[ALPHA] Gauge measuring number of persistent volume claim currently unbound",
        CLAIM_LABELS,
    );
    let labels = |claim: &PersistentVolumeClaim| {
        let attributes = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.clone());
        let class = class_of(claim).unwrap_or_default().to_owned();
        [claim.metadata.namespace().to_owned(), class, attributes.unwrap_or_default()]
    };
    let phase =
        |claim: &PersistentVolumeClaim| is_bound(claim.status.as_ref().and_then(|status| status.phase.as_deref()));
    fill(&bound_claims, claims.iter().filter(|claim| phase(claim)).map(|claim| labels(claim)));
    fill(&unbound_claims, claims.iter().filter(|claim| !phase(claim)).map(|claim| labels(claim)));
    for family in [&total, &bound, &unbound, &bound_claims, &unbound_claims] {
        family.write(text);
    }
}

/// Counts how often each combination comes.
fn fill<const N: usize>(family: &Gauge, all: impl Iterator<Item = [String; N]>) {
    let mut counts: BTreeMap<[String; N], f64> = BTreeMap::new();
    all.for_each(|labels| *counts.entry(labels).or_default() += 1.0);
    family.replace(counts.iter().map(|(labels, count)| (labels.iter().map(String::as_str).collect(), *count)));
}

fn mode(volume: &PersistentVolume) -> String {
    let mode = volume.spec.as_ref().and_then(|spec| spec.volume_mode.clone());
    mode.unwrap_or_else(|| "Filesystem".to_owned())
}

/// What upstream calls what keeps the data.
fn plugin(volume: &PersistentVolume) -> &'static str {
    let Some(spec) = &volume.spec else { return "N/A" };
    if spec.csi.is_some() {
        "kubernetes.io/csi"
    } else if spec.local.is_some() {
        "kubernetes.io/local-volume"
    } else if spec.host_path.is_some() {
        "kubernetes.io/host-path"
    } else if spec.nfs.is_some() {
        "kubernetes.io/nfs"
    } else if spec.iscsi.is_some() {
        "kubernetes.io/iscsi"
    } else if spec.fc.is_some() {
        "kubernetes.io/fc"
    } else {
        "N/A"
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_and_claims_are_counted_by_class() {
        let volume = |name: &str, phase: &str| {
            let value = json!({
                "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
                "spec": {"storageClassName": "fast", "hostPath": {"path": "/x"}}, "status": {"phase": phase},
            });
            Arc::new(serde_json::from_value(value).expect("a volume"))
        };
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "ns"},
            "spec": {"storageClassName": "fast"}, "status": {"phase": "Pending"},
        });
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("a claim");
        let volumes = [volume("a", "Bound"), volume("b", "Bound"), volume("c", "Available")];
        let mut text = String::new();
        write(&volumes, &[Arc::new(claim)], &mut text);
        for line in [
            "pv_collector_total_pv_count{plugin_name=\"kubernetes.io/host-path\",volume_mode=\"Filesystem\"} 3\n",
            "pv_collector_bound_pv_count{storage_class=\"fast\"} 2\n",
            "pv_collector_unbound_pv_count{storage_class=\"fast\"} 1\n",
            "pv_collector_unbound_pvc_count{namespace=\"ns\",storage_class=\"fast\",volume_attributes_class=\"\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("pv_collector_bound_pvc_count"), "no claim is bound");
    }
}
