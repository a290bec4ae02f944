//! The objects of a kind that users may define or not, read as if it were always there.
//!
//! While nobody has defined it there are none, and the definition is watched for; once it is served everything is read. When the definition
//! goes, so do its objects, and it is watched for again. Only where reading is forbidden is it tried again after a while.

use std::time::Duration;

use client::{Client, Error, Event, Gvr, List, ListParams, WatchParams};
use futures::stream::{self, StreamExt as _};
use informer::{Backoff, Informer, Informers, Item, Source, Stream, struct_events, structs};
use k8s_openapi::Resource as _;
use machinery::ApiError;

use crate::cluster_policy::{ClusterNetworkPolicy, DEFINITION};

/// The revision of nothing.
const NEVER: &str = "0";
/// When somebody who may not read asks again.
const FORBIDDEN: Duration = Duration::from_secs(60);
/// How often a kind that was just defined is asked for: its definition is told of a moment before it is served.
const TRIES: usize = 20;

/// The cluster's policies, none while nobody has defined them.
pub fn cluster_policies(informers: &Informers) -> Informer<ClusterNetworkPolicy> {
    informers.spawn(ClusterPolicies(informers.client().clone()))
}

/// The cluster's policies as they are now, none if nobody has defined them.
pub async fn read_cluster_policies(client: &Client) -> Result<List<ClusterNetworkPolicy>, Error> {
    read(client, &ListParams::default()).await
}

async fn read(client: &Client, params: &ListParams) -> Result<List<ClusterNetworkPolicy>, Error> {
    match client.list::<ClusterNetworkPolicy>("", params).await {
        Err(error) if is_undefined(&error) || error.is_forbidden() => {
            let revision = NEVER.to_owned();
            Ok(List { items: Vec::new(), revision, next: None, remaining: None, undecodable: Vec::new() })
        }
        answer => answer,
    }
}

struct ClusterPolicies(Client);

fn is_undefined(error: &Error) -> bool {
    error.code() == Some(404)
}

/// What reads everything again.
fn again() -> Error {
    Error::Api(ApiError::expired("the kind was defined or is no longer"))
}

impl Source for ClusterPolicies {
    type Object = ClusterNetworkPolicy;

    fn name(&self) -> String {
        ClusterNetworkPolicy::URL_PATH_SEGMENT.to_owned()
    }

    async fn list(&self, params: ListParams) -> Result<List<Item<ClusterNetworkPolicy>>, Error> {
        Ok(structs(read(&self.0, &params).await?))
    }

    async fn watch(&self, params: WatchParams) -> Result<Stream<ClusterNetworkPolicy>, Error> {
        let error = match self.0.watch::<ClusterNetworkPolicy>("", &params).await {
            Ok(stream) => return Ok(struct_events(stream)),
            Err(error) => error,
        };
        if !is_undefined(&error) && !error.is_forbidden() {
            return Err(error);
        }
        // What was read before is no longer there.
        if !params.send_initial_events && params.resource_version.as_deref() != Some(NEVER) {
            return Err(again());
        }
        let nothing = Event::Bookmark { revision: NEVER.to_owned(), initial_events_end: true };
        let begin = stream::iter(params.send_initial_events.then_some(Ok(nothing)));
        let client = self.0.clone();
        let end = stream::once(async move {
            if error.is_forbidden() {
                tracing::warn!(%error, "policies of the cluster cannot be read, so none is in force");
                tokio::time::sleep(FORBIDDEN).await;
            } else {
                until_defined(&client).await;
            }
            Err(again())
        });
        Ok(begin.chain(end).boxed())
    }
}

/// Returns when the kind can be read.
async fn until_defined(client: &Client) {
    let definitions = Gvr::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let definitions = client.dynamic(&definitions);
    let params = WatchParams { field_selector: format!("metadata.name={DEFINITION}"), ..WatchParams::default() };
    let mut backoff = Backoff::reflector();
    loop {
        match definitions.watch_metadata("", &params).await {
            Ok(mut events) => {
                while let Some(Ok(event)) = events.next().await {
                    backoff.reset();
                    if matches!(event, Event::Added(_) | Event::Modified(_)) && is_served(client).await {
                        return;
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "nobody tells when policies of the cluster are defined"),
        }
        tokio::time::sleep(backoff.delay()).await;
    }
}

async fn is_served(client: &Client) -> bool {
    let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500), 0.0);
    for _ in 0..TRIES {
        let one = ListParams { limit: Some(1), ..ListParams::default() };
        match client.list::<ClusterNetworkPolicy>("", &one).await {
            Err(error) if is_undefined(&error) => tokio::time::sleep(backoff.delay()).await,
            _ => return true,
        }
    }
    false
}
