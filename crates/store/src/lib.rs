//! The durable store: revisions, compare-and-swap transactions, ranges, watch, compaction. Bytes only; it knows no kinds.
//!
//! One trait, [`Store`], two engines: [`embedded`] keeps a revision log on local disk with group commit, [`etcd`] speaks to
//! a real etcd. Both pass the same contract suite. The rules every engine keeps:
//! - a transaction is answered only after it is durable, and no watcher sees what is not durable;
//! - revisions are global; an empty store is at 1, and each successful transaction that changes something takes the next;
//! - a watcher gets every event after its starting revision, once, in order, or [`Error::Compacted`].

pub mod admin;
pub mod embedded;
pub mod etcd;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::stream::BoxStream;

/// A point in the history of the whole store. 0 is before the first write.
pub type Revision = u64;

/// One key's value as of `revision`, the revision that last changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The whole key, for example `/registry/pods/default/web`.
    pub key: Arc<str>,
    /// The value, shared with every other reader.
    pub value: Bytes,
    /// The revision that wrote this value.
    pub revision: Revision,
}

/// What a transaction demands of the key before it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The key does not exist.
    Absent,
    /// The key exists and was last changed at exactly this revision.
    At(Revision),
}

/// What a transaction does when its expectation holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Sets the value. With a `ttl` (whole seconds) the key deletes itself afterwards; a later put without one makes it permanent.
    Put {
        value: Bytes,
        /// Seconds to live, or for ever.
        ttl: Option<u64>,
    },
    Delete,
}

/// Names one transaction within this process, so that whoever sent it knows its event again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WriteId(NonZeroU64);

impl WriteId {
    /// One that was never used before.
    pub fn new() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Self(NonZeroU64::new(id).expect("nobody writes two to the 64th times"))
    }
}

impl Default for WriteId {
    fn default() -> Self {
        Self::new()
    }
}

/// A compare-and-swap on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Txn {
    /// The key it reads and writes.
    pub key: Arc<str>,
    pub expect: Expect,
    pub op: Op,
    /// What its event is to be known by, if anybody wants to know.
    pub write: Option<WriteId>,
    /// What is to be known of it later, beside the value: who wrote, for example. Some kilobytes at most. An engine may not keep it.
    pub note: Bytes,
}

/// How a transaction ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Durable, at this revision.
    Committed(Revision),
    /// The expectation did not hold; this is what the key holds instead.
    Conflict(Option<Record>),
}

/// Another key that a transaction depends on and does not write: the lease that its writer holds, as it was when that was judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    pub key: Arc<str>,
    /// The revision that last changed it.
    pub revision: Revision,
}

/// How a transaction behind a [`Fence`] ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fenced {
    /// The other key was as it had been judged.
    Stood(Outcome),
    /// It was another by then, or gone, and nothing was written; this is what it holds.
    Fell(Option<Record>),
}

/// Which keys to read: those that start with `prefix`, in byte order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Range {
    /// Common beginning of the keys.
    pub prefix: String,
    /// Only keys strictly after this one.
    pub after: Option<String>,
    /// At most so many; 0 is no limit.
    pub limit: usize,
    /// As of this revision instead of now.
    pub at: Option<Revision>,
}

/// One answer to a [`Range`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The records, in byte order of their keys.
    pub records: Vec<Record>,
    /// The revision of the snapshot the page was read from.
    pub revision: Revision,
    /// How many further keys of the range follow the last record.
    pub remaining: u64,
}

/// One change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The key that changed.
    pub key: Arc<str>,
    pub revision: Revision,
    /// The new value, or `None` when the key was removed.
    pub value: Option<Bytes>,
    /// What the key held before, with the revision of that value.
    pub previous: Option<Record>,
    /// The name that its transaction was given. An engine may not know it: it is none for what is read from history, and
    /// for what went through another process.
    pub write: Option<WriteId>,
}

/// Which changes of the past to read, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changes {
    /// Common beginning of the keys.
    pub prefix: String,
    /// Only the key that `prefix` is.
    pub exact: bool,
    /// Only those after this revision, as far as they are kept.
    pub after: Revision,
    /// Only those up to and including this revision.
    pub upto: Revision,
    pub limit: usize,
}

impl Changes {
    /// Whether it asks for changes of this key.
    pub fn concerns(&self, key: &str) -> bool {
        if self.exact { key == self.prefix } else { key.starts_with(&self.prefix) }
    }
}

