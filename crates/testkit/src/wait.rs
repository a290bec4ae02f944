//! Waiting for a condition with a deadline, woken by watches and never by a timer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, Event, Kind, ListParams, WatchParams};
use futures::StreamExt as _;

/// Longer than anything that works takes, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// Awaits a future; panics with `what` if it takes too long.
pub async fn eventually<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("did not happen within {DEADLINE:?}: {what}"),
    }
}

/// Waits until the objects of a kind satisfy a condition, and returns them.
pub async fn objects<K: Kind>(
    client: &Client,
    namespace: &str,
    what: &str,
    mut met: impl FnMut(&[Arc<K>]) -> bool,
) -> Vec<Arc<K>> {
    let follow = async {
        let list = client.list::<K>(namespace, &ListParams::default()).await.expect("a list");
        let mut present = list.items;
        if met(&present) {
            return present;
        }
        let params = WatchParams { resource_version: Some(list.revision), ..WatchParams::default() };
        let mut events = client.watch::<K>(namespace, &params).await.expect("a watch");
        while let Some(event) = events.next().await {
            let same = |one: &Arc<K>, other: &Arc<K>| {
                (&one.metadata().namespace, &one.metadata().name)
                    == (&other.metadata().namespace, &other.metadata().name)
            };
            match event.expect("an event") {
                Event::Added(object) | Event::Modified(object) => {
                    present.retain(|other| !same(&object, other));
                    present.push(object);
                }
                Event::Deleted(object) => present.retain(|other| !same(&object, other)),
                Event::Bookmark { .. } => {}
                Event::Undecodable { object, .. } => panic!("cannot be read: {object:?}"),
            }
            if met(&present) {
                return present;
            }
        }
        panic!("the watch ended while waiting: {what}");
    };
    eventually(what, follow).await
}

/// Waits until one object satisfies a condition, and returns it. `None` is an absent object.
pub async fn object<K: Kind>(
    client: &Client,
    namespace: &str,
    name: &str,
    what: &str,
    mut met: impl FnMut(Option<&K>) -> bool,
) -> Option<Arc<K>> {
    let find =
        |present: &[Arc<K>]| present.iter().find(|object| object.metadata().name.as_deref() == Some(name)).cloned();
    let present = objects::<K>(client, namespace, what, |present| met(find(present).as_deref())).await;
    find(&present)
}
