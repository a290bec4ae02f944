//! The one writer. It takes all commands that wait, decides each against memory and the ones before it, makes the whole
//! group durable with one sync, publishes to memory, then to watchers, and only then answers.
//!
//! It also removes keys whose time has come, by the same way, and decides when history is given up. It sleeps until there
//! is a command or a key expires, so an idle store does nothing. Only while the disk refuses writes it looks every second whether
//! that is over.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use tokio::sync::oneshot;

use super::Shared;
use super::append::Appender;
use super::compact::{self, Policy};
use super::frame::{Change, Entry};
use super::memory::Committed;
use super::queue::Command;
use crate::{Error, Event, Expect, Fence, Fenced, Op, Outcome, Record, Revision, Txn};

/// Commands in one group.
const GROUP: usize = 1024;
/// Bytes of keys and values in one group, give or take one command.
const GROUP_BYTES: usize = 4 << 20;
/// How often a disk without room is asked whether it has some.
const AGAIN: Duration = Duration::from_secs(1);
/// No key and value together may be larger.
pub(super) const MAX_TXN: usize = 8 << 20;

/// When a key that was written at a revision is to go.
type Expiry = Reverse<(u64, Arc<str>, Revision)>;

/// The writer's own state; everything it shares is in [`Shared`].
pub(super) struct Writer {
    shared: Arc<Shared>,
    appender: Appender,
    policy: Policy,
    /// When keys expire, soonest first; entries of keys written again since are passed over.
    expiries: BinaryHeap<Expiry>,
    compactor: SyncSender<()>,
    /// History the policy gave up, to be written with the next group.
    give_up: Option<Revision>,
}

impl Writer {
    pub(super) fn new(shared: Arc<Shared>, appender: Appender, policy: Policy, compactor: SyncSender<()>) -> Self {
        let expiries = shared.memory.read().expiring().map(Reverse).collect();
        Self { shared, appender, policy, expiries, compactor, give_up: None }
    }

    /// Runs until the queue is closed and empty.
    pub(super) fn run(mut self) {
        loop {
            let drained = self.shared.queue.drain(self.next_turn(), GROUP, GROUP_BYTES);
            self.turn(drained.commands);
            self.look_for_room();
            if drained.closed {
                break;
            }
        }
        let (next, compacted) = {
            let memory = self.shared.memory.read();
            (memory.revision + 1, memory.compacted)
        };
        if let Err(error) = self.appender.finish(next, compacted) {
            tracing::error!(%error, "the last segment of the store was left without its seal");
        }
        self.shared.hub.close();
    }

    /// When there is something to do without a command.
    fn next_turn(&self) -> Option<Instant> {
        let now = (self.shared.log.clock)();
        let until = |Reverse((when, ..)): &Expiry| Duration::from_millis(when.saturating_sub(now));
        let expiry = self.expiries.peek().map(until);
        let refused = self.shared.failure.lock().is_some();
        match (refused, expiry) {
            // While nothing can be written a key that has expired waits, too.
            (true, _) => (!self.appender.is_poisoned()).then_some(AGAIN),
            (false, expiry) => expiry,
        }
        .map(|wait| Instant::now() + wait)
    }

    /// Takes note that a write failed, and says so unless it has been said.
    fn refuse(&self, error: &Error) {
        let mut failure = self.shared.failure.lock();
        if failure.is_none() {
            tracing::error!(%error, "the store cannot write: clients are told to come back (503), and the server is not ready");
        }
        *failure = Some(error.to_string());
    }

    /// Ends a time without writes as soon as the one that failed would go well. A smaller one that goes well proves nothing.
    fn look_for_room(&self) {
        let refused = self.shared.failure.lock().is_some();
        if refused && !self.appender.is_poisoned() && self.appender.probe().is_ok() {
            *self.shared.failure.lock() = None;
            tracing::warn!("the store can write again");
        }
    }