/// One change of one key, long after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: Arc<str>,
    pub revision: Revision,
    /// When, in milliseconds since 1970, if the engine knows.
    pub time: Option<u64>,
    /// The note of its transaction.
    pub note: Bytes,
    /// The new value, or `None` when the key was removed.
    pub value: Option<Bytes>,
    /// What the key held before, with the revision of that value.
    pub previous: Option<Record>,
}

/// How much of the past there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The first revision whose state can be read.
    pub oldest: Revision,
    /// When the first change after it was made, in milliseconds since 1970, if the engine knows.
    pub oldest_time: Option<u64>,
    pub latest: Revision,
    pub latest_time: Option<u64>,
    /// What it takes on disk beside the present, if the engine knows.
    pub bytes: u64,
}

/// Events in revision order. It ends only with an error: [`Error::Compacted`], [`Error::Lagged`], [`Error::Unavailable`] or [`Error::Closed`].
pub type Watch = BoxStream<'static, Result<Event, Error>>;

/// Why the store could not do as asked.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The history before `oldest` is gone.
    #[error("required revision has been compacted, the oldest available is {oldest}")]
    Compacted {
        /// The first revision still readable.
        oldest: Revision,
    },
    /// A revision that has not happened yet was asked for.
    #[error("required revision {requested} is a future revision, current is {current}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// Where the store is.
        current: Revision,
    },
    /// A watcher did not keep up with its bounded queue; it may watch again from the last event it saw.
    #[error("watcher fell too far behind")]
    Lagged,
    /// The store cannot be reached or cannot write just now; whether a transaction took place is unknown.
    #[error("store unavailable: {0}")]
    Unavailable(String),
    /// The store is shutting down.
    #[error("store is closed")]
    Closed,
    /// What is on disk is not what was written.
    #[error("store is damaged: {0}")]
    Damaged(String),
    /// The request is larger than the engine takes.
    #[error("request is too large")]
    TooLarge,
}

/// A durable, revisioned map from keys to bytes.
#[async_trait::async_trait]
pub trait Store: Send + Sync + 'static {
    /// The latest durable revision, linearizable.
    async fn revision(&self) -> Result<Revision, Error>;
    async fn get(&self, key: &str) -> Result<Option<Record>, Error>;
    /// Keys by prefix; linearizable unless `range.at` names a revision.
    async fn range(&self, range: Range) -> Result<Page, Error>;
    /// A compare-and-swap, answered once it is durable.
    async fn txn(&self, txn: Txn) -> Result<Outcome, Error>;
    /// The same, if another key is still what it was: both are compared at the moment of the write.
    async fn txn_behind(&self, fence: Fence, txn: Txn) -> Result<Fenced, Error>;
    /// Every event under `prefix` with a revision greater than `after`: first from history, then live, without a seam.
    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error>;
    /// The events under `prefix` after `after` up to and including `until` (which has happened), all of them or [`Error::Compacted`].
    /// At most `limit` (else [`Error::TooLarge`]). The API server fills its ring of recent changes with it, once per resource,
    /// when watchers come back after a restart. An engine that cannot tell where history ends (etcd before trustworthy progress
    /// notifications) writes a marker key such as `/registry/trireme.marker` and reads one watch up to it.
    async fn history(&self, prefix: &str, after: Revision, until: Revision, limit: usize) -> Result<Vec<Event>, Error>;
    /// Forgets history up to and including `revision`, except what is needed for the latest state. Never blocks writers.
    async fn compact(&self, revision: Revision) -> Result<(), Error>;
    /// What a key held at a revision, as far back as [`Store::kept`] says.
    async fn at(&self, key: &str, revision: Revision) -> Result<Option<Record>, Error>;
    /// Changes of the past, newest first.
    async fn changes(&self, query: Changes) -> Result<Vec<Change>, Error>;
    /// The latest revision at a time, in milliseconds since 1970; none if the engine keeps no times.
    async fn moment(&self, time: u64) -> Result<Option<Revision>, Error>;
    /// The other way round: when a revision was made; none if the engine keeps no times, or none of that one.
    async fn made(&self, revision: Revision) -> Result<Option<u64>, Error>;
    async fn kept(&self) -> Result<Kept, Error>;
    /// With how many writes together the one that made this revision was made durable; 0 if the engine does not know, or no longer.
    fn group(&self, _revision: Revision) -> u64 {
        0
    }
    /// Why writes cannot be done at present, as far as the engine knows without being asked to do one: a full disk, for example.
    fn write_failure(&self) -> Option<String> {
        None
    }
    /// Whether a write of the same value would put other bytes into the store: it was sealed with a key that is not used
    /// any more. An engine stores what it is given, so for it this is never so.
    async fn stale(&self, _key: &str) -> Result<bool, Error> {
        Ok(false)
    }
}
