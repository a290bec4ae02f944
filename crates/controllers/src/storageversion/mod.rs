//! Storage version GC: API servers that are gone no longer count for how objects are stored.
//!
//! The resource is an alpha that API servers serve only when asked to; without it there is nothing to do. Upstream: storageversiongc.

use std::sync::Arc;

use client::{Client, DeleteOptions};
use informer::{Action, Clock, Filter, Informer, Key, Reconciler};
use jiff::Timestamp;
use k8s_openapi::api::apiserverinternal::v1alpha1::{StorageVersion, StorageVersionCondition, StorageVersionStatus};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::Context;

const GROUP_VERSION: &str = "/apis/internal.apiserver.k8s.io/v1alpha1";
/// The leases by which API servers show that they live.
const IDENTITIES: &str = "apiserver.kubernetes.io/identity=kube-apiserver";

/// Runs the controller, if the API server knows storage versions.
pub(crate) async fn start(context: Context) {
    if context.client.raw(GROUP_VERSION).await.is_err() {
        tracing::debug!("the API server does not serve storage versions: nothing to collect");
        return;
    }
    let identities =
        Filter { namespace: "kube-system".to_owned(), label_selector: IDENTITIES.to_owned(), ..Filter::default() };
    let controller = StorageVersions {
        client: context.client.clone(),
        clock: context.clock.clone(),
        versions: context.informers.of(),
        servers: context.informers.filtered(identities),
    };
    let queue = context.queue();
    informer::feed(&controller.versions, &queue, |change| change.after().map(|version| version.metadata.key()));
    let versions = controller.versions.clone();
    informer::feed(&controller.servers, &queue, move |change| {
        let gone = change.after().is_none();
        let all = if gone { versions.list() } else { Vec::new() };
        all.into_iter().map(|version| version.metadata.key()).collect::<Vec<_>>()
    });
    futures::join!(controller.versions.synced(), controller.servers.synced());
    context.run(controller, queue, 1).await;
}

struct StorageVersions {
    client: Client,
    clock: Arc<dyn Clock>,
    versions: Informer<StorageVersion>,
    servers: Informer<Lease>,
}

impl Reconciler for StorageVersions {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        let Some(version) = self.versions.get(key) else { return Ok(Action::Done) };
        let lives = |server: &str| self.servers.get(&Key::new("kube-system", server)).is_some();
        let outcome = match without_the_dead(&version, lives, self.clock.now()) {
            Outcome::Same => Ok(()),
            Outcome::Gone => {
                let options = DeleteOptions { uid: version.metadata.uid.clone(), ..DeleteOptions::default() };
                self.client.delete::<StorageVersion>("", &key.name, &options).await
            }
            Outcome::Changed(status) => {
                let changed = StorageVersion { status: Some(*status), ..StorageVersion::clone(&version) };
                self.client.update_status(&changed).await.map(drop)
            }
        };
        match outcome {
            Err(error) if !error.is_not_found() => Err(error.into()),
            _ => Ok(Action::Done),
        }
    }
}

enum Outcome {
    Same,
    Gone,
    Changed(Box<StorageVersionStatus>),
}

/// The status without the servers that do not live.
fn without_the_dead(version: &StorageVersion, lives: impl Fn(&str) -> bool, now: Timestamp) -> Outcome {
    let mut status = version.status.clone().unwrap_or_default();
    let servers = status.storage_versions.get_or_insert_default();
    let before = servers.len();
    servers.retain(|server| lives(&server.api_server_id));
    if servers.len() == before {
        return Outcome::Same;
    }
    let Some(first) = servers.first().map(|server| server.encoding_version.clone()) else { return Outcome::Gone };
    let agreed = servers.iter().all(|server| server.encoding_version == first);
    let common = agreed.then_some(first);
    let moved =
        status.common_encoding_version.is_some() && common.is_some() && status.common_encoding_version != common;
    status.common_encoding_version = common;
    let (text, reason, message) = if agreed {
        ("True", "CommonEncodingVersionSet", "Common encoding version set")
    } else {
        ("False", "CommonEncodingVersionUnset", "Common encoding version unset")
    };
    let conditions = status.conditions.get_or_insert_default();
    let known = conditions.iter().position(|condition| condition.type_ == "AllEncodingVersionsEqual");
    let since = known.map(|at| &conditions[at]).filter(|known| known.status == text && !moved);
    let condition = StorageVersionCondition {
        type_: "AllEncodingVersionsEqual".to_owned(),
        status: text.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: version.metadata.generation,
        last_transition_time: since.map_or(Some(Time(now)), |known| known.last_transition_time.clone()),
    };
    match known {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    Outcome::Changed(Box::new(status))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apiserverinternal::v1alpha1::ServerStorageVersion;

    use super::*;

    fn version(servers: &[(&str, &str)]) -> StorageVersion {
        let servers = servers.iter().map(|(id, encoding)| ServerStorageVersion {
            api_server_id: (*id).into(),
            encoding_version: (*encoding).into(),
            ..ServerStorageVersion::default()
        });
        StorageVersion {
            status: Some(StorageVersionStatus {
                storage_versions: Some(servers.collect()),
                ..StorageVersionStatus::default()
            }),
            ..StorageVersion::default()
        }
    }

    #[test]
    fn only_servers_that_live_count() {
        let check = |servers: &[(&str, &str)]| match without_the_dead(
            &version(servers),
            |id| id.starts_with("live"),
            Timestamp::UNIX_EPOCH,
        ) {
            Outcome::Same => "same".to_owned(),
            Outcome::Gone => "gone".to_owned(),
            Outcome::Changed(status) => {
                let condition = &status.conditions.as_ref().expect("conditions")[0];
                format!("{:?} {}", status.common_encoding_version, condition.reason)
            }
        };
        assert_eq!(check(&[("live-1", "v1"), ("live-2", "v2")]), "same");
        assert_eq!(check(&[("dead", "v1")]), "gone");
        assert_eq!(check(&[("dead", "v1"), ("live-1", "v2")]), r#"Some("v2") CommonEncodingVersionSet"#);
        assert_eq!(check(&[("dead", "v1"), ("live-1", "v1"), ("live-2", "v2")]), "None CommonEncodingVersionUnset");
    }
}
