//! Pods and nodes from the API, made small on the way in.
//!
//! A pod becomes what scheduling needs of it, and its replicas share what they have in common; a node loses what no plugin
//! reads. So a cluster of many pods fits into little memory, and the scheduling thread finds everything parsed.

use std::sync::Arc;

use client::{Client, Event, List, ListParams, WatchParams};
use futures::StreamExt;
use informer::{Source, Stream};
use k8s_openapi::api::core::v1::{Node, Pod};

use crate::model::pod::{PodInfo, Shapes};

/// Finished pods take no room and are not watched.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// An event about another form of the object.
fn mapped<A, B>(event: Event<A>, form: impl Fn(Arc<A>) -> Arc<B>) -> Event<B> {
    match event {
        Event::Added(object) => Event::Added(form(object)),
        Event::Modified(object) => Event::Modified(form(object)),
        Event::Deleted(object) => Event::Deleted(form(object)),
        Event::Bookmark { revision, initial_events_end } => Event::Bookmark { revision, initial_events_end },
    }
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

    async fn list(&self, params: ListParams) -> Result<List<PodInfo>, client::Error> {
        let params = ListParams { field_selector: UNFINISHED.to_owned(), ..params };
        let list = self.client.list::<Pod>("", &params).await?;
        let read = |pod| Arc::new(PodInfo::shared(&pod, &self.shapes, self.whole));
        let items = list.items.into_iter().map(read).collect();
        Ok(List { items, revision: list.revision, next: list.next, remaining: list.remaining })
    }

    async fn watch(&self, params: WatchParams) -> Result<Stream<PodInfo>, client::Error> {
        let params = WatchParams { field_selector: UNFINISHED.to_owned(), ..params };
        let stream = self.client.watch::<Pod>("", &params).await?;
        let (shapes, whole) = (self.shapes.clone(), self.whole);
        let read = move |pod: Arc<Pod>| Arc::new(PodInfo::shared(&pod, &shapes, whole));
        Ok(stream.map(move |event| event.map(|event| mapped(event, &read))).boxed())
    }
}

/// The nodes.
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

    async fn list(&self, params: ListParams) -> Result<List<Node>, client::Error> {
        let mut list = self.client.list::<Node>("", &params).await?;
        list.items.iter_mut().for_each(|node| trim(node, self.whole));
        Ok(list)
    }

    async fn watch(&self, params: WatchParams) -> Result<Stream<Node>, client::Error> {
        let whole = self.whole;
        let trimmed = move |mut node: Arc<Node>| {
            trim(&mut node, whole);
            node
        };
        let stream = self.client.watch::<Node>("", &params).await?;
        Ok(stream.map(move |event| event.map(|event| mapped(event, trimmed))).boxed())
    }
}

/// Drops what neither plugins nor events look at. A node that somebody else shares stays as it is.
fn trim(node: &mut Arc<Node>, whole: bool) {
    let Some(node) = Arc::get_mut(node) else { return };
    node.metadata.managed_fields = None;
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
