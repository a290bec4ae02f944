//! The log backend: one JSON line per event into a file that is rotated.
//!
//! One thread owns the file. It takes whatever lines are waiting, writes them with one call, and, when one of the waiting
//! asked for it, brings them to the disk with one `fdatasync` for all: a group commit, so that many requests share the cost
//! of one. A waiter is notified only then.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flate2::write::GzEncoder;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{mpsc, oneshot};

use super::{Mode, Wait};

/// Lines that may wait for the thread, by default.
pub const QUEUE: usize = 10_000;
/// The most bytes that go into one write.
const MAX_WRITE: usize = 4 * 1024 * 1024;
/// When a file is rotated unless something else is said.
const DEFAULT_SIZE: u64 = 100;

/// Why the log cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("ensureLogFile: {}: {source}", path.display())]
pub struct Error {
    path: PathBuf,
    source: std::io::Error,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `--audit-log-path`; `-` is standard output.
    pub path: PathBuf,
    /// `--audit-log-mode`.
    pub mode: Mode,
    /// `--audit-log-maxage`: days that old files are kept; 0 is for ever.
    pub max_age: u32,
    /// `--audit-log-maxbackup`: how many old files are kept; 0 is all.
    pub max_backup: usize,
    /// `--audit-log-maxsize`: megabytes of a file before it is rotated; 0 is 100.
    pub max_size: u64,
    /// `--audit-log-compress`: whether old files are packed with gzip.
    pub compress: bool,
    /// `--audit-log-batch-buffer-size`: lines that may wait.
    pub buffer: usize,
    /// `--audit-log-truncate-max-event-size`, if events are truncated.
    pub truncate: Option<usize>,
}

struct Entry {
    line: Bytes,
    /// Whether it has to be on disk, not only in the system's hands.
    durable: bool,
    done: Option<oneshot::Sender<bool>>,
    /// Whether nothing is written after it.
    last: bool,
}

pub struct Log {
    mode: Mode,
    truncate: Option<usize>,
    queue: mpsc::Sender<Entry>,
    errors: Arc<AtomicU64>,
    thread: parking_lot::Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Log {
    /// Opens the file and starts the thread.
    pub fn open(settings: Settings, errors: Arc<AtomicU64>) -> Result<Self, Error> {
        let mode = settings.mode;
        let (queue, entries) = mpsc::channel(settings.buffer.max(1));
        let truncate = settings.truncate;
        let rotated = Rotated::open(settings)?;
        let counter = Arc::clone(&errors);
        let thread = std::thread::Builder::new().name("audit-log".to_owned());
        let thread = thread.spawn(move || write_all(rotated, entries, &counter));
        let thread = thread.map_err(|source| Error { path: PathBuf::from("a thread for the log"), source })?;
        Ok(Self { mode, truncate, queue, errors, thread: parking_lot::Mutex::new(Some(thread)) })
    }

    /// Takes a line. True once it is as safe as asked for.
    pub async fn submit(&self, line: Bytes, wait: Wait) -> bool {
        if self.mode == Mode::Batch || wait == Wait::Never {
            return self.offer(line);
        }
        let Some(line) = self.fitting(line) else { return true };
        let (done, written) = oneshot::channel();
        let entry = Entry { line, durable: wait == Wait::Durable, done: Some(done), last: false };
        if self.queue.send(entry).await.is_err() {
            return false;
        }
        written.await.unwrap_or(false)
    }

    /// Takes a line without waiting for anything; a line that finds the queue full is lost, and counted.
    pub fn offer(&self, line: Bytes) -> bool {
        let Some(line) = self.fitting(line) else { return true };
        let taken = self.queue.try_send(Entry { line, durable: false, done: None, last: false }).is_ok();
        if !taken {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// The line as it may be written; one that cannot be is counted, and no reason to refuse a request.
    fn fitting(&self, line: Bytes) -> Option<Bytes> {
        let fitting = super::truncate::truncated(line, self.truncate);
        if fitting.is_none() {
            self.errors.fetch_add(1, Ordering::Relaxed);
            tracing::error!("Error in audit plugin 'log': event is too large even after truncating");
        }
        fitting
    }

    /// How requests wait for it.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Writes what waits, and ends: a line that came later could be cut in two by the end of the process.
    pub async fn close(&self) {
        let (done, written) = oneshot::channel();
        let last = Entry { line: Bytes::new(), durable: true, done: Some(done), last: true };
        if self.queue.send(last).await.is_ok() {
            // A writer that is gone has nothing left to write.
            let _ = written.await;
        }
        drop(self.thread.lock().take());
    }
}

fn write_all(mut file: Rotated, mut entries: mpsc::Receiver<Entry>, errors: &AtomicU64) {
    let mut batch = Vec::new();
    let mut bytes = Vec::new();
    while let Some(first) = entries.blocking_recv() {
        bytes.extend_from_slice(&first.line);
        batch.push(first);
        while bytes.len() < MAX_WRITE
            && let Ok(next) = entries.try_recv()
        {
            bytes.extend_from_slice(&next.line);
            batch.push(next);
        }
        let durable = batch.iter().any(|entry| entry.durable);
        let last = batch.iter().any(|entry| entry.last);
        let written = match file.write(&bytes, durable) {
            Ok(()) => true,
            Err(error) => {
                errors.fetch_add(batch.len() as u64, Ordering::Relaxed);
                tracing::error!(%error, "Error in audit plugin 'log' affecting {} audit events", batch.len());
                false
            }
        };
        for done in batch.drain(..).filter_map(|entry| entry.done) {
            // Somebody who went away does not need the result.
            let _ = done.send(written);
        }
        bytes.clear();
        // One very large event must not hold its memory for ever.
        bytes.shrink_to(MAX_WRITE);
        if last {
            return;
        }
    }
}

/// A file that becomes an old one when it is full.
struct Rotated {
    settings: Settings,
    file: Option<File>,
    size: u64,
}

impl Rotated {
    fn open(settings: Settings) -> Result<Self, Error> {
        let mut rotated = Self { settings, file: None, size: 0 };
        if rotated.settings.path != Path::new("-") {
            let path = rotated.settings.path.clone();
            rotated.reopen().map_err(|source| Error { path, source })?;
            rotated.tidy(Timestamp::now());
        }
        Ok(rotated)
    }

    fn reopen(&mut self) -> std::io::Result<()> {
        if let Some(parent) = self.settings.path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            std::fs::create_dir_all(parent)?;
        }
        let mut file = OpenOptions::new().create(true).read(true).append(true).mode(0o600).open(&self.settings.path)?;
        mend(&mut file)?;
        self.size = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8], durable: bool) -> std::io::Result<()> {
        let Some(file) = &mut self.file else {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes)?;
            return out.flush();
        };
        let megabytes = if self.settings.max_size == 0 { DEFAULT_SIZE } else { self.settings.max_size };
        if self.size > 0 && self.size + bytes.len() as u64 > megabytes * 1024 * 1024 {
            file.sync_data()?;
            self.rotate(Timestamp::now())?;
        }
        let file = self.file.as_mut().expect("a rotated log has been opened again");
        file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        if durable { file.sync_data() } else { Ok(()) }
    }

