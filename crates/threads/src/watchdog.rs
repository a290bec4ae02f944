//! How late the threads of this process are: a task that asks for nothing but its turn is sent to each runtime every few milliseconds, and
//! counts how long it had to wait.
//!
//! Only while the runtime is busy. When all its threads have gone to sleep the watchdog does too, and the next one that wakes up wakes it: an
//! idle process is idle.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use figures::{Buckets, Family, Gauge, Histogram};
use tokio::runtime::{Builder, Handle};

/// How often a busy runtime is asked for a sign of life.
const TICK: Duration = Duration::from_millis(10);
/// How late it may be before it is said aloud.
const LATE: Duration = Duration::from_millis(500);
/// How long after one warning there is no other.
const QUIET: Duration = Duration::from_secs(60);

/// How long a task had to wait for its turn.
static STALLS: Histogram = Histogram::new(
    "trireme_runtime_stall_seconds",
    "How long a task that was ready had to wait for its turn, asked every 10 ms while the runtime is busy.",
    &["runtime"],
    Buckets::At(&[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]),
);

/// The longest of them.
static LONGEST: Gauge = Gauge::new(
    "trireme_runtime_longest_stall_seconds",
    "The longest time since the start that a task that was ready had to wait for its turn.",
    &["runtime"],
);

/// Appends what the watchdog counts.
pub fn write(text: &mut String) {
    let families: [&dyn Family; 2] = [&STALLS, &LONGEST];
    figures::write(&families, text);
}

/// The thread to wake when somebody becomes busy.
static WATCHDOG: OnceLock<Thread> = OnceLock::new();
/// Whether it sleeps until somebody does.
static ASLEEP: AtomicBool = AtomicBool::new(false);

/// Whether the threads of a runtime are awake, as they say themselves.
#[derive(Debug)]
pub(super) struct Activity {
    name: &'static str,
    /// How often one woke up.
    wakings: AtomicU64,
    /// How many are awake.
    awake: AtomicUsize,
}

impl Activity {
    /// Of so many threads, all of which begin awake.
    pub(super) fn new(name: &'static str, threads: usize) -> Arc<Self> {
        Arc::new(Self { name, wakings: AtomicU64::new(0), awake: AtomicUsize::new(threads) })
    }

    /// Lets the threads of a runtime say when they go to sleep and wake up.
    pub(super) fn observe<'b>(self: &Arc<Self>, builder: &'b mut Builder) -> &'b mut Builder {
        let (waking, sleeping) = (self.clone(), self.clone());
        builder
            .on_thread_unpark(move || {
                waking.wakings.fetch_add(1, Ordering::Relaxed);
                waking.awake.fetch_add(1, Ordering::Relaxed);
                if ASLEEP.load(Ordering::Relaxed)
                    && ASLEEP.swap(false, Ordering::AcqRel)
                    && let Some(watchdog) = WATCHDOG.get()
                {
                    watchdog.unpark();
                }
            })
            .on_thread_park(move || {
                sleeping.awake.fetch_sub(1, Ordering::Relaxed);
            })
    }

    pub(super) fn of(self: Arc<Self>, runtime: Handle) -> Watched {
        Watched { activity: self, runtime, seen: 0, asked: Arc::default(), warned: None }
    }
}

/// A runtime under watch.
pub(super) struct Watched {
    activity: Arc<Activity>,
    runtime: Handle,
    /// The wakings up to the last look.
    seen: u64,
    /// When the sign of life that is awaited was asked for.
    asked: Arc<parking_lot::Mutex<Option<Instant>>>,
    warned: Option<Instant>,
}

impl Watched {
    /// Asks for a sign of life if the runtime is busy; says whether it is.
    fn look(&mut self) -> bool {
        let pending = *self.asked.lock();
        if let Some(asked) = pending {
            let waited = asked.elapsed();
            if waited >= LATE && self.warned.is_none_or(|warned| warned.elapsed() >= QUIET) {
                self.warned = Some(Instant::now());
                tracing::warn!(runtime = self.activity.name, "no task had its turn for {} ms", waited.as_millis());
            }
            return true;
        }
        self.seen = self.activity.wakings.load(Ordering::Acquire);
        // Those that woke up for the last question sleep again by now. Nothing but what they do now counts: the question itself must not
        // keep anybody awake.
        let busy = self.activity.awake.load(Ordering::Relaxed) > 0;
        if busy {
            self.ask();
        }
        busy
    }

    fn ask(&self) {
        let now = Instant::now();
        *self.asked.lock() = Some(now);
        let (asked, name) = (self.asked.clone(), self.activity.name);
        self.runtime.spawn(async move {
            let late = now.elapsed().as_secs_f64();
            *asked.lock() = None;
            STALLS.observe(&[name], late);
            if LONGEST.value(&[name]).is_none_or(|longest| longest < late) {
                LONGEST.set(&[name], late);
            }
        });
    }
}

/// Starts the thread. It ends with the process.
pub(super) fn start(mut all: Vec<Watched>) -> std::io::Result<()> {
    let run = move || {
        if WATCHDOG.set(std::thread::current()).is_err() {
            return;
        }
        loop {
            // All of them are looked at, whoever is busy.
            let busy = all.iter_mut().map(Watched::look).filter(|busy| *busy).count() > 0;
            if busy {
                std::thread::sleep(TICK);
                continue;
            }
            ASLEEP.store(true, Ordering::Release);
            // Whoever woke up in the meantime may not have seen that.
            if all.iter().any(|watched| watched.activity.wakings.load(Ordering::Acquire) != watched.seen) {
                ASLEEP.store(false, Ordering::Release);
                std::thread::sleep(TICK);
                continue;
            }
            while ASLEEP.load(Ordering::Acquire) {
                std::thread::park();
            }
            // What is short is over by then, and nobody was late.
            std::thread::sleep(TICK);
        }
    };
    std::thread::Builder::new().name("watchdog".to_owned()).spawn(run)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn a_runtime_that_is_held_is_asked_and_what_it_took_is_counted() {
        let activity = Activity::new("held", 1);
        let runtime = activity.observe(Builder::new_multi_thread().worker_threads(1)).build().expect("a runtime");
        let mut watched = activity.of(runtime.handle().clone());
        let held = Arc::new(Barrier::new(2));
        let holding = held.clone();
        let task = runtime.spawn(async move {
            holding.wait();
            holding.wait();
        });
        held.wait();
        assert!(watched.look(), "its one thread is awake");
        assert!(watched.look() && watched.asked.lock().is_some(), "nobody answers");
        held.wait();
        runtime.block_on(task).expect("it ends");
        // What is spawned later on one thread has its turn later.
        runtime.block_on(runtime.spawn(async {})).expect("it ends");
        assert!(watched.asked.lock().is_none());
        let mut text = String::new();
        write(&mut text);
        assert!(text.contains("trireme_runtime_stall_seconds_count{runtime=\"held\"} 1"), "{text}");
        assert!(LONGEST.value(&["held"]).is_some_and(|longest| longest > 0.0));
    }
}
