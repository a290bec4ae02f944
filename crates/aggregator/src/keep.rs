//! The tasks: one that follows APIServices and keeps those of this server, and for each backend one that says whether it can be
//! reached and reads what it publishes.
//!
//! Woken by changes of APIServices, Services and endpoints. A network that swallows packets tells nobody, so backends are also
//! looked at on upstream's schedule; a cluster without any has no timer here.

use std::collections::{BTreeSet, HashSet};
use std::future::Future;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::Aggregator;
use crate::availability;
use crate::backend::Backend;
use crate::documents::{REFRESH, RETRY};
use crate::registration::Step;
use crate::service::ApiService;
use crate::sources::Changes;
use crate::writes::Writer;

/// How often a backend is checked of which nothing is heard.
const RESYNC: Duration = Duration::from_secs(30);
/// When a check that failed is made again: soon, and then less and less soon.
const FIRST_RECHECK: Duration = Duration::from_millis(5);
const LAST_RECHECK: Duration = Duration::from_secs(30);
/// When a registration that failed is tried again.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(30);
/// How many registrations are written at once.
const WRITES: usize = 32;

impl Aggregator {
    /// Follows APIServices until the server stops.
    pub(crate) async fn run(self: Arc<Self>, writer: Writer, ready: oneshot::Sender<()>) {
        let followed = self.follow(&writer);
        let registered = self.register(&writer, ready);
        futures::pin_mut!(followed, registered);
        // Registration has no end of its own.
        futures::future::select(followed, registered).await;
        self.backends.write().clear();
    }

    async fn follow(self: &Arc<Self>, writer: &Writer) {
        while let Some(mut subscription) = self.sources.follow_api_services().await {
            let mut gone: BTreeSet<String> = self.services.read().keys().cloned().collect();
            for object in std::mem::take(&mut subscription.initial) {
                gone.remove(&*object.meta().name);
                self.apply(&object.meta().name, Some(&object), writer);
            }
            gone.iter().for_each(|name| self.apply(name, None, writer));
            let names: BTreeSet<String> =
                self.services.read().keys().chain(self.wanted.lock().names()).cloned().chain(gone).collect();
            self.look_at(names);
            while let Some(change) = subscription.live.recv().await {
                let Some(about) = change.new.as_ref().or(change.old.as_ref()) else { continue };
                let name = about.meta().name.to_string();
                self.apply(&name, change.new.as_ref(), writer);
                self.look_at([name]);
            }
        }
    }

    /// Keeps the APIServices of this server. Says `ready` when all of them have been looked at once.
    async fn register(&self, writer: &Writer, ready: oneshot::Sender<()>) {
        let mut ready = Some(ready);
        let mut settled: HashSet<String> = HashSet::new();
        let mut from_before: Option<HashSet<String>> = None;
        let mut retry = FIRST_RETRY;
        loop {
            self.look.notified().await;
            let names = std::mem::take(&mut *self.pending.lock());
            let from_before = from_before.get_or_insert_with(|| self.services.read().keys().cloned().collect());
            let plan = |name: String| {
                let current = self.sources.api_services.get(&name).map(|object| object.to_value());
                let (settled, from_before) = (settled.contains(&name), from_before.contains(&name));
                let step = self.wanted.lock().plan(&name, current.as_ref(), settled, from_before);
                // What this server has itself is available, whatever somebody says.
                let local =
                    current.filter(|current| step == Step::Nothing && ApiService::read(current).remote.is_none());
                let status =
                    local.and_then(|local| availability::with_condition(&local, &availability::local(), &self.now()));
                let step = status.map_or(step, Step::UpdateStatus);
                async move {
                    let outcome = writer.take(&name, step).await;
                    (name, outcome)
                }
            };
            let taken: Vec<_> = names.into_iter().map(plan).collect();
            let outcomes: Vec<_> = futures::stream::iter(taken).buffer_unordered(WRITES).collect().await;
            let mut failed = BTreeSet::new();
            for (name, outcome) in outcomes {
                match outcome {
                    Ok(()) => {
                        settled.insert(name);
                    }
                    Err(error) => {
                        tracing::warn!(%error, api_service = name, "an APIService cannot be put in order");
                        failed.insert(name);
                    }
                }
            }
            if let Some(ready) = ready.take() {
                // Whoever waited may have gone.
                let _ = ready.send(());
            }
            if failed.is_empty() {
                retry = FIRST_RETRY;
            } else {
                tokio::time::sleep(retry).await;
                retry = LAST_RETRY.min(retry * 2);
                self.look_at(failed);
            }
        }
    }
}

