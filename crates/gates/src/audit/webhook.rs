//! The webhook backend: events to somebody else's server, in batches or one by one.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use super::{Mode, Wait};
use crate::outbound::{self, Remote, Retry};

/// How long one call may take.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `--audit-webhook-config-file`: a kubeconfig.
    pub kubeconfig: PathBuf,
    /// `--audit-webhook-mode`.
    pub mode: Mode,
    /// `--audit-webhook-batch-buffer-size`: events that may wait.
    pub buffer: usize,
    /// `--audit-webhook-batch-max-size`: events in one call.
    pub batch: usize,
    /// `--audit-webhook-batch-max-wait`: how long a batch is waited for.
    pub wait: Duration,
    /// `--audit-webhook-initial-backoff`: the first pause after a call that failed.
    pub backoff: Duration,
    /// `--audit-webhook-batch-throttle-*`: how fast batches are sent.
    pub throttle: Option<Throttle>,
    /// `--audit-webhook-truncate-*`: how large events and batches may be.
    pub truncate: Option<Limits>,
}

/// How fast batches are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Throttle {
    /// The time from one to the next, in the long run.
    pub every: Duration,
    /// How many may follow each other at once after a rest.
    pub burst: u32,
}

/// How large things may be, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub event: usize,
    pub batch: usize,
}

impl Settings {
    /// As `--audit-webhook-config-file` alone says it.
    pub fn at(kubeconfig: PathBuf) -> Self {
        Self {
            kubeconfig,
            mode: Mode::Batch,
            buffer: 10_000,
            batch: 400,
            wait: Duration::from_secs(30),
            backoff: Duration::from_secs(10),
            throttle: Some(Throttle { every: Duration::from_millis(100), burst: 15 }),
            truncate: None,
        }
    }
}

enum Entry {
    Line(Bytes),
    /// Everything before it is to be sent now.
    Flush(oneshot::Sender<()>),
}

pub struct Webhook {
    mode: Mode,
    to: Arc<Receiver>,
    queue: mpsc::Sender<Entry>,
    errors: Arc<AtomicU64>,
}

struct Receiver {
    remote: Remote,
    retry: Retry,
    truncate: Option<Limits>,
}

impl Webhook {
    /// Reads the kubeconfig and, in batch mode, starts the task that sends.
    pub fn open(settings: &Settings, errors: Arc<AtomicU64>) -> Result<Self, outbound::Error> {
        let retry = Retry { attempts: 5, pause: settings.backoff };
        let to = Arc::new(Receiver {
            remote: Remote::from_kubeconfig(&settings.kubeconfig)?,
            retry,
            truncate: settings.truncate,
        });
        let (queue, entries) = mpsc::channel(settings.buffer.max(1));
        if settings.mode == Mode::Batch {
            let (to, errors) = (Arc::clone(&to), Arc::clone(&errors));
            let sending = Sending { size: settings.batch.max(1), patience: settings.wait, throttle: settings.throttle };
            tokio::spawn(sending.run(to, entries, errors));
        }
        Ok(Self { mode: settings.mode, to, queue, errors })
    }

    /// Takes a line. True once it is as safe as asked for.
    pub async fn submit(&self, line: Bytes, wait: Wait) -> bool {
        if self.mode == Mode::Batch || wait == Wait::Never {
            return self.offer(line);
        }
        self.to.send(&[line], &self.errors).await
    }

    /// Takes a line without waiting for anything; a line that finds the queue full is lost, and counted.
    pub fn offer(&self, line: Bytes) -> bool {
        if self.mode != Mode::Batch {
            let (to, errors) = (Arc::clone(&self.to), Arc::clone(&self.errors));
            tokio::spawn(async move { to.send(&[line], &errors).await });
            return true;
        }
        let taken = self.queue.try_send(Entry::Line(line)).is_ok();
        if !taken {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }

    /// How requests wait for it.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub async fn close(&self) {
        let (done, sent) = oneshot::channel();
        if self.mode == Mode::Batch && self.queue.send(Entry::Flush(done)).await.is_ok() {
            // A task that is gone has nothing left to send.
            let _ = sent.await;
        }
    }
}

