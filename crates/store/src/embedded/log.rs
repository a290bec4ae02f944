//! The segments of one directory: opening and verifying them, appending, and reading back.
//!
//! At start all segments are read, newest first, so that only the latest value of a key is ever copied; a few threads
//! read and verify ahead of the one that merges. A revision is found again through each segment's sparse index.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashSet;

use super::acknowledged;
use super::disk::{Disk, private_file, sync_directory};
use super::frame::{Builder, Change, Entry, Stamp};
use super::memory::{Held, Live, Memory, ORIGIN};
use super::segment::{self, Extent, HEAD, Head, Scan, Segment, damaged, failed};
use crate::{Error, Revision};

/// How many threads read and verify segments at start.
const READERS: usize = 2;
/// Between two looks whether a predecessor has let go of the directory.
const LOOK: Duration = Duration::from_millis(20);

/// The segments, by the first revision they cover.
pub(super) struct Log {
    pub(super) dir: PathBuf,
    pub(super) segments: RwLock<BTreeMap<Revision, Arc<Segment>>>,
    /// Milliseconds since 1970.
    pub(super) clock: fn() -> u64,
}

/// What was found in a directory.
pub(super) struct Loaded {
    pub(super) log: Log,
    pub(super) memory: Memory,
    /// Keeps other processes out while it is open; the system lets go of it however this one ends.
    pub(super) lock: File,
    /// Bytes of an unfinished group at the end, which were dropped.
    pub(super) torn: u64,
}

/// Whether [`load`] may put right what a crash left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Cut off the torn tail, finish the last segment, remove leftovers.
    Repair,
    ReadOnly,
}

/// Takes the directory for this process, as soon as a predecessor has let go of it, if it does so in time.
pub(super) fn lock(dir: &Path, predecessor: Duration) -> Result<File, Error> {
    let path = dir.join("LOCK");
    let file = private_file().create(true).truncate(false).open(&path).map_err(|e| failed(&path, &e))?;
    let started = Instant::now();
    let mut waiting = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) if started.elapsed() >= predecessor => {
                let what = format!("the store in {} is in use by another process", dir.display());
                return Err(Error::Unavailable(what));
            }
            Err(fs::TryLockError::WouldBlock) => {}
            Err(fs::TryLockError::Error(e)) => return Err(failed(&path, &e)),
        }
        if !waiting {
            tracing::warn!("the store in {} is in use by another process; waiting for its end", dir.display());
            waiting = true;
        }
        // The kernel could wake us, but only without a limit.
        std::thread::sleep(LOOK);
    }
}

/// Reads and verifies everything in `dir`.
pub(super) fn load(dir: &Path, mode: Mode, predecessor: Duration) -> Result<Loaded, Error> {
    let lock = lock(dir, predecessor)?;
    let mut files = list(dir, mode)?;
    let mut merge = Merge::default();
    std::thread::scope(|scope| {
        let mut readers: Vec<Receiver<Result<Option<Scan>, Error>>> = Vec::new();
        for reader in 0..READERS.min(files.len()) {
            let (sender, receiver) = sync_channel(0);
            let files = &files;
            scope.spawn(move || {
                for (age, (path, _, salt)) in files.iter().rev().enumerate().skip(reader).step_by(READERS) {
                    let read = fs::read(path).map_err(|e| failed(path, &e));
                    let scan = read.and_then(|bytes| segment::scan(path, *salt, bytes, age == 0));
                    if sender.send(scan).is_err() {
                        return;
                    }
                }
            });
            readers.push(receiver);
        }
        for (age, (path, first, _)) in files.iter().rev().enumerate() {
            let scan = readers[age % READERS].recv().expect("a reader sends one result per file")?;
            merge.add(path, *first, scan)?;
        }
        Ok(())
    })?;
    if let Some((path, first, _)) = files.first().filter(|(_, first, _)| *first != ORIGIN + 1) {
        return Err(damaged(path, 0, &format!("the segments before revision {first} are missing")));
    }
    let end = merge.revision.unwrap_or(ORIGIN);
    if let Some(acknowledged) = acknowledged::read(dir)?.filter(|acknowledged| *acknowledged > end) {
        let (path, offset) = merge.end.unwrap_or_else(|| (dir.to_owned(), 0));
        let what = format!(
            "revisions {} to {acknowledged} were acknowledged and cannot be read (to go on without them, remove {})",
            end + 1,
            acknowledged::path(dir).display()
        );
        return Err(damaged(&path, offset, &what));
    }
    if merge.empty_newest {
        let (path, ..) = files.pop().expect("the newest file was there to be read");
        if mode == Mode::Repair {
            fs::remove_file(&path).map_err(|e| failed(&path, &e))?;
        }
    }
    let Merge { live, seen, segments, compacted, replaced, revision, torn, .. } = merge;
    drop(seen);
    let mut open = BTreeMap::new();
    for ((path, first, _), (head, extent)) in files.into_iter().zip(segments.into_iter().rev()) {
        let file =
            OpenOptions::new().read(true).write(mode == Mode::Repair).open(&path).map_err(|e| failed(&path, &e))?;
        open.insert(first, Arc::new(Segment { path, file, head, extent: Mutex::new(extent) }));
    }
    let revision = revision.unwrap_or(ORIGIN);
    let compacted = compacted.max(ORIGIN);
    if compacted > revision {
        let what = format!("the log ends at revision {revision}, but history up to {compacted} was compacted");
        return Err(damaged(dir, 0, &what));
    }
    let mut window = VecDeque::from(vec![0; (revision - compacted) as usize]);
    replaced.into_iter().filter(|(r, _)| *r > compacted).for_each(|(r, p)| window[(r - compacted - 1) as usize] = p);
    let log = Log { dir: dir.to_owned(), segments: RwLock::new(open), clock: now };
    if mode == Mode::Repair {
        log.finish_last()?;
    }
    Ok(Loaded { log, memory: Memory::new(live.into_iter().collect(), revision, compacted, window), lock, torn })
}

