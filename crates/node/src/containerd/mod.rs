//! Our own containerd: found, configured, started, adopted, watched and restarted.
//!
//! It runs in a session of its own and so outlives Trireme; the next start adopts it. Its shims in turn outlive it, so
//! no restart of either touches a container. The host's own containerd, if there is one, is left alone: root, state,
//! socket and namespace of processes are ours.
//!
//! States of the supervisor:
//! ```text
//! Absent ──start──► Starting ──answers──► Ready ──dies──► Absent (after a back-off that grows with failures)
//!    └──found by pid file and answering──► Ready
//! ```

mod config;
mod images;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use config::Config;
pub use images::{Import, ImportError};

use crate::cri::{self, Runtime};
use crate::private;
use crate::process::{Process, backoff, spawn_detached};

/// How long containerd may take from its start to its first answer.
const READY: Duration = Duration::from_secs(60);
/// How long it may take to end when asked to.
const GRACE: Duration = Duration::from_secs(10);
/// What of its state no container's process has to go through.
const PRIVATE_STATE: [&str; 2] = ["io.containerd.grpc.v1.cri", "io.containerd.sandbox.controller.v1.shim"];
/// Its log is set aside at a start when it is larger than this.
const LOG: u64 = 16 << 20;

/// Why there is no containerd.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A directory or file of it cannot be made.
    #[error("prepare {path}: {source}", path = path.display())]
    Prepare {
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It cannot be started.
    #[error("start containerd: {0}")]
    Start(#[source] std::io::Error),
    /// It ended before it answered.
    #[error("containerd ended while starting; its log is {log}", log = .0.display())]
    Died(PathBuf),
    /// It runs but does not answer.
    #[error("containerd does not answer on {socket}: {source}", socket = socket.display())]
    Silent { socket: PathBuf, source: cri::Error },
}

/// A containerd under supervision.
#[derive(Debug)]
pub struct Containerd {
    config: Config,
    client: cri::Client,
    /// The id of the process that serves now; zero while there is none.
    serving: watch::Receiver<u32>,
    supervisor: JoinHandle<()>,
}

impl Containerd {
    /// Makes sure that a containerd with this configuration runs and answers, and keeps it running from then on.
    pub async fn start(config: Config) -> Result<Self, Error> {
        let prepare = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Prepare { path, source }
        };
        // Mounted file systems of containers are below `state`; everything else is nobody's business. Older versions of
        // containerd leave more open than need be (CVE-2024-25621), but take directories as they find them.
        for dir in [config.dir.clone(), config.state()] {
            private::passage(&dir).map_err(prepare(&dir))?;
        }
        let state = PRIVATE_STATE.map(|plugin| config.state().join(plugin));
        for dir in [config.cni_conf_dir.clone(), config.registry_dir.clone(), config.root()].into_iter().chain(state) {
            private::directory(&dir).map_err(prepare(&dir))?;
        }
        for path in [config.file(), config.log_file(), config.old_log_file(), config.pid_file(), config.imported_dir()]
        {
            private::close(&path).map_err(prepare(&path))?;
        }
        let client = cri::Client::new(&config.socket().to_string_lossy())
            .map_err(|source| Error::Silent { socket: config.socket(), source })?;
        let process = match adopt(&config, &client).await? {
            Some(process) => process,
            None => launch(&config, &client).await?,
        };
        let (sender, serving) = watch::channel(process.pid());
        let supervisor = tokio::spawn(supervise(config.clone(), client.clone(), process, sender));
        Ok(Self { config, client, serving, supervisor })
    }

    /// A client of it. It stays valid over restarts.
    pub fn client(&self) -> cri::Client {
        self.client.clone()
    }

    /// What it was started with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The id of the serving process; zero while there is none. Changes when it was restarted.
    pub fn serving(&self) -> watch::Receiver<u32> {
        self.serving.clone()
    }

    /// Stops supervising and leaves containerd running, for the next start to adopt.
    pub fn release(self) {}

    /// Stops supervising and stops containerd. Containers keep running under their shims.
    pub async fn stop(self) -> std::io::Result<()> {
        self.supervisor.abort();
        if let Some(process) = Process::from_pid_file(&self.config.pid_file()) {
            process.stop(GRACE).await?;
        }
        let _ = std::fs::remove_file(self.config.pid_file());
        Ok(())
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

/// Keeps one serving until the task is aborted.
async fn supervise(config: Config, client: cri::Client, mut process: Process, serving: watch::Sender<u32>) {
    let mut failures = 0;
    loop {
        let since = Instant::now();
        if let Err(e) = process.ended().await {
            tracing::error!(error = %e, "lost sight of containerd");
        }
        serving.send_replace(0);
        failures = if since.elapsed() > Duration::from_secs(60) { 0 } else { failures + 1 };
        tracing::warn!(failures, "containerd ended; starting it again");
        process = loop {
            tokio::time::sleep(backoff(failures)).await;
            match launch(&config, &client).await {
                Ok(process) => break process,
                Err(e) => {
                    failures += 1;
                    tracing::error!(error = %e, failures, "containerd does not start");
                }
            }
        };
        serving.send_replace(process.pid());
    }
}

/// A containerd of an earlier start, if it runs with this very configuration and answers. One that does not is stopped.
async fn adopt(config: &Config, client: &cri::Client) -> Result<Option<Process>, Error> {
    Process::until_gone(&config.pid_file(), GRACE).await.map_err(Error::Start)?;
    let Some(process) = Process::from_pid_file(&config.pid_file()) else { return Ok(None) };
    let unchanged = std::fs::read_to_string(config.file()).is_ok_and(|text| text == config.toml());
    if unchanged {
        match ready(config, client, &process).await {
            Ok(()) => {
                tracing::info!(pid = process.pid(), "adopted running containerd");
                return Ok(Some(process));
            }
            Err(e) => tracing::warn!(error = %e, "containerd of an earlier start is of no use"),
        }
    }
    process.stop(GRACE).await.map_err(Error::Start)?;
    Ok(None)
}

/// Starts one and waits until it answers.
async fn launch(config: &Config, client: &cri::Client) -> Result<Process, Error> {
    let prepare = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Prepare { path, source }
    };
    private::write(&config.file(), config.toml()).map_err(prepare(&config.file()))?;
    let log_path = config.log_file();
    if std::fs::metadata(&log_path).is_ok_and(|m| m.len() > LOG) {
        std::fs::rename(&log_path, config.old_log_file()).map_err(prepare(&log_path))?;
    }
    let log = private::append(&log_path).map_err(prepare(&log_path))?;
    let errors = log.try_clone().map_err(Error::Start)?;
    let mut command = Command::new("containerd");
    command.arg("--config").arg(config.file()).stdin(Stdio::null()).stdout(log).stderr(errors);
    let mut child = spawn_detached(&mut command).map_err(Error::Start)?;
    let pid = child.id().expect("a child that nobody waited for has its id");
    let process = Process::open(pid).map_err(Error::Start)?;
    process.write_pid_file(&config.pid_file()).map_err(prepare(&config.pid_file()))?;
    // Reaps it when it ends while we live; its end itself is seen through the pidfd.
    tokio::spawn(async move { child.wait().await });
    ready(config, client, &process).await?;
    tracing::info!(pid, socket = %config.socket().display(), "containerd is ready");
    Ok(process)
}

/// Waits until it answers, or has ended, or the time is over.
async fn ready(config: &Config, client: &cri::Client, process: &Process) -> Result<(), Error> {
    let mut pause = Duration::from_millis(5);
    let deadline = Instant::now() + READY;
    loop {
        // Status and not Version: the CRI plugin answers it only when it has recovered what ran before.
        let source = match client.status().await {
            Ok(_) => return Ok(()),
            Err(e) => e,
        };
        if Instant::now() > deadline {
            return Err(Error::Silent { socket: config.socket(), source });
        }
        tokio::select! {
            _ = process.ended() => return Err(Error::Died(config.log_file())),
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_millis(100)),
        }
    }
}

/// `overlayfs` where the kernel can mount it over `dir`, else `native`.
pub fn snapshotter(dir: &Path) -> &'static str {
    match crate::mounts::overlay_works(dir) {
        Ok(()) => "overlayfs",
        Err(e) => {
            tracing::warn!(error = %e, "no overlay mounts here; using the native snapshotter");
            "native"
        }
    }
}
