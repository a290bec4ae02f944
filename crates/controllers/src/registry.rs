//! The table of all controllers, and what runs them.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use informer::{Informers, Recorder};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::{Config, Error};

type Start = fn(Context) -> BoxFuture<'static, ()>;

/// One controller.
struct Entry {
    /// As in `--controllers`.
    name: &'static str,
    /// The service account it acts as.
    account: &'static str,
    /// The component its events come from.
    events: &'static str,
    start: Start,
}

macro_rules! controllers {
    ($($name:literal, $account:literal, $events:literal => $start:path;)*) => {
        &[$(Entry { name: $name, account: $account, events: $events, start: |context| $start(context).boxed() }),*]
    };
}

/// In the order of `--help`.
const ALL: &[Entry] = controllers! {
    "serviceaccount-controller", "service-account-controller", "service-account-controller" => crate::serviceaccount::start;
    "endpoints-controller", "endpoint-controller", "endpoint-controller" => crate::endpoints::start;
    "endpointslice-controller", "endpointslice-controller", "endpoint-slice-controller" => crate::endpointslice::start;
    "garbage-collector-controller", "generic-garbage-collector", "garbage-collector-controller" => crate::garbage::start;
    "namespace-controller", "namespace-controller", "namespace-controller" => crate::namespace::start;
    "root-ca-certificate-publisher-controller", "root-ca-cert-publisher", "root-ca-cert-publisher" => crate::rootca::start;
    "node-ipam-controller", "node-controller", "cidrAllocator" => crate::nodeipam::start;
    "node-lifecycle-controller", "node-controller", "node-controller" => crate::nodelifecycle::start;
    "taint-eviction-controller", "node-controller", "taint-eviction-controller" => crate::tainteviction::start;
    "daemonset-controller", "daemon-set-controller", "daemonset-controller" => crate::daemonset::start;
    "statefulset-controller", "statefulset-controller", "statefulset-controller" => crate::statefulset::start;
    "job-controller", "job-controller", "job-controller" => crate::job::start;
    "cronjob-controller", "cronjob-controller", "cronjob-controller" => crate::cronjob::start;
    "pod-garbage-collector-controller", "pod-garbage-collector", "pod-garbage-collector" => crate::podgc::start;
    "ttl-after-finished-controller", "ttl-after-finished-controller", "ttl-after-finished-controller" => crate::ttlafterfinished::start;
    "clusterrole-aggregation-controller", "clusterrole-aggregation-controller", "clusterrole-aggregation-controller" => crate::clusterrole::start;
    "disruption-controller", "disruption-controller", "controllermanager" => crate::disruption::start;
    "certificatesigningrequest-approving-controller", "certificate-controller", "certificate-controller" => crate::certificates::start_approver;
    "kubelet-serving-approving-controller", "kubelet-serving-approver", "kubelet-serving-approver" => crate::certificates::serving::start;
    "certificatesigningrequest-signing-controller", "certificate-controller", "certificate-controller" => crate::certificates::start_signer;
    "certificatesigningrequest-cleaner-controller", "certificate-controller", "certificate-controller" => crate::certificates::start_cleaner;
    "persistentvolume-binder-controller", "persistent-volume-binder", "persistentvolume-controller" => crate::volumebinder::start;
    "persistentvolumeclaim-protection-controller", "pvc-protection-controller", "pvc-protection-controller" => crate::volumeprotection::start_claims;
    "persistentvolume-protection-controller", "pv-protection-controller", "pv-protection-controller" => crate::volumeprotection::start_volumes;
    "local-path-provisioner-controller", "persistent-volume-binder", "trireme.io/local-path" => crate::localpath::start;
    "resourcequota-controller", "resourcequota-controller", "resourcequota-controller" => crate::resourcequota::start;
    "endpointslice-mirroring-controller", "endpointslicemirroring-controller", "endpoint-slice-mirroring-controller" => crate::endpointslicemirroring::start;
    "ephemeral-volume-controller", "ephemeral-volume-controller", "ephemeral_volume" => crate::ephemeralvolume::start;
    "token-cleaner-controller", "token-cleaner", "token-cleaner" => crate::tokencleaner::start;
    "deployment-controller", "deployment-controller", "deployment-controller" => crate::deployment::start;
    "replicaset-controller", "replicaset-controller", "replicaset-controller" => crate::replicaset::start;
    "replicationcontroller-controller", "replication-controller", "replication-controller" => crate::replicaset::start_replication_controllers;
};

/// The names that `--controllers` knows.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|entry| entry.name)
}

/// Whether a list such as `*,-foo` switches a controller on. What comes later does not matter: a name always beats `*`.
fn enabled(list: &[String], name: &str) -> bool {
    let named = list.iter().any(|item| item == name);
    let refused = list.iter().any(|item| item.strip_prefix('-') == Some(name));
    named || (!refused && list.iter().any(|item| item == "*"))
}

/// Runs the controllers until told to stop. A controller that ends by itself is a mistake in the program and ends nothing else.
pub async fn run(config: Config, stop: CancellationToken) -> Result<(), Error> {
    for item in &config.controllers {
        let name = item.strip_prefix('-').unwrap_or(item);
        if name != "*" && !names().any(|known| known == name) {
            return Err(Error::UnknownController(name.to_owned()));
        }
    }
    let config = Arc::new(config);
    let informers = Informers::with_clock(config.informers.clone(), config.clock.clone());
    let mut running = JoinSet::new();
    for entry in ALL.iter().filter(|entry| enabled(&config.controllers, entry.name)) {
        let client = (config.clients)(entry.account);
        let context = Context {
            name: entry.name,
            recorder: Recorder::new(client.clone(), entry.events, None, config.clock.clone()),
            client,
            informers: informers.clone(),
            clock: config.clock.clone(),
            config: config.clone(),
            stop: stop.clone(),
        };
        running.spawn((entry.start)(context));
    }
    while let Some(ended) = running.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a controller ended before its time");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beat_the_star() {
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
        assert!(enabled(&list(&["*"]), "a"));
        assert!(!enabled(&list(&["*", "-a"]), "a"));
        assert!(enabled(&list(&["*", "-a"]), "b"));
        assert!(enabled(&list(&["a"]), "a"));
        assert!(!enabled(&list(&["a"]), "b"));
    }
}
