//! Pods and nodes from the API, made small on the way in.
//!
//! A pod becomes what scheduling needs of it, and its replicas share what they have in common; a node loses what no plugin
//! reads. So a cluster of many pods fits into little memory, and the scheduling thread finds everything parsed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use client::{Client, List, ListParams, Undecodable, WatchParams};
use futures::StreamExt;
use informer::{Item, Source, Stream, struct_events, structs};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{Node, Pod, ReplicationController};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::model::objects::{Object, Selecting};
use crate::model::pod::{PodInfo, Shapes};

/// Finished pods take no room and are not watched.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// What scheduling needs of a pod. One that cannot be made small is set aside, not the others with it.
fn small(pod: &Arc<Pod>, shapes: &Shapes, whole: bool) -> Result<Arc<PodInfo>, Undecodable> {
    std::panic::catch_unwind(AssertUnwindSafe(|| Arc::new(PodInfo::shared(pod, shapes, whole))))
        .map_err(|_| Undecodable::of(&**pod, "the scheduler panicked while reading it"))
}

/// The pods that may take room.
pub(crate) struct Pods {
    client: Client,
    shapes: Arc<Shapes>,
    /// Whether somebody will ask for whole objects.
    whole: bool,
}

impl Pods {
    pub(crate) fn new(client: Client, whole: bool) -> Self {
        Self { client, shapes: Arc::default(), whole }
    }
}

impl Source for Pods {
    type Object = PodInfo;

    fn name(&self) -> String {
        "pods".to_owned()
    }

    async fn list(&self, params: ListParams) -> Result<List<Item<PodInfo>>, client::Error> {
        let params = ListParams { field_selector: UNFINISHED.to_owned(), ..params };
        let list = self.client.list::<Pod>("", &params).await?;
        Ok(structs(list.map(|pod| small(&pod, &self.shapes, self.whole))))
    }

    async fn watch(&self, params: WatchParams) -> Result<Stream<PodInfo>, client::Error> {
        let params = WatchParams { field_selector: UNFINISHED.to_owned(), ..params };
        let stream = self.client.watch::<Pod>("", &params).await?;
        let (shapes, whole) = (self.shapes.clone(), self.whole);
        Ok(struct_events(stream.map(move |event| event.map(|event| event.map(|pod| small(&pod, &shapes, whole))))))
    }
}

pub(crate) struct Nodes {
    client: Client,
    /// Whether somebody will ask for whole objects.
    whole: bool,
}

impl Nodes {
    pub(crate) fn new(client: Client, whole: bool) -> Self {
        Self { client, whole }
    }
}

impl Source for Nodes {
    type Object = Node;

    fn name(&self) -> String {
        "nodes".to_owned()
    }

    async fn list(&self, params: ListParams) -> Result<List<Item<Node>>, client::Error> {
        let mut list = self.client.list::<Node>("", &params).await?;
        list.items.iter_mut().for_each(|node| trim(node, self.whole));
        Ok(structs(list))
    }

    async fn watch(&self, params: WatchParams) -> Result<Stream<Node>, client::Error> {
        let whole = self.whole;
        let trimmed = move |mut node: Arc<Node>| {
            trim(&mut node, whole);
            Ok(node)
        };
        let stream = self.client.watch::<Node>("", &params).await?;
        Ok(struct_events(stream.map(move |event| event.map(|event| event.map(trimmed)))))
    }
}

/// What is asked of an object whose selector is all that matters. Its template would be most of it, and nobody's but ours.
fn named(meta: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        ..ObjectMeta::default()
    }
}

pub(crate) fn replication_controller(whole: Arc<ReplicationController>) -> Object {
    let selector = whole.spec.as_ref().and_then(|spec| spec.selector.clone()).unwrap_or_default();
    Object::ReplicationController(Arc::new(Selecting { metadata: named(&whole.metadata), selector }))
}

pub(crate) fn replica_set(whole: Arc<ReplicaSet>) -> Object {
    let selector = whole.spec.selector.clone();
    Object::ReplicaSet(Arc::new(Selecting { metadata: named(&whole.metadata), selector }))
}

pub(crate) fn stateful_set(whole: Arc<StatefulSet>) -> Object {
    let selector = whole.spec.selector.clone();
    Object::StatefulSet(Arc::new(Selecting { metadata: named(&whole.metadata), selector }))
}

/// Drops what neither plugins nor events look at. A node that somebody else shares stays as it is.
fn trim(node: &mut Arc<Node>, whole: bool) {
    let Some(node) = Arc::get_mut(node) else { return };
    if whole {
        return;
    }
    if let Some(status) = &mut node.status {
        (status.addresses, status.capacity, status.config) = (None, None, None);
        (status.daemon_endpoints, status.node_info, status.runtime_handlers) = (None, None, None);
        (status.volumes_attached, status.volumes_in_use) = (None, None);
        for condition in status.conditions.iter_mut().flatten() {
            (condition.message, condition.reason) = (None, None);
        }
    }
}
