//! One pod's life on this node, from its binding to its end.
//!
//! ```text
//! Syncing ──────────────► Ending ───────► Ended ─────────► (gone)
//!   plan, act, report       stop what      resources are    the API has
//!   wait for news           runs           given back       forgotten it
//! ```
//! A pod leaves `Syncing` when its deletion is asked for, when it has run to its end, or when the node ends it; it never
//! comes back. The worker holds nothing that cannot be read again from the API and the runtime: killed between any two
//! instructions, its successor goes on from there.

pub(crate) mod certificates;
mod end;
mod probing;
mod resize;
mod start;
mod sync;
mod volumes;

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, Pod, PodStatus};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::task::TaskTracker;

use crate::backoff::Restarts;
use crate::pod::allocation::Allocation;
use crate::pod::spec;
use crate::pod::state::State;
use crate::probes::Verdicts;
use crate::shared::Shared;
use crate::status::{Resize, Verdict, View, Waiting};
use crate::writer::Writer;
use probing::Probes;

/// How long a pod waits on which we made a mistake, if there is no news of it before.
const AFTER_PANIC: Duration = Duration::from_secs(10);

/// Why a pod must end though nobody deleted it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// For its status; its phase becomes `Failed`.
    pub verdict: Verdict,
    /// Seconds its containers are given, instead of the pod's own.
    pub grace: Option<i64>,
}

/// What a worker is to do.
#[derive(Debug, Clone)]
pub struct Order {
    /// The pod as the API, or a file of this node, has it.
    pub pod: Arc<Pod>,
    /// Set when the node ends the pod.
    pub end: Option<End>,
    /// Set once the API does not have the pod any more.
    pub gone: bool,
}

impl Order {
    /// Whether the pod is not to be kept running.
    fn ends(&self) -> bool {
        self.gone || self.end.is_some() || spec::is_deleting(&self.pod) || spec::is_finished(&self.pod)
    }
}

/// The outside's end of a worker.
#[derive(Debug, Clone)]
pub struct Handle {
    /// What it is to do.
    pub orders: watch::Sender<Order>,
    news: Arc<News>,
    /// What it last made of the pod's status.
    pub status: watch::Receiver<Arc<PodStatus>>,
}

/// What happened outside since the worker last looked.
#[derive(Debug, Default)]
pub struct News {
    bell: Notify,
    /// Containers and sandboxes the runtime says have ended; their state may follow a moment later.
    exits: Mutex<HashSet<String>>,
    /// Set when an object the pod refers to changed.
    references: AtomicBool,
}

impl News {
    /// Something changed that concerns the pod.
    pub fn ring(&self) {
        self.bell.notify_one();
    }
}

impl Handle {
    /// Something of the pod changed in the runtime.
    pub fn ring(&self) {
        self.news.ring();
    }

    /// A container or sandbox of the pod ended.
    pub fn exited(&self, id: &str) {
        self.news.exits.lock().insert(id.to_owned());
        self.ring();
    }

    /// An object the pod refers to changed.
    pub fn references_changed(&self) {
        self.news.references.store(true, Ordering::Release);
        self.ring();
    }
}

/// A worker.
pub struct Worker {
    shared: Arc<Shared>,
    orders: watch::Receiver<Order>,
    news: Arc<News>,
    pod: Arc<Pod>,
    state: State,
    verdicts: Arc<Mutex<Verdicts>>,
    probes: Probes,
    waiting: HashMap<String, Waiting>,
    restarts: Restarts,
    /// The last status made; the API's at first.
    status: PodStatus,
    shown: watch::Sender<Arc<PodStatus>>,
    writer: Option<Writer>,
    /// Where the pod's volumes are, once they were made.
    volumes: Option<volumes::Made>,
    /// Waits after volumes could not be made or brought up to date.
    tries: informer::Backoff,
    claims: HashMap<String, PersistentVolume>,
    certificates: certificates::Certificates,
    /// Images that are shown to the pod by us and not by the runtime.
    viewed: HashSet<String>,
    /// Events that would say the same at every try.
    said: HashSet<String>,
    verdict: Option<Verdict>,
    /// What the pod was given, once that was looked at.
    allocation: Option<Allocation>,
    resize: Resize,
    birth: Birth,
    /// Calls to the runtime that must not be broken off; they are waited for before the pod ends.
    calls: TaskTracker,
}

