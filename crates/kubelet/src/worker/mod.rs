//! One pod's life on this node, from its binding to its end, in the stages of [`stage::Stage`].
//!
//! The worker holds nothing that cannot be read again from the API and the runtime: killed between any two instructions, its
//! successor goes on from there.

pub(crate) mod certificates;
mod claims;
mod end;
pub(crate) mod hooks;
pub(crate) mod network;
mod probing;
mod resize;
pub(crate) mod runtime;
mod stage;
mod start;
mod stop;
mod sync;
mod trace;
mod volumes;
pub(crate) mod writer;

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use informer::guard;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use parking_lot::Mutex;
use rules::owners::controller_uid;
use rules::restarts::{Refusals, Restarts};
use tokio::sync::{Notify, watch};
use tokio_util::task::TaskTracker;

use crate::pod::allocation::Allocation;
use crate::pod::spec;
use crate::pod::state::State;
use crate::probes::Verdicts;
use crate::shared::Shared;
use crate::status::{Resize, Verdict, View, Waiting};
use crate::worker::writer::Writer;
use probing::Probes;
use stage::{Event, Stage};

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
    changed: Notify,
    /// Containers and sandboxes the runtime says have ended; their state may follow a moment later.
    exits: Mutex<HashSet<String>>,
    /// Set when an object the pod refers to changed.
    references: AtomicBool,
}

impl News {
    /// Something changed that concerns the pod.
    pub fn notify(&self) {
        self.changed.notify_one();
    }
}

impl Handle {
    /// Something of the pod changed in the runtime.
    pub fn notify(&self) {
        self.news.notify();
    }

    /// A container or sandbox of the pod ended.
    pub fn exited(&self, id: &str) {
        self.news.exits.lock().insert(id.to_owned());
        self.notify();
    }

    /// An object the pod refers to changed.
    pub fn references_changed(&self) {
        self.news.references.store(true, Ordering::Release);
        self.notify();
    }
}

pub struct Worker {
    shared: Arc<Shared>,
    orders: watch::Receiver<Order>,
    news: Arc<News>,
    pod: Arc<Pod>,
    state: State,
    /// What the probes say. Their tasks write it and wait for each other by it.
    verdicts: watch::Sender<Verdicts>,
    probes: Probes,
    /// The sandbox that the packet rules know.
    attached: Option<String>,
    waiting: HashMap<String, Waiting>,
    restarts: Restarts,
    refusals: Refusals,
    /// The last status made; the API's at first.
    status: PodStatus,
    shown: watch::Sender<Arc<PodStatus>>,
    writer: Option<Writer>,
    /// Where the pod's volumes are, once they were made.
    volumes: Option<volumes::Made>,
    /// Waits after volumes could not be made or brought up to date.
    tries: informer::Backoff,
    claims: HashMap<String, claims::Claimed>,
    certificates: certificates::Certificates,
    /// Images that are shown to the pod by us and not by the runtime.
    viewed: HashSet<String>,
    /// Events that would say the same at every try.
    reported: HashSet<String>,
    verdict: Option<Verdict>,
    /// Why the pod cannot run here, found out while its volumes were made.
    refused: Option<Verdict>,
    /// What the pod was given, once that was looked at.
    allocation: Option<Allocation>,
    resize: Resize,
    birth: Birth,
    /// Calls to the runtime that must not be broken off; they are waited for before the pod ends.
    calls: TaskTracker,
    /// Calls to storage drivers, likewise; containers are stopped without waiting for them.
    mounts: TaskTracker,
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
        verdicts: watch::Sender::default(),
        attached: None,
        waiting: HashMap::new(),
        restarts: Restarts::default(),
        refusals: Refusals::default(),
        status,
        shown,
        writer,
        volumes: None,
        tries: volumes::tries(),
        claims: HashMap::new(),
        certificates: HashMap::new(),
        viewed: HashSet::new(),
        reported: HashSet::new(),
        verdict: None,
        refused: None,
        allocation: None,
        resize: Resize::default(),
        birth,
        calls: TaskTracker::new(),
        mounts: TaskTracker::new(),
    };
    let stop = worker.shared.stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = worker.run(room) => {}
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

