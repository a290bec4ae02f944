//! The machine: where its devices are, and its tools.

use std::path::{Path, PathBuf};
use std::time::Duration;

use node::run;

/// A tool that hangs is given up after this long.
const LIMIT: Duration = Duration::from_secs(120);
/// The most that is repeated of what a tool said.
const SAID: usize = 4096;

/// A machine.
#[derive(Debug, Clone)]
pub struct Host {
    /// `/dev`.
    pub dev: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// Where tools are looked for; in `PATH` if nowhere else.
    pub tools: Option<PathBuf>,
    /// How long a device may take to appear.
    pub patience: Duration,
}

impl Default for Host {
    fn default() -> Self {
        let (dev, sys) = (PathBuf::from("/dev"), PathBuf::from("/sys"));
        Self { dev, sys, tools: None, patience: Duration::from_secs(30) }
    }
}

/// Why a tool did not do what it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failed {
    /// In Go's words: `exit status 21`, or that there is no such program.
    pub(crate) why: String,
    pub(crate) said: String,
    pub(crate) code: Option<i32>,
}

impl Host {
    /// Runs a tool; what it wrote. Arguments may be secrets and are in no message.
    pub(crate) async fn run(&self, tool: &str, arguments: &[&str]) -> Result<String, Failed> {
        let program = self.tools.as_ref().map_or_else(|| PathBuf::from(tool), |dir| dir.join(tool));
        match run::output(&program.to_string_lossy(), arguments, b"", LIMIT).await {
            Ok(said) => Ok(String::from_utf8_lossy(&said).into_owned()),
            Err(run::Error::Failed { status, stderr, .. }) => {
                let why = status.code().map_or_else(|| status.to_string(), |code| format!("exit status {code}"));
                Err(Failed { why, said: stderr.chars().take(SAID).collect(), code: status.code() })
            }
            Err(run::Error::Start { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                let why = format!("exec: {tool:?}: executable file not found in $PATH");
                Err(Failed { why, said: String::new(), code: None })
            }
            Err(other) => Err(Failed { why: other.to_string(), said: String::new(), code: None }),
        }
    }

    /// `iscsiadm` about one record.
    pub(crate) async fn iscsiadm(&self, record: &[&str], what: &[&str]) -> Result<String, Failed> {
        self.run("iscsiadm", &[record, what].concat()).await
    }

    /// Waits until a path is there. Whoever makes it announces nothing.
    pub(crate) async fn appears(&self, path: &Path) -> bool {
        let begun = tokio::time::Instant::now();
        while !path.exists() {
            if begun.elapsed() >= self.patience {
                return false;
            }
            tokio::time::sleep(self.patience.min(Duration::from_millis(500))).await;
        }
        true
    }
}
