//! Observes, applies what `plan` decides, and reports.

use std::sync::Arc;

use client::{DeleteOptions, Patch};
use informer::{Action, EventType, Key, Reconciler, WorkQueue};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use serde_json::json;

use super::graph::{self, Graph, Node, ORPHAN, Place};
use super::monitor::Monitors;
use super::plan::{self, Standing, Step};
use crate::Error;
use crate::common::batch;
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};

const WORKERS: usize = 20;
/// How many absent owners are remembered.
const ABSENT: usize = 10_000;

pub(crate) async fn start(context: Context) {
    let queue: WorkQueue<Key> = context.queue();
    let shared = Arc::new(Shared { graph: Mutex::default(), absent: Mutex::default(), queue: queue.clone() });
    let monitors = Monitors::new(&context, shared.clone());
    let collector = Collector { tools: context.tools.clone(), monitors: monitors.clone(), shared };
    let following = monitors.follow();
    let working = async {
        monitors.synced().await;
        context.run(collector, queue, WORKERS).await;
    };
    tokio::select! {
        () = following => {}
        () = working => {}
    }
}

/// What the caches feed and the workers read.
pub(super) struct Shared {
    pub(super) graph: Mutex<Graph>,
    /// Uids that the API server did not know. A uid never comes back.
    pub(super) absent: Mutex<FxHashSet<String>>,
    pub(super) queue: WorkQueue<Key>,
}

impl Shared {
    pub(super) fn enqueue(&self, uids: impl IntoIterator<Item = Arc<str>>) {
        uids.into_iter().for_each(|uid| self.queue.add(Key::cluster(&*uid)));
    }

    pub(super) fn note_absent(&self, uid: &str) {
        let mut absent = self.absent.lock();
        if absent.len() >= ABSENT {
            absent.clear();
        }
        absent.insert(uid.to_owned());
    }
}

struct Collector {
    tools: Tools,
    monitors: Monitors,
    shared: Arc<Shared>,
}

impl Reconciler for Collector {
    type Error = Error;

    /// The key's name is an object's uid.
    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let uid = key.name.as_str();
        let Some(node) = self.shared.graph.lock().get(uid).cloned() else { return Ok(Action::Done) };
        let Some(place) = node.place.clone() else { return Ok(Action::Done) };
        let step = if node.deleting {
            plan::step_for_deleting(&self.shared.graph.lock(), uid, &node)
        } else {
            let mut standings = Vec::with_capacity(node.owners.len());
            for owner in node.owners.iter() {
                standings.push((owner.uid.clone(), self.standing(&place, owner).await?));
            }
            let standing = |owner: &OwnerReference| {
                standings.iter().find(|(uid, _)| *uid == owner.uid).map_or(Standing::Solid, |(_, standing)| *standing)
            };
            plan::step(&self.shared.graph.lock(), uid, &node, standing)
        };
        self.carry_out(uid, &node, &place, step).await.map(|()| Action::Done)
    }
}

impl Collector {
    async fn carry_out(&self, uid: &str, node: &Node, place: &Place, step: Step) -> Result<(), Error> {
        match step {
            Step::Nothing => Ok(()),
            Step::LookAt(uids) => {
                self.shared.enqueue(uids);
                Ok(())
            }
            Step::RemoveFinalizer(finalizer) => self.remove_finalizer(node, place, finalizer).await,
            Step::Orphan(dependents) => {
                batch::all(dependents, |dependent| async move { self.let_go(&dependent, uid).await }).await?;
                self.remove_finalizer(node, place, ORPHAN).await
            }
            Step::KeepOwners(owners) => self.set_owners(node, place, owners).await,
            Step::Delete { policy, unblock } => {
                batch::all(unblock, |dependent| async move { self.unblock(&dependent, uid).await }).await?;
                let options = DeleteOptions {
                    propagation_policy: Some(policy),
                    uid: Some(uid.to_owned()),
                    // If the object changed since it was looked at, its owners may have too.
                    resource_version: Some(node.resource_version.to_string()),
                    ..DeleteOptions::default()
                };
                let objects = self.tools.client.dynamic(&place.gvr);
                gone_is_fine(objects.delete(&place.key.namespace, &place.key.name, &options).await)
            }
        }
    }