/// What is noted of a pod until it runs for the first time.
#[derive(Debug)]
struct Birth {
    /// When it was seen.
    seen: Instant,
    /// Time that went into pulling images.
    pulled: Duration,
    /// Set when it ran already as it was seen, or once it ran.
    over: bool,
    /// Set after the first turn.
    turned: bool,
}

/// Starts the worker of a pod, once there is room for it.
pub fn start(shared: Arc<Shared>, order: Order, room: impl Future<Output = ()> + Send + 'static) -> Handle {
    let pod = order.pod.clone();
    let status = pod.status.clone().unwrap_or_default();
    let ends = order.ends();
    let (orders, receiver) = watch::channel(order);
    let (shown, seen) = watch::channel(Arc::new(status.clone()));
    let news = Arc::new(News::default());
    let birth = Birth {
        seen: Instant::now(),
        pulled: Duration::ZERO,
        over: !matches!(status.phase.as_deref(), None | Some("Pending")) || ends,
        turned: false,
    };
    // A static pod's status is written by way of its mirror, which has a life of its own.
    let writer = (!spec::is_static(&pod)).then(|| Writer::start(&shared, &pod));
    let worker = Worker {
        probes: Probes::default(),
        shared,
        orders: receiver,
        news: news.clone(),
        pod,
        state: State::default(),
        verdicts: Arc::default(),
        waiting: HashMap::new(),
        restarts: Restarts::default(),
        status,
        shown,
        writer,
        volumes: None,
        tries: volumes::tries(),
        claims: HashMap::new(),
        certificates: HashMap::new(),
        viewed: HashSet::new(),
        said: HashSet::new(),
        verdict: None,
        allocation: None,
        resize: Resize::default(),
        birth,
        calls: TaskTracker::new(),
    };
    let stop = worker.shared.stop.clone();
    tokio::spawn(async move {
        let life = async {
            tokio::select! {
                () = room => {}
                () = told(worker.orders.clone(), Order::ends) => {}
            }
            worker.shared.figures.workers.observe(&[], worker.birth.seen.elapsed().as_secs_f64());
            worker.run().await;
        };
        tokio::select! {
            () = life => {}
            () = stop.cancelled() => {}
        }
    });
    Handle { orders, news, status: seen }
}

/// What a turn came to.
enum Turn {
    /// Nothing left to do before there is news, or this much time has passed.
    Wait(Option<Duration>),
    /// The pod has run to its end.
    Finished,
}

/// A turn in which a mistake of ours is no end of the pod's life: nothing that a turn holds is more than what can be read again, so the
/// next one starts from there.
async fn guarded(uid: String, turn: impl Future<Output = Turn>) -> Turn {
    AssertUnwindSafe(turn).catch_unwind().await.unwrap_or_else(|_| {
        informer::metrics::panicked("pod worker", &uid);
        Turn::Wait(Some(AFTER_PANIC))
    })
}

