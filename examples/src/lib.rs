//! A controller of your own: it writes into an annotation how many keys a ConfigMap has that asks for it by a label.
//!
//! The shape is that of every controller here: [`plan`] decides and is pure, so a table can test it; `reconcile` reads the cache, applies
//! the plan and says when to look again. A turn may be cut off anywhere and called again at any time, so it never remembers anything.

use std::sync::Arc;

use client::{Client, Patch};
use informer::{Action, Informer, Informers, Key, Reconciler, WorkQueue, feed};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Asks for the count.
pub const LABEL: &str = "example.com/count";
/// Has the count.
pub const ANNOTATION: &str = "example.com/keys";

/// What the annotation of a ConfigMap has to become; `None` if it is right, or nobody asks for it.
pub fn plan(map: &ConfigMap) -> Option<String> {
    map.metadata.labels.as_ref()?.get(LABEL)?;
    let count = map.data.as_ref().map_or(0, |data| data.len()).to_string();
    let known = map.metadata.annotations.as_ref().and_then(|annotations| annotations.get(ANNOTATION));
    (known != Some(&count)).then_some(count)
}

struct Counter {
    client: Client,
    maps: Informer<ConfigMap>,
}

impl Reconciler for Counter {
    type Error = client::Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Self::Error> {
        let Some(map) = self.maps.get(key) else { return Ok(Action::Done) };
        if let Some(count) = plan(&map) {
            let patch = Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION: count}}}));
            self.client.patch::<ConfigMap>(&key.namespace, &key.name, &patch).await?;
        }
        // The write comes back as a change, and then there is nothing left to do.
        Ok(Action::Done)
    }
}

/// Runs the controller until told to stop.
pub async fn run(client: Client, stop: CancellationToken) {
    let informers = Informers::new(client.clone());
    let maps = informers.of::<ConfigMap>();
    let queue = WorkQueue::new("counter", informers.clock().clone());
    feed(&maps, &queue, |change| [Key::of(&change.object().metadata)]);
    maps.synced().await;
    informer::run("counter", Arc::new(Counter { client, maps }), queue, 2, stop).await;
}