impl Receiver {
    /// Sends lines, in as many calls as their size asks for.
    async fn send(&self, lines: &[Bytes], errors: &AtomicU64) -> bool {
        let Some(limits) = self.truncate else { return self.call(lines, errors).await };
        let fitting: Vec<Bytes> =
            lines.iter().filter_map(|line| super::truncate::truncated(line.clone(), Some(limits.event))).collect();
        let lost = lines.len() - fitting.len();
        if lost > 0 {
            errors.fetch_add(lost as u64, Ordering::Relaxed);
            tracing::error!("Error in audit plugin 'webhook': {lost} events are too large even after truncating");
        }
        let mut sent = true;
        for batch in batches(&fitting, limits.batch) {
            sent = self.call(batch, errors).await && sent;
        }
        sent
    }

    async fn call(&self, lines: &[Bytes], errors: &AtomicU64) -> bool {
        if lines.is_empty() {
            return true;
        }
        let body = list(lines);
        let sent = self.retry.run(|| self.remote.notify(body.clone(), TIMEOUT)).await;
        if let Err(error) = &sent {
            errors.fetch_add(lines.len() as u64, Ordering::Relaxed);
            tracing::error!(%error, "Error in audit plugin 'webhook' affecting {} audit events", lines.len());
        }
        sent.is_ok()
    }
}

/// The lines as an `EventList`.
fn list(lines: &[Bytes]) -> Bytes {
    let mut body = br#"{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":["#.to_vec();
    for (at, line) in lines.iter().enumerate() {
        if at > 0 {
            body.push(b',');
        }
        body.extend_from_slice(line.trim_ascii_end());
    }
    body.extend_from_slice(b"]}");
    Bytes::from(body)
}

/// Lines in their order, in parts of so many bytes; one that is larger alone is a part of its own.
fn batches(lines: &[Bytes], most: usize) -> Vec<&[Bytes]> {
    let (mut parts, mut start, mut size) = (Vec::new(), 0, 0);
    for (at, line) in lines.iter().enumerate() {
        if at > start && size + line.len() > most {
            parts.push(&lines[start..at]);
            (start, size) = (at, 0);
        }
        size += line.len();
    }
    parts.push(&lines[start..]);
    parts
}

/// How batches are put together and sent.
struct Sending {
    size: usize,
    patience: Duration,
    throttle: Option<Throttle>,
}

impl Sending {
    async fn run(self, to: Arc<Receiver>, mut entries: mpsc::Receiver<Entry>, errors: Arc<AtomicU64>) {
        let Self { size, patience, throttle } = self;
        // When the next batch would be due if none were ever early.
        let mut due = tokio::time::Instant::now();
        while let Some(first) = entries.recv().await {
            let mut lines = Vec::new();
            let mut flush = None;
            let mut take = |entry| match entry {
                Entry::Line(line) => lines.push(line),
                Entry::Flush(done) => flush = Some(done),
            };
            let mut taken = 1;
            let mut ends = matches!(first, Entry::Flush(_));
            take(first);
            // The batch begins with its first event: a server with nothing to tell does not wake up.
            let deadline = tokio::time::Instant::now() + patience;
            while taken < size && !ends {
                match tokio::time::timeout_at(deadline, entries.recv()).await {
                    Ok(Some(entry)) => {
                        ends = matches!(entry, Entry::Flush(_));
                        take(entry);
                        taken += 1;
                    }
                    Ok(None) | Err(_) => break,
                }
            }
            if let Some(Throttle { every, burst }) = throttle.filter(|_| !lines.is_empty()) {
                let now = tokio::time::Instant::now();
                due = due.max(now.checked_sub(every * burst.saturating_sub(1)).unwrap_or(now));
                tokio::time::sleep_until(due).await;
                due += every;
            }
            to.send(&lines, &errors).await;
            if let Some(done) = flush {
                // Whoever stopped waiting does not need the result.
                let _ = done.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_cut_by_their_size() {
        let lines: Vec<Bytes> =
            ["aaaa", "bb", "cc", "dddddd", "e"].iter().map(|line| Bytes::from_static(line.as_bytes())).collect();
        let sizes = |most| batches(&lines, most).iter().map(|part| part.len()).collect::<Vec<_>>();
        assert_eq!(sizes(100), [5]);
        assert_eq!(sizes(6), [2, 1, 1, 1]);
        assert_eq!(sizes(1), [1, 1, 1, 1, 1]);
        assert_eq!(batches(&[], 1).concat().len(), 0);
    }

    #[test]
    fn lines_become_a_list() {
        let body = list(&[Bytes::from_static(b"{\"a\":1}\n"), Bytes::from_static(b"{}\n")]);
        let tree: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!((&tree["kind"], tree["items"].as_array().map(Vec::len)), (&"EventList".into(), Some(2)));
    }
}
