//! All pods of this node: one worker for each, started, notified and forgotten as the API and the runtime say.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use informer::{EventType, Informer};
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use node::cgroups::Name;
use node::cri::v1::LinuxContainerResources;
use node::cri::{EventKind, labels, v1};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::admission::{self, Admission};
use crate::pod::{resources, spec};
use crate::pressure::Conditions;
use crate::shared::Shared;
use crate::status::Verdict;
use crate::upkeep::shutdown;
use crate::volumes;
use crate::worker::{self, End, Handle, Order};

/// How often everything is looked at though nothing was announced: events can be lost.
const RELIST: Duration = Duration::from_secs(300);
/// The message for a pod that is ended so that a critical one can run.
const PREEMPTED: &str = "Preempted in order to admit critical pod";
/// However short its grace period, this long is waited for such a pod.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);

/// The workers, by uid.
#[derive(Clone)]
pub struct Pods {
    inner: Arc<Inner>,
}

struct Inner {
    workers: Arc<Mutex<HashMap<String, Handle>>>,
    shared: Arc<Shared>,
    pressure: watch::Receiver<Conditions>,
    shutdown: watch::Receiver<bool>,
}

/// What is to be done when an object that a pod refers to changed. Made before the workers are.
pub fn on_reference_change(workers: &Arc<Mutex<HashMap<String, Handle>>>) -> crate::shared::objects::OnChange {
    let workers = workers.clone();
    Arc::new(move |uid: &str| {
        if let Some(handle) = workers.lock().get(uid) {
            handle.references_changed();
        }
    })
}

impl Pods {
    pub fn new(
        workers: Arc<Mutex<HashMap<String, Handle>>>,
        shared: Arc<Shared>,
        pressure: watch::Receiver<Conditions>,
        shutdown: watch::Receiver<bool>,
    ) -> Self {
        Self { inner: Arc::new(Inner { workers, shared, pressure, shutdown }) }
    }

    /// Follows the API's pods of this node.
    pub fn follow(&self, pods: &Informer<Pod>) {
        let me = self.clone();
        pods.subscribe(move |change| match change.after() {
            Some(pod) => me.set(pod.clone()),
            None => me.gone(change.object()),
        });
    }

    /// A pod is to run here, or changed.
    pub fn set(&self, pod: Arc<Pod>) {
        // The image of a static pod runs nothing; what it shows is another pod's.
        if spec::is_mirror(&pod) {
            return;
        }
        let uid = spec::uid(&pod).to_owned();
        let mut workers = self.inner.workers.lock();
        if let Some(handle) = workers.get(&uid) {
            handle.orders.send_modify(|order| order.pod = pod);
            return;
        }
        let mut room = Vec::new();
        let end = match self.admit(&pod, &workers) {
            Admission::Admitted => None,
            Admission::After { victims, resource } => {
                for victim in victims {
                    let Some(handle) = workers.get(spec::uid(&victim)) else { continue };
                    self.inner.shared.event(&victim, EventType::Warning, "Preempting", PREEMPTED);
                    self.inner.shared.figures.preemptions.increment(&[&resource]);
                    room.push(self.preempt(&victim, handle));
                }
                None
            }
            Admission::Refused(verdict) => {
                self.inner.shared.event(&pod, EventType::Warning, &verdict.reason, verdict.message.clone());
                self.inner.shared.figures.refusals.increment(&[&verdict.reason]);
                Some(End {
                    verdict: Verdict { message: format!("Pod was rejected: {}", verdict.message), ..verdict },
                    grace: None,
                })
            }
        };
        let room = futures::future::join_all(room).map(drop);
        let handle = worker::start(self.inner.shared.clone(), Order { pod, end, gone: false }, room);
        workers.insert(uid, handle);
    }

