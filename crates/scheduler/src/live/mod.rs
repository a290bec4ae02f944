//! The scheduler against a live API: informers feed it, a client does what it decides.
//!
//! Scheduling runs on a thread of its own, so that a long cycle holds nobody up and nobody holds a cycle up. The thread
//! sleeps until a message or a deadline comes.

mod binding;
pub mod effects;
mod http_extender;
pub mod inbox;
mod source;
mod statuses;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Client, DeleteOptions, Patch};
use futures::FutureExt;
use informer::events::{EventType, Reporter};
use informer::{Cached, Change, Clock, Informer, Informers, Key};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use binding::Bind;

use crate::config::registry::{Registry, RegistryError};
use crate::config::{Configuration, ProfileConfig};
use crate::framework::api::{Api, ApiFailure, PodEvent, Reply};
use crate::framework::extender::Extender;
use crate::live::effects::Doer;
use crate::live::inbox::{Inbox, Message};
use crate::live::source::{Nodes, Pods};
use crate::metrics::resources;
use crate::model::objects::Object;
use crate::model::pod::PodInfo;
use crate::scheduling::{Effect, Scheduler};

/// Effects waiting to be done; scheduling waits when there are more.
const MAX_EFFECTS: usize = 4096;
/// Cycles between two looks into the inbox, so that a full queue does not make the model stale.
const CYCLES_PER_LOOK: usize = 16;

/// Why the scheduler ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The configuration's profiles cannot be built.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The scheduling thread could not be started.
    #[error("cannot start the scheduling thread: {0}")]
    Thread(#[from] std::io::Error),
    /// The scheduling thread panicked.
    #[error("the scheduling thread panicked")]
    Panicked,
}

/// What [`run`] needs beside the API.
pub struct Config {
    pub configuration: Configuration,
    pub registry: Registry,
    /// Host name, for events.
    pub host: String,
    /// Set once everything that there was at the start has been taken in.
    pub synced: Arc<AtomicBool>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            configuration: Configuration::default(),
            registry: Registry::default(),
            host: "localhost".into(),
            synced: Arc::default(),
        }
    }
}

/// Schedules until it is stopped.
pub async fn run(config: Config, client: Client, shutdown: CancellationToken) -> Result<(), Error> {
    let informers = Informers::new(client);
    run_with(config, &informers, shutdown).await
}

/// Schedules until it is stopped, on informers that others share.
pub async fn run_with(config: Config, informers: &Informers, shutdown: CancellationToken) -> Result<(), Error> {
    let clock = informers.clock().clone();
    let extenders: Vec<Arc<dyn Extender>> = crate::live::http_extender::all(&config.configuration.extenders);
    let mut scheduler =
        Scheduler::new(&config.configuration, config.registry, extenders, clock.clone(), rand::random())?;
    scheduler.metrics().register();
    let inbox = Arc::new(Inbox::default());
    // Only extenders are sent whole pods and nodes.
    let whole = !config.configuration.extenders.is_empty();
    let (claims, pods) = observe(informers, &inbox, whole).await;
    let _shown = resources::Known::show(pods);
    config.synced.store(true, Ordering::Release);
    let api = Arc::new(Live {
        client: informers.client().clone(),
        reporters: reporters(informers, &config.configuration, &config.host, &clock),
        claims,
    });
    let (effects, incoming) = mpsc::channel(MAX_EFFECTS);
    let doer = tokio::spawn(Doer::new(api, inbox.clone(), scheduler.metrics().clone(), clock).run(incoming));
    let (ended, end) = tokio::sync::oneshot::channel();
    let thread_inbox = inbox.clone();
    std::thread::Builder::new().name("scheduler".into()).spawn(move || {
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&mut scheduler, &thread_inbox, &effects)));
        let _ = ended.send(outcome.is_ok());
    })?;
    let closing = inbox.clone();
    tokio::select! {
        () = shutdown.cancelled() => {
            closing.close();
            doer.abort();
            Ok(())
        }
        ended = end => match ended {
            Ok(true) => Ok(()),
            _ => Err(Error::Panicked),
        },
    }
}

/// A reporter per profile: events come from the scheduler that a pod names.
fn reporters(
    informers: &Informers,
    configuration: &Configuration,
    host: &str,
    clock: &Arc<dyn Clock>,
) -> FxHashMap<String, Reporter> {
    let reporter = |profile: &ProfileConfig| {
        let (name, instance) = (profile.name().to_owned(), format!("{}-{host}", profile.name()));
        let reporter = Reporter::new(informers.client().clone(), &name, &instance, clock.clone());
        (name, reporter)
    };
    configuration.profiles.iter().map(reporter).collect()
}

