//! Which thread does what, so that no work holds up what must happen in time.
//!
//! ```text
//! workers ("trireme")    everything that waits: connections, requests, watches, controllers, the scheduler, the kubelet
//!   └─ heavy             requests of more than 64 KiB: a worker that takes one on hands its other tasks to a new thread first
//! promises               what has a deadline: probes, leases, elections; nothing here computes or waits for a lock
//! feed                   takes committed events from the store to the watch cache
//! watchdog               asks the others for a sign of life while they are busy, and counts how long it takes
//! ```
//! The kernel shares the cores out among threads, so a thread that computes delays others by a few milliseconds, however long it
//! computes. Tasks on one thread have nobody who shares it out. Hence the rule: what is bound by the processor and whose size
//! users choose goes through [`heavy`], and what has a deadline is spawned on a [`prompt::Lane`].
//!
//! Deliberately absent: priorities, which need rights that a user may not have, and a queue of jobs, which would need everything that a
//! request borrows to be owned.

pub mod heavy;
pub mod patience;
pub mod prompt;
mod watchdog;

pub use watchdog::write;

use tokio::runtime::{Builder, Runtime};

/// The most threads for calls that block, and for workers that take the place of one that does heavy work.
const MOST_BLOCKING: usize = 64;

/// What a thread's stack may grow to. Objects are read, judged and written by walks that call themselves; an object as deep as the
/// decoder lets through takes half of this without optimisation. Only what was used once is memory.
const STACK: usize = 16 << 20;

/// Starts the workers, the threads of the lanes and the watchdog of this process.
pub fn start() -> std::io::Result<Runtime> {
    // At least two, so that one that is busy never holds up the other's timers and sockets.
    let threads = cores().max(2);
    let activity = watchdog::Activity::new("workers", threads);
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).max_blocking_threads(MOST_BLOCKING).thread_stack_size(STACK);
    builder.thread_name("trireme").enable_all();
    let workers = activity.observe(&mut builder).build()?;
    let mut watched = prompt::start()?;
    watched.push(activity.of(workers.handle().clone()));
    watchdog::start(watched)?;
    Ok(workers)
}

/// How many cores there are.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
