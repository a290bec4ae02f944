//! The table of all controllers, and what runs them.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use informer::{Informers, Recorder};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::{Config, Error, metrics};

/// What a set of controllers is called in metrics.
const MANAGER: &str = "kube-controller-manager";

type Start = fn(Context) -> BoxFuture<'static, ()>;

/// One controller.
struct Entry {
    /// As in `--controllers`.
    name: &'static str,
    /// Its name of old, which `--controllers` still knows; empty where it never had another.
    alias: &'static str,
    /// The service account it acts as; empty: the controller manager itself.
    account: &'static str,
    /// The component its events come from.
    events: &'static str,
    start: Start,
}

macro_rules! controllers {
    ($($name:literal | $alias:literal, $account:literal, $events:literal => $start:path;)*) => {
        &[$(Entry { name: $name, alias: $alias, account: $account, events: $events, start: |context| $start(context).boxed() }),*]
    };
}

/// In the order of `--help`.
const ALL: &[Entry] = controllers! {
    "serviceaccount-token-controller" | "serviceaccount-token", "", "" => crate::serviceaccounttoken::start;
    "serviceaccount-controller" | "serviceaccount", "service-account-controller", "service-account-controller" => crate::serviceaccount::start;
    "endpoints-controller" | "endpoint", "endpoint-controller", "endpoint-controller" => crate::endpoints::start;
    "endpointslice-controller" | "endpointslice", "endpointslice-controller", "endpoint-slice-controller" => crate::endpointslice::start;
    "garbage-collector-controller" | "garbagecollector", "generic-garbage-collector", "garbage-collector-controller" => crate::garbage::start;
    "namespace-controller" | "namespace", "namespace-controller", "namespace-controller" => crate::namespace::start;
    "root-ca-certificate-publisher-controller" | "root-ca-cert-publisher", "root-ca-cert-publisher", "root-ca-cert-publisher" => crate::rootca::start;
    "kube-apiserver-serving-clustertrustbundle-publisher-controller" | "", "kube-apiserver-serving-clustertrustbundle-publisher", "kube-apiserver-serving-clustertrustbundle-publisher" => crate::clustertrustbundlepublisher::start;
    "node-ipam-controller" | "nodeipam", "node-controller", "cidrAllocator" => crate::nodeipam::start;
    "node-lifecycle-controller" | "nodelifecycle", "node-controller", "node-controller" => crate::nodelifecycle::start;
    "taint-eviction-controller" | "", "node-controller", "taint-eviction-controller" => crate::tainteviction::start;
    "device-taint-eviction-controller" | "", "device-taint-eviction-controller", "device-taint-eviction-controller" => crate::devicetainteviction::start;
    "daemonset-controller" | "daemonset", "daemon-set-controller", "daemonset-controller" => crate::daemonset::start;
    "statefulset-controller" | "statefulset", "statefulset-controller", "statefulset-controller" => crate::statefulset::start;
    "job-controller" | "job", "job-controller", "job-controller" => crate::job::start;
    "cronjob-controller" | "cronjob", "cronjob-controller", "cronjob-controller" => crate::cronjob::start;
    "pod-garbage-collector-controller" | "podgc", "pod-garbage-collector", "pod-garbage-collector" => crate::podgc::start;
    "ttl-after-finished-controller" | "ttl-after-finished", "ttl-after-finished-controller", "ttl-after-finished-controller" => crate::ttlafterfinished::start;
    "clusterrole-aggregation-controller" | "clusterrole-aggregation", "clusterrole-aggregation-controller", "clusterrole-aggregation-controller" => crate::clusterrole::start;
    "disruption-controller" | "disruption", "disruption-controller", "controllermanager" => crate::disruption::start;
    "certificatesigningrequest-approving-controller" | "csrapproving", "certificate-controller", "certificate-controller" => crate::certificates::start_approver;
    "kubelet-serving-approving-controller" | "", "kubelet-serving-approver", "kubelet-serving-approver" => crate::certificates::serving::start;
    "certificatesigningrequest-signing-controller" | "csrsigning", "certificate-controller", "certificate-controller" => crate::certificates::start_signer;
    "certificatesigningrequest-cleaner-controller" | "csrcleaner", "certificate-controller", "certificate-controller" => crate::certificates::start_cleaner;
    "podcertificaterequest-cleaner-controller" | "", "podcertificaterequestcleaner", "podcertificaterequestcleaner" => crate::podcertificaterequestcleaner::start;
    "persistentvolume-binder-controller" | "persistentvolume-binder", "persistent-volume-binder", "persistentvolume-controller" => crate::volumebinder::start;
    "persistentvolumeclaim-protection-controller" | "pvc-protection", "pvc-protection-controller", "pvc-protection-controller" => crate::volumeprotection::start_claims;
    "persistentvolume-protection-controller" | "pv-protection", "pv-protection-controller", "pv-protection-controller" => crate::volumeprotection::start_volumes;
    "volumeattributesclass-protection-controller" | "", "volumeattributesclass-protection-controller", "volumeattributesclass-protection-controller" => crate::volumeattributesclassprotection::start;
    "local-path-provisioner-controller" | "", "persistent-volume-binder", "trireme.io/local-path" => crate::localpath::start;
    "resourceclaim-controller" | "resource-claim-controller", "resource-claim-controller", "resource_claim" => crate::resourceclaim::start;
    "resourcequota-controller" | "resourcequota", "resourcequota-controller", "resourcequota-controller" => crate::resourcequota::start;
    "endpointslice-mirroring-controller" | "endpointslicemirroring", "endpointslicemirroring-controller", "endpoint-slice-mirroring-controller" => crate::endpointslicemirroring::start;
    "ephemeral-volume-controller" | "ephemeral-volume", "ephemeral-volume-controller", "ephemeral_volume" => crate::ephemeralvolume::start;
    "token-cleaner-controller" | "tokencleaner", "token-cleaner", "token-cleaner" => crate::tokencleaner::start;
    "deployment-controller" | "deployment", "deployment-controller", "deployment-controller" => crate::deployment::start;
    "replicaset-controller" | "replicaset", "replicaset-controller", "replicaset-controller" => crate::replicaset::start;
    "replicationcontroller-controller" | "replicationcontroller", "replication-controller", "replication-controller" => crate::replicaset::start_replication_controllers;
    "horizontal-pod-autoscaler-controller" | "horizontalpodautoscaling", "horizontal-pod-autoscaler", "horizontal-pod-autoscaler" => crate::horizontalpodautoscaler::start;
    "ttl-controller" | "ttl", "ttl-controller", "ttl-controller" => crate::nodettl::start;
    "bootstrap-signer-controller" | "bootstrapsigner", "bootstrap-signer", "bootstrap-signer" => crate::bootstrapsigner::start;
    "legacy-serviceaccount-token-cleaner-controller" | "legacy-service-account-token-cleaner", "legacy-service-account-token-cleaner", "legacy-service-account-token-cleaner" => crate::legacytokencleaner::start;
    "service-cidr-controller" | "", "service-cidrs-controller", "service-cidr-controller" => crate::servicecidr::start;
    "storageversion-garbage-collector-controller" | "storage-version-gc", "storage-version-garbage-collector", "storage-version-garbage-collector" => crate::storageversion::start;
    "validatingadmissionpolicy-status-controller" | "validatingadmissionpolicy-status", "validatingadmissionpolicy-status-controller", "validatingadmissionpolicy-status-controller" => crate::validatingadmissionpolicy::start;
    "persistentvolume-expander-controller" | "persistentvolume-expander", "expand-controller", "volume_expand" => crate::volumeexpand::start;
};

