//! Which objects a controller owns: it keeps those that match its selector, adopts matching orphans, and lets go of its own that match no more.

use std::sync::Arc;

use client::{Client, Kind, Patch};
use futures::future::join_all;
use informer::{Change, Informer, Key};
use machinery::selector::label::LabelSelector;
use serde_json::json;

use super::meta::{MetaExt, controller_key, controller_reference};
use super::pods::ORPHAN_INDEX;
use super::selector;
use crate::Error;

/// Lets [`candidates`] find orphans without looking at everything.
pub fn index_orphans<K: Kind>(informer: &Informer<K>) {
    informer.add_index(ORPHAN_INDEX, |object: &K| {
        let meta = object.metadata();
        if meta.controller().is_none() { vec![meta.namespace().to_owned()] } else { Vec::new() }
    });
}

/// What an owner controls, and what nobody controls and its selector picks. A namespace may have very many that it does not pick.
pub fn candidates<K: Kind, O: Kind>(informer: &Informer<K>, owner: &O, selector: &LabelSelector) -> Vec<Arc<K>> {
    let mut all = informer.by_owner(owner.metadata().uid());
    all.extend(informer.select_by_index(ORPHAN_INDEX, owner.metadata().namespace(), selector));
    all
}

/// The owners to look at after a change: whose the object is or was and, once it is nobody's, those that select it.
pub fn concerned<K: Kind, O: Kind>(
    change: &Change<K>,
    owners: &Informer<O>,
    selector: impl Fn(&O) -> Option<LabelSelector>,
) -> Vec<Key> {
    let own = |object: &Arc<K>| controller_key::<O>(object.metadata());
    let mut keys: Vec<Key> = [change.before(), change.after()].into_iter().flatten().filter_map(own).collect();
    keys.dedup();
    if let Change::Modified { old, new } = change {
        let (old, new) = (old.metadata(), new.metadata());
        if old.labels == new.labels && old.controller() == new.controller() {
            return keys;
        }
    }
    if let Some(orphan) = change.after().map(|object| object.metadata()).filter(|meta| meta.controller().is_none()) {
        let selects = |owner: &&Arc<O>| {
            selector(owner).is_some_and(|one| !one.is_empty() && selector::matches(&one, &orphan.labels))
        };
        let candidates = owners.by_namespace(orphan.namespace());
        keys.extend(candidates.iter().filter(selects).map(|owner| owner.metadata().key()));
    }
    keys
}

/// What to do with one candidate.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Keep,
    Ignore,
    Adopt,
    Release,
}

fn verdict<K: Kind, O: Kind>(owner: &O, matching: bool, object: &K) -> Verdict {
    let (meta, deleting) = (object.metadata(), owner.metadata().is_deleting());
    match meta.controller() {
        Some(controller) if controller.uid != owner.metadata().uid() => Verdict::Ignore,
        Some(_) if matching => Verdict::Keep,
        Some(_) if deleting => Verdict::Ignore,
        Some(_) => Verdict::Release,
        None if deleting || !matching || meta.is_deleting() => Verdict::Ignore,
        None => Verdict::Adopt,
    }
}

/// The objects the owner owns, after adopting and releasing what must be.
pub async fn claim<K: Kind, O: Kind>(
    client: &Client,
    owner: &O,
    selector: &LabelSelector,
    candidates: Vec<Arc<K>>,
) -> Result<Vec<Arc<K>>, Error> {
    Claims::new(client, owner, selector).claim(candidates).await
}

/// How an owner comes to its objects.
pub struct Claims<'a, O> {
    client: &'a Client,
    owner: &'a O,
    selector: &'a LabelSelector,
    finalizer: Option<&'static str>,
}

impl<'a, O: Kind> Claims<'a, O> {
    pub fn new(client: &'a Client, owner: &'a O, selector: &'a LabelSelector) -> Self {
        Self { client, owner, selector, finalizer: None }
    }

    /// With a finalizer that comes with adoption and goes with release.
    pub fn with_finalizer(self, finalizer: &'static str) -> Self {
        Self { finalizer: Some(finalizer), ..self }
    }

