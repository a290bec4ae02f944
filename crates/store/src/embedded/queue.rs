//! The bounded queue in front of the writer. It is drained whole: what waits while one group syncs is the next group.

use std::collections::VecDeque;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{Semaphore, oneshot};

use crate::{Error, Fence, Fenced, Op, Outcome, Revision, Txn};

/// What callers ask of the writer, with where to answer.
pub(super) enum Command {
    Txn(Txn, oneshot::Sender<Result<Outcome, Error>>),
    Fenced(Fence, Txn, oneshot::Sender<Result<Fenced, Error>>),
    Compact(Revision, oneshot::Sender<Result<(), Error>>),
}

impl Command {
    fn bytes(&self) -> usize {
        match self {
            Self::Txn(txn, _) | Self::Fenced(_, txn, _) => match &txn.op {
                Op::Put { value, .. } => txn.key.len() + value.len(),
                Op::Delete => txn.key.len(),
            },
            Self::Compact(..) => 0,
        }
    }
}

/// Commands in the order in which they came.
pub(super) struct Queue {
    inner: Mutex<Inner>,
    ready: Condvar,
    slots: Semaphore,
}

#[derive(Default)]
struct Inner {
    commands: VecDeque<Command>,
    closed: bool,
    /// Nobody needs waking while the writer is busy.
    waiting: bool,
}

/// What the writer found.
pub(super) struct Drained {
    pub(super) commands: Vec<Command>,
    /// No more will come after these.
    pub(super) closed: bool,
}

impl Queue {
    /// A queue of at most `capacity` commands.
    pub(super) fn new(capacity: usize) -> Self {
        Self { inner: Mutex::default(), ready: Condvar::new(), slots: Semaphore::new(capacity) }
    }

    /// Adds a command, once there is room.
    pub(super) async fn push(&self, command: Command) -> Result<(), Error> {
        self.slots.acquire().await.map_err(|_| Error::Closed)?.forget();
        let mut inner = self.inner.lock();
        if inner.closed {
            return Err(Error::Closed);
        }
        inner.commands.push_back(command);
        if inner.waiting {
            self.ready.notify_one();
        }
        Ok(())
    }

    /// Takes what is there, up to `count` commands or `bytes`; waits for something to take, or for `deadline`.
    pub(super) fn drain(&self, deadline: Option<Instant>, count: usize, bytes: usize) -> Drained {
        let mut inner = self.inner.lock();
        while inner.commands.is_empty() && !inner.closed {
            inner.waiting = true;
            let timed_out = match deadline {
                Some(deadline) => self.ready.wait_until(&mut inner, deadline).timed_out(),
                None => {
                    self.ready.wait(&mut inner);
                    false
                }
            };
            inner.waiting = false;
            if timed_out {
                break;
            }
        }
        let mut room = bytes;
        let mut commands = Vec::with_capacity(inner.commands.len().min(count));
        while commands.len() < count && room > 0 {
            let Some(command) = inner.commands.pop_front() else { break };
            room = room.saturating_sub(command.bytes());
            commands.push(command);
        }
        let closed = inner.closed && inner.commands.is_empty();
        drop(inner);
        self.slots.add_permits(commands.len());
        Drained { commands, closed }
    }

    /// Takes no more and does none of what is there: the writer is gone. Callers learn it from their dropped answers.
    pub(super) fn abandon(&self) {
        self.close();
        self.inner.lock().commands.clear();
    }

    /// Takes no more; what is there is still done.
    pub(super) fn close(&self) {
        self.inner.lock().closed = true;
        self.slots.close();
        self.ready.notify_one();
    }
}