/// Waits for an order of some kind. When nobody is left to give orders, none comes: that alone ends nothing.
async fn told(mut orders: watch::Receiver<Order>, wanted: impl FnMut(&Order) -> bool) {
    if orders.wait_for(wanted).await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Worker {
    async fn run(mut self) {
        loop {
            let order = self.orders.borrow_and_update().clone();
            self.take(&order.pod);
            if let Some(writer) = &self.writer {
                writer.saw(&order.pod);
            }
            if order.ends() {
                break;
            }
            let ending = told(self.orders.clone(), Order::ends);
            let begun = Instant::now();
            let turn = tokio::select! {
                biased;
                () = ending => continue,
                turn = guarded(self.uid().to_owned(), self.sync()) => turn,
            };
            let kind = if self.birth.turned { "sync" } else { "create" };
            self.birth.turned = true;
            self.shared.figures.turns.observe(&[kind], begun.elapsed().as_secs_f64());
            match turn {
                Turn::Finished => break,
                Turn::Wait(delay) => self.wait(delay).await,
            }
        }
        self.end().await;
    }

    /// Waits for news of any kind, or for the time.
    async fn wait(&mut self, delay: Option<Duration>) {
        let news = self.news.clone();
        let clock = self.shared.clock.clone();
        let timer = async {
            match delay {
                Some(delay) => clock.sleep(delay).await,
                None => std::future::pending().await,
            }
        };
        let mut orders = self.orders.clone();
        let ordered = async move {
            if orders.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = ordered => {}
            () = news.bell.notified() => {}
            () = timer => {}
        }
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn uid(&self) -> &str {
        spec::uid(&self.pod)
    }

    /// Reads what the runtime has, and lets events about it find this pod.
    async fn read(&mut self) -> Result<(), node::cri::Error> {
        let begun = Instant::now();
        let state = crate::runtime::state(&*self.shared.runtime, self.uid()).await?;
        self.shared.figures.read(begun.elapsed());
        let ids = state.sandboxes.iter().map(|s| &s.id).chain(state.containers.iter().map(|c| &c.id));
        let mut owners = self.shared.owners.lock();
        for id in ids {
            if !owners.contains_key(id) {
                owners.insert(id.clone(), self.uid().to_owned());
            }
        }
        drop(owners);
        let mounted = state.containers.iter().flat_map(|container| &container.images);
        self.shared.images.hold(self.uid(), mounted.chain(&self.viewed));
        if let Some(allocation) = &mut self.allocation {
            allocation.keep(|id| state.containers.iter().any(|container| container.id == id));
        }
        self.state = state;
        Ok(())
    }

    /// Makes the status and sends it on its way.
    fn report(&mut self, terminal: bool) {
        let facts = self.shared.facts();
        let verdicts = self.verdicts.lock().clone();
        let status = crate::status::status(&View {
            pod: &self.pod,
            old: &self.status,
            state: &self.state,
            verdicts: &verdicts,
            waiting: &self.waiting,
            terminal,
            verdict: self.verdict.as_ref(),
            allocation: self.allocation.as_ref(),
            resize: &self.resize,
            host_ips: &facts.host_ips,
            runtime: &self.shared.runtime_name,
            now: self.now(),
        });
        if !self.birth.over && status.phase.as_deref() == Some("Running") {
            self.born();
        }
        if status != self.status {
            self.status = status.clone();
            self.shown.send_replace(Arc::new(status.clone()));
        }
        if let Some(writer) = &self.writer {
            writer.set(status);
        }
    }

    /// Notes how long it took until the pod ran.
    fn born(&mut self) {
        self.birth.over = true;
        let figures = &self.shared.figures;
        figures.starts.observe(&[], self.birth.seen.elapsed().as_secs_f64());
        let created = self.pod.metadata.creation_timestamp.as_ref().filter(|_| !spec::is_static(&self.pod));
        if let Some(created) = created {
            let whole = informer::clock::since(self.now(), created.0);
            let alone = whole.saturating_sub(self.birth.pulled + self.state.time_of_init(&self.pod));
            figures.whole_starts.observe(&[], whole.as_secs_f64());
            figures.starts_alone.observe(&[], alone.as_secs_f64());
        }
    }

    /// A call to the runtime that runs to its end whatever becomes of the turn that makes it. Broken off halfway, some runtimes
    /// leave mounts behind, or a sandbox that nobody knows.
    async fn whole<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, node::cri::Error>> + Send + 'static,
    ) -> Result<T, node::cri::Error> {
        match self.calls.spawn(call).await {
            Ok(result) => result,
            Err(broken) => Err(node::cri::Error::broken(broken.to_string())),
        }
    }

    /// Says something once until it changes.
    fn say_once(&mut self, text: &str) -> bool {
        self.said.insert(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_that_panics_is_followed_by_another() {
        let failed = guarded("uid".to_owned(), async { panic!("a mistake") }).await;
        assert!(matches!(failed, Turn::Wait(Some(delay)) if delay == AFTER_PANIC));
        assert!(matches!(guarded("uid".to_owned(), async { Turn::Finished }).await, Turn::Finished));
    }
}