/// Waits for an order of some kind. When nobody is left to give orders, none comes: that alone ends nothing.
async fn ordered(mut orders: watch::Receiver<Order>, wanted: impl FnMut(&Order) -> bool) {
    if orders.wait_for(wanted).await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Worker {
    async fn run(mut self, room: impl Future<Output = ()>) {
        tokio::pin!(room);
        let is_unexplained = hops::export::is_unexplained(self.uid());
        let cause = if is_unexplained { trace::cause(&self.shared.client, &self.pod).await } else { None };
        hops::export::began(self.uid(), cause);
        let mut stage = Stage::Queued;
        while stage != Stage::Gone {
            let uid = self.uid().to_owned();
            let worked = guard::caught("pod worker", &uid, self.work(stage, room.as_mut())).await;
            let pause = worked.is_none().then_some(AFTER_PANIC);
            stage = stage.after_work(worked);
            if pause.is_some() {
                self.wait(pause).await;
            }
        }
        let uid = self.uid().to_owned();
        self.shared.owners.lock().retain(|_, owner| *owner != uid);
    }

    /// The work of a stage; the event that it came to, or nothing when the stage goes on.
    async fn work(&mut self, stage: Stage, room: Pin<&mut impl Future<Output = ()>>) -> Option<Event> {
        match stage {
            Stage::Queued => Some(self.queue(room).await),
            Stage::Syncing => self.sync_turn().await,
            Stage::Terminating => {
                self.terminate().await;
                Some(Event::Stopped)
            }
            Stage::Terminated => {
                self.release().await;
                Some(Event::DeletionAsked)
            }
            Stage::Removing => {
                self.remove().await;
                Some(Event::Forgotten)
            }
            Stage::Gone => None,
        }
    }

    async fn queue(&mut self, room: Pin<&mut impl Future<Output = ()>>) -> Event {
        let uid = self.uid().to_owned();
        let event = tokio::select! {
            // A mistake in waiting for others is no reason to wait for ever.
            _ = guard::caught("pod worker", &uid, room) => Event::RoomMade,
            () = ordered(self.orders.clone(), Order::ends) => Event::TerminationOrdered,
        };
        self.shared.figures.workers.observe(&[], self.birth.seen.elapsed().as_secs_f64());
        event
    }

    async fn sync_turn(&mut self) -> Option<Event> {
        let order = self.orders.borrow_and_update().clone();
        self.take(&order.pod);
        if let Some(writer) = &self.writer {
            writer.saw(&order.pod);
        }
        let begun = Instant::now();
        let turn = tokio::select! {
            biased;
            () = ordered(self.orders.clone(), Order::ends) => return Some(Event::TerminationOrdered),
            turn = self.sync() => turn,
        };
        let kind = if self.birth.turned { "sync" } else { "create" };
        self.birth.turned = true;
        self.shared.figures.turns.observe(&[kind], begun.elapsed().as_secs_f64());
        match turn {
            Turn::Finished => Some(Event::RanToItsEnd),
            Turn::Wait(delay) => {
                self.wait(delay).await;
                None
            }
        }
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
            () = news.changed.notified() => {}
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
        let state = crate::worker::runtime::state(&*self.shared.runtime, self.uid()).await?;
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
        let verdicts = self.verdicts.borrow().clone();
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
            self.shared.figures.ended(&self.status, &status);
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
        let hop = hops::stage(hops::Stage::Pod, "start").since(self.birth.seen.elapsed());
        hop.end(self.uid(), controller_uid(&self.pod.metadata).unwrap_or_default(), 0);
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

    /// Whether this is said for the first time.
    fn is_first_report(&mut self, text: &str) -> bool {
        self.reported.insert(text.to_owned())
    }
}