/// Those that `*` does not mean, as upstream has it: whoever joins nodes by bootstrap tokens names them.
const OFF: [&str; 2] = ["bootstrap-signer-controller", "token-cleaner-controller"];

/// The names that `--controllers` knows.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|entry| entry.name)
}

/// The names of those that a list such as `*,-foo` switches on.
pub fn enabled_names(list: &[String]) -> Result<Vec<&'static str>, Error> {
    let list = canonical(list)?;
    Ok(names().filter(|name| enabled(&list, name)).collect())
}

/// The list of `--controllers` in today's names; fails on a name that no controller has or had.
fn canonical(list: &[String]) -> Result<Vec<String>, Error> {
    let name_of = |item: &str| {
        if item == "*" {
            return Some("*");
        }
        ALL.iter().find(|entry| entry.name == item || (!item.is_empty() && entry.alias == item)).map(|entry| entry.name)
    };
    let one = |item: &String| {
        let (sign, name) = item.strip_prefix('-').map_or(("", item.as_str()), |name| ("-", name));
        let known = name_of(name).ok_or_else(|| Error::UnknownController(name.to_owned()))?;
        Ok(format!("{sign}{known}"))
    };
    list.iter().map(one).collect()
}

/// Whether a list such as `*,-foo` switches a controller on. What comes later does not matter: a name always beats `*`.
fn enabled(list: &[String], name: &str) -> bool {
    let named = list.iter().any(|item| item == name);
    let refused = list.iter().any(|item| item.strip_prefix('-') == Some(name));
    named || (!refused && !OFF.contains(&name) && list.iter().any(|item| item == "*"))
}

