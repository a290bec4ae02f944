//! Threads for what must happen in time: promises (probes, leases), and the feed that readers and watchers wait for.
//!
//! A liveness probe that is asked late kills a container that is well, a lease that is renewed late moves all pods away. So they have a
//! thread of their own, with a timer and sockets of its own, which neither requests nor controllers ever run on. The feed of the watch
//! cache has another: it takes locks that readers hold while they look through a long list, and a probe does not wait for that.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Handle};
use tokio::task::JoinHandle;

use super::watchdog::{Activity, Watched};

/// What a thread is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Probes and leases. Nothing here takes a lock that others hold for long.
    Promises,
    /// From the store to the watch cache.
    Feed,
}

impl Lane {
    const ALL: [Self; 2] = [Self::Promises, Self::Feed];

    fn name(self) -> &'static str {
        match self {
            Self::Promises => "promises",
            Self::Feed => "feed",
        }
    }
}

static STARTED: [OnceLock<Handle>; Lane::ALL.len()] = [const { OnceLock::new() }; Lane::ALL.len()];

/// Runs a future on the thread of a lane; where none was started, as in tests, beside the caller.
pub fn spawn<F>(lane: Lane, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match STARTED[lane as usize].get() {
        Some(runtime) => runtime.spawn(future),
        None => tokio::spawn(future),
    }
}

/// Starts the threads. They end with the process.
pub(super) fn start() -> std::io::Result<Vec<Watched>> {
    Lane::ALL.into_iter().map(start_one).collect()
}

fn start_one(lane: Lane) -> std::io::Result<Watched> {
    let activity = Activity::new(lane.name(), 1);
    let runtime = activity.observe(Builder::new_current_thread().max_blocking_threads(4).enable_all()).build()?;
    let handle = runtime.handle().clone();
    // A second start in one process, which only tests make, leaves the first one in place.
    let _ = STARTED[lane as usize].set(handle.clone());
    let run = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new().name(lane.name().to_owned()).spawn(run)?;
    Ok(activity.of(handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_are_kept_while_every_worker_is_held() {
        let workers = crate::start().expect("threads");
        let all = crate::cores().max(2);
        let held = std::sync::Arc::new(std::sync::Barrier::new(all + 1));
        for _ in 0..all {
            let held = held.clone();
            workers.spawn(async move {
                held.wait();
                held.wait();
            });
        }
        held.wait();
        // Nothing runs on the workers now, not even their timers.
        assert_eq!(wait(spawn(Lane::Promises, thread_name())), "promises");
        assert_eq!(wait(spawn(Lane::Feed, thread_name())), "feed");
        held.wait();
    }

    async fn thread_name() -> String {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        std::thread::current().name().unwrap_or_default().to_owned()
    }

    fn wait<T: Send + 'static>(task: JoinHandle<T>) -> T {
        let waiting = Builder::new_current_thread().build().expect("a runtime");
        waiting.block_on(task).expect("it ends")
    }
}
