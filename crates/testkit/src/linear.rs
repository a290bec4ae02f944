//! Is a history of concurrent operations on one key explainable by one operation after the other?
//!
//! The search is Wing and Gong's with Lowe's memory: take operations in any order that real time allows, step the model, go
//! back when it refuses, and never try the same set of operations with the same state twice. An operation whose outcome is
//! unknown (its connection broke, its server was killed) may take effect at any later time, or never: it returns at the end
//! of time, after everything else, where an effect is seen by nobody.

use std::collections::HashSet;
use std::hash::Hash;

/// A sequential object: what an operation does to a state.
pub trait Model {
    type State: Clone + Eq + Hash;
    /// An operation together with its outcome.
    type Operation;

    /// The state before the first operation.
    fn initial(&self) -> Self::State;

    /// The state after the operation, or `None` if it could not have had this outcome in this state.
    fn step(&self, state: &Self::State, operation: &Self::Operation) -> Option<Self::State>;
}

/// One operation with its place in real time.
#[derive(Debug, Clone)]
pub struct Recorded<O> {
    /// When it was called.
    pub called: u64,
    /// When it returned; `None` if its outcome is unknown.
    pub returned: Option<u64>,
    /// What it was, and what came out of it.
    pub operation: O,
}

/// Whether the history is linearizable.
pub fn linearizable<M: Model>(model: &M, history: &[Recorded<M::Operation>]) -> bool {
    let mut search = Search::new(history);
    let mut state = model.initial();
    let mut seen = HashSet::new();
    let mut done = vec![0u64; history.len().div_ceil(64)];
    let mut trail: Vec<(usize, M::State)> = Vec::new();
    let mut at = search.first();
    while let Some(entry) = at {
        let operation = search.operation[entry];
        if search.is_call(entry) {
            let stepped = model.step(&state, &history[operation].operation);
            at = search.after(entry);
            if let Some(next) = stepped {
                done[operation / 64] |= 1 << (operation % 64);
                if seen.insert((done.clone(), next.clone())) {
                    trail.push((entry, std::mem::replace(&mut state, next)));
                    search.take(entry);
                    at = search.first();
                } else {
                    done[operation / 64] &= !(1 << (operation % 64));
                }
            }
        } else {
            // It had to take effect before it returned, and could not: an earlier choice was wrong.
            let Some((entry, before)) = trail.pop() else { return false };
            let operation = search.operation[entry];
            state = before;
            done[operation / 64] &= !(1 << (operation % 64));
            search.put_back(entry);
            at = search.after(entry);
        }
    }
    true
}

/// Calls and returns in the order of real time, as a list from which operations are taken and put back in constant time.
struct Search {
    /// For each entry, which operation it belongs to. Operation `o`'s call is entry `calls[o]`.
    operation: Vec<usize>,
    returns: Vec<usize>,
    calls: Vec<usize>,
    next: Vec<usize>,
    previous: Vec<usize>,
}

/// Before the first and after the last entry.
const END: usize = usize::MAX;

impl Search {
    fn new<O>(history: &[Recorded<O>]) -> Self {
        // At equal times calls come first: operations that touch are concurrent.
        let mut order: Vec<(u64, bool, usize)> = Vec::with_capacity(history.len() * 2);
        for (operation, recorded) in history.iter().enumerate() {
            order.push((recorded.called, false, operation));
            order.push((recorded.returned.unwrap_or(u64::MAX), true, operation));
        }
        order.sort_unstable();
        let mut search = Self {
            operation: order.iter().map(|(_, _, operation)| *operation).collect(),
            returns: vec![0; history.len()],
            calls: vec![0; history.len()],
            next: (1..=order.len()).collect(),
            previous: (0..order.len()).map(|entry| entry.wrapping_sub(1)).collect(),
        };
        if let Some(last) = search.next.last_mut() {
            *last = END;
        }
        for (entry, (_, is_return, operation)) in order.into_iter().enumerate() {
            if is_return {
                search.returns[operation] = entry;
            } else {
                search.calls[operation] = entry;
            }
        }
        search.next.push(if search.operation.is_empty() { END } else { 0 });
        search
    }

    fn is_call(&self, entry: usize) -> bool {
        self.calls[self.operation[entry]] == entry
    }

    /// The slot behind the last entry holds the head of the list.
    fn head(&self) -> usize {
        self.operation.len()
    }

    fn first(&self) -> Option<usize> {
        self.after(self.head())
    }

    fn after(&self, entry: usize) -> Option<usize> {
        Some(self.next[entry]).filter(|next| *next != END)
    }

    fn unlink(&mut self, entry: usize) {
        let (previous, next) = (self.previous[entry], self.next[entry]);
        let slot = if previous == END { self.head() } else { previous };
        self.next[slot] = next;
        if next != END {
            self.previous[next] = previous;
        }
    }

    fn relink(&mut self, entry: usize) {
        let (previous, next) = (self.previous[entry], self.next[entry]);
        let slot = if previous == END { self.head() } else { previous };
        self.next[slot] = entry;
        if next != END {
            self.previous[next] = entry;
        }
    }

    fn take(&mut self, call: usize) {
        let answered = self.returns[self.operation[call]];
        self.unlink(call);
        self.unlink(answered);
    }

    /// In the opposite order of [`Search::take`], so that every neighbour is there again when it is needed.
    fn put_back(&mut self, call: usize) {
        let answered = self.returns[self.operation[call]];
        self.relink(answered);
        self.relink(call);
    }
}

/// A key that is absent or holds a value, changed by compare-and-swap. Values must be unique in a history.
#[derive(Debug, Clone, Copy, Default)]
pub struct Register;

