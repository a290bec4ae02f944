//! The embedded engine: a revision log on local disk, with everything current in memory.
//!
//! ```text
//! txn ─► queue ─► writer: decide ▸ one write, one fdatasync per group ▸ memory ▸ hub ─► watchers ▸ answers
//! get, range ─► memory          watch from the past ─► log          at a revision, changes ─► archive, log
//!                               compactor: tables of what was ─► archive, rewrites old segments ─► log
//! ```
//! The directory holds numbered segments, append-only files of checksummed frames (see `frame`, `segment`). There is no
//! second copy of anything on disk, no cache and no manifest: the segments' names and heads say what they cover. One small
//! file beside them says how far writers were answered (see `acknowledged`), and a directory has the past (see `archive`).
//!
//! Why not an LSM engine (fjall was measured): it writes each record to its journal and again to its tables, twice over
//! for the two key spaces this use needs; it holds memtables and block caches although all current values are in memory
//! here anyway; and reading 100,000 records back through it costs more than reading the log. What is needed is a log,
//! replayed at start. Writing it for the purpose also lets start-up tell a torn tail, which was never acknowledged, from damage:
//! within the log by later groups, which name what had been synced before them, and at its end by that small file.
//!
//! Durability: an answer follows the sync, and nothing is visible to readers or watchers before it. After a failed sync
//! nothing is acknowledged any more until a restart has found out what the disk really holds. After a failed write, as on a full
//! disk, the store is as it was before: it refuses writes, says so, and looks every second whether there is room again.

mod acknowledged;
mod append;
mod archive;
mod compact;
mod disk;
mod frame;
mod groups;
mod history;
mod hub;
mod log;
mod memory;
mod queue;
mod segment;
mod snapshot;
#[cfg(test)]
mod tests;
mod watch;
mod writer;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use self::append::Appender;
use self::archive::{Archive, Keep};
use self::compact::Policy;
use self::disk::Disk;
use self::groups::Groups;
use self::hub::Hub;
use self::log::{Loaded, Log, Mode};
use self::memory::Memory;
use self::queue::{Command, Queue};
use self::writer::Writer;
use crate::{
    Change, Changes, Error, Event, Fence, Fenced, Kept, Op, Outcome, Page, Range, Record, Revision, Store, Txn, Watch,
};

pub(crate) use self::archive::{bring_back, check as check_history};
pub(crate) use self::disk::{private_directory, private_file};
pub(crate) use self::memory::ORIGIN;
pub(crate) use self::snapshot::{Snapshot, inspect, install, save, verify, write_snapshot};

/// How often a backup begins again because compaction was faster.
const ATTEMPTS: usize = 8;

/// How an [`Embedded`] store behaves. The defaults suit a cluster of one to some thousands of nodes.
#[derive(Debug, Clone)]
pub struct Options {
    /// History younger than this is kept, unless `history_bytes` is exceeded.
    pub history_time: Duration,
    /// So many of the latest revisions are always kept.
    pub history_revisions: u64,
    /// History takes about this much disk at most, however young it is.
    pub history_bytes: u64,
    /// So long every change can be asked for: the archive keeps it. Zero keeps none.
    pub past_time: Duration,
    /// The archive takes no more disk than this.
    pub past_bytes: u64,
    /// So many bytes of the log become one table of the archive.
    pub past_unit: u64,
    /// What time it is, in milliseconds since 1970.
    pub clock: fn() -> u64,
    /// A log file is finished when it reaches this size.
    pub segment_bytes: u64,
    /// Transactions that may wait for the writer; more wait for their turn to wait.
    pub queue: usize,
    /// Events that may wait for a watcher before it is ended as too slow.
    pub watch_queue: usize,
    /// How long the store may be in use by another process before that is an error. One that was killed holds it until the
    /// last of its threads has ended, which a busy disk can delay.
    pub predecessor: Duration,
    /// The beginnings of keys whose values are long and seldom read, and so packed in memory.
    pub packed: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            history_time: Duration::from_secs(300),
            history_revisions: 10_000,
            history_bytes: 512 << 20,
            past_time: Duration::from_secs(24 * 3600),
            past_bytes: 512 << 20,
            past_unit: 2 << 20,
            clock: log::now,
            segment_bytes: 16 << 20,
            queue: 4096,
            watch_queue: 8192,
            predecessor: Duration::ZERO,
            packed: Vec::new(),
        }
    }
}

/// Figures about a store, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    pub revision: Revision,
    /// History up to here is given up.
    pub compacted: Revision,
    pub keys: usize,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Files of the log.
    pub segments: usize,
    /// Bytes of the log on disk.
    pub disk_bytes: u64,
    /// Watches on live events.
    pub watchers: usize,
}