    /// The objects the owner owns, after adopting and releasing what must be.
    pub async fn claim<K: Kind>(&self, candidates: Vec<Arc<K>>) -> Result<Vec<Arc<K>>, Error> {
        let mut owned = Vec::with_capacity(candidates.len());
        let (mut orphans, mut strangers) = (Vec::new(), Vec::new());
        for object in candidates {
            let matching = selector::matches(self.selector, &object.metadata().labels);
            match verdict(self.owner, matching, &*object) {
                Verdict::Keep => owned.push(object),
                Verdict::Ignore => {}
                Verdict::Adopt => orphans.push(object),
                Verdict::Release => strangers.push(object),
            }
        }
        if !orphans.is_empty() {
            self.recheck().await?;
        }
        let adopted = join_all(orphans.iter().map(|orphan| self.adopt(&**orphan))).await;
        let released = join_all(strangers.iter().map(|stranger| self.release(&**stranger))).await;
        for object in adopted {
            owned.extend(object?);
        }
        released.into_iter().collect::<Result<(), _>>()?;
        Ok(owned)
    }

    /// The cache may not know yet that the owner is going. Whoever adopts must ask the API itself.
    async fn recheck(&self) -> Result<(), Error> {
        let meta = self.owner.metadata();
        let fresh = self.client.get::<O>(meta.namespace(), meta.name()).await?;
        if fresh.metadata().uid() != meta.uid() {
            return Err(Error::OwnerGone { kind: O::KIND, key: meta.key() });
        }
        if fresh.metadata().is_deleting() {
            return Err(Error::OwnerDeleting { kind: O::KIND, key: meta.key() });
        }
        Ok(())
    }

    /// The object as it is once it has its owner.
    async fn adopt<K: Kind>(&self, orphan: &K) -> Result<Option<Arc<K>>, Error> {
        let meta = orphan.metadata();
        let mut patch = json!({"metadata": {"ownerReferences": [controller_reference(self.owner)], "uid": meta.uid()}});
        if let Some(finalizer) = self.finalizer {
            patch["metadata"]["finalizers"] = json!([finalizer]);
        }
        match self.client.patch::<K>(meta.namespace(), meta.name(), &Patch::Strategic(patch)).await {
            Ok(adopted) => Ok(Some(Arc::new(adopted))),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn release<K: Kind>(&self, object: &K) -> Result<(), Error> {
        let meta = object.metadata();
        let reference = json!({"$patch": "delete", "uid": self.owner.metadata().uid()});
        let mut patch = json!({"metadata": {"ownerReferences": [reference], "uid": meta.uid()}});
        if let Some(finalizer) = self.finalizer {
            patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = json!([finalizer]);
        }
        match self.client.patch::<K>(meta.namespace(), meta.name(), &Patch::Strategic(patch)).await {
            Ok(_) => Ok(()),
            // Gone, or another object of the same name: either way no longer ours.
            Err(error) if error.is_not_found() || error.is_invalid() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use k8s_openapi::api::core::v1::Pod;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

    use super::*;

    fn owner(deleting: bool) -> ReplicaSet {
        let deletion_timestamp = deleting.then_some(Time(jiff::Timestamp::UNIX_EPOCH));
        let metadata = ObjectMeta { uid: Some("me".into()), deletion_timestamp, ..ObjectMeta::default() };
        ReplicaSet { metadata, ..ReplicaSet::default() }
    }

    fn pod(controller: Option<&str>) -> Pod {
        let mut reference = controller_reference(&owner(false));
        let owner_references = controller.map(|uid| {
            reference.uid = uid.to_owned();
            vec![reference]
        });
        Pod { metadata: ObjectMeta { owner_references, ..ObjectMeta::default() }, ..Pod::default() }
    }

    #[test]
    fn claims_keep_adopt_release_and_ignore() {
        for (controller, deleting, matching, expected) in [
            (Some("other"), false, true, Verdict::Ignore),
            (Some("me"), false, true, Verdict::Keep),
            (Some("me"), true, true, Verdict::Keep),
            (Some("me"), false, false, Verdict::Release),
            (Some("me"), true, false, Verdict::Ignore),
            (None, false, true, Verdict::Adopt),
            (None, false, false, Verdict::Ignore),
            (None, true, true, Verdict::Ignore),
        ] {
            let verdict = verdict(&owner(deleting), matching, &pod(controller));
            assert_eq!(verdict, expected, "controller {controller:?}, deleting {deleting}, matching {matching}");
        }
    }
}
