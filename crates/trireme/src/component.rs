//! Keeps the parts of the control plane running beside the API server, each on its own.
//!
//! A part that fails or panics is reported and started again, ever more slowly while it keeps failing: all state is in the
//! API, so a part that starts again picks up where it was. Nothing it does can take the API server down.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use apiserver::components::Parts;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const FIRST_DELAY: Duration = Duration::from_millis(200);
const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// A part that ran for this long had started well.
const SETTLED: Duration = Duration::from_secs(60);

/// Why a part ended.
pub type Failure = Box<dyn Error + Send + Sync>;

#[derive(Default)]
pub struct Components {
    tasks: JoinSet<()>,
    stop: CancellationToken,
    /// Gets to know how they are.
    parts: Arc<Parts>,
}

impl Components {
    /// None yet. The API server gets to know how they are.
    pub fn reporting(parts: Arc<Parts>) -> Self {
        Self { parts, ..Self::default() }
    }

    /// Starts a part and keeps it running.
    pub fn start<F, R>(&mut self, name: &'static str, run: F)
    where
        F: Fn(CancellationToken) -> R + Send + 'static,
        R: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        tracing::debug!("starting {name}");
        self.tasks.spawn(keep(name, run, self.stop.clone(), self.parts.clone()));
    }

    /// Tells all parts to stop and waits until they have, for so long at most.
    pub async fn stop(mut self, patience: Duration) {
        self.stop.cancel();
        let all = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(patience, all).await.is_err() {
            tracing::warn!("some components did not stop in time and are cut off");
        }
    }
}

async fn keep<F, R>(name: &'static str, run: F, stop: CancellationToken, parts: Arc<Parts>)
where
    F: Fn(CancellationToken) -> R,
    R: Future<Output = Result<(), Failure>> + Send + 'static,
{
    let mut delay = FIRST_DELAY;
    loop {
        let started = tokio::time::Instant::now();
        parts.runs(name);
        // A task of its own: a panic in it ends here.
        let outcome = tokio::spawn(run(stop.clone())).await;
        if stop.is_cancelled() {
            return;
        }
        if started.elapsed() > SETTLED {
            delay = FIRST_DELAY;
        }
        let why = match outcome {
            Ok(Ok(())) => format!("{name} ended by itself"),
            Ok(Err(error)) => format!("{name} failed: {error}"),
            Err(_) => {
                informer::metrics::panicked(name, &"itself");
                format!("{name} panicked (see the log)")
            }
        };
        tracing::error!("{why}; starting it again in {delay:?}");
        parts.failed(name, why);
        tokio::select! {
            () = tokio::time::sleep(delay) => delay = (delay * 2).min(LONGEST_DELAY),
            () = stop.cancelled() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn a_part_that_panics_or_fails_is_started_again_until_it_is_stopped() {
        let runs = Arc::new(AtomicU32::new(0));
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        let mut components = Components::default();
        let counted = Arc::clone(&runs);
        components.start("part", move |stop| {
            let (run, sender) = (counted.fetch_add(1, Ordering::SeqCst), sender.clone());
            async move {
                match run {
                    0 => panic!("on purpose"),
                    1 => Err("on purpose".into()),
                    2 => Ok(()),
                    _ => {
                        sender.send(()).await?;
                        stop.cancelled().await;
                        Ok(())
                    }
                }
            }
        });
        receiver.recv().await.expect("the fourth run");
        components.stop(Duration::from_secs(1)).await;
        assert_eq!(runs.load(Ordering::SeqCst), 4);
    }
}