fn work(scheduler: &mut Scheduler, inbox: &Inbox, effects: &mpsc::Sender<Effect>) {
    loop {
        let patience = if scheduler.has_work() {
            Some(Duration::ZERO)
        } else {
            let until = |deadline: jiff::Timestamp| {
                deadline.duration_since(scheduler.now()).try_into().unwrap_or(Duration::ZERO)
            };
            scheduler.next_deadline().map(until)
        };
        let Some(messages) = inbox.take(patience) else { return };
        for message in messages {
            match message {
                Message::Observed { old, new } => scheduler.observe(old, new),
                Message::Bound(uid) => scheduler.bound(&uid),
                Message::BindFailed(uid, failure) => scheduler.bind_failed(&uid, &failure),
                Message::Preempted(pod, failed) => scheduler.preempted(&pod, failed),
            }
        }
        scheduler.tick();
        for _ in 0..CYCLES_PER_LOOK {
            if !scheduler.schedule_one() {
                break;
            }
        }
        scheduler.measure();
        for effect in scheduler.take_effects() {
            if effects.blocking_send(effect).is_err() {
                return;
            }
        }
    }
}

/// Connects the informers to the inbox and waits until all of them are complete. Pods come last: a pod scheduled before
/// its node is known would be reported unschedulable for no reason.
async fn observe(informers: &Informers, inbox: &Arc<Inbox>, whole: bool) -> (Claims, Informer<PodInfo>) {
    macro_rules! observe {
        ($informer:expr, $variant:ident) => {
            observe!($informer, Object::$variant)
        };
        ($informer:expr, $wrap:expr) => {{
            let informer = $informer;
            subscribe(&informer, inbox, $wrap);
            informer.synced().await;
            informer
        }};
    }
    let (changed, claims) = watch::channel(0);
    observe!(informers.of(), Namespace);
    observe!(informers.of(), Service);
    observe!(informers.of(), source::replication_controller);
    observe!(informers.of(), source::replica_set);
    observe!(informers.of(), source::stateful_set);
    observe!(informers.of(), PodDisruptionBudget);
    observe!(informers.of(), StorageClass);
    observe!(informers.of(), CsiDriver);
    observe!(informers.of(), CsiNode);
    observe!(informers.of(), CsiStorageCapacity);
    observe!(informers.of(), VolumeAttachment);
    observe!(informers.of(), PersistentVolume);
    let claim_informer = observe!(informers.of::<PersistentVolumeClaim>(), PersistentVolumeClaim);
    claim_informer.subscribe(move |_| changed.send_modify(|count| *count += 1));
    observe!(informers.spawn(Nodes::new(informers.client().clone(), whole)), Node);
    let pods = observe!(informers.spawn(Pods::new(informers.client().clone(), whole)), Pod);
    (Claims { informer: claim_informer, changed: claims }, pods)
}

fn subscribe<K: Cached>(informer: &Informer<K>, inbox: &Arc<Inbox>, wrap: fn(Arc<K>) -> Object) {
    let inbox = inbox.clone();
    informer.subscribe(move |change: &Change<K>| {
        let (old, new) = (change.before().cloned().map(wrap), change.after().cloned().map(wrap));
        inbox.push(Message::Observed { old, new });
    });
}

/// The API behind a client.
struct Live {
    client: Client,
    reporters: FxHashMap<String, Reporter>,
    claims: Claims,
}

/// The claims, and a count of their changes.
#[derive(Clone)]
struct Claims {
    informer: Informer<PersistentVolumeClaim>,
    changed: watch::Receiver<u64>,
}

impl Claims {
    fn versions(&self, namespace: &str, names: &[String]) -> Vec<Option<String>> {
        let version = |name| self.informer.get(&Key::new(namespace, name))?.metadata.resource_version.clone();
        names.iter().map(version).collect()
    }
}

fn failure(error: client::Error) -> ApiFailure {
    let text = error.to_string();
    if error.is_not_found() {
        ApiFailure::NotFound(text)
    } else if error.is_conflict() {
        ApiFailure::Conflict(text)
    } else {
        ApiFailure::Other(text)
    }
}