    /// One group, from decision to answers.
    fn turn(&mut self, commands: Vec<Command>) {
        let shared = Arc::clone(&self.shared);
        let mut group = Group::new(&shared);
        for command in commands {
            match command {
                Command::Txn(txn, answer) => {
                    let outcome = group.decide(txn);
                    group.answers.push(Answer::Txn(outcome, answer));
                }
                Command::Fenced(fence, txn, answer) => {
                    let fenced = group.decide_behind(&fence, txn);
                    group.answers.push(Answer::Fenced(fenced, answer));
                }
                Command::Compact(revision, answer) => {
                    let result = group.compact(revision);
                    group.forget = group.forget.max(result.is_ok().then_some(revision));
                    group.answers.push(Answer::Compact(result, answer));
                }
            }
        }
        if let Some(revision) = self.give_up.take() {
            // The policy looks only at what is sealed, so this cannot be a future revision.
            let _ = group.compact(revision);
        }
        let expired = self.expire(&mut group);
        let written = self.write(&group);
        match &written {
            Ok(()) => self.publish(&group),
            Err(error) => {
                self.refuse(error);
                self.expiries.extend(expired);
            }
        }
        for answer in group.answers {
            answer.send(written.as_ref().err());
        }
    }

    /// Adds a delete for every key whose time has come, as far as the group has room; answers them, should the group fail.
    fn expire(&mut self, group: &mut Group<'_>) -> Vec<Expiry> {
        let (now, mut expired) = ((self.shared.log.clock)(), Vec::new());
        while group.changes.len() < GROUP {
            if self.expiries.peek().is_none_or(|Reverse((when, ..))| *when > now) {
                break;
            }
            let Some(Reverse((when, key, revision))) = self.expiries.pop() else { break };
            let _ = group.decide(Txn {
                key: Arc::clone(&key),
                expect: Expect::At(revision),
                op: Op::Delete,
                write: None,
                note: Bytes::new(),
            });
            expired.push(Reverse((when, key, revision)));
        }
        expired
    }

    fn write(&mut self, group: &Group<'_>) -> Result<(), Error> {
        // A compaction alone needs no new segment: the next one's head will tell of it.
        if group.changes.is_empty() && (group.compact.is_none() || !self.appender.has_segment()) {
            return Ok(());
        }
        let compacted = group.compact.unwrap_or(group.compacted);
        let mut frames = self.appender.group(group.first, compacted)?;
        if let Some(revision) = group.compact {
            frames.push(&Entry { revision, previous: 0, change: Change::Compact, note: b"" });
        }
        for Committed { event, expires, note } in &group.changes {
            let change = match &event.value {
                Some(value) => Change::Put { key: &event.key, value, expires: *expires },
                None => Change::Delete { key: &event.key },
            };
            let previous = event.previous.as_ref().map_or(0, |p| p.revision);
            frames.push(&Entry { revision: event.revision, previous, change, note });
        }
        let synced = frames.commit()?;
        // What no table has yet stays in the log.
        let spares = self.shared.archive.spares();
        if synced.rotated {
            let due = compact::due(&self.shared.log, &self.policy, (self.shared.log.clock)());
            if due.is_some_and(|revision| revision > spares) {
                self.shared.archive.urge();
            }
            self.give_up = due.map(|revision| revision.min(spares)).filter(|revision| *revision > 0);
        }
        if self.shared.archive.written(synced.bytes) || synced.rotated {
            self.wake_compactor();
        }
        Ok(())
    }

    fn publish(&mut self, group: &Group<'_>) {
        let held: Vec<_> = {
            let memory = self.shared.memory.read();
            group.changes.iter().map(|committed| memory.hold(committed)).collect()
        };
        {
            let mut memory = self.shared.memory.write();
            group.changes.iter().zip(held).for_each(|(committed, held)| memory.apply(committed, held));
            if let Some(revision) = group.compact {
                memory.compact(revision);
            }
        }
        self.shared.groups.note(group.first, group.changes.len());
        self.shared.hub.publish(&group.changes);
        for Committed { event, expires, .. } in &group.changes {
            if *expires != 0 {
                self.expiries.push(Reverse((*expires, Arc::clone(&event.key), event.revision)));
            }
        }
        if let Some(revision) = group.forget {
            self.shared.archive.forget(revision);
        }
        if group.compact.is_some() {
            self.wake_compactor();
        }
    }

    fn wake_compactor(&self) {
        // A full channel says that it has been woken already.
        let _ = self.compactor.try_send(());
    }
}