/// The segment files in order, without what an interrupted compaction left behind.
fn list(dir: &Path, mode: Mode) -> Result<Vec<(PathBuf, Revision, u32)>, Error> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| failed(dir, &e))? {
        let path = entry.map_err(|e| failed(dir, &e))?.path();
        let Some(name) = path.file_name().and_then(|n| n.to_str()) else { continue };
        if let Some((first, salt)) = segment::parse_name(name) {
            files.push((path, first, salt));
        } else if name.ends_with(".tmp") && mode == Mode::Repair {
            fs::remove_file(&path).map_err(|e| failed(&path, &e))?;
        }
    }
    files.sort_by_key(|(_, first, _)| *first);
    let (mut covered, mut kept) = (0, Vec::new());
    for (path, first, salt) in files {
        // A rewritten segment has already taken the place of those it covers.
        if first <= covered {
            if mode == Mode::Repair {
                fs::remove_file(&path).map_err(|e| failed(&path, &e))?;
            }
            continue;
        }
        covered = read_head(&path)?.and_then(|head| head.last).unwrap_or(0).max(covered);
        kept.push((path, first, salt));
    }
    Ok(kept)
}

fn read_head(path: &Path) -> Result<Option<Head>, Error> {
    use std::os::unix::fs::FileExt;
    let mut bytes = [0; HEAD];
    let read = File::open(path).and_then(|f| f.read_at(&mut bytes, 0)).map_err(|e| failed(path, &e))?;
    Ok(Head::decode(&bytes[..read]))
}

/// State gathered from segments that come newest first.
#[derive(Default)]
struct Merge {
    live: Vec<(Arc<str>, Live)>,
    /// Keys whose latest change has been met. Hashing them and sorting once beats growing an ordered map key by key.
    seen: FxHashSet<Arc<str>>,
    segments: Vec<(Head, Extent)>,
    replaced: Vec<(Revision, Revision)>,
    compacted: Revision,
    revision: Option<Revision>,
    /// The first revision of the segment before this one in the walk, so after it in time.
    next: Option<Revision>,
    empty_newest: bool,
    /// Where the newest segment ends, as far as it is readable.
    end: Option<(PathBuf, u64)>,
    torn: u64,
}

impl Merge {
    fn add(&mut self, path: &Path, first: Revision, scan: Option<Scan>) -> Result<(), Error> {
        let Some(scan) = scan else {
            self.empty_newest = true;
            self.end = Some((path.to_owned(), 0));
            return Ok(());
        };
        if scan.head.first != first {
            return Err(damaged(path, 0, "the file's name and head disagree"));
        }
        if self.next.is_some_and(|next| next != scan.extent.last + 1) {
            let what = format!("the segment after revision {} is missing", scan.extent.last);
            return Err(damaged(path, scan.extent.end, &what));
        }
        self.next = Some(first);
        self.revision.get_or_insert(scan.extent.last);
        self.end.get_or_insert_with(|| (path.to_owned(), scan.extent.end));
        self.compacted = self.compacted.max(scan.compacted);
        self.torn += scan.torn;
        for place in scan.places.iter().rev() {
            // Compaction entries come before the revisions they spare, so `compacted` is final for all that is older.
            if place.revision > self.compacted {
                self.replaced.push((place.revision, place.previous));
            }
            let key = scan.key(place);
            if self.seen.contains(key) {
                continue;
            }
            let key: Arc<str> = Arc::from(key);
            if let Some(value) = &place.value {
                let value = Held::Plain(Bytes::copy_from_slice(&scan.bytes[value.clone()]));
                self.live.push((Arc::clone(&key), Live { value, revision: place.revision, expires: place.expires }));
            }
            self.seen.insert(key);
        }
        self.segments.push((scan.head, scan.extent));
        Ok(())
    }
}

