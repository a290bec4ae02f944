//! When kubelets are asked: from the first question on, every 15 seconds, until nobody has asked for a while. An idle cluster is idle.
//!
//! A rate needs two moments. The first question after a while waits for both, a second apart; all others are answered from
//! what is there.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::points::Points;
use crate::{Batch, text};

/// How often kubelets are asked.
pub const RESOLUTION: Duration = Duration::from_secs(15);
/// How long the first window is.
const FIRST: Duration = Duration::from_secs(1);
/// How long kubelets are asked after the last question. Autoscalers ask every 15 seconds.
const INTEREST: Duration = Duration::from_secs(120);
/// How long a kubelet may take. One that takes longer is not there in this round.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a first question waits for two rounds.
const WAIT: Duration = Duration::from_secs(5);
/// How many kubelets are asked at once.
const AT_ONCE: usize = 32;

/// Where the figures come from.
pub trait Kubelets: Send + Sync + 'static {
    /// The names of all nodes.
    fn nodes(&self) -> Vec<String>;
    /// A node's `/metrics/resource`, or why there is none.
    fn scrape<'a>(&'a self, node: &'a str) -> BoxFuture<'a, Result<String, String>>;
    fn now(&self) -> Timestamp;
}

/// What is known of the use of everything.
pub struct Collector {
    kubelets: Arc<dyn Kubelets>,
    points: Mutex<Points>,
    asked: Mutex<Asked>,
    /// How many rounds there were since somebody asked first.
    rounds: watch::Sender<u64>,
}

#[derive(Default)]
struct Asked {
    last: Option<Instant>,
    running: bool,
}

impl Collector {
    pub fn new(kubelets: Arc<dyn Kubelets>) -> Arc<Self> {
        let points = Mutex::new(Points::new(RESOLUTION));
        Arc::new(Self { kubelets, points, asked: Mutex::default(), rounds: watch::Sender::new(0) })
    }

    /// Reads the points, once there are some. Kubelets that cannot be reached leave out theirs.
    pub async fn read<T>(self: &Arc<Self>, reader: impl FnOnce(&Points) -> T) -> T {
        let mut rounds = self.rounds.subscribe();
        {
            let mut asked = self.asked.lock();
            asked.last = Some(Instant::now());
            if !asked.running {
                asked.running = true;
                self.rounds.send_replace(0);
                tokio::spawn(run(Arc::downgrade(self)));
            }
        }
        // The sender is this collector's own. Too late is answered with what there is.
        let _ = tokio::time::timeout(WAIT, rounds.wait_for(|rounds| *rounds >= 2)).await;
        reader(&self.points.lock())
    }

    pub fn now(&self) -> Timestamp {
        self.kubelets.now()
    }

    async fn round(&self) {
        let scrape = |node: String| async move {
            let text = tokio::time::timeout(PATIENCE, self.kubelets.scrape(&node)).await;
            (node, text.unwrap_or_else(|_| Err("no answer in time".to_owned())))
        };
        let mut answers = futures::stream::iter(self.kubelets.nodes()).map(scrape).buffer_unordered(AT_ONCE);
        let mut batch = Batch::default();
        while let Some((node, answer)) = answers.next().await {
            match answer {
                Ok(answer) => text::read(&answer, &node, self.kubelets.now(), &mut batch),
                Err(error) => tracing::debug!(node, error, "a kubelet does not say what is used"),
            }
        }
        self.points.lock().store(batch);
        self.rounds.send_modify(|rounds| *rounds += 1);
    }

    /// Whether nobody has asked for a while. If so, what is known is forgotten: it would be old by the next question.
    fn is_over(&self) -> bool {
        let mut asked = self.asked.lock();
        if asked.last.is_some_and(|last| last.elapsed() < INTEREST) {
            return false;
        }
        asked.running = false;
        *self.points.lock() = Points::new(RESOLUTION);
        true
    }
}

async fn run(collector: Weak<Collector>) {
    let mut next = Instant::now();
    let mut pause = FIRST;
    while let Some(collector) = collector.upgrade() {
        if collector.is_over() {
            return;
        }
        collector.round().await;
        drop(collector);
        next = Instant::now().max(next + pause);
        pause = RESOLUTION;
        tokio::time::sleep_until(next).await;
    }
}