/// Whether another try may help: the server is there but troubled, or was not reached at all.
fn is_transient(error: &client::Error) -> bool {
    matches!(error.code(), Some(500 | 503)) || matches!(error, client::Error::Transport(_))
}

/// Tries up to four times, with growing pauses, as long as another try may help.
async fn retrying<T, F>(
    may_help: impl Fn(&client::Error) -> bool,
    mut attempt: impl FnMut() -> F,
) -> Result<T, ApiFailure>
where
    F: Future<Output = Result<T, client::Error>>,
{
    let mut pause = Duration::from_millis(10);
    for _ in 0..3 {
        match attempt().await {
            Err(error) if may_help(&error) => tokio::time::sleep(pause).await,
            outcome => return outcome.map_err(failure),
        }
        pause *= 5;
    }
    attempt().await.map_err(failure)
}

impl Api for Live {
    fn bind(&self, pod: &PodInfo, node: &str) -> Reply {
        Bind::new(self.client.clone(), pod, node).run().boxed()
    }

    fn patch_pod_status(&self, pod: &PodInfo, patch: serde_json::Value) -> Reply {
        let (client, namespace, name) = (self.client.clone(), pod.namespace().to_owned(), pod.name().to_owned());
        let mut patch = patch;
        // A precondition: another pod of the same name must not get this status.
        patch["metadata"]["uid"] = serde_json::json!(&**pod.uid());
        let patch = Patch::Strategic(patch);
        async move {
            let apply = || client.patch_status::<Pod>(&namespace, &name, &patch);
            retrying(|e| is_transient(e) || e.is_conflict(), apply).await.map(drop)
        }
        .boxed()
    }

    fn delete_pod(&self, pod: &PodInfo) -> Reply {
        let (client, namespace, name) = (self.client.clone(), pod.namespace().to_owned(), pod.name().to_owned());
        let options = DeleteOptions { uid: Some(pod.uid().to_string()), ..Default::default() };
        async move { client.delete::<Pod>(&namespace, &name, &options).await.map_err(failure) }.boxed()
    }

    fn update_volume(&self, volume: PersistentVolume) -> Reply {
        let client = self.client.clone();
        async move { client.update(&volume).await.map(drop).map_err(failure) }.boxed()
    }

    fn update_claim(&self, claim: PersistentVolumeClaim) -> Reply {
        let client = self.client.clone();
        async move { client.update(&claim).await.map(drop).map_err(failure) }.boxed()
    }

    fn claims_bound(&self, namespace: &str, names: Vec<String>, limit: Duration) -> Reply {
        let (client, namespace, mut claims) = (self.client.clone(), namespace.to_owned(), self.claims.clone());
        let all_bound = async move {
            loop {
                claims.changed.mark_unchanged();
                let seen = claims.versions(&namespace, &names);
                let mut bound = true;
                for name in &names {
                    let claim: PersistentVolumeClaim = client.get(&namespace, name).await.map_err(failure)?;
                    let selected = claim
                        .metadata
                        .annotations
                        .as_ref()
                        .is_some_and(|a| a.contains_key("volume.kubernetes.io/selected-node"));
                    bound &= crate::plugins::volume_binding::is_fully_bound(&claim);
                    if !bound
                        && !selected
                        && claim.spec.as_ref().and_then(|s| s.volume_name.as_deref()).unwrap_or_default().is_empty()
                    {
                        let text = format!("provisioning failed for PVC {name:?}");
                        return Err(ApiFailure::Other(text));
                    }
                }
                if bound {
                    return Ok(());
                }
                // Claims of others change all the time; the API is asked again when one of these has.
                while claims.versions(&namespace, &names) == seen {
                    if claims.changed.changed().await.is_err() {
                        return Err(ApiFailure::Other("the scheduler is shutting down".into()));
                    }
                }
            }
        };
        async move {
            tokio::time::timeout(limit, all_bound)
                .await
                .unwrap_or_else(|_| Err(ApiFailure::Other("timed out waiting for the condition".into())))
        }
        .boxed()
    }

    fn record(&self, event: PodEvent) {
        let kind = if event.warning { EventType::Warning } else { EventType::Normal };
        // A victim may be anybody's; who evicts it speaks.
        let scheduler = event.related.as_ref().unwrap_or(&event.pod).scheduler_name();
        let Some(reporter) = self.reporters.get(scheduler) else { return };
        let related = event.related.as_ref().map(|pod| pod.reference());
        reporter.event(event.pod.reference(), related, kind, event.reason, event.action, event.note);
    }
}
