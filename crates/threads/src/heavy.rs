//! Work that is bound by the processor, and whose size users choose, away from the threads that serve everybody.
//!
//! A request runs in a [`scope`]. Where its size becomes known, its body read or its object found, it says so ([`weigh`]). From then on
//! each of its turns is taken as `tokio::task::block_in_place` has it: the worker hands its other tasks to another thread, computes, and
//! comes back. So nothing of a request has to be owned or sent anywhere, and the small ones, nearly all, pay one comparison.
//!
//! As many turns are taken at once as there are cores but one, which is left to everybody else; others wait in line, without a thread. Between
//! two turns a request whose client has gone is dropped, as any other future is: every [`weigh`] is such a place.
//!
//! Calls into the system that wait for others, for the kernel's lock on cgroups or for a disk, leave the workers the same way ([`blocking`]).

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock};
use std::task::{Poll, ready};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// From so many bytes on, work is heavy: it takes a few milliseconds, and handing tasks over some microseconds.
pub const HEAVY: usize = 64 * 1024;

/// How many turns of heavy work are taken at once.
fn places() -> usize {
    super::cores().saturating_sub(1).max(1)
}

static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(places())));

/// How many calls may wait at once: what they wait for is mostly one and the same.
static CALLS: Semaphore = Semaphore::const_new(8);

thread_local! {
    /// Set when the future that is polled on this thread turns out to be heavy.
    static MARKED: Cell<bool> = const { Cell::new(false) };
    /// Set while this thread does heavy work.
    static WORKING: Cell<bool> = const { Cell::new(false) };
}

type Entering = Pin<Box<dyn Future<Output = OwnedSemaphorePermit> + Send>>;

/// Runs a future whose turns are moved off once it has been [`weigh`]ed and found heavy.
pub async fn scope<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut is_heavy = false;
    let mut entering: Option<Entering> = None;
    poll_fn(|context| {
        if !is_heavy || WORKING.get() {
            entering = None;
            let before = MARKED.replace(false);
            let outcome = future.as_mut().poll(context);
            is_heavy |= MARKED.replace(before);
            return outcome;
        }
        let place = ready!(entering.get_or_insert_with(|| Box::pin(place())).as_mut().poll(context));
        entering = None;
        let before = MARKED.get();
        let outcome: Poll<F::Output> = off(|| future.as_mut().poll(context));
        MARKED.set(before);
        drop(place);
        outcome
    })
    .await
}

/// Says how large the work ahead is. If it is heavy, the [`scope`] around goes on elsewhere, or not at all if nobody waits for it any more.
pub async fn weigh(bytes: usize) {
    if bytes >= HEAVY {
        MARKED.set(true);
        tokio::task::yield_now().await;
    }
}

/// Does one piece of work of this size, outside of a [`scope`].
pub async fn run<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    if bytes < HEAVY || WORKING.get() {
        return work();
    }
    let _place = place().await;
    off(work)
}

/// Makes a call into the system that may wait for others.
pub async fn blocking<T>(call: impl FnOnce() -> T) -> T {
    let _place = CALLS.acquire().await.expect("nobody closes it");
    hand_over(call)
}

async fn place() -> OwnedSemaphorePermit {
    PLACES.clone().acquire_owned().await.expect("nobody closes it")
}

fn off<T>(work: impl FnOnce() -> T) -> T {
    /// Also when the work panics: the thread goes on with others'.
    struct Working;
    impl Drop for Working {
        fn drop(&mut self) {
            WORKING.set(false);
        }
    }
    hand_over(|| {
        WORKING.set(true);
        let _working = Working;
        work()
    })
}

