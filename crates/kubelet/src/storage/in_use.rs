//! Volumes that must not be detached from this node, by the pods that have or want them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use parking_lot::Mutex;

use super::data::Data;
use super::{disks, layout};

#[derive(Debug, Default)]
pub(super) struct InUse {
    pods: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl InUse {
    /// What the disk says: a node that starts again has its mounts, and says so before anybody may detach their volumes.
    pub(super) fn of_disk(root: &Path) -> Self {
        let found = Self::default();
        for pod in crate::volumes::pods_on_disk(root) {
            let directories = layout::published_to(root, &pod);
            let devices = layout::devices_to(root, &pod);
            let devices = devices.iter().filter_map(|volume| Some(layout::device(root, &pod, volume).ok()?.data));
            for data in directories.into_iter().chain(devices).filter_map(|dir| Data::load(&dir)) {
                if !data.is_ephemeral() {
                    found.add(&csi::names::unique(&data.driver, &data.handle), &pod);
                }
            }
            for name in disks::names(root, &pod) {
                found.add(&name, &pod);
            }
        }
        found
    }

    /// Whether that is news.
    pub(super) fn add(&self, volume: &str, pod: &str) -> bool {
        let mut pods = self.pods.lock();
        let news = !pods.contains_key(volume);
        pods.entry(volume.to_owned()).or_default().insert(pod.to_owned());
        news
    }

    /// The pod does not rely on the volume being attached any more; whether it is free now.
    pub(super) fn release(&self, volume: &str, pod: &str) -> bool {
        let mut pods = self.pods.lock();
        let Some(users) = pods.get_mut(volume) else { return false };
        users.remove(pod);
        let free = users.is_empty();
        if free {
            pods.remove(volume);
        }
        free
    }

    /// The pod has no volume any more; whether some volume is free now.
    pub(super) fn forget(&self, pod: &str) -> bool {
        let mut pods = self.pods.lock();
        let before = pods.len();
        pods.retain(|_, users| {
            users.remove(pod);
            !users.is_empty()
        });
        pods.len() < before
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.pods.lock().keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_in_use_until_its_last_pod_is_gone() {
        let in_use = InUse::default();
        assert!(in_use.add("v", "a"));
        assert!(!in_use.add("v", "b"));
        assert!(!in_use.forget("a"));
        assert_eq!(in_use.names(), ["v"]);
        assert!(in_use.forget("b"));
        assert!(in_use.names().is_empty());
    }

    #[test]
    fn a_volume_that_a_pod_lets_go_of_is_in_use_by_the_others() {
        let in_use = InUse::default();
        assert!(!in_use.release("v", "a"), "it was not in use");
        in_use.add("v", "a");
        in_use.add("v", "b");
        assert!(!in_use.release("v", "a"));
        assert_eq!(in_use.names(), ["v"]);
        assert!(in_use.release("v", "b"));
        assert!(in_use.names().is_empty());
    }

    #[test]
    fn what_a_node_had_mounted_is_in_use_when_it_starts_again() {
        let root = tempfile::tempdir().unwrap();
        let data = Data { handle: "h".into(), driver: "d".into(), ..Data::default() };
        data.save(&layout::published(root.path(), "uid", "pv").unwrap()).unwrap();
        let own = Data { volume_lifecycle_mode: "Ephemeral".into(), handle: "csi-1".into(), ..data.clone() };
        own.save(&layout::published(root.path(), "uid", "inline").unwrap()).unwrap();
        assert_eq!(InUse::of_disk(root.path()).names(), ["kubernetes.io/csi/d^h"]);
    }
}