/// An operation on a [`Register`], with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Saw this value, or that the key is absent.
    Read(Option<u64>),
    /// Expected `expected`, and set or removed the key.
    Swap {
        /// What the key had to hold; `None` is absent.
        expected: Option<u64>,
        /// What it holds afterwards; `None` is absent.
        new: Option<u64>,
        /// What came out of it.
        outcome: Outcome,
    },
}

/// How a swap ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The key held something else.
    Refused,
    Unknown,
}

impl Model for Register {
    type State = Option<u64>;
    type Operation = Operation;

    fn initial(&self) -> Option<u64> {
        None
    }

    fn step(&self, state: &Option<u64>, operation: &Operation) -> Option<Option<u64>> {
        match operation {
            Operation::Read(seen) => (seen == state).then_some(*state),
            Operation::Swap { expected, new, outcome } => match (expected == state, outcome) {
                (true, Outcome::Done | Outcome::Unknown) => Some(*new),
                (false, Outcome::Refused | Outcome::Unknown) => Some(*state),
                (true, Outcome::Refused) | (false, Outcome::Done) => None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng as _, SeedableRng as _};

    fn read(called: u64, returned: u64, seen: Option<u64>) -> Recorded<Operation> {
        Recorded { called, returned: Some(returned), operation: Operation::Read(seen) }
    }

    fn swap(
        called: u64,
        returned: u64,
        expected: Option<u64>,
        new: Option<u64>,
        outcome: Outcome,
    ) -> Recorded<Operation> {
        let returned = (outcome != Outcome::Unknown).then_some(returned);
        Recorded { called, returned, operation: Operation::Swap { expected, new, outcome } }
    }

    fn check(history: &[Recorded<Operation>]) -> bool {
        linearizable(&Register, history)
    }

    #[test]
    fn an_empty_history_and_a_sequential_one_are_linearizable() {
        assert!(check(&[]));
        assert!(check(&[
            read(0, 1, None),
            swap(2, 3, None, Some(1), Outcome::Done),
            swap(4, 5, None, Some(2), Outcome::Refused),
            read(6, 7, Some(1)),
            swap(8, 9, Some(1), None, Outcome::Done),
            read(10, 11, None),
        ]));
    }

    #[test]
    fn a_stale_read_is_found() {
        assert!(!check(&[swap(0, 1, None, Some(1), Outcome::Done), read(2, 3, None)]));
        assert!(check(&[swap(0, 3, None, Some(1), Outcome::Done), read(2, 4, None)]));
    }

    #[test]
    fn reads_cannot_go_back_in_time() {
        let write = swap(0, 10, None, Some(1), Outcome::Done);
        assert!(check(&[write.clone(), read(1, 2, None), read(3, 4, Some(1))]));
        assert!(!check(&[write, read(1, 2, Some(1)), read(3, 4, None)]));
    }

    #[test]
    fn two_swaps_cannot_both_win() {
        let first = swap(1, 9, Some(1), Some(2), Outcome::Done);
        let second = swap(2, 8, Some(1), Some(3), Outcome::Done);
        let create = swap(0, 0, None, Some(1), Outcome::Done);
        assert!(!check(&[create.clone(), first.clone(), second]));
        assert!(check(&[create, first, swap(2, 8, Some(1), Some(3), Outcome::Refused)]));
    }

    #[test]
    fn a_lost_acknowledged_write_is_found_and_an_unknown_one_may_go_either_way() {
        let create = swap(0, 1, None, Some(1), Outcome::Done);
        let unknown = swap(2, 3, Some(1), Some(2), Outcome::Unknown);
        assert!(check(&[create.clone(), unknown.clone(), read(4, 5, Some(1)), read(6, 7, Some(2))]));
        assert!(check(&[create.clone(), unknown.clone(), read(4, 5, Some(1))]));
        assert!(!check(&[create.clone(), unknown, read(4, 5, Some(2)), read(6, 7, Some(1))]));
        assert!(!check(&[create, swap(2, 3, Some(1), Some(2), Outcome::Done), read(4, 5, Some(1))]));
    }

    /// Runs a real register with overlapping operations: each takes effect at a random time between call and return.
    fn simulate(seed: u64, operations: usize) -> Vec<Recorded<Operation>> {
        let mut random = StdRng::seed_from_u64(seed);
        let mut planned: Vec<(u64, u64, u64)> = (0..operations)
            .map(|number| {
                let called = number as u64 * 10 + random.random_range(0..10);
                let effect = called + random.random_range(0..40);
                (effect, called, effect + random.random_range(0..40))
            })
            .collect();
        planned.sort_unstable();
        let mut state = None;
        let mut history = Vec::new();
        for (number, (_, called, returned)) in planned.into_iter().enumerate() {
            let value = number as u64 + 1;
            if random.random_bool(0.4) {
                history.push(read(called, returned, state));
                continue;
            }
            let guess = if random.random_bool(0.7) { state } else { Some(random.random_range(0..value)) };
            let new = random.random_bool(0.8).then_some(value);
            let lost = random.random_bool(0.1);
            let outcome = match (guess == state, lost) {
                (_, true) => Outcome::Unknown,
                (true, false) => Outcome::Done,
                (false, false) => Outcome::Refused,
            };
            // A lost request may never have arrived.
            if guess == state && !(lost && random.random_bool(0.5)) {
                history.push(swap(called, returned, guess, new, outcome));
                state = new;
            } else {
                history.push(swap(called, returned, guess, new, outcome));
            }
        }
        history
    }

    #[test]
    fn what_a_real_register_does_is_always_linearizable_and_an_invented_read_never_is() {
        for seed in 0..100 {
            let mut history = simulate(seed, 60);
            assert!(check(&history), "seed {seed}");
            history.push(read(5_000, 5_001, Some(999_999)));
            assert!(!check(&history), "seed {seed}");
        }
    }
}