/// Runs the controllers until told to stop. A controller that ends by itself is a mistake in the program and ends nothing else.
pub async fn run(config: Config, stop: CancellationToken) -> Result<(), Error> {
    let list = canonical(&config.controllers)?;
    let config = Arc::new(config);
    let informers = Informers::with_clock(config.informers.clone(), config.clock.clone());
    let mut running = JoinSet::new();
    for entry in ALL.iter().filter(|entry| enabled(&list, entry.name)) {
        let client = match entry.account {
            "" => config.informers.clone(),
            account => (config.clients)(account),
        };
        let context = Context {
            name: entry.name,
            recorder: Recorder::new(client.clone(), entry.events, None, config.clock.clone()),
            client,
            informers: informers.clone(),
            clock: config.clock.clone(),
            config: config.clone(),
            stop: stop.clone(),
        };
        running.spawn(told(entry.name, (entry.start)(context)));
    }
    while running.join_next().await.is_some() {}
    Ok(())
}

/// Controllers whose start panicked. Their turns may panic and are tried again; a start is not.
static BROKEN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Whether a controller has not broken down, for checks of health.
pub fn is_well(name: &str) -> bool {
    !BROKEN.lock().contains(name)
}

/// Runs a controller, and says so as long as it does.
async fn told(name: &'static str, running: BoxFuture<'static, ()>) {
    struct Told(&'static str);
    impl Drop for Told {
        fn drop(&mut self) {
            metrics::RUNNING.set(&[self.0, MANAGER], 0.0);
        }
    }
    metrics::RUNNING.set(&[name, MANAGER], 1.0);
    BROKEN.lock().remove(name);
    let _told = Told(name);
    if AssertUnwindSafe(running).catch_unwind().await.is_err() {
        tracing::error!(controller = name, "a controller broke down and ends before its time");
        BROKEN.lock().insert(name);
    }
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
        assert!(!enabled(&list(&["*"]), "token-cleaner-controller"));
        assert!(enabled(&list(&["*", "token-cleaner-controller"]), "token-cleaner-controller"));
    }

    #[test]
    fn names_of_old_are_known_and_unknown_ones_refused() {
        let list = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
        let known = canonical(&list(&["*", "-deployment", "bootstrapsigner"])).expect("all are known");
        assert_eq!(known, ["*", "-deployment-controller", "bootstrap-signer-controller"]);
        let error = canonical(&list(&["-nothing"])).expect_err("no such controller");
        assert_eq!(error.to_string(), "\"nothing\" is not in the list of known controllers");
        assert!(canonical(&list(&[""])).is_err());
    }

    async fn broken() {
        panic!("on purpose");
    }

    #[tokio::test]
    async fn a_controller_that_breaks_down_is_told_of_until_it_runs_again() {
        let shown = || metrics::RUNNING.value(&["registry-test", MANAGER]);
        told("registry-test", async move { assert_eq!(shown(), Some(1.0), "it says that it runs") }.boxed()).await;
        assert_eq!((shown(), is_well("registry-test")), (Some(0.0), true), "an end is no breakdown");
        told("registry-test", broken().boxed()).await;
        assert_eq!((shown(), is_well("registry-test")), (Some(0.0), false));
        told("registry-test", async {}.boxed()).await;
        assert!(is_well("registry-test"));
    }

    #[test]
    fn a_list_names_what_it_switches_on() {
        let list: Vec<String> = ["deployment", "-replicaset"].map(str::to_owned).to_vec();
        assert_eq!(enabled_names(&list).expect("both are known"), ["deployment-controller"]);
        assert!(enabled_names(&["nothing".to_owned()]).is_err());
    }
}