    /// Ends a pod so that a critical one has its room; done when it has ended, or takes far longer than it should.
    fn preempt(&self, victim: &Arc<Pod>, handle: &Handle) -> impl Future<Output = ()> + Send + use<> {
        let verdict = Verdict {
            reason: "Preempting".to_owned(),
            message: PREEMPTED.to_owned(),
            disruption: Some("Pod was preempted by Kubelet to accommodate a critical pod.".to_owned()),
        };
        let ended = end(handle, End { verdict, grace: None });
        let grace = victim.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds).unwrap_or(0);
        let limit = Duration::from_secs(u64::try_from(grace + grace / 2).unwrap_or(0)).max(LEAST_PATIENCE);
        let (shared, victim) = (self.inner.shared.clone(), victim.clone());
        async move {
            if tokio::time::timeout(limit, ended).await.is_err() {
                let message = "Container runtime did not kill the pod within specified grace period.";
                shared.event(&victim, EventType::Warning, "ExceededGracePeriod", message);
            }
        }
    }

    /// Whether a new pod can run here. One that was here before was admitted already.
    fn admit(&self, pod: &Pod, workers: &HashMap<String, Handle>) -> Admission {
        let known = pod.status.as_ref().is_some_and(|status| status.start_time.is_some());
        if known || spec::is_deleting(pod) || spec::is_finished(pod) {
            return Admission::Admitted;
        }
        let others: Vec<Arc<Pod>> = workers
            .values()
            .filter(|handle| {
                let phase = handle.status.borrow().phase.clone();
                !matches!(phase.as_deref(), Some("Succeeded" | "Failed")) && handle.orders.borrow().end.is_none()
            })
            .map(|handle| {
                let pod = handle.orders.borrow().pod.clone();
                self.inner.shared.allocations.get(spec::uid(&pod)).unwrap_or(pod)
            })
            .collect();
        if *self.inner.shutdown.borrow() {
            return Admission::Refused(shutdown::refusal());
        }
        if let Some(verdict) = admission::under_pressure(pod, &self.inner.pressure.borrow()) {
            return Admission::Refused(verdict);
        }
        if let Some(verdict) = self.inner.shared.settings.sysctls.refusal(pod) {
            return Admission::Refused(verdict);
        }
        let node = self.inner.shared.me.get(&informer::Key::cluster(&self.inner.shared.facts().node_name));
        admission::admit(pod, &others, node.as_deref())
    }

    /// The API does not have the pod any more.
    fn gone(&self, pod: &Pod) {
        self.remove(spec::uid(pod));
    }

    /// Nobody wants the pod any more.
    pub fn remove(&self, uid: &str) {
        if let Some(handle) = self.inner.workers.lock().remove(uid) {
            handle.orders.send_modify(|order| order.gone = true);
        }
    }

    /// Pods that have not ended and that nobody is ending.
    pub fn active(&self) -> Vec<Arc<Pod>> {
        let workers = self.inner.workers.lock();
        let active = workers.values().filter(|handle| {
            let order = handle.orders.borrow();
            let phase = handle.status.borrow().phase.clone();
            order.end.is_none()
                && !spec::is_deleting(&order.pod)
                && !matches!(phase.as_deref(), Some("Succeeded" | "Failed"))
        });
        active.map(|handle| handle.orders.borrow().pod.clone()).collect()
    }

    /// Ends a pod for the node's sake; done when it has ended, or is gone.
    pub fn end(&self, pod: &Pod, end: End) -> impl Future<Output = ()> + Send + use<> {
        let ended = self.handle(spec::uid(pod)).map(|handle| self::end(&handle, end));
        async move {
            if let Some(ended) = ended {
                ended.await;
            }
        }
    }

    /// The worker of a pod.
    pub fn handle(&self, uid: &str) -> Option<Handle> {
        self.inner.workers.lock().get(uid).cloned()
    }

    /// Passes the runtime's events on, for ever.
    pub async fn listen(self) {
        let mut backoff = informer::Backoff::new(Duration::from_millis(50), Duration::from_secs(5), 0.2);
        loop {
            match self.inner.shared.runtime.events().await {
                Ok(mut events) => {
                    self.inner.shared.figures.streams.increment(&[]);
                    // Whatever happened before the stream began is seen by looking.
                    self.notify_all();
                    loop {
                        match tokio::time::timeout(RELIST, events.next()).await {
                            Ok(Some(Ok(event))) => {
                                backoff.reset();
                                self.pass_on(&event.id, event.kind);
                            }
                            Ok(Some(Err(error))) => {
                                tracing::warn!(%error, "runtime's event stream broke");
                                break;
                            }
                            Ok(None) => break,
                            Err(_) => self.notify_all(),
                        }
                    }
                }
                Err(error) => {
                    self.inner.shared.figures.failed_streams.increment(&[]);
                    tracing::warn!(%error, "no event stream from the runtime");
                }
            }
            self.notify_all();
            tokio::time::sleep(backoff.delay()).await;
        }
    }

    fn pass_on(&self, id: &str, kind: EventKind) {
        let Some(uid) = self.inner.shared.owners.lock().get(id).cloned() else { return };
        let Some(handle) = self.handle(&uid) else { return };
        match kind {
            EventKind::Exited => handle.exited(id),
            // The worker started it itself, and looks.
            EventKind::Started => {}
            EventKind::OutOfMemory | EventKind::Removed => handle.notify(),
        }
    }

    fn notify_all(&self) {
        self.inner.workers.lock().values().for_each(Handle::notify);
    }

    /// Ends and removes what the runtime or the disk still has of pods that the API does not know. Only after the API's
    /// pods were read. What the API has and nobody can read is not unknown: it stays.
    pub async fn sweep(&self, assigned: &Informer<Pod>) {
        let shared = &self.inner.shared;
        let sandboxes = match shared.runtime.list_sandboxes(v1::PodSandboxFilter::default()).await {
            Ok(sandboxes) => sandboxes,
            Err(error) => {
                tracing::warn!(%error, "runtime not readable; leftovers stay until the next start");
                return;
            }
        };
        let mut known: HashSet<String> = self.inner.workers.lock().keys().cloned().collect();
        known.extend(assigned.set_aside().into_iter().filter_map(|unread| unread.object.uid));
        let mut seen = HashSet::new();
        for sandbox in sandboxes {
            let label = |key: &str| sandbox.labels.get(key).cloned().unwrap_or_default();
            let uid = label(labels::POD_UID);
            if uid.is_empty() || known.contains(&uid) || !seen.insert(uid.clone()) {
                continue;
            }
            tracing::info!(uid, pod = label(labels::POD_NAME), "ending a pod that the API does not have");
            let pod = Pod {
                metadata: ObjectMeta {
                    name: Some(label(labels::POD_NAME)),
                    namespace: Some(label(labels::POD_NAMESPACE)),
                    uid: Some(uid.clone()),
                    ..ObjectMeta::default()
                },
                spec: Some(PodSpec::default()),
                ..Pod::default()
            };
            let order = Order { pod: Arc::new(pod), end: None, gone: true };
            // It needs no handle: nothing can change about it any more.
            worker::start(shared.clone(), order, std::future::ready(()));
        }
        for uid in volumes::pods_on_disk(&shared.settings.root) {
            if !known.contains(&uid) && !seen.contains(&uid) {
                self.sweep_cgroups(&uid).await;
                tokio::spawn(sweep_volumes(shared.clone(), uid));
            }
        }
    }

    async fn sweep_cgroups(&self, uid: &str) {
        let Some(cgroups) = &self.inner.shared.cgroups else { return };
        for name in self.inner.shared.possible_cgroups(uid) {
            if let Err(error) = cgroups.remove(&name).await {
                tracing::warn!(%error, uid, "leftover cgroup not removed");
            }
        }
    }
}

