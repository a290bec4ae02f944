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
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use tokio::process::Command;
use tokio::sync::watch;

pub use config::Config;
pub use images::{Import, ImportError};

use crate::cri::{self, Runtime};
use crate::daemon::{self, Daemon, GRACE};
use crate::private;
use crate::process::Process;

/// How long containerd may take from its start to its first answer.
const READY: Duration = Duration::from_secs(60);
/// What of its state no container's process has to go through.
const PRIVATE_STATE: [&str; 2] = ["io.containerd.grpc.v1.cri", "io.containerd.sandbox.controller.v1.shim"];

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
    daemon: Daemon,
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
        let of = (config.clone(), client.clone());
        let relaunch = move || {
            let (config, client) = of.clone();
            async move { launch(&config, &client).await }.boxed()
        };
        let daemon = Daemon::keep("containerd", config.pid_file(), process, relaunch);
        Ok(Self { config, client, daemon })
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
        self.daemon.running()
    }

    /// Stops supervising and leaves containerd running, for the next start to adopt.
    pub fn release(self) {}

    /// Stops supervising and stops containerd. Containers keep running under their shims.
    pub async fn stop(self) -> std::io::Result<()> {
        self.daemon.stop().await
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
    let log = daemon::open_log(&log_path, &config.old_log_file()).map_err(prepare(&log_path))?;
    let mut command = Command::new("containerd");
    let process = daemon::spawn(command.arg("--config").arg(config.file()), log).map_err(Error::Start)?;
    process.write_pid_file(&config.pid_file()).map_err(prepare(&config.pid_file()))?;
    ready(config, client, &process).await?;
    tracing::info!(pid = process.pid(), socket = %config.socket().display(), "containerd is ready");
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