/// What readers, writer, watchers and compactor have in common.
struct Shared {
    memory: RwLock<Memory>,
    log: Arc<Log>,
    archive: Archive,
    hub: Arc<Hub>,
    queue: Queue,
    closing: AtomicBool,
    groups: Groups,
    /// Why the last write failed, until one would go well.
    failure: Mutex<Option<String>>,
}

impl Shared {
    fn closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
}

/// A store in a directory of the local disk.
pub struct Embedded {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

/// What a closed store no longer has.
struct Running {
    threads: Vec<JoinHandle<()>>,
    _lock: File,
}

impl Embedded {
    /// Opens the store in `dir`, which is made if need be. All of it is read and verified; it must not be open elsewhere.
    pub fn open(dir: &Path, options: Options) -> Result<Arc<Self>, Error> {
        Self::open_on(dir, options, Arc::new(disk::Os))
    }

    fn open_on(dir: &Path, options: Options, disk: Arc<dyn Disk>) -> Result<Arc<Self>, Error> {
        disk::private_directory(dir).map_err(|e| segment::failed(dir, &e))?;
        let Loaded { mut log, mut memory, lock, torn } = log::load(dir, Mode::Repair, options.predecessor)?;
        memory.pack(options.packed.clone());
        if torn > 0 {
            tracing::warn!(bytes = torn, "dropped an unfinished, never acknowledged write at the end of the log");
        }
        log.clock = options.clock;
        let keep = Keep { time: options.past_time, bytes: options.past_bytes, unit: options.past_unit.max(1) };
        let archive = Archive::open(dir, keep, memory.compacted, memory.revision)?;
        let log = Arc::new(log);
        let hub = Arc::new(Hub::new(memory.revision, options.watch_queue.max(1)));
        let queue = Queue::new(options.queue.max(1));
        let memory = RwLock::new(memory);
        let appender = Appender::new(Arc::clone(&log), disk, options.segment_bytes, memory.read().revision)?;
        let (closing, failure) = (AtomicBool::new(false), Mutex::new(None));
        let shared = Arc::new(Shared { memory, log, archive, hub, queue, closing, groups: Groups::new(), failure });
        let policy =
            Policy { time: options.history_time, revisions: options.history_revisions, bytes: options.history_bytes };
        let (wake, woken) = sync_channel(1);
        // An earlier process may not have got round to rewriting what it gave up.
        let _ = wake.try_send(());
        let writer = Writer::new(Arc::clone(&shared), appender, policy, wake);
        let stop = Stop(Arc::clone(&shared));
        let write = move || {
            let _stop = stop;
            writer.run();
        };
        let compactor = Arc::clone(&shared);
        let compact = move || compact::run(&compactor, &woken, options.segment_bytes);
        let threads = vec![spawn("store-writer", write)?, spawn("store-compactor", compact)?];
        Ok(Arc::new(Self { shared, running: Mutex::new(Some(Running { threads, _lock: lock })) }))
    }

    /// Finishes what was accepted, ends all watches with [`Error::Closed`] and lets go of the directory.
    pub async fn close(&self) {
        self.begin_close();
        let running = self.running.lock().take();
        let _ = blocking(move || {
            running.into_iter().for_each(join);
            Ok(())
        })
        .await;
    }

    /// Writes the state of this moment into one new file while the store goes on, and the past beside it. See [`crate::admin::restore`].
    pub async fn backup(&self, file: &Path) -> Result<crate::admin::Summary, Error> {
        let (shared, file) = (Arc::clone(&self.shared), file.to_owned());
        blocking(move || {
            crate::admin::vacant(&file)?;
            for _ in 0..ATTEMPTS {
                // Tables first: so none goes further than the state.
                let tables = shared.archive.tables();
                let (snapshot, compacted) = {
                    let memory = shared.memory.read();
                    (snapshot::take(&memory), memory.compacted)
                };
                let reached = tables.last().map_or(compacted, |table| table.foot.last);
                if reached >= compacted && archive::save(&shared.log, &tables, compacted, snapshot.revision, &file)? {
                    return crate::admin::write_backup(&file, snapshot);
                }
            }
            Err(Error::Unavailable("the store changes faster than its history can be backed up; try again".to_owned()))
        })
        .await
    }

    /// Figures about the store as of now.
    pub fn stats(&self) -> Stats {
        let (segments, disk_bytes) = self.shared.log.size();
        let watchers = self.shared.hub.watchers();
        let memory = self.shared.memory.read();
        Stats {
            revision: memory.revision,
            compacted: memory.compacted,
            keys: memory.keys(),
            bytes: memory.bytes,
            segments,
            disk_bytes,
            watchers,
        }
    }