/// An entry copied out of the log.
#[derive(Debug, Clone)]
pub(super) struct Old {
    pub(super) key: Arc<str>,
    pub(super) value: Option<Bytes>,
    pub(super) revision: Revision,
    pub(super) previous: Revision,
}

impl Old {
    /// `None` for an entry that changes no key.
    pub(super) fn copy(entry: &Entry<'_>) -> Option<Self> {
        let value = match entry.change {
            Change::Put { value, .. } => Some(Bytes::copy_from_slice(value)),
            _ => None,
        };
        let key = Arc::from(entry.key()?);
        Some(Self { key, value, revision: entry.revision, previous: entry.previous })
    }
}

impl Log {
    /// Calls `each` with every change after `after` up to `upto` and when it was written, in order, until it breaks. `false`: some are missing.
    pub(super) fn visit(
        &self,
        after: Revision,
        upto: Revision,
        mut each: impl FnMut(&Entry<'_>, u64) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        let mut next = after + 1;
        while next <= upto {
            let Some(segment) = self.holding(next) else { return Ok(false) };
            let before = next;
            let (mut hole, mut stop) = (false, false);
            let _ = segment.visit(next, |entry, time| {
                if entry.key().is_none() {
                    return ControlFlow::Continue(());
                }
                hole = entry.revision != next;
                if hole || entry.revision > upto {
                    return ControlFlow::Break(());
                }
                next += 1;
                stop = each(&entry, time).is_break();
                if stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            if stop {
                return Ok(true);
            }
            if hole || next == before {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The entries of these revisions, which must ascend. What is no longer there is left out.
    pub(super) fn find(&self, revisions: &[Revision]) -> Result<HashMap<Revision, Old>, Error> {
        let mut found = HashMap::with_capacity(revisions.len());
        let mut wanted = revisions.iter().copied().peekable();
        while let Some(&first) = wanted.peek() {
            let Some(segment) = self.holding(first) else {
                wanted.next();
                continue;
            };
            // Far apart in one segment, each is looked up by itself; close together, one reading finds them all.
            let _ = segment.visit(first, |entry, _| {
                while wanted.next_if(|w| *w < entry.revision).is_some() {}
                if entry.key().is_some() && wanted.next_if_eq(&entry.revision).is_some() {
                    found.extend(Old::copy(&entry).map(|old| (old.revision, old)));
                }
                match wanted.peek() {
                    Some(next) if *next < entry.revision + 256 => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            })?;
            // A segment that has not got it will not have it when asked again.
            while wanted.next_if_eq(&first).is_some() {}
        }
        Ok(found)
    }

    fn holding(&self, revision: Revision) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        let (_, segment) = segments.range(..=revision).next_back()?;
        (segment.extent.lock().last >= revision).then(|| Arc::clone(segment))
    }

    /// When the newest group was written, if there is one.
    pub(super) fn latest_time(&self) -> Option<u64> {
        self.segments.read().values().next_back().map(|segment| segment.extent.lock().time)
    }

    /// Segments and bytes on disk.
    pub(super) fn size(&self) -> (usize, u64) {
        let segments = self.segments.read();
        (segments.len(), segments.values().map(|s| s.extent.lock().end).sum())
    }

    /// After a crash: cuts the torn tail off the last segment and seals it, so that the writer starts a new one.
    fn finish_last(&self) -> Result<(), Error> {
        let Some(segment) = self.segments.read().values().next_back().cloned() else { return Ok(()) };
        let mut extent = segment.extent.lock();
        if extent.sealed {
            return Ok(());
        }
        let mut builder = Builder::default();
        builder.seal(&extent.seal(), &Stamp { salt: segment.head.salt, base: extent.end, time: now() });
        let write = || {
            segment.file.set_len(extent.end)?;
            super::disk::Os.write(&segment.file, &builder.bytes, extent.end)?;
            segment.file.sync_all()?;
            sync_directory(&self.dir)
        };
        write().map_err(|e| failed(&segment.path, &e))?;
        extent.end += builder.bytes.len() as u64;
        extent.sealed = true;
        Ok(())
    }
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64)
}

/// A salt nobody can foresee, so that no value can be made to look like a frame.
pub(super) fn salt() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish() as u32
}
