//! All controllers, as their folders describe them, and what runs them.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use informer::{Informers, Recorder};
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::context::{Context, Tools};
use crate::controller::Controller;
use crate::{Config, Error, metrics};

/// What a set of controllers is called in metrics.
const MANAGER: &str = "kube-controller-manager";

/// In the order of `--help`.
const ALL: &[&[Controller]] = &[
    &[crate::serviceaccounttoken::CONTROLLER],
    &[crate::serviceaccount::CONTROLLER],
    &[crate::endpoints::CONTROLLER],
    &[crate::endpointslice::CONTROLLER],
    &[crate::garbage::CONTROLLER],
    &[crate::namespace::CONTROLLER],
    &[crate::rootca::CONTROLLER],
    &[crate::clustertrustbundlepublisher::CONTROLLER],
    &[crate::nodeipam::CONTROLLER],
    &[crate::nodelifecycle::CONTROLLER],
    &[crate::tainteviction::CONTROLLER],
    &[crate::devicetainteviction::CONTROLLER],
    &[workloads::daemonset::CONTROLLER],
    &[workloads::statefulset::CONTROLLER],
    &[workloads::job::CONTROLLER],
    &[workloads::cronjob::CONTROLLER],
    &[crate::podgc::CONTROLLER],
    &[workloads::ttlafterfinished::CONTROLLER],
    &[crate::clusterrole::CONTROLLER],
    &[workloads::disruption::CONTROLLER],
    crate::certificates::CONTROLLERS,
    &[crate::podcertificaterequestcleaner::CONTROLLER],
    &[crate::volumebinder::CONTROLLER],
    &[crate::attachdetach::CONTROLLER],
    crate::volumeprotection::CONTROLLERS,
    &[crate::volumeattributesclassprotection::CONTROLLER],
    &[crate::localpath::CONTROLLER],
    &[crate::resourceclaim::CONTROLLER],
    &[crate::resourcequota::CONTROLLER],
    &[crate::endpointslicemirroring::CONTROLLER],
    &[crate::ephemeralvolume::CONTROLLER],
    &[crate::tokencleaner::CONTROLLER],
    &[workloads::deployment::CONTROLLER],
    workloads::replicaset::CONTROLLERS,
    &[workloads::horizontalpodautoscaler::CONTROLLER],
    &[crate::nodettl::CONTROLLER],
    &[crate::bootstrapsigner::CONTROLLER],
    &[crate::legacytokencleaner::CONTROLLER],
    &[crate::servicecidr::CONTROLLER],
    &[crate::storageversion::CONTROLLER],
    &[crate::storageversionmigrator::CONTROLLER],
    &[crate::validatingadmissionpolicy::CONTROLLER],
    &[crate::volumeexpand::CONTROLLER],
];

pub(crate) fn all() -> impl Iterator<Item = &'static Controller> {
    ALL.iter().copied().flatten()
}

/// The names of those that a list such as `*,-foo` switches on.
pub fn enabled_names(list: &[String]) -> Result<Vec<&'static str>, Error> {
    let list = canonical(list)?;
    Ok(all().filter(|controller| enabled(&list, controller)).map(|controller| controller.name).collect())
}

/// The accounts of those that a list switches on.
pub fn enabled_accounts(list: &[String]) -> Result<Vec<&'static str>, Error> {
    let list = canonical(list)?;
    let accounts = all().filter(|controller| enabled(&list, controller)).map(|controller| controller.account);
    let mut accounts: Vec<_> = accounts.filter(|account| !account.is_empty()).collect();
    accounts.sort_unstable();
    accounts.dedup();
    Ok(accounts)
}

