//! Work under way on this task: which span it belongs to, and what it decides.
//!
//! This is for parts that act on their own: a turn of a controller, the binding of a pod, a step of a pod's start. What they decide is known deep
//! inside, and what they send has to name the span that it is sent for; between the two are `client::Client`, the scheduler's plugins and the container
//! runtime's interface, whose every method would have to carry a span that only tracing reads. So the turn is a scope: whatever runs in it, on whichever thread
//! polls it, finds it by [`current`], [`decided`] and [`wrote`]. What is spawned runs outside of it. Outside of a scope all three do nothing.
//!
//! The API server has none of this. A request has its `Exchange`, which goes along with it and says whose trace it is; a test sees to it that no gate and no
//! verb asks the task instead.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;

use crate::context::Context;
use crate::label::Label;
use crate::notes::{Bounded, Note};

/// How many different kinds of writes of one turn are told apart.
const TALLIES: usize = 6;

/// So many writes of a resource with a verb.
#[derive(Debug, Clone, Copy, Default)]
struct Tally {
    verb: &'static str,
    resource: Label,
    count: u32,
}

/// What is known of the work so far.
#[derive(Debug, Default)]
struct Work {
    context: Context,
    collects: bool,
    words: String,
    tallies: [Tally; TALLIES],
    more: u32,
}

thread_local! {
    static CURRENT: RefCell<Work> = const {
        const NONE: Tally = Tally { verb: "", resource: Label::NONE, count: 0 };
        RefCell::new(Work {
            context: Context::NONE,
            collects: false,
            words: String::new(),
            tallies: [NONE; TALLIES],
            more: 0,
        })
    };
}

/// While it is there, the thread works on this. Both are exchanged, so scopes nest; a panic leaves it as an answer does.
struct Entered<'a>(&'a mut Work);

impl<'a> Entered<'a> {
    fn new(work: &'a mut Work) -> Self {
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, work));
        Self(work)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| std::mem::swap(current, self.0));
    }
}

/// Does the work for a span, and collects what it decides.
pub async fn turn<T>(context: Context, work: impl Future<Output = T>) -> (T, Decided) {
    let mut state = Work { context, collects: true, ..Work::default() };
    let done = scoped(&mut state, work).await;
    (done, Decided(state))
}

/// What a turn decided, before there are words for it.
#[derive(Debug)]
pub struct Decided(Work);

impl Decided {
    /// What was decided; where nobody said, what was written.
    pub fn note(&self) -> Note {
        self.0.note()
    }
}

/// Does the work for a span.
pub async fn scope<T>(context: Context, work: impl Future<Output = T>) -> T {
    scoped(&mut Work { context, ..Work::default() }, work).await
}

async fn scoped<T>(state: &mut Work, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|task| {
        let _entered = Entered::new(state);
        work.as_mut().poll(task)
    })
    .await
}

/// The span that this task works for; none where there is no trace.
pub fn current() -> Context {
    CURRENT.with_borrow(|work| work.context)
}

/// Says what was decided. The words are made only if somebody collects them.
pub fn decided(words: fmt::Arguments<'_>) {
    CURRENT.with_borrow_mut(|work| {
        if work.collects {
            if !work.words.is_empty() {
                work.words.push_str(", ");
            }
            let _ = fmt::write(&mut Bounded(&mut work.words), words);
        }
    });
}

/// Whether anybody collects what is decided and written here.
pub fn collects() -> bool {
    CURRENT.with_borrow(|work| work.collects)
}

/// Says that something was written: `created`, a resource.
pub fn wrote(verb: &'static str, resource: &str) {
    CURRENT.with_borrow_mut(|work| {
        if work.collects {
            work.count(verb, crate::label(resource));
        }
    });
}

impl Work {
    fn count(&mut self, verb: &'static str, resource: Label) {
        let same = |tally: &&mut Tally| tally.count == 0 || (tally.verb == verb && tally.resource == resource);
        match self.tallies.iter_mut().find(same) {
            Some(tally) => *tally = Tally { verb, resource, count: tally.count + 1 },
            None => self.more += 1,
        }
    }

    fn note(&self) -> Note {
        if !self.words.is_empty() {
            return Note::of(format_args!("{}", self.words));
        }
        if self.tallies[0].count == 0 {
            return Note::NOTHING_TO_DO;
        }
        Note::of(format_args!("{self}"))
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = self.tallies.iter().filter(|tally| tally.count > 0);
        for (place, Tally { verb, resource, count }) in told.enumerate() {
            let comma = if place > 0 { ", " } else { "" };
            match count {
                1 => write!(f, "{comma}{verb} {}", resource.name())?,
                _ => write!(f, "{comma}{verb} {count} {}", resource.name())?,
            }
        }
        if self.more > 0 { write!(f, " and {} more writes", self.more) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context as Task, Poll, Waker};

    /// Polls until it is done: nothing here waits for anybody.
    fn run<T>(work: impl Future<Output = T>) -> T {
        let (mut work, mut task) = (pin!(work), Task::from_waker(Waker::noop()));
        loop {
            if let Poll::Ready(done) = work.as_mut().poll(&mut task) {
                return done;
            }
        }
    }

    async fn pause() {
        let mut paused = false;
        poll_fn(|_| if std::mem::replace(&mut paused, true) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn said(work: impl Future<Output = ()>) -> String {
        run(turn(Context::default(), work)).1.note().words()
    }

    #[test]
    fn a_turn_says_what_it_decided_or_else_what_it_wrote() {
        assert_eq!(said(async {}), "nothing to do");
        let writes = async {
            (0..3).for_each(|_| wrote("created", "pods"));
            wrote("updated", "replicasets/status");
        };
        assert_eq!(said(writes), "created 3 pods, updated replicasets/status");
        let both = async {
            wrote("updated", "replicasets");
            decided(format_args!("scaled ReplicaSet {} from {} to {}", "web-1", 1, 2));
            pause().await;
            decided(format_args!("deleted ReplicaSet web-0"));
        };
        assert_eq!(said(both), "scaled ReplicaSet web-1 from 1 to 2, deleted ReplicaSet web-0");
        let many = async { ["a", "b", "c", "d", "e", "f", "g", "h"].iter().for_each(|kind| wrote("created", kind)) };
        assert_eq!(said(many), "created a, created b, created c, created d, created e, created f and 2 more writes");
    }

    #[test]
    fn scopes_nest_and_end_and_others_on_the_thread_are_not_in_them() {
        let context = |span| Context { trace: 1, span, sampled: true };
        run(scope(context(5), async {
            assert_eq!(current().span, 5);
            scope(context(6), async {
                pause().await;
                assert_eq!(current().span, 6);
            })
            .await;
            assert_eq!(current().span, 5);
            // A scope for a trace collects nothing, so whoever turns outside of it does not hear of it.
            decided(format_args!("nobody hears it"));
        }));
        assert!(current().is_none());
        let (mut first, mut task) = (Box::pin(scope(context(7), pause())), Task::from_waker(Waker::noop()));
        assert!(first.as_mut().poll(&mut task).is_pending());
        assert!(current().is_none(), "while it waits the thread is free");
        let panicked = std::panic::catch_unwind(|| run(scope(context(8), async { panic!("a mistake") })));
        assert!(panicked.is_err() && current().is_none());
    }
}
