//! Who owns whom, over every kind: pure book-keeping, fed by the caches.

use std::collections::HashMap;
use std::sync::Arc;

use client::Gvr;
use informer::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use rustc_hash::{FxBuildHasher, FxHashSet};

use crate::common::meta::MetaExt;

pub(super) const ORPHAN: &str = "orphan";
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// Where an object lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) gvr: Arc<Gvr>,
    pub(super) kind: Arc<str>,
    pub(super) key: Key,
}

/// One object, as far as its owners and dependents are concerned.
#[derive(Debug, Clone, Default)]
pub(super) struct Node {
    /// `None` as long as the object is only known from references to it.
    pub(super) place: Option<Place>,
    pub(super) resource_version: Box<str>,
    /// Those of replicas are the same, and are held once.
    pub(super) owners: Arc<[OwnerReference]>,
    pub(super) finalizers: Box<[String]>,
    pub(super) deleting: bool,
    pub(super) dependents: FxHashSet<Arc<str>>,
}

impl Node {
    /// It waits for its dependents to go first.
    pub(super) fn waits_for_dependents(&self) -> bool {
        self.deleting && self.has_finalizer(FOREGROUND)
    }

    /// It waits for its dependents to be let go.
    pub(super) fn orphans_dependents(&self) -> bool {
        self.deleting && self.has_finalizer(ORPHAN)
    }

    pub(super) fn has_finalizer(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|known| known == finalizer)
    }

    /// Whether its deletion must wait for this object's.
    pub(super) fn blocks(&self, owner: &str) -> bool {
        self.owners.iter().any(|reference| reference.uid == owner && reference.block_owner_deletion == Some(true))
    }
}

/// All objects by uid. Nodes are behind pointers, because a table has room for many that are not there.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Arc<str>, Box<Node>, FxBuildHasher>,
    nobody: Arc<[OwnerReference]>,
}

impl Graph {
    pub(super) fn get(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid).map(|node| &**node)
    }

    /// The dependents of an object.
    pub(super) fn dependents(&self, uid: &str) -> Vec<(Arc<str>, Node)> {
        let uids =
            self.nodes.get(uid).map(|node| node.dependents.iter().cloned().collect::<Vec<_>>()).unwrap_or_default();
        uids.into_iter().filter_map(|uid| self.get(&uid).cloned().map(|node| (uid, node))).collect()
    }

    /// Takes over an object as its cache has it. Answers the uids to look at.
    pub(super) fn put(&mut self, place: Place, meta: &ObjectMeta) -> Vec<Arc<str>> {
        let uid: Arc<str> = meta.uid().into();
        let mut look: Vec<Arc<str>> = Vec::new();
        let owners = self.shared(meta.owner_references.as_deref().unwrap_or_default());
        let before = self.nodes.entry(uid.clone()).or_default();
        let (old_owners, was_known) = (std::mem::replace(&mut before.owners, owners.clone()), before.place.is_some());
        let (waited, orphaned) = (before.waits_for_dependents(), before.orphans_dependents());
        before.place = Some(place);
        before.resource_version = meta.resource_version.as_deref().unwrap_or_default().into();
        before.finalizers = meta.finalizers.as_deref().unwrap_or_default().into();
        before.deleting = meta.is_deleting();
        let (waits, orphans) = (before.waits_for_dependents(), before.orphans_dependents());
        if (waits && !waited) || (orphans && !orphaned) {
            look.push(uid.clone());
            if waits {
                look.extend(before.dependents.iter().cloned());
            }
        }
        for owner in old_owners.iter().filter(|old| !owners.iter().any(|new| new.uid == old.uid)) {
            self.drop_dependent(&owner.uid, &uid);
            // An owner that waited for this one may wait no longer.
            look.push(owner.uid.as_str().into());
        }
        let mut changed = !was_known && !owners.is_empty();
        for owner in owners.iter() {
            let is_new = !old_owners.iter().any(|old| old == owner);
            let node = self.nodes.entry(owner.uid.as_str().into()).or_default();
            node.dependents.insert(uid.clone());
            // Owners that nobody has seen, and owners on their way out, decide about this object.
            changed |= is_new && (node.place.is_none() || node.deleting);
            if is_new && node.waits_for_dependents() {
                look.push(owner.uid.as_str().into());
            }
        }
        if changed || (!old_owners.is_empty() && old_owners != owners) {
            look.push(uid);
        }
        look
    }

    /// Takes an object out. Answers the uids to look at: what it owned, and whoever waited for it.
    pub(super) fn remove(&mut self, uid: &str) -> Vec<Arc<str>> {
        let Some(node) = self.nodes.remove(uid) else { return Vec::new() };
        let mut look: Vec<Arc<str>> = node.dependents.iter().cloned().collect();
        for owner in node.owners.iter() {
            self.drop_dependent(&owner.uid, uid);
            if self.get(&owner.uid).is_some_and(Node::waits_for_dependents) {
                look.push(owner.uid.as_str().into());
            }
        }
        if !node.dependents.is_empty() {
            // The dependents still name it; it stays as one that is only known from references.
            let unseen = Node { dependents: node.dependents, ..Node::default() };
            self.nodes.insert(uid.into(), Box::new(unseen));
        }
        look
    }

    /// References as another dependent of the same owner has them already, or as they are.
    fn shared(&self, owners: &[OwnerReference]) -> Arc<[OwnerReference]> {
        let Some(first) = owners.first() else { return self.nobody.clone() };
        let sibling = self.get(&first.uid).and_then(|owner| self.get(owner.dependents.iter().next()?));
        match sibling.filter(|sibling| *sibling.owners == *owners) {
            Some(sibling) => sibling.owners.clone(),
            None => owners.into(),
        }
    }

    fn drop_dependent(&mut self, owner: &str, dependent: &str) {
        let Some(node) = self.nodes.get_mut(owner) else { return };
        node.dependents.remove(dependent);
        if node.place.is_none() && node.dependents.is_empty() {
            self.nodes.remove(owner);
        }
    }
}