/// The list of `--controllers` in today's names; fails on a name that no controller has or had.
fn canonical(list: &[String]) -> Result<Vec<String>, Error> {
    let name_of = |item: &str| {
        if item == "*" {
            return Some("*");
        }
        let known = |known: &&Controller| known.name == item || (!item.is_empty() && known.alias == item);
        all().find(known).map(|controller| controller.name)
    };
    let one = |item: &String| {
        let (sign, name) = item.strip_prefix('-').map_or(("", item.as_str()), |name| ("-", name));
        let known = name_of(name).ok_or_else(|| Error::UnknownController(name.to_owned()))?;
        Ok(format!("{sign}{known}"))
    };
    list.iter().map(one).collect()
}

/// Whether a list such as `*,-foo` switches a controller on. What comes later does not matter: a name always beats `*`.
fn enabled(list: &[String], controller: &Controller) -> bool {
    let named = list.iter().any(|item| item == controller.name);
    let refused = list.iter().any(|item| item.strip_prefix('-') == Some(controller.name));
    named || (!refused && controller.on && list.iter().any(|item| item == "*"))
}

/// Runs the controllers until it is stopped. A controller that ends by itself is a mistake in the program and ends nothing else.
pub async fn run(config: Config, stop: CancellationToken) -> Result<(), Error> {
    let list = canonical(&config.controllers)?;
    let config = Arc::new(config);
    let informers = Informers::with_clock(config.informers.clone(), config.clock.clone());
    let mut running = JoinSet::new();
    for controller in all().filter(|controller| enabled(&list, controller)) {
        let client = match controller.account {
            "" => config.informers.clone(),
            account => (config.clients)(account),
        };
        let recorder = Recorder::new(client.clone(), controller.events, None, config.clock.clone());
        let context = Context {
            controller,
            tools: Tools { client, recorder, clock: config.clock.clone() },
            informers: informers.clone(),
            config: config.clone(),
            stop: stop.clone(),
        };
        tracing::debug!(controller = controller.name, watches = ?controller.watches, "starts");
        running.spawn(supervise(controller.name, (controller.start)(context)));
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

/// Runs a controller, and says so in the metrics as long as it does.
async fn supervise(name: &'static str, running: BoxFuture<'static, ()>) {
    struct Running(&'static str);
    impl Drop for Running {
        fn drop(&mut self) {
            metrics::RUNNING.set(&[self.0, MANAGER], 0.0);
        }
    }
    metrics::RUNNING.set(&[name, MANAGER], 1.0);
    BROKEN.lock().remove(name);
    let _running = Running(name);
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
        let on = |items: &[&str], name: &str| {
            let list: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
            all().any(|controller| controller.name == name && enabled(&list, controller))
        };
        let (job, cleaner) = ("job-controller", "token-cleaner-controller");
        assert!(on(&["*"], job));
        assert!(!on(&["*", "-job-controller"], job));
        assert!(on(&["*", "-cronjob-controller"], job));
        assert!(on(&[job], job));
        assert!(!on(&["cronjob-controller"], job));
        assert!(!on(&["*"], cleaner));
        assert!(on(&["*", cleaner], cleaner));
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
    async fn a_controller_that_breaks_down_is_unwell_until_it_runs_again() {
        let shown = || metrics::RUNNING.value(&["registry-test", MANAGER]);
        supervise("registry-test", async move { assert_eq!(shown(), Some(1.0), "it says that it runs") }.boxed()).await;
        assert_eq!((shown(), is_well("registry-test")), (Some(0.0), true), "an end is no breakdown");
        supervise("registry-test", broken().boxed()).await;
        assert_eq!((shown(), is_well("registry-test")), (Some(0.0), false));
        supervise("registry-test", async {}.boxed()).await;
        assert!(is_well("registry-test"));
    }

    #[test]
    fn a_list_names_what_it_switches_on() {
        let list: Vec<String> = ["deployment", "-replicaset"].map(str::to_owned).to_vec();
        assert_eq!(enabled_names(&list).expect("both are known"), ["deployment-controller"]);
        assert!(enabled_names(&["nothing".to_owned()]).is_err());
    }
}
