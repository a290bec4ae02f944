//! Configuration files that are followed while the server runs: woken by the file system, never by a timer. What is wrong with
//! a new content leaves the one before in force; what came of it is counted, under upstream's names.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use jiff::Timestamp;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};

use crate::files::Watch;

/// Changes of a file. The directory is watched, not the file: editors and mounted volumes put a new file in the place of the
/// old one.
pub struct Changes(Watch);

impl Changes {
    /// Of this file, from now on.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Watch::for_whole_files(directory).map(Self)
    }

    /// Waits until something happened in the directory; what it was does not matter, as the content is compared. False when
    /// nobody will ever tell.
    pub async fn next(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }

    /// Calls `reload` whenever something may have changed, for as long as somebody else has what it is called with.
    pub fn follow<T: Send + Sync + 'static>(mut self, owner: &Arc<T>, reload: fn(&T)) {
        let owner = Arc::downgrade(owner);
        tokio::spawn(async move {
            while self.next().await {
                let Some(owner) = owner.upgrade() else { return };
                reload(&owner);
            }
        });
    }
}

/// What came of following a file.
#[derive(Debug)]
pub struct Reloads {
    /// `authentication` or `authorization`.
    what: &'static str,
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// When, in milliseconds; 0 is never.
    last_success: AtomicI64,
    last_failure: AtomicI64,
    /// The content that was looked at last, and the hash of the one in force.
    seen: Mutex<(Vec<u8>, String)>,
}

impl Reloads {
    /// Of a file whose present content is in force.
    pub fn new(what: &'static str, content: Vec<u8>) -> Self {
        let hash = hash(&content);
        Self {
            what,
            succeeded: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            last_success: AtomicI64::new(0),
            last_failure: AtomicI64::new(0),
            seen: Mutex::new((content, hash)),
        }
    }

    /// Takes in the file if its content is a new one.
    pub fn take<E: std::fmt::Display>(&self, path: &Path, now: Timestamp, take: impl FnOnce(&[u8]) -> Result<(), E>) {
        let what = self.what;
        let content = match std::fs::read(path) {
            Ok(content) => content,
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "the {what} configuration cannot be read");
                return self.fail(now);
            }
        };
        let mut seen = self.seen.lock();
        if seen.0 == content {
            return;
        }
        let outcome = take(&content);
        match outcome {
            Ok(()) => {
                seen.1 = hash(&content);
                self.succeeded.fetch_add(1, Ordering::Relaxed);
                self.last_success.store(now.as_millisecond(), Ordering::Relaxed);
                tracing::info!("the {what} configuration was loaded again");
            }
            Err(error) => {
                tracing::error!(%error, "the new {what} configuration cannot be used; the one before stays in force");
                self.fail(now);
            }
        }
        // Once is enough, also for what will never be right.
        seen.0 = content;
    }

    fn fail(&self, now: Timestamp) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.last_failure.store(now.as_millisecond(), Ordering::Relaxed);
    }

    /// The figures, in the Prometheus text format.
    pub fn metrics(&self, text: &mut String) {
        let what = self.what;
        let id = hash(identity().as_bytes());
        let total = format!("apiserver_{what}_config_controller_automatic_reloads_total");
        let help = format!(
            "[BETA] Total number of automatic reloads of {what} configuration split by status and apiserver identity."
        );
        let mut samples = figures::samples(text, &total, "counter", &help);
        let of = [("failure", &self.failed, &self.last_failure), ("success", &self.succeeded, &self.last_success)];
        for (status, count, _) in of {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                samples.add(&[("apiserver_id_hash", &id), ("status", status)], count as f64);
            }
        }
        let last = format!("apiserver_{what}_config_controller_automatic_reload_last_timestamp_seconds");
        let help = format!(
            "[BETA] Timestamp of the last automatic reload of {what} configuration split by status and apiserver identity."
        );
        let mut samples = figures::samples(text, &last, "gauge", &help);
        for (status, _, at) in of {
            let at = at.load(Ordering::Relaxed);
            if at > 0 {
                samples.add(&[("apiserver_id_hash", &id), ("status", status)], at as f64 / 1e3);
            }
        }
        let info = format!("apiserver_{what}_config_controller_last_config_info");
        let help = format!(
            "[BETA] Information about the last applied {what} configuration with hash as label, split by apiserver identity."
        );
        let labels = [("apiserver_id_hash", id.as_str()), ("hash", &self.seen.lock().1)];
        figures::samples(text, &info, "gauge", &help).add(&labels, 1.0);
    }
}

fn hash(content: &[u8]) -> String {
    let digest = digest(&SHA256, content);
    digest.as_ref().iter().fold("sha256:".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Which server of several this is: by its machine.
fn identity() -> String {
    format!("kube-apiserver-{}", rustix::system::uname().nodename().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_content_is_taken_once_and_a_wrong_one_leaves_the_old_in_force() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        let reloads = Reloads::new("authentication", b"first".to_vec());
        let put = |text: &str| std::fs::write(&path, text).expect("a file");
        let now = Timestamp::from_second(1_700_000_000).expect("a time");
        let taken = Mutex::new(Vec::new());
        let look = || {
            reloads.take(&path, now, |content| {
                let text = String::from_utf8_lossy(content).into_owned();
                if text == "wrong" {
                    return Err("it is wrong");
                }
                taken.lock().push(text);
                Ok(())
            });
        };
        look();
        put("first");
        look();
        for text in ["second", "second", "wrong", "wrong"] {
            put(text);
            look();
        }
        assert_eq!(*taken.lock(), ["second"]);
        let mut figures = String::new();
        reloads.metrics(&mut figures);
        let count = |status: &str| {
            let line = figures.lines().find(|line| line.contains("reloads_total{") && line.contains(status));
            line.and_then(|line| line.rsplit(' ').next()).map(str::to_owned)
        };
        // There was no file at first, which is a failure too.
        assert_eq!((count("success").as_deref(), count("failure").as_deref()), (Some("1"), Some("2")), "{figures}");
        assert!(figures.contains("automatic_reload_last_timestamp_seconds{"), "{figures}");
        assert!(figures.contains(&format!("hash=\"{}\"}} 1", hash(b"second"))), "{figures}");
    }
}