    /// Whether an owner is there: as the graph has it, and where it has not seen it, as the API server says.
    async fn standing(&self, dependent: &Place, owner: &OwnerReference) -> Result<Standing, Error> {
        if let Some(node) = self.shared.graph.lock().get(&owner.uid)
            && let Some(place) = &node.place
        {
            if names(place, owner, dependent) {
                return Ok(if node.waits_for_dependents() { Standing::Waiting } else { Standing::Solid });
            }
            // The uid is somebody's, but the reference names another kind, name or namespace: such an owner does not exist.
            if place.key.namespace != dependent.key.namespace && !place.key.namespace.is_empty() {
                self.warn_of_namespace(dependent, owner);
            }
        } else if self.shared.absent.lock().contains(&owner.uid) {
            return Ok(Standing::Absent);
        }
        let Some(resource) = self.monitors.resource(owner) else {
            return Err(Error::Waiting(format!(
                "no matches for kind {:?} in version {:?}",
                owner.kind, owner.api_version
            )));
        };
        if resource.namespaced && dependent.key.namespace.is_empty() {
            // A cluster-scoped object cannot say in which namespace its owner is. Nobody can tell, so nothing is deleted.
            self.warn_of_namespace(dependent, owner);
            return Ok(Standing::Solid);
        }
        let namespace = if resource.namespaced { dependent.key.namespace.as_str() } else { "" };
        match self.tools.client.dynamic(&resource.gvr).get_metadata(namespace, &owner.name).await {
            Ok(live) if live.metadata.uid() == owner.uid => {
                let waits = live.metadata.is_deleting() && live.metadata.has_finalizer(graph::FOREGROUND);
                Ok(if waits { Standing::Waiting } else { Standing::Solid })
            }
            Ok(_) => {
                self.shared.note_absent(&owner.uid);
                Ok(Standing::Absent)
            }
            Err(error) if error.is_not_found() => {
                self.shared.note_absent(&owner.uid);
                Ok(Standing::Absent)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn warn_of_namespace(&self, dependent: &Place, owner: &OwnerReference) {
        let about = ObjectReference {
            api_version: Some(api_version(&dependent.gvr)),
            kind: Some(dependent.kind.to_string()),
            namespace: Some(dependent.key.namespace.clone()),
            name: Some(dependent.key.name.clone()),
            ..ObjectReference::default()
        };
        let message = format!(
            "ownerRef [{}/{}, namespace: {}, name: {}, uid: {}] does not exist in namespace {:?}",
            owner.api_version, owner.kind, dependent.key.namespace, owner.name, owner.uid, dependent.key.namespace
        );
        self.tools.recorder.event_about(about, EventType::Warning, "OwnerRefInvalidNamespace", message);
    }

    async fn remove_finalizer(&self, node: &Node, place: &Place, finalizer: &str) -> Result<(), Error> {
        let left: Vec<&String> = node.finalizers.iter().filter(|known| *known != finalizer).collect();
        if left.len() == node.finalizers.len() {
            return Ok(());
        }
        self.patch(place, json!({"metadata": {"resourceVersion": node.resource_version, "finalizers": left}})).await
    }

    async fn set_owners(&self, node: &Node, place: &Place, owners: Vec<OwnerReference>) -> Result<(), Error> {
        self.patch(place, json!({"metadata": {"resourceVersion": node.resource_version, "ownerReferences": owners}}))
            .await
    }

    /// Takes one owner from a dependent.
    async fn let_go(&self, dependent: &str, owner: &str) -> Result<(), Error> {
        let Some(node) = self.shared.graph.lock().get(dependent).cloned() else { return Ok(()) };
        let Some(place) = node.place.clone() else { return Ok(()) };
        let owners = node.owners.iter().filter(|reference| reference.uid != owner).cloned().collect();
        self.set_owners(&node, &place, owners).await
    }

    /// The dependent no longer holds its owner back.
    async fn unblock(&self, dependent: &str, owner: &str) -> Result<(), Error> {
        let Some(node) = self.shared.graph.lock().get(dependent).cloned() else { return Ok(()) };
        let Some(place) = node.place.clone() else { return Ok(()) };
        let mut owners = node.owners.to_vec();
        for reference in owners.iter_mut().filter(|reference| reference.uid == owner) {
            reference.block_owner_deletion = Some(false);
        }
        self.set_owners(&node, &place, owners).await
    }

    /// A merge patch, which every kind understands. It carries the version that was looked at, so a change in between is a conflict and another turn.
    async fn patch(&self, place: &Place, patch: serde_json::Value) -> Result<(), Error> {
        let objects = self.tools.client.dynamic(&place.gvr);
        let answer = objects.patch(&place.key.namespace, &place.key.name, "", &Patch::Merge(patch)).await;
        gone_is_fine(answer.map(drop))
    }
}

fn gone_is_fine(answer: Result<(), client::Error>) -> Result<(), Error> {
    match answer {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Whether a reference of a dependent names this place.
fn names(place: &Place, owner: &OwnerReference, dependent: &Place) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    let reachable = place.key.namespace.is_empty() || place.key.namespace == dependent.key.namespace;
    *place.kind == *owner.kind && place.gvr.group == group && place.key.name == owner.name && reachable
}

fn api_version(gvr: &client::Gvr) -> String {
    if gvr.group.is_empty() { gvr.version.clone() } else { format!("{}/{}", gvr.group, gvr.version) }
}