    fn begin_close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.queue.close();
    }

    fn check_open(&self) -> Result<(), Error> {
        if self.shared.closing() { Err(Error::Closed) } else { Ok(()) }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.begin_close();
        self.running.lock().take().into_iter().for_each(join);
    }
}

fn join(running: Running) {
    for thread in running.threads {
        // A thread that panicked has said so already; what it left on disk is judged at the next start.
        let _ = thread.join();
    }
}

/// Ends the store when the writer ends, even if that was by a panic: nobody waits for an answer that cannot come.
struct Stop(Arc<Shared>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.queue.abandon();
        self.0.hub.close();
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.map_err(|e| Error::Unavailable(format!("cannot start the thread {name}: {e}")))
}

/// Runs file reads where they do not hold up other tasks.
async fn blocking<T: Send + 'static>(run: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    let joined = tokio::task::spawn_blocking(run).await;
    joined.unwrap_or_else(|e| Err(Error::Unavailable(format!("a read of the log was abandoned: {e}"))))
}

fn check_size(txn: &Txn) -> Result<(), Error> {
    let size = txn.key.len() + if let Op::Put { value, .. } = &txn.op { value.len() } else { 0 };
    if size > writer::MAX_TXN { Err(Error::TooLarge) } else { Ok(()) }
}

#[async_trait::async_trait]
impl Store for Embedded {
    async fn revision(&self) -> Result<Revision, Error> {
        self.check_open()?;
        Ok(self.shared.memory.read().revision)
    }

    async fn get(&self, key: &str) -> Result<Option<Record>, Error> {
        self.check_open()?;
        Ok(self.shared.memory.read().get(key))
    }

    async fn range(&self, range: Range) -> Result<Page, Error> {
        self.check_open()?;
        let at = {
            let memory = self.shared.memory.read();
            match range.at {
                Some(at) if at != 0 && at != memory.revision => at,
                _ => return Ok(memory.range(&range)),
            }
        };
        let shared = Arc::clone(&self.shared);
        blocking(move || archive::range(&shared, &range, at)).await
    }

    async fn txn(&self, txn: Txn) -> Result<Outcome, Error> {
        check_size(&txn)?;
        let (answer, answered) = oneshot::channel();
        self.shared.queue.push(Command::Txn(txn, answer)).await?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn txn_behind(&self, fence: Fence, txn: Txn) -> Result<Fenced, Error> {
        check_size(&txn)?;
        let (answer, answered) = oneshot::channel();
        self.shared.queue.push(Command::Fenced(fence, txn, answer)).await?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    fn group(&self, revision: Revision) -> u64 {
        self.shared.groups.of(revision)
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch, Error> {
        self.check_open()?;
        watch::watch(&self.shared, prefix, after)
    }

    async fn history(&self, prefix: &str, after: Revision, until: Revision, limit: usize) -> Result<Vec<Event>, Error> {
        self.check_open()?;
        let (shared, prefix) = (Arc::clone(&self.shared), prefix.to_owned());
        blocking(move || history::between(&shared, &prefix, after, until, limit)).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        self.shared.queue.push(Command::Compact(revision, answer)).await?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn at(&self, key: &str, revision: Revision) -> Result<Option<Record>, Error> {
        self.check_open()?;
        let (shared, key) = (Arc::clone(&self.shared), key.to_owned());
        blocking(move || archive::get(&shared, &key, revision)).await
    }

    async fn changes(&self, query: Changes) -> Result<Vec<Change>, Error> {
        self.check_open()?;
        let shared = Arc::clone(&self.shared);
        blocking(move || archive::changes(&shared, &query)).await
    }

    async fn moment(&self, time: u64) -> Result<Option<Revision>, Error> {
        self.check_open()?;
        let shared = Arc::clone(&self.shared);
        blocking(move || archive::moment(&shared, time).map(Some)).await
    }

    async fn made(&self, revision: Revision) -> Result<Option<u64>, Error> {
        self.check_open()?;
        let shared = Arc::clone(&self.shared);
        blocking(move || archive::made(&shared, revision)).await
    }

    async fn kept(&self) -> Result<Kept, Error> {
        self.check_open()?;
        let shared = Arc::clone(&self.shared);
        blocking(move || archive::kept(&shared)).await
    }

    fn write_failure(&self) -> Option<String> {
        self.shared.failure.lock().clone()
    }
}

fn gone() -> Error {
    Error::Unavailable("the writer of the store has stopped; restart to recover".to_owned())
}