impl kubeletapi::Pods for Pods {
    fn all(&self) -> Vec<Pod> {
        let handles: Vec<Handle> = self.inner.workers.lock().values().cloned().collect();
        let mut pods: Vec<Pod> = handles.iter().map(with_status).collect();
        pods.sort_by(|a, b| (spec::namespace(a), spec::name(a)).cmp(&(spec::namespace(b), spec::name(b))));
        pods
    }

    fn find(&self, namespace: &str, name: &str) -> Option<Pod> {
        let named = |handle: &&Handle| {
            let pod = &handle.orders.borrow().pod;
            spec::namespace(pod) == namespace && spec::name(pod) == name
        };
        self.inner.workers.lock().values().find(named).map(with_status)
    }

    fn status(&self, uid: &str) -> Option<watch::Receiver<Arc<PodStatus>>> {
        Some(self.handle(uid)?.status)
    }

    fn cgroup(&self, pod: &Pod) -> Option<Name> {
        self.inner.shared.cgroups.as_ref().map(|_| self.inner.shared.cgroup(pod))
    }

    fn limits(&self, pod: &Pod, container: &Container) -> LinuxContainerResources {
        resources::container_limits(pod, container, self.inner.shared.facts().memory)
    }

    fn metrics(&self, out: &mut String) {
        self.inner.shared.figures.render(out);
        threads::write(out);
        informer::metrics::write(out);
    }

    fn probe_metrics(&self, out: &mut String) {
        self.inner.shared.figures.render_probes(out);
    }
}

/// Gives back the volumes of a pod that nobody knows, however long their drivers take to come back.
async fn sweep_volumes(shared: Arc<Shared>, uid: String) {
    let mut backoff = informer::Backoff::new(Duration::from_secs(1), Duration::from_secs(120), 0.2);
    while let Err(error) = shared.give_back_volumes(&uid).await {
        tracing::warn!(error, uid, "leftover volumes not removed yet");
        tokio::select! {
            () = tokio::time::sleep(backoff.delay()) => {}
            () = shared.stop.cancelled() => return,
        }
    }
}

/// Tells a worker to end its pod; done when it has ended, or is gone.
fn end(handle: &Handle, end: End) -> impl Future<Output = ()> + Send + use<> {
    handle.orders.send_modify(|order| {
        order.end.get_or_insert(end);
    });
    let mut status = handle.status.clone();
    async move {
        let ended = |status: &Arc<PodStatus>| matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
        // Gone is ended too.
        let _ = status.wait_for(ended).await;
    }
}

/// A worker's pod, with the status last made of it.
fn with_status(handle: &Handle) -> Pod {
    let mut pod = Pod::clone(&handle.orders.borrow().pod);
    pod.status = Some(PodStatus::clone(&handle.status.borrow()));
    pod
}