    /// The present file becomes `audit-<time>.log`, and a new one begins.
    fn rotate(&mut self, now: Timestamp) -> std::io::Result<()> {
        let old = self.backup(now);
        std::fs::rename(&self.settings.path, &old)?;
        self.reopen()?;
        if self.settings.compress
            && let Err(error) = pack(&old)
        {
            tracing::warn!(%error, file = %old.display(), "an old audit log could not be packed");
        }
        self.tidy(now);
        Ok(())
    }

    fn backup(&self, now: Timestamp) -> PathBuf {
        let (stem, extension) = self.names();
        self.settings.path.with_file_name(format!("{stem}-{}{extension}", now.strftime("%Y-%m-%dT%H-%M-%S.%3f")))
    }

    fn names(&self) -> (String, String) {
        let path = &self.settings.path;
        let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let extension = path.extension().map_or_else(String::new, |ext| format!(".{}", ext.to_string_lossy()));
        (stem, extension)
    }

    /// Removes old files that are too many or too old.
    fn tidy(&self, now: Timestamp) {
        let parent = self.settings.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let Ok(entries) = std::fs::read_dir(parent.unwrap_or(Path::new("."))) else { return };
        let (stem, extension) = self.names();
        let mut old: Vec<(Timestamp, PathBuf)> = entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().to_string_lossy().into_owned();
                let name = name.strip_suffix(".gz").unwrap_or(&name);
                let at = name.strip_prefix(&stem)?.strip_prefix('-')?.strip_suffix(&extension)?;
                let at = jiff::civil::DateTime::strptime("%Y-%m-%dT%H-%M-%S.%f", at).ok()?;
                Some((at.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp(), entry.path()))
            })
            .collect();
        old.sort_by(|one, other| other.cmp(one));
        let oldest = now - SignedDuration::from_hours(24 * i64::from(self.settings.max_age));
        for (rank, (at, path)) in old.iter().enumerate() {
            let too_many = self.settings.max_backup > 0 && rank >= self.settings.max_backup;
            let too_old = self.settings.max_age > 0 && *at < oldest;
            if (too_many || too_old)
                && let Err(error) = std::fs::remove_file(path)
            {
                tracing::warn!(%error, file = %path.display(), "an old audit log could not be removed");
            }
        }
    }
}

