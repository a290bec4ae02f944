//! Programs that we keep running and that outlive us: each in a session of its own, found again by its pid file, started again when it ends.

use std::fmt::Display;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::private;
use crate::process::{Process, backoff, spawn_detached};

/// How long one may take to end when asked to.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
/// Its log is set aside at a start when it is larger than this.
const LOG: u64 = 16 << 20;
/// One that ran for so long did not fail at its start.
const STEADY: Duration = Duration::from_secs(60);

/// A program under supervision. Dropped, it runs on, for the next start to adopt.
#[derive(Debug)]
pub(crate) struct Daemon {
    pid_file: PathBuf,
    running: watch::Receiver<u32>,
    supervisor: JoinHandle<()>,
}

impl Daemon {
    /// Keeps a program running that runs now. `launch` starts it anew.
    pub(crate) fn keep<E: Display + Send + 'static>(
        name: &'static str,
        pid_file: PathBuf,
        process: Process,
        launch: impl Fn() -> BoxFuture<'static, Result<Process, E>> + Send + Sync + 'static,
    ) -> Self {
        let (sender, running) = watch::channel(process.pid());
        let supervisor = tokio::spawn(supervise(name, process, launch, sender));
        Self { pid_file, running, supervisor }
    }

    /// The id of the process; zero while there is none. Changes when it was started again.
    pub(crate) fn running(&self) -> watch::Receiver<u32> {
        self.running.clone()
    }

    /// Stops supervising, and stops it.
    pub(crate) async fn stop(self) -> std::io::Result<()> {
        self.supervisor.abort();
        if let Some(process) = Process::from_pid_file(&self.pid_file) {
            process.stop(GRACE).await?;
        }
        let _ = std::fs::remove_file(&self.pid_file);
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

/// Keeps one running until the task is aborted.
async fn supervise<E: Display>(
    name: &'static str,
    mut process: Process,
    launch: impl Fn() -> BoxFuture<'static, Result<Process, E>>,
    running: watch::Sender<u32>,
) {
    let mut failures = 0;
    loop {
        let since = Instant::now();
        if let Err(error) = process.ended().await {
            tracing::error!(%error, "lost sight of {name}");
        }
        running.send_replace(0);
        failures = if since.elapsed() > STEADY { 0 } else { failures + 1 };
        tracing::warn!(failures, "{name} ended; starting it again");
        process = loop {
            tokio::time::sleep(backoff(failures)).await;
            match launch().await {
                Ok(process) => break process,
                Err(error) => {
                    failures += 1;
                    tracing::error!(%error, failures, "{name} does not start");
                }
            }
        };
        running.send_replace(process.pid());
    }
}

/// Its log, to be written to from now on; one that has become large is put in the place of the one before.
pub(crate) fn open_log(path: &Path, before: &Path) -> std::io::Result<File> {
    if std::fs::metadata(path).is_ok_and(|log| log.len() > LOG) {
        std::fs::rename(path, before)?;
    }
    private::append(path)
}

/// Starts it, with nothing to read and all that it says in its log.
pub(crate) fn spawn(command: &mut Command, log: File) -> std::io::Result<Process> {
    let errors = log.try_clone()?;
    let mut child = spawn_detached(command.stdin(Stdio::null()).stdout(log).stderr(errors))?;
    let pid = child.id().expect("a child that nobody waited for has its id");
    let process = Process::open(pid)?;
    // Reaps it when it ends while we live; its end itself is seen through the pidfd.
    tokio::spawn(async move { child.wait().await });
    Ok(process)
}
