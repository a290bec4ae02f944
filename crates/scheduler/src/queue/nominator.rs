//! Pods that are promised a node where others are being evicted for them.
//!
//! A nominated pod takes no room, but filters count it for every pod of no higher priority, so that the room made for
//! it is not given away. So a nomination is a change of its node as well: [`Nominator::take_changed`] says of which.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::pod::PodInfo;

/// How a failed attempt changes the nomination of its pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nomination {
    /// Keep what the pod's status says.
    Keep,
    /// Nominate to this node; to none when empty.
    Set(String),
}

/// The nominated pods by node.
#[derive(Debug, Default)]
pub struct Nominator {
    by_node: FxHashMap<String, Vec<Arc<PodInfo>>>,
    node_of: FxHashMap<Arc<str>, String>,
    changed: FxHashSet<String>,
}

impl Nominator {
    /// Whether there is any nomination: most of the time there is none.
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// How many pods are nominated.
    pub fn len(&self) -> usize {
        self.node_of.len()
    }

    /// The pods nominated to a node.
    pub fn on(&self, node: &str) -> &[Arc<PodInfo>] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// All nominated pods, each with its node.
    #[cfg(test)]
    pub fn all(&self) -> Vec<(Arc<PodInfo>, String)> {
        self.by_node.iter().flat_map(|(node, pods)| pods.iter().map(|p| (p.clone(), node.clone()))).collect()
    }

    /// The nodes whose nominations have changed since this was last asked.
    pub fn take_changed(&mut self) -> impl Iterator<Item = String> + '_ {
        self.changed.drain()
    }

    /// The node that a pod is nominated to.
    pub fn node_of(&self, uid: &str) -> Option<&str> {
        self.node_of.get(uid).map(String::as_str)
    }

    /// Records the nomination of a pod, replacing an earlier one.
    pub fn set(&mut self, pod: &Arc<PodInfo>, nomination: &Nomination) {
        self.remove(pod.uid());
        let node = match nomination {
            Nomination::Set(node) => node.as_str(),
            Nomination::Keep => pod.nominated_node().unwrap_or_default(),
        };
        if !node.is_empty() {
            self.node_of.insert(pod.uid().clone(), node.to_owned());
            self.changed.insert(node.to_owned());
            self.by_node.entry(node.to_owned()).or_default().push(pod.clone());
        }
    }

    /// Replaces a pod by its new version. A nomination that the API does not know yet survives.
    pub fn update(&mut self, old: &PodInfo, new: &Arc<PodInfo>) {
        let known = self.node_of.get(new.uid()).cloned();
        let was_nominated = old.nominated_node().is_some();
        let nomination = match known {
            Some(node) if !was_nominated && new.nominated_node().is_none() => Nomination::Set(node),
            _ => Nomination::Keep,
        };
        self.set(new, &nomination);
    }

    /// Forgets the nomination of a pod.
    pub fn remove(&mut self, uid: &str) {
        let Some(node) = self.node_of.remove(uid) else { return };
        if let Some(pods) = self.by_node.get_mut(&node) {
            pods.retain(|p| &**p.uid() != uid);
            if pods.is_empty() {
                self.by_node.remove(&node);
            }
        }
        self.changed.insert(node);
    }
}
