//! Our own etcd: started, adopted, watched and started again. What it is told is the caller's business; that it runs is this module's.
//!
//! It runs in a session of its own, so that a server which is killed takes no member of etcd with it; the next start adopts it. A server that is
//! stopped stops it, too.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::private;
use crate::process::{Process, backoff, spawn_detached};

/// How long it may take to end when asked to.
const GRACE: Duration = Duration::from_secs(10);
/// Its log is set aside at a start when it is larger than this.
const LOG: u64 = 16 << 20;

/// Why there is no etcd.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory or file of it cannot be made.
    #[error("prepare {}: {source}", path.display())]
    Prepare {
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It cannot be started.
    #[error("cannot start {}: {source} (Debian: etcd-server; another one by --etcd-binary)", program.display())]
    Start {
        program: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// A name that is looked for in the path, or where it is.
    pub program: PathBuf,
    /// Where its pid file, its log and its data are.
    pub directory: PathBuf,
    pub arguments: Vec<String>,
}

impl Config {
    pub fn log_file(&self) -> PathBuf {
        self.directory.join("log")
    }

    /// Whether one runs, whatever it was told.
    pub fn is_running(&self) -> bool {
        Process::from_pid_file(&self.pid_file()).is_some()
    }

    fn pid_file(&self) -> PathBuf {
        self.directory.join("pid")
    }

    /// What the one that runs was told.
    fn told_file(&self) -> PathBuf {
        self.directory.join("arguments")
    }

    fn told(&self) -> String {
        let words = [self.program.to_string_lossy().into_owned()].into_iter().chain(self.arguments.iter().cloned());
        words.map(|word| word + "\n").collect()
    }
}

/// An etcd under supervision.
#[derive(Debug)]
pub struct Etcd {
    config: Config,
    supervisor: JoinHandle<()>,
}

impl Etcd {
    /// Makes sure that an etcd runs that was told just this, and keeps it running from then on. Whether it answers is for its clients to see.
    pub async fn start(config: Config) -> Result<Self, Error> {
        private::directory(&config.directory).map_err(prepare(&config.directory))?;
        let process = match adopt(&config).await? {
            Some(process) => process,
            None => launch(&config)?,
        };
        let supervisor = tokio::spawn(supervise(config.clone(), process));
        Ok(Self { config, supervisor })
    }

    /// Stops supervising, and stops it.
    pub async fn stop(self) -> std::io::Result<()> {
        self.supervisor.abort();
        if let Some(process) = Process::from_pid_file(&self.config.pid_file()) {
            process.stop(GRACE).await?;
        }
        let _ = std::fs::remove_file(self.config.pid_file());
        Ok(())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

fn prepare(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Prepare { path, source }
}

/// One of an earlier start, if it was told the same. Another one is stopped.
async fn adopt(config: &Config) -> Result<Option<Process>, Error> {
    let Some(process) = Process::from_pid_file(&config.pid_file()) else { return Ok(None) };
    if std::fs::read_to_string(config.told_file()).is_ok_and(|told| told == config.told()) {
        tracing::info!(pid = process.pid(), "adopted running etcd");
        return Ok(Some(process));
    }
    let program = config.program.clone();
    process.stop(GRACE).await.map_err(|source| Error::Start { program, source })?;
    Ok(None)
}

fn launch(config: &Config) -> Result<Process, Error> {
    let failed = |source| Error::Start { program: config.program.clone(), source };
    private::write(&config.told_file(), config.told()).map_err(prepare(&config.told_file()))?;
    let path = config.log_file();
    if std::fs::metadata(&path).is_ok_and(|log| log.len() > LOG) {
        std::fs::rename(&path, config.directory.join("log.old")).map_err(prepare(&path))?;
    }
    let log = private::append(&path).map_err(prepare(&path))?;
    let errors = log.try_clone().map_err(prepare(&path))?;
    let mut command = Command::new(&config.program);
    command.args(&config.arguments).stdin(Stdio::null()).stdout(log).stderr(errors);
    // Settings come by its arguments alone.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD_")) {
        command.env_remove(name);
    }
    let mut child = spawn_detached(&mut command).map_err(failed)?;
    let pid = child.id().expect("a child that nobody waited for has its id");
    let process = Process::open(pid).map_err(failed)?;
    process.write_pid_file(&config.pid_file()).map_err(prepare(&config.pid_file()))?;
    // Reaps it when it ends while we live; its end itself is seen through the pidfd.
    tokio::spawn(async move { child.wait().await });
    tracing::info!(pid, "etcd started; its log is {}", path.display());
    Ok(process)
}

/// Keeps one running until the task is aborted.
async fn supervise(config: Config, mut process: Process) {
    let mut failures = 0;
    loop {
        let since = Instant::now();
        if let Err(error) = process.ended().await {
            tracing::error!(%error, "lost sight of etcd");
        }
        failures = if since.elapsed() > Duration::from_secs(60) { 0 } else { failures + 1 };
        tracing::warn!(failures, "etcd ended; starting it again (its log is {})", config.log_file().display());
        process = loop {
            tokio::time::sleep(backoff(failures)).await;
            match launch(&config) {
                Ok(process) => break process,
                Err(error) => {
                    failures += 1;
                    tracing::error!(%error, failures, "etcd does not start");
                }
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(directory: &Path, seconds: &str) -> Config {
        Config { program: "sleep".into(), directory: directory.to_owned(), arguments: vec![seconds.to_owned()] }
    }

    fn pid(config: &Config) -> Option<u32> {
        Process::from_pid_file(&config.pid_file()).map(|process| process.pid())
    }

    #[tokio::test]
    async fn it_is_adopted_if_it_was_told_the_same_started_again_when_it_ends_and_stopped() {
        let directory = tempfile::tempdir().expect("a directory");
        let config = config(directory.path(), "600");
        let first = Etcd::start(config.clone()).await.expect("it starts");
        let running = pid(&config).expect("it runs");
        drop(first);
        let adopted = Etcd::start(config.clone()).await.expect("it is adopted");
        assert_eq!(pid(&config), Some(running));
        Process::from_pid_file(&config.pid_file()).expect("it runs").stop(GRACE).await.expect("killed by somebody");
        while pid(&config).is_none_or(|id| id == running) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(adopted);
        let running = pid(&config).expect("it runs");
        let other = Config { arguments: vec!["601".to_owned()], ..config.clone() };
        let told = Etcd::start(other).await.expect("it starts");
        assert_ne!(pid(&config), Some(running), "it was told something else");
        told.stop().await.expect("stopped");
        assert_eq!(pid(&config), None);
    }

    #[tokio::test]
    async fn a_program_that_is_not_there_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let config = Config { program: "/nowhere/etcd".into(), ..config(directory.path(), "1") };
        let error = Etcd::start(config).await.expect_err("there is none");
        assert!(error.to_string().starts_with("cannot start /nowhere/etcd: "), "{error}");
    }
}
