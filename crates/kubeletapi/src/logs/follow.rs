//! Reading a log file to its end, and beyond it for as long as the container writes.
//!
//! The kernel announces changes of the file's directory. When the log was rotated, the old file is read to its end and the
//! new one from its beginning; that is known to be right only once something stands in the new one, because until then the
//! runtime may still write to the old.

use std::future::Future;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::pin;

use bytes::Bytes;
use common::files::Watch;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::sync::mpsc;

use super::options::Options;
use super::record::Printer;
use super::tail;

const PIECE: usize = 32 << 10;

/// Where the output goes. Its reader going away ends everything.
pub type Sink = mpsc::Sender<Result<Bytes, std::io::Error>>;

/// A log that was opened and found readable.
pub struct Log {
    path: PathBuf,
    file: File,
    options: Options,
    /// Made before the first look, so that nothing goes unannounced.
    watcher: Option<Watch>,
}

impl Log {
    /// Opens the log at its first byte of interest.
    pub async fn open(path: &str, options: Options) -> std::io::Result<Self> {
        let path = PathBuf::from(path);
        let directory = path.parent().unwrap_or(Path::new("/"));
        let watcher = options.follow.then(|| Watch::new(directory)).transpose()?;
        let tail = options.tail;
        let opened = {
            let path = path.clone();
            tokio::task::spawn_blocking(move || -> std::io::Result<std::fs::File> {
                let mut file = open(&path)?;
                if let Some(lines) = tail {
                    let start = tail::start(&mut file, lines)?;
                    std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(start))?;
                }
                Ok(file)
            })
        };
        let file = opened.await.map_err(std::io::Error::other)??;
        Ok(Self { path, file: File::from_std(file), options, watcher })
    }

    /// Shows the log. Following ends when `ended` does, which is when the container will write nothing more.
    pub async fn show(mut self, sink: Sink, ended: impl Future<Output = ()>) {
        let mut printer = Printer::new(self.options.wanted.clone());
        if let Err(error) = self.copy(&mut printer, &sink, ended).await {
            tracing::debug!(path = %self.path.display(), %error, "log not shown to its end");
        }
    }

    async fn copy(
        &mut self,
        printer: &mut Printer,
        sink: &Sink,
        ended: impl Future<Output = ()>,
    ) -> std::io::Result<()> {
        let mut ended = pin!(ended);
        let mut watcher = self.watcher.take();
        let mut over = watcher.is_none();
        loop {
            if !self.drain(printer, sink).await? {
                return Ok(());
            }
            if watcher.is_some()
                && let Some(next) = self.successor(over).await?
            {
                // Between the look at the old file's end and the new file's first byte more may have come.
                if !self.drain(printer, sink).await? {
                    return Ok(());
                }
                self.file = next;
                continue;
            }
            let Some(watcher) = watcher.as_mut().filter(|_| !over) else { break };
            tokio::select! {
                () = sink.closed() => return Ok(()),
                // Whatever was written before the end is still to be read.
                () = &mut ended => over = true,
                changed = watcher.changed() => drop(changed?),
            }
        }
        let mut out = Vec::new();
        printer.finish(&mut out);
        send(sink, out).await;
        Ok(())
    }

    /// Reads to the end of the file; says whether more is wanted.
    async fn drain(&mut self, printer: &mut Printer, sink: &Sink) -> std::io::Result<bool> {
        let mut piece = vec![0; PIECE];
        loop {
            let size = self.file.read(&mut piece).await?;
            if size == 0 {
                return Ok(true);
            }
            let mut out = Vec::with_capacity(size);
            printer.feed(&piece[..size], &mut out);
            if !send(sink, out).await || printer.is_done() {
                return Ok(false);
            }
        }
    }

    /// The file that took the log's place, once it is in use.
    async fn successor(&mut self, over: bool) -> std::io::Result<Option<File>> {
        let Ok(there) = tokio::fs::symlink_metadata(&self.path).await else { return Ok(None) };
        let here = self.file.metadata().await?;
        if (there.dev(), there.ino()) == (here.dev(), here.ino()) {
            // The same file, cut short: what it holds now is new.
            if here.len() < self.file.stream_position().await? {
                self.file.rewind().await?;
            }
            return Ok(None);
        }
        if there.len() == 0 && !over {
            return Ok(None);
        }
        let path = self.path.clone();
        let opened = tokio::task::spawn_blocking(move || open(&path)).await.map_err(std::io::Error::other)?;
        Ok(opened.ok().map(File::from_std))
    }
}

/// Opens a regular file. A link in its place would be somebody's trick to show files of the node.
fn open(path: &Path) -> std::io::Result<std::fs::File> {
    let file = std::fs::File::options().read(true).custom_flags(node::process::NO_FOLLOW).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::Error::other("not a regular file")) }
}