/// A group being put together: what it changes, and the answer to each command.
struct Group<'a> {
    shared: &'a Shared,
    first: Revision,
    compacted: Revision,
    changes: Vec<Committed>,
    /// Keys changed by this very group, with the place of their latest change.
    changed: FxHashMap<Arc<str>, usize>,
    compact: Option<Revision>,
    /// Somebody asked for a compaction, not the policy: then the past goes too.
    forget: Option<Revision>,
    answers: Vec<Answer>,
}

impl<'a> Group<'a> {
    fn new(shared: &'a Shared) -> Self {
        let (revision, compacted) = {
            let memory = shared.memory.read();
            (memory.revision, memory.compacted)
        };
        Self {
            shared,
            first: revision + 1,
            compacted,
            changes: Vec::new(),
            changed: FxHashMap::default(),
            compact: None,
            forget: None,
            answers: Vec::new(),
        }
    }

    fn last(&self) -> Revision {
        self.first - 1 + self.changes.len() as u64
    }

    /// What the key holds after the commands so far.
    fn current(&self, key: &str) -> Option<Record> {
        match self.changed.get(key) {
            Some(&place) => {
                let event = &self.changes[place].event;
                let value = event.value.clone()?;
                Some(Record { key: Arc::clone(&event.key), value, revision: event.revision })
            }
            None => self.shared.memory.read().get(key),
        }
    }

    fn decide_behind(&mut self, fence: &Fence, txn: Txn) -> Fenced {
        let judged = self.current(&fence.key);
        if judged.as_ref().is_some_and(|judged| judged.revision == fence.revision) {
            Fenced::Stood(self.decide(txn))
        } else {
            Fenced::Fell(judged)
        }
    }

    fn decide(&mut self, txn: Txn) -> Outcome {
        let current = self.current(&txn.key);
        let holds = match txn.expect {
            Expect::Absent => current.is_none(),
            Expect::At(revision) => current.as_ref().is_some_and(|c| c.revision == revision),
        };
        if !holds {
            return Outcome::Conflict(current);
        }
        let (value, expires) = match txn.op {
            Op::Put { value, ttl } => (Some(value), ttl.map_or(0, |ttl| expiry((self.shared.log.clock)(), ttl))),
            // Nothing to delete is nothing to write, as in etcd.
            Op::Delete if current.is_none() => return Outcome::Committed(self.last()),
            Op::Delete => (None, 0),
        };
        let revision = self.last() + 1;
        let key = current.as_ref().map_or(txn.key, |c| Arc::clone(&c.key));
        self.changed.insert(Arc::clone(&key), self.changes.len());
        let event = Arc::new(Event { key, revision, value, previous: current, write: txn.write });
        self.changes.push(Committed { event, expires, note: txn.note });
        Outcome::Committed(revision)
    }

    fn compact(&mut self, revision: Revision) -> Result<(), Error> {
        let current = self.first - 1;
        if revision > current {
            return Err(Error::Future { requested: revision, current });
        }
        if revision > self.compact.unwrap_or(self.compacted) {
            self.compact = Some(revision);
        }
        Ok(())
    }
}

/// Rounded up to a whole second, so that many keys expire in one group.
fn expiry(now: u64, ttl: u64) -> u64 {
    (now / 1000 + 1).saturating_add(ttl).saturating_mul(1000)
}

enum Answer {
    Txn(Outcome, oneshot::Sender<Result<Outcome, Error>>),
    Fenced(Fenced, oneshot::Sender<Result<Fenced, Error>>),
    Compact(Result<(), Error>, oneshot::Sender<Result<(), Error>>),
}

impl Answer {
    /// Tells the caller, who may have gone.
    fn send(self, failed: Option<&Error>) {
        match self {
            Self::Txn(outcome, answer) => {
                let _ = answer.send(failed.map_or(Ok(outcome), |e| Err(e.clone())));
            }
            Self::Fenced(fenced, answer) => {
                let _ = answer.send(failed.map_or(Ok(fenced), |e| Err(e.clone())));
            }
            Self::Compact(result, answer) => {
                let _ = answer.send(failed.map_or(result, |e| Err(e.clone())));
            }
        }
    }
}
