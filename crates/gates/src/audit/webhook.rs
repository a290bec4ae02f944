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
}

impl Webhook {
    /// Reads the kubeconfig and, in batch mode, starts the task that sends.
    pub fn open(settings: &Settings, errors: Arc<AtomicU64>) -> Result<Self, outbound::Error> {
        let retry = Retry { attempts: 5, pause: settings.backoff };
        let to = Arc::new(Receiver { remote: Remote::from_kubeconfig(&settings.kubeconfig)?, retry });
        let (queue, entries) = mpsc::channel(settings.buffer.max(1));
        if settings.mode == Mode::Batch {
            let (to, errors) = (Arc::clone(&to), Arc::clone(&errors));
            tokio::spawn(send_batches(to, entries, settings.batch.max(1), settings.wait, errors));
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
    async fn send(&self, lines: &[Bytes], errors: &AtomicU64) -> bool {
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

async fn send_batches(
    to: Arc<Receiver>,
    mut entries: mpsc::Receiver<Entry>,
    size: usize,
    patience: Duration,
    errors: Arc<AtomicU64>,
) {
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
        to.send(&lines, &errors).await;
        if let Some(done) = flush {
            // Whoever stopped waiting does not need the result.
            let _ = done.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_a_list() {
        let body = list(&[Bytes::from_static(b"{\"a\":1}\n"), Bytes::from_static(b"{}\n")]);
        let tree: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        assert_eq!((&tree["kind"], tree["items"].as_array().map(Vec::len)), (&"EventList".into(), Some(2)));
    }
}