/// Does something while another thread goes on with the tasks of this one.
fn hand_over<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        // There is nobody to hand anything to.
        _ => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc;

    use super::*;

    fn workers(count: usize) -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_multi_thread().worker_threads(count).enable_all().build().expect("a runtime")
    }

    /// Holds every place with work that ends when the barrier is reached from outside.
    fn hold_all_places(runtime: &tokio::runtime::Runtime) -> (Vec<tokio::task::JoinHandle<()>>, Arc<Barrier>) {
        let places = places();
        let (begun, has_begun) = mpsc::channel();
        let release = Arc::new(Barrier::new(places + 1));
        let held = (0..places).map(|_| {
            let (begun, release) = (begun.clone(), release.clone());
            runtime.spawn(scope(async move {
                weigh(HEAVY).await;
                begun.send(()).expect("the test waits");
                release.wait();
            }))
        });
        let held = held.collect();
        (0..places).for_each(|_| has_begun.recv().expect("all begin"));
        (held, release)
    }

    /// Whoever had a place gives it back, if not in the same instant in which its result is there.
    fn all_places_are_free(runtime: &tokio::runtime::Runtime) {
        let all = PLACES.acquire_many(u32::try_from(places()).expect("a few"));
        let free = runtime.block_on(async { tokio::time::timeout(std::time::Duration::from_secs(30), all).await });
        assert!(free.is_ok(), "a place was kept");
    }

    /// One test, since there is one set of places for the whole process.
    #[test]
    fn heavy_work_holds_up_nobody_but_heavy_work() {
        // One worker: without the hand-over nothing else would run on it.
        let runtime = workers(1);
        let (held, release) = hold_all_places(&runtime);
        let small = runtime.spawn(scope(async { weigh(HEAVY - 1).await }));
        runtime.block_on(small).expect("small requests are served meanwhile");

        // One more waits for a place, and is dropped there without having begun.
        let begun = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let noted = begun.clone();
        let waiting = runtime.spawn(scope(async move {
            weigh(HEAVY).await;
            noted.store(true, std::sync::atomic::Ordering::SeqCst);
        }));
        let piece = runtime.spawn(run(HEAVY, || ()));
        runtime.block_on(async { tokio::task::yield_now().await });
        waiting.abort();
        assert!(runtime.block_on(waiting).expect_err("aborted").is_cancelled());
        assert!(!piece.is_finished(), "there is no place for it");
        release.wait();
        held.into_iter().for_each(|held| runtime.block_on(held).expect("it ends"));
        runtime.block_on(piece).expect("its turn came");
        assert!(!begun.load(std::sync::atomic::Ordering::SeqCst));
        all_places_are_free(&runtime);

        // Heavy work within heavy work needs no second place, and a panic gives the place back.
        let nested = || async {
            weigh(HEAVY).await;
            scope(async { weigh(HEAVY).await }).await;
            run(HEAVY, || ()).await;
        };
        let all: Vec<_> = (0..8).map(|_| runtime.spawn(scope(nested()))).collect();
        all.into_iter().for_each(|one| runtime.block_on(one).expect("it ends"));
        let panicked = runtime.spawn(scope(async {
            weigh(HEAVY).await;
            panic!("on purpose");
        }));
        assert!(runtime.block_on(panicked).expect_err("it panics").is_panic());
        all_places_are_free(&runtime);
        assert!(!runtime.block_on(async { WORKING.get() }));
    }

    #[test]
    fn a_call_that_waits_holds_up_nobody() {
        let runtime = workers(1);
        let met = Arc::new(Barrier::new(2));
        let meeting = met.clone();
        let waiting = runtime.spawn(blocking(move || meeting.wait().is_leader()));
        // On the one worker: only if the call has left it can this come to the meeting.
        let other = runtime.spawn(async move { met.wait().is_leader() });
        let leaders = runtime.block_on(async { [waiting.await.expect("it ends"), other.await.expect("it ends")] });
        assert!(leaders[0] != leaders[1]);
    }

    #[tokio::test]
    async fn where_there_is_one_thread_the_work_is_done_there() {
        let sum = scope(async {
            weigh(HEAVY).await;
            run(HEAVY, || 1).await + 1
        });
        assert_eq!(sum.await, 2);
    }
}
