//! Our own etcd: started, adopted, watched and started again. Its arguments are the caller's business; that it runs is this module's.
//!
//! It runs in a session of its own, so that a server which is killed takes no member of etcd with it; the next start adopts it. A server that is
//! stopped stops it, too.

use std::path::{Path, PathBuf};

use futures::FutureExt as _;
use tokio::process::Command;

use crate::daemon::{self, Daemon, GRACE};
use crate::private;
use crate::process::Process;

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

    /// Whether one runs, whatever its arguments are.
    pub fn is_running(&self) -> bool {
        Process::from_pid_file(&self.pid_file()).is_some()
    }

    fn pid_file(&self) -> PathBuf {
        self.directory.join("pid")
    }

    /// The command line of the one that runs.
    fn arguments_file(&self) -> PathBuf {
        self.directory.join("arguments")
    }

    fn command_line(&self) -> String {
        let words = [self.program.to_string_lossy().into_owned()].into_iter().chain(self.arguments.iter().cloned());
        words.map(|word| word + "\n").collect()
    }
}

/// An etcd under supervision.
#[derive(Debug)]
pub struct Etcd(Daemon);

impl Etcd {
    /// Makes sure that an etcd runs with just these arguments, and keeps it running from then on. Whether it answers is for its clients to see.
    pub async fn start(config: Config) -> Result<Self, Error> {
        private::directory(&config.directory).map_err(prepare(&config.directory))?;
        let process = match adopt(&config).await? {
            Some(process) => process,
            None => launch(&config)?,
        };
        let pid_file = config.pid_file();
        let relaunch = move || std::future::ready(launch(&config)).boxed();
        Ok(Self(Daemon::keep("etcd", pid_file, process, relaunch)))
    }

    /// Stops supervising, and stops it.
    pub async fn stop(self) -> std::io::Result<()> {
        self.0.stop().await
    }
}

fn prepare(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Prepare { path, source }
}

/// One of an earlier start, if its command line is the same. Another one is stopped.
async fn adopt(config: &Config) -> Result<Option<Process>, Error> {
    let Some(process) = Process::from_pid_file(&config.pid_file()) else { return Ok(None) };
    if std::fs::read_to_string(config.arguments_file()).is_ok_and(|before| before == config.command_line()) {
        tracing::info!(pid = process.pid(), "adopted running etcd");
        return Ok(Some(process));
    }
    let program = config.program.clone();
    process.stop(GRACE).await.map_err(|source| Error::Start { program, source })?;
    Ok(None)
}

fn launch(config: &Config) -> Result<Process, Error> {
    let failed = |source| Error::Start { program: config.program.clone(), source };
    private::write(&config.arguments_file(), config.command_line()).map_err(prepare(&config.arguments_file()))?;
    let path = config.log_file();
    let log = daemon::open_log(&path, &config.directory.join("log.old")).map_err(prepare(&path))?;
    let mut command = Command::new(&config.program);
    command.args(&config.arguments);
    // Settings come by its arguments alone.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ETCD_")) {
        command.env_remove(name);
    }
    let process = daemon::spawn(&mut command, log).map_err(failed)?;
    process.write_pid_file(&config.pid_file()).map_err(prepare(&config.pid_file()))?;
    tracing::info!(pid = process.pid(), "etcd started; its log is {}", path.display());
    Ok(process)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn config(directory: &Path, seconds: &str) -> Config {
        Config { program: "sleep".into(), directory: directory.to_owned(), arguments: vec![seconds.to_owned()] }
    }

    fn pid(config: &Config) -> Option<u32> {
        Process::from_pid_file(&config.pid_file()).map(|process| process.pid())
    }

    #[tokio::test]
    async fn it_is_adopted_if_its_arguments_are_the_same_started_again_when_it_ends_and_stopped() {
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
        let other = Etcd::start(other).await.expect("it starts");
        assert_ne!(pid(&config), Some(running), "its arguments are others");
        other.stop().await.expect("stopped");
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
