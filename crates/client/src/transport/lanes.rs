//! Connections to one server, as many as are needed for what is open at the same time.
//!
//! An HTTP/2 connection carries only so many requests at once, as its server says; a hundred is what upstream's API server says. One more would wait for
//! another to end, and watches do not end: a process that watches everything would stand still. So requests are counted from when they are
//! sent until their answers are read, and go on the first connection that has room.

use std::sync::Arc;

use parking_lot::Mutex;

/// The most requests on one connection.
const MOST: usize = 100;
/// The most connections. Beyond that requests wait where the fewest do.
const MOST_LANES: usize = 64;

/// Held while a request or its answer is under way.
pub(super) struct Ticket(#[expect(dead_code, reason = "what counts is that it is held")] Arc<()>);

struct Lane<P> {
    pool: P,
    /// Every ticket holds one of these.
    open: Arc<()>,
}

impl<P> Lane<P> {
    fn open(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}

/// The connections; `P` is a pool that keeps one connection where the server multiplexes.
pub(super) struct Lanes<P> {
    all: Mutex<Vec<Lane<P>>>,
    new: Box<dyn Fn() -> P + Send + Sync>,
}

impl<P: Clone> Lanes<P> {
    pub(super) fn new(new: impl Fn() -> P + Send + Sync + 'static) -> Self {
        Self { all: Mutex::default(), new: Box::new(new) }
    }

    /// A connection with room for one more request.
    pub(super) fn take(&self) -> (P, Ticket) {
        let mut all = self.all.lock();
        let free = all.iter().position(|lane| lane.open() < MOST);
        let at = match free {
            Some(at) => at,
            None if all.len() < MOST_LANES => {
                all.push(Lane { pool: (self.new)(), open: Arc::default() });
                all.len() - 1
            }
            None => (0..all.len()).min_by_key(|at| all[*at].open()).unwrap_or_default(),
        };
        let lane = &all[at];
        (lane.pool.clone(), Ticket(lane.open.clone()))
    }

    /// Later requests use new connections; answers that are under way end on the old ones.
    pub(super) fn renew(&self) {
        self.all.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_connection_carries_a_hundred_and_the_next_one_the_rest() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = made.clone();
        let lanes = Lanes::new(move || counter.fetch_add(1, Ordering::Relaxed));
        let mut open: Vec<(usize, Ticket)> = (0..MOST).map(|_| lanes.take()).collect();
        assert!(open.iter().all(|(lane, _)| *lane == 0));
        let (second, held) = lanes.take();
        assert_eq!(second, 1, "the first is full");
        open.pop();
        let (again, _) = lanes.take();
        assert_eq!(again, 0, "there is room again");
        assert_eq!(made.load(Ordering::Relaxed), 2);
        drop((open, held));
        lanes.renew();
        assert_eq!(lanes.take().0, 2, "a new one");
    }

    #[test]
    fn there_is_an_end_to_connections_and_none_to_requests() {
        let lanes = Lanes::new(|| ());
        let open: Vec<((), Ticket)> = (0..=MOST * MOST_LANES).map(|_| lanes.take()).collect();
        assert_eq!((open.len(), lanes.all.lock().len()), (MOST * MOST_LANES + 1, MOST_LANES));
    }
}
