//! The kubelet's loops that belong to no pod: each is kept running, whatever happens in it, and all end with the kubelet.

use std::sync::Arc;

use informer::{Clock, guard};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The loops that run.
pub(crate) struct Tasks {
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    running: JoinSet<()>,
}

impl Tasks {
    pub(crate) fn new(clock: Arc<dyn Clock>, stop: CancellationToken) -> Self {
        Self { clock, stop, running: JoinSet::new() }
    }

    /// Runs a part until it ends or is stopped.
    pub(crate) fn spawn<T, F>(
        &mut self,
        name: &'static str,
        part: Arc<T>,
        run: impl Fn(Arc<T>, CancellationToken) -> F + Send + 'static,
    ) where
        T: Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.clone();
        self.keep(name, move || run(part.clone(), stop.clone()));
    }

    /// Runs a loop to its end; a panic is counted under this name, and then it begins again.
    pub(crate) fn keep<F>(&mut self, name: &'static str, begin: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let clock = self.clock.clone();
        self.running.spawn(async move { guard::restarted(name, &*clock, begin).await });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_loop_that_panics_goes_on_and_is_counted() {
        let mut tasks = Tasks::new(informer::clock::Real::shared(), CancellationToken::new());
        let (sender, mut turns) = tokio::sync::mpsc::unbounded_channel();
        let panicked = AtomicBool::new(false);
        tasks.keep("a test of tasks", move || {
            let (sender, first) = (sender.clone(), !panicked.swap(true, Ordering::Relaxed));
            async move {
                if first {
                    panic!("on purpose");
                }
                sender.send(()).unwrap();
                std::future::pending().await
            }
        });
        turns.recv().await.expect("the loop began again");
        let mut text = String::new();
        informer::metrics::write(&mut text);
        assert!(text.contains("trireme_panics_total{in=\"a test of tasks\"} 1"), "{text}");
    }
}
