//! One side under measurement: a control plane of this build or of upstream, as processes whose time and memory are summed.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use testkit::Server;
use tokio::process::{Child, Command};

use super::upstream::Upstream;
use crate::{Failure, binary, process, start};

/// Whose control plane.
#[derive(Debug, Clone)]
pub enum Kind {
    Ours,
    /// By the programs in this directory.
    Upstream(PathBuf),
}

enum Life {
    // A server is large beside nothing, and there are two of them in a run.
    Ours(Box<Server>),
    Upstream(Upstream),
}

/// A running control plane.
pub struct Side {
    life: Life,
    kubeconfig: PathBuf,
}

impl Side {
    /// Starts it, with controllers, and with or without a scheduler, and waits until it is ready.
    pub async fn start(kind: &Kind, scheduler: bool) -> Result<Self, Failure> {
        match kind {
            Kind::Ours => {
                let arguments: &[&str] =
                    if scheduler { &["--disable-agent"] } else { &["--disable-agent", "--disable-scheduler"] };
                let server = Server::start(start(arguments)).await;
                Ok(Self { kubeconfig: server.kubeconfig(), life: Life::Ours(Box::new(server)) })
            }
            Kind::Upstream(programs) => {
                let upstream = Upstream::start(programs, scheduler).await?;
                Ok(Self { kubeconfig: upstream.kubeconfig(), life: Life::Upstream(upstream) })
            }
        }
    }

    pub fn is_ours(&self) -> bool {
        matches!(self.life, Life::Ours(_))
    }

    pub fn name(&self) -> &'static str {
        if self.is_ours() { "trireme" } else { "upstream" }
    }

    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A figure, summed over its processes.
    pub fn sum(&self, figure: fn(u32) -> Result<f64, Failure>) -> Result<f64, Failure> {
        let ids = match &self.life {
            Life::Ours(server) => vec![server.id().ok_or("the server is gone")?],
            Life::Upstream(upstream) => upstream.ids()?,
        };
        ids.into_iter().map(figure).sum()
    }

    pub fn cpu(&self) -> Result<f64, Failure> {
        self.sum(process::cpu_seconds)
    }

    /// Resident and private memory, in megabytes.
    pub fn memory(&self) -> Result<(f64, f64), Failure> {
        Ok((self.sum(process::resident_megabytes)?, self.sum(process::private_megabytes)?))
    }

    /// Hollow nodes, in a process of their own that ends when it is dropped.
    pub fn hollow_nodes(&self, count: usize) -> Result<Child, Failure> {
        let mut command = Command::new(binary());
        command
            .args(["hollow-node", "--count", &count.to_string(), "--kubeconfig"])
            .arg(&self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        Ok(command.spawn()?)
    }

    /// What its processes logged last, for whoever has to find out why it failed.
    pub fn last_words(&self) -> String {
        let text = match &self.life {
            Life::Ours(server) => server.log_text(),
            Life::Upstream(upstream) => upstream.logs(),
        };
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    pub async fn stop(&mut self) {
        match &mut self.life {
            Life::Ours(server) => drop(server.stop().await),
            Life::Upstream(upstream) => upstream.stop().await,
        }
    }
}