/// Looks after a backend until it is aborted or the server stops.
pub(crate) async fn run(aggregator: Weak<Aggregator>, backend: Arc<Backend>, writer: Writer) {
    let (checked, discovered, described) = (
        check(&aggregator, &backend, &writer),
        read(&aggregator, &backend, RETRY, || backend.refresh_discovery()),
        read(&aggregator, &backend, REFRESH, || backend.refresh_openapi()),
    );
    futures::pin_mut!(checked, discovered, described);
    // The check alone has an end: that of the caches.
    futures::future::select(checked, futures::future::join(discovered, described)).await;
}

/// Keeps the condition of a backend true.
async fn check(aggregator: &Weak<Aggregator>, backend: &Backend, writer: &Writer) {
    let name = &backend.service.name;
    let mut recheck = FIRST_RECHECK;
    // Heard of before it is looked at: what changes in between is not overlooked.
    while let Some(mut changes) = backend.sources.follow_service(backend.reference()).await {
        loop {
            let condition = availability::check(backend).await;
            let Some(aggregator) = aggregator.upgrade() else { return };
            let object = backend.sources.api_services.get(name).map(|object| object.to_value());
            let now = aggregator.now();
            drop(aggregator);
            let mut failed = condition.is_failed_check();
            if let Some(status) = object.and_then(|object| availability::with_condition(&object, &condition, &now))
                && let Err(error) = writer.take(name, Step::UpdateStatus(status)).await
            {
                tracing::warn!(%error, api_service = name, "the status of an APIService cannot be written");
                failed = true;
            }
            let wait = if failed { recheck } else { RESYNC };
            recheck = if failed { LAST_RECHECK.min(recheck * 2) } else { FIRST_RECHECK };
            // A failed check is repeated at its own pace: its own status would be a reason to repeat it at once.
            let changed = async {
                if failed {
                    std::future::pending::<()>().await;
                }
                backend.changed.notified().await;
            };
            let goes_on = tokio::select! {
                () = tokio::time::sleep(wait) => true,
                () = changed => true,
                heard = heard(&mut changes) => heard,
            };
            if !goes_on {
                break;
            }
        }
    }
}

/// Waits for a change of the Service or its endpoints; false when there will be none.
async fn heard(changes: &mut [Changes; 2]) -> bool {
    let [service, slices] = changes;
    tokio::select! {
        heard = service.next() => heard,
        heard = slices.next() => heard,
    }
}

/// Reads something of a backend again and again: after a while, sooner when it failed, at once when the backend is back.
async fn read<F: Future<Output = (bool, Result<(), String>)>>(
    aggregator: &Weak<Aggregator>,
    backend: &Backend,
    first_retry: Duration,
    refresh: impl Fn() -> F,
) {
    let mut retry = first_retry;
    let mut came_back = backend.came_back.subscribe();
    loop {
        let (changed, outcome) = refresh().await;
        let Some(aggregator) = aggregator.upgrade() else { return };
        if changed {
            aggregator.changed();
        }
        drop(aggregator);
        let wait = match outcome {
            Ok(()) => {
                retry = first_retry;
                REFRESH
            }
            Err(why) => {
                tracing::debug!(api_service = backend.service.name, why, "an aggregated API cannot be described");
                let wait = retry;
                retry = REFRESH.min(retry * 2);
                wait
            }
        };
        // Back is back, however long the wait had become.
        if timeout(wait, came_back.changed()).await.is_ok() {
            retry = first_retry;
        }
    }
}