/// Takes off a line that a crash left unfinished: no client has an answer that says it is there, and the next one must begin a line.
fn mend(file: &mut File) -> std::io::Result<()> {
    let length = file.metadata()?.len();
    let mut end = length;
    let mut piece = vec![0; 64 * 1024];
    while end > 0 {
        let start = end.saturating_sub(piece.len() as u64);
        let part = &mut piece[..usize::try_from(end - start).expect("no more than the piece")];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(part)?;
        if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
            end = start + at as u64 + 1;
            break;
        }
        end = start;
    }
    if end < length { file.set_len(end) } else { Ok(()) }
}

fn pack(path: &Path) -> std::io::Result<()> {
    let mut packed = path.as_os_str().to_owned();
    packed.push(".gz");
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&packed)?;
    let mut out = GzEncoder::new(file, flate2::Compression::default());
    std::io::copy(&mut File::open(path)?, &mut out)?;
    out.finish()?.sync_all()?;
    std::fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(directory: &Path) -> Settings {
        Settings {
            path: directory.join("audit.log"),
            mode: Mode::Blocking,
            max_age: 0,
            max_backup: 0,
            max_size: 1,
            compress: false,
            buffer: QUEUE,
            truncate: None,
        }
    }

    fn files(directory: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(directory)
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn full_files_become_old_ones_and_old_ones_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut file = Rotated::open(Settings { max_backup: 2, ..settings(directory.path()) }).expect("a log");
        file.write(b"first\n", true).expect("written");
        for second in 1..=3 {
            file.rotate(at(&format!("2026-01-01T00:00:0{second}.5Z"))).expect("rotated");
            file.write(format!("{second}\n").as_bytes(), false).expect("written");
        }
        assert_eq!(
            files(directory.path()),
            ["audit-2026-01-01T00-00-02.500.log", "audit-2026-01-01T00-00-03.500.log", "audit.log"]
        );
        let text = std::fs::read_to_string(directory.path().join("audit.log")).expect("a file");
        assert_eq!(text, "3\n");
    }

    #[test]
    fn files_go_with_age_and_strangers_stay() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::write(directory.path().join("audit-notes.log"), "mine").expect("a file");
        let mut file =
            Rotated::open(Settings { max_age: 1, compress: true, ..settings(directory.path()) }).expect("a log");
        file.write(b"old\n", true).expect("written");
        file.rotate(at("2026-01-01T00:00:00Z")).expect("rotated");
        file.write(b"young\n", true).expect("written");
        file.rotate(at("2026-01-03T00:00:00Z")).expect("rotated");
        assert_eq!(files(directory.path()), ["audit-2026-01-03T00-00-00.000.log.gz", "audit-notes.log", "audit.log"]);
        for name in ["audit-2026-01-03T00-00-00.000.log.gz", "audit.log"] {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = directory.path().join(name).metadata().expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn a_file_is_rotated_before_it_is_too_large() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut file = Rotated::open(settings(directory.path())).expect("a log");
        let line = vec![b'x'; 700 * 1024];
        file.write(&line, false).expect("written");
        file.write(&line, false).expect("written");
        assert_eq!(files(directory.path()).len(), 2);
        let mut again = Rotated::open(settings(directory.path())).expect("a log");
        again.write(b"more\n", true).expect("written");
        let path = directory.path().join("audit.log");
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "more\n", "after a line that was never finished");
        std::fs::write(&path, "whole\nhal").expect("a file");
        Rotated::open(settings(directory.path())).expect("a log").write(b"next\n", true).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "whole\nnext\n");
    }

    #[tokio::test]
    async fn lines_are_there_when_the_waiter_is_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = Log::open(settings(directory.path()), Arc::default()).expect("a log");
        assert!(log.offer(Bytes::from_static(b"one\n")));
        assert!(log.submit(Bytes::from_static(b"two\n"), Wait::Durable).await);
        let text = || std::fs::read_to_string(directory.path().join("audit.log")).expect("a file");
        assert_eq!(text(), "one\ntwo\n", "in order");
        log.close().await;
        assert!(!log.submit(Bytes::from_static(b"late\n"), Wait::Durable).await);
        assert_eq!(text(), "one\ntwo\n", "nothing is written after the end");
        assert!(
            Log::open(Settings { path: directory.path().to_owned(), ..settings(directory.path()) }, Arc::default())
                .is_err()
        );
    }
}
