//! How many volumes there are and should be, counted when metrics are read.

use std::collections::{BTreeMap, BTreeSet};

use figures::{Family, Gauge};
use informer::Informer;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;

use super::disks;
use crate::common::storage::{bound_volume, claims_of};
use crate::common::{meta::MetaExt, pods};
use crate::metrics::Collect;

/// Counts from the caches.
pub(super) struct Collector {
    pub(super) pods: Informer<Pod>,
    pub(super) claims: Informer<PersistentVolumeClaim>,
    pub(super) volumes: Informer<PersistentVolume>,
    pub(super) nodes: Informer<Node>,
    pub(super) attachments: Informer<VolumeAttachment>,
}

impl Collect for Collector {
    fn collect(&self, text: &mut String) {
        let mut wanted: BTreeSet<(String, String, String)> = BTreeSet::new();
        for pod in self.pods.each().filter(|pod| !pods::is_terminal(pod)) {
            let Some(node) = pods::node_name(&pod) else { continue };
            for key in claims_of(&pod) {
                let volume = self.claims.get(&key).and_then(|claim| bound_volume(&claim, &self.volumes));
                if let Some((volume, driver)) = volume.and_then(|volume| named(&volume)) {
                    wanted.insert((node.to_owned(), driver, volume));
                }
            }
        }
        let attachments = self.attachments.list();
        let attached = attachments.iter().map(|one| plugin(&one.spec.attacher));
        let nodes = self.nodes.list();
        let disks = nodes.iter().flat_map(|node| disks::given(node));
        let disks = disks.filter_map(|disk| Some(rules::network_disks::plugin_of(&disk)?.to_owned()));
        let attached: Vec<String> = attached.chain(disks).collect();
        write(&wanted, &attached, text);
    }
}

fn plugin(driver: &str) -> String {
    format!("kubernetes.io/csi:{driver}")
}

/// A volume that is attached, with what its plug-in is called in figures.
fn named(volume: &PersistentVolume) -> Option<(String, String)> {
    let disk = rules::network_disks::unique_name(volume).map(|(plugin, _)| plugin.to_owned());
    let plugin = disk.or_else(|| super::plan::driver(volume).map(plugin))?;
    Some((volume.metadata.name().to_owned(), plugin))
}

fn write(wanted: &BTreeSet<(String, String, String)>, attached: &[String], text: &mut String) {
    let in_use = Gauge::new(
        "storage_count_attachable_volumes_in_use",
        "[ALPHA] Measure number of volumes in use",
        &["node", "volume_plugin"],
    );
    let total = Gauge::new(
        "attachdetach_controller_total_volumes",
        "[ALPHA] Number of volumes in A/D Controller",
        &["plugin_name", "state"],
    );
    let mut by_node: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    let mut by_state: BTreeMap<(&str, &str), f64> = BTreeMap::new();
    for (node, plugin, _) in wanted {
        *by_node.entry((node, plugin)).or_default() += 1.0;
        *by_state.entry((plugin, "desired_state_of_world")).or_default() += 1.0;
    }
    for plugin in attached {
        *by_state.entry((plugin, "actual_state_of_world")).or_default() += 1.0;
    }
    in_use.replace(by_node.iter().map(|((a, b), count)| (vec![*a, *b], *count)));
    total.replace(by_state.iter().map(|((a, b), count)| (vec![*a, *b], *count)));
    in_use.write(text);
    total.write(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_counted_by_node_and_by_state() {
        let volume = |name: &str| ("n".to_owned(), plugin("d"), name.to_owned());
        let mut text = String::new();
        write(&[volume("a"), volume("b")].into(), &[plugin("d")], &mut text);
        for line in [
            "storage_count_attachable_volumes_in_use{node=\"n\",volume_plugin=\"kubernetes.io/csi:d\"} 2\n",
            "attachdetach_controller_total_volumes{plugin_name=\"kubernetes.io/csi:d\",state=\"desired_state_of_world\"} 2\n",
            "attachdetach_controller_total_volumes{plugin_name=\"kubernetes.io/csi:d\",state=\"actual_state_of_world\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
