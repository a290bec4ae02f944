//! The servers of one cluster, any of which will do: which is asked next.
//!
//! The one that answered last is asked again, so that a client's connections and watches stay together; one that failed makes way for the next. The server
//! that was configured stays in the list whatever is learned: it may be a balancer, or know more than the list does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::uri::Authority;
use parking_lot::RwLock;

/// One server, and how it is reached.
pub(super) struct Backend<L> {
    pub(super) authority: Authority,
    pub(super) lanes: L,
}

pub(super) struct Backends<L> {
    all: RwLock<Arc<[Arc<Backend<L>>]>>,
    preferred: AtomicUsize,
}

impl<L> Backends<L> {
    /// The one that was configured.
    pub(super) fn new(authority: Authority, lanes: L) -> Self {
        Self { all: RwLock::new(Arc::new([Arc::new(Backend { authority, lanes })])), preferred: AtomicUsize::new(0) }
    }

    /// The configured one and these. Connections to those that stay are kept.
    pub(super) fn set(&self, servers: &[Authority], new: impl Fn() -> L) {
        let known = self.all.read().clone();
        let mut all: Vec<Arc<Backend<L>>> = known.first().cloned().into_iter().collect();
        for authority in servers {
            if all.iter().any(|backend| backend.authority == *authority) {
                continue;
            }
            let kept = known.iter().find(|backend| backend.authority == *authority).cloned();
            let made = || Arc::new(Backend { authority: authority.clone(), lanes: new() });
            all.push(kept.unwrap_or_else(made));
        }
        if all.iter().map(|backend| &backend.authority).eq(known.iter().map(|backend| &backend.authority)) {
            return;
        }
        let used = known.get(self.preferred.load(Ordering::Relaxed) % known.len());
        let preferred = used.and_then(|used| all.iter().position(|backend| backend.authority == used.authority));
        *self.all.write() = all.into();
        self.preferred.store(preferred.unwrap_or_default(), Ordering::Relaxed);
    }

    /// All of them once, from the preferred one on.
    pub(super) fn round(&self) -> impl Iterator<Item = Arc<Backend<L>>> + use<L> {
        let all = self.all.read().clone();
        let first = self.preferred.load(Ordering::Relaxed);
        (0..all.len()).map(move |step| all[(first + step) % all.len()].clone())
    }

    /// This one is asked next.
    pub(super) fn answered(&self, backend: &Arc<Backend<L>>) {
        if let Some(place) = self.place(backend) {
            self.preferred.store(place, Ordering::Relaxed);
        }
    }

    /// This one is not asked next.
    pub(super) fn failed(&self, backend: &Arc<Backend<L>>) {
        let Some(place) = self.place(backend) else { return };
        // Only if nobody else has turned to another one already.
        let next = (place + 1) % self.all.read().len();
        let _ = self.preferred.compare_exchange(place, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn place(&self, backend: &Arc<Backend<L>>) -> Option<usize> {
        self.all.read().iter().position(|known| Arc::ptr_eq(known, backend))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(text: &str) -> Authority {
        text.parse().expect("an authority")
    }

    fn order(backends: &Backends<u32>) -> Vec<String> {
        backends.round().map(|backend| backend.authority.to_string()).collect()
    }

    #[test]
    fn the_one_that_answers_is_asked_again_and_one_that_fails_makes_way() {
        let backends = Backends::new(authority("a:1"), 0);
        assert_eq!(order(&backends), ["a:1"]);
        backends.set(&[authority("b:1"), authority("a:1"), authority("c:1")], || 1);
        assert_eq!(order(&backends), ["a:1", "b:1", "c:1"]);
        let first = backends.round().next().expect("one");
        backends.failed(&first);
        assert_eq!(order(&backends), ["b:1", "c:1", "a:1"]);
        // A late failure of the first does not take the second's place from it.
        backends.failed(&first);
        assert_eq!(order(&backends), ["b:1", "c:1", "a:1"]);
        let third = backends.round().nth(1).expect("another");
        backends.answered(&third);
        assert_eq!(order(&backends), ["c:1", "a:1", "b:1"]);
        // Those that stay keep their connections and their turn.
        backends.set(&[authority("c:1"), authority("d:1")], || 2);
        assert_eq!(order(&backends), ["c:1", "d:1", "a:1"]);
        assert_eq!(backends.round().map(|backend| backend.lanes).collect::<Vec<_>>(), [1, 2, 0]);
        backends.set(&[], || 3);
        assert_eq!(order(&backends), ["a:1"], "the configured one stays");
    }
}