/// Whether there is still somebody who reads.
async fn send(sink: &Sink, out: Vec<u8>) -> bool {
    out.is_empty() || sink.send(Ok(Bytes::from(out))).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;
    use machinery::query::Query;
    use std::io::Write as _;
    use std::time::Duration;
    use tokio::sync::oneshot;

    const SOON: Duration = Duration::from_secs(10);

    struct Rig {
        dir: tempfile::TempDir,
    }

    impl Rig {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap() }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("0.log")
        }

        fn append(&self, path: &Path, content: &str) {
            let mut file = std::fs::File::options().create(true).append(true).open(path).unwrap();
            for line in content.split_inclusive('\n') {
                let tag = if line.ends_with('\n') { "F" } else { "P" };
                writeln!(file, "2026-01-01T00:00:00Z stdout {tag} {}", line.trim_end()).unwrap();
            }
        }

        async fn show(&self, query: &str) -> (mpsc::Receiver<Result<Bytes, std::io::Error>>, oneshot::Sender<()>) {
            let options = Options::parse(&Query::parse(query), Timestamp::now()).unwrap();
            let log = Log::open(self.path().to_str().unwrap(), options).await.unwrap();
            let (sink, shown) = mpsc::channel(4);
            let (end, ended) = oneshot::channel::<()>();
            tokio::spawn(log.show(sink, async move {
                let _ = ended.await;
            }));
            (shown, end)
        }
    }

    async fn rest(shown: &mut mpsc::Receiver<Result<Bytes, std::io::Error>>) -> String {
        let mut all = Vec::new();
        while let Some(piece) = tokio::time::timeout(SOON, shown.recv()).await.expect("an end") {
            all.extend_from_slice(&piece.unwrap());
        }
        String::from_utf8(all).unwrap()
    }

    async fn expect(shown: &mut mpsc::Receiver<Result<Bytes, std::io::Error>>, text: &str) {
        let mut all = String::new();
        while all.len() < text.len() {
            let piece = tokio::time::timeout(SOON, shown.recv()).await.expect("more output").expect("no end").unwrap();
            all.push_str(std::str::from_utf8(&piece).unwrap());
        }
        assert_eq!(all, text);
    }

    #[tokio::test]
    async fn a_log_is_read_to_its_end_and_the_rest_left_alone() {
        let rig = Rig::new();
        rig.append(&rig.path(), "one\ntwo\nthree\n");
        let (mut shown, _end) = rig.show("").await;
        assert_eq!(rest(&mut shown).await, "one\ntwo\nthree\n");
        let (mut shown, _end) = rig.show("tailLines=1").await;
        assert_eq!(rest(&mut shown).await, "three\n");
        let (mut shown, _end) = rig.show("follow=1&limitBytes=5").await;
        assert_eq!(rest(&mut shown).await, "one\nt");
    }

    #[tokio::test]
    async fn a_followed_log_shows_what_is_added_until_the_container_ends() {
        let rig = Rig::new();
        rig.append(&rig.path(), "one\n");
        let (mut shown, end) = rig.show("follow=1").await;
        expect(&mut shown, "one\n").await;
        rig.append(&rig.path(), "two");
        rig.append(&rig.path(), "+\n");
        expect(&mut shown, "two+\n").await;
        rig.append(&rig.path(), "last\n");
        end.send(()).unwrap();
        assert_eq!(rest(&mut shown).await, "last\n");
    }

    #[tokio::test]
    async fn nothing_is_lost_or_shown_twice_when_the_log_is_rotated() {
        let rig = Rig::new();
        rig.append(&rig.path(), "one\n");
        let (mut shown, end) = rig.show("follow=1&tailLines=1").await;
        expect(&mut shown, "one\n").await;
        let old = rig.dir.path().join("0.log.20260101-000000");
        std::fs::rename(rig.path(), &old).unwrap();
        // The runtime makes the new file before it leaves the old one.
        std::fs::File::create(rig.path()).unwrap();
        rig.append(&old, "two\n");
        expect(&mut shown, "two\n").await;
        rig.append(&old, "three\n");
        rig.append(&rig.path(), "four\n");
        expect(&mut shown, "three\nfour\n").await;
        std::fs::rename(rig.path(), rig.dir.path().join("0.log.20260101-000001")).unwrap();
        rig.append(&rig.path(), "five\n");
        drop(end);
        assert_eq!(rest(&mut shown).await, "five\n");
    }

    #[tokio::test]
    async fn a_reader_that_goes_away_ends_the_following() {
        let rig = Rig::new();
        rig.append(&rig.path(), "one\n");
        let (shown, mut end) = rig.show("follow=1").await;
        drop(shown);
        tokio::time::timeout(SOON, end.closed()).await.expect("the task ends");
    }

    #[tokio::test]
    async fn links_and_other_things_are_not_logs() {
        let rig = Rig::new();
        std::os::unix::fs::symlink("/etc/passwd", rig.path()).unwrap();
        let options = Options::parse(&Query::default(), Timestamp::now()).unwrap();
        assert!(Log::open(rig.path().to_str().unwrap(), options.clone()).await.is_err());
        assert!(Log::open(rig.dir.path().to_str().unwrap(), options).await.is_err());
    }
}
