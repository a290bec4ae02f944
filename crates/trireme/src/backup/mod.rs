//! `trireme backup`: everything that a cluster's control plane cannot be made again from, kept aside while it runs.
//!
//! A backup is a directory. It holds the state of the store as of one revision and, because objects without them are of no use to the
//! cluster's nodes, the authorities, the key that signs tokens and the join token:
//!
//! ```text
//! DIR/backups/manual-20270131T120000Z-5120/   0700
//!   backup.json    what it is; written last, so a directory without it is none
//!   store          every object, checksummed (see store::admin)
//!   pki/ token     as in the data directory
//! ```
//! It holds secrets in the form that the store has them: sealed where encryption at rest is on, and then only with the keys of that
//! configuration, which are not in it.

mod keeper;
mod restore;
mod schedule;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use rules::cron::Schedule;
use serde::{Deserialize, Serialize};

use crate::component::Failure;
use crate::standalone::connect;

pub use keeper::Keeper;
pub use schedule::run as keep;

const DESCRIPTION: &str = "backup.json";
const STORE: &str = "store";
/// What lies in a data directory besides the store and has to be kept.
const KEYS: [&str; 2] = ["pki", "token"];

/// Why there is no backup, or none to restore.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{0}")]
    Store(#[from] store::Error),
    #[error("{} is no backup: it has no readable {DESCRIPTION}", .0.display())]
    NoBackup(PathBuf),
    #[error("{} is there already and differs: restore into a new data directory", .0.display())]
    InTheWay(PathBuf),
}

impl Error {
    fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::File { path: path.to_owned(), source }
    }
}

/// What a backup is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backup {
    pub name: String,
    pub created: jiff::Timestamp,
    /// The revision of which it holds the state.
    pub revision: u64,
    pub objects: u64,
    /// Bytes of the store's file.
    pub size: u64,
}

/// Backups that a server makes by itself.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Options {
    /// When to back up the embedded store, as a cron schedule: "0 */6 * * *", "@daily" [default: only on request].
    #[arg(long, value_name = "SCHEDULE", value_parser = Schedule::parse)]
    pub backup_schedule: Option<Schedule>,
    /// How many backups of the schedule are kept; those made on request all are.
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    pub backup_keep: u16,
    /// Where backups are written [default: `backups` in the data directory].
    #[arg(long, value_name = "DIR")]
    pub backup_dir: Option<PathBuf>,
}

impl Options {
    pub fn directory(&self, data_dir: &Path) -> PathBuf {
        directory(self.backup_dir.as_deref(), data_dir)
    }
}

fn directory(given: Option<&Path>, data_dir: &Path) -> PathBuf {
    given.map_or_else(|| data_dir.join("backups"), Path::to_owned)
}

/// What to do with backups.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a backup of a running server.
    ///
    /// The server goes on meanwhile. What is written is the state of one revision, with the cluster's authorities and keys.
    Create {
        /// The server's data directory.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Show the backups that there are, oldest first. The server need not run.
    List {
        /// The server's data directory.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
        /// Where backups are, if not in the data directory.
        #[arg(long, value_name = "DIR")]
        backup_dir: Option<PathBuf>,
    },
    /// Make a new data directory from a backup.
    ///
    /// All of the backup is verified before anything is written. A server started on the new directory is the old one as of that
    /// revision: nodes, users and tokens know it. Nodes that look for it at its old address find it there only.
    Restore {
        /// The new server's data directory.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
        /// The backup's directory.
        backup: PathBuf,
    },
}

pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Create { data_dir } => {
            let client = connect(&data_dir.join("admin.kubeconfig"))?;
            let made = client.post::<_, Backup>(apiserver::backups::PATH, &serde_json::json!({})).await;
            let backup = made.map_err(|error| {
                format!("{error}; a store whose server is stopped is backed up with `trireme store backup`")
            })?;
            println!("{}", line(&backup));
        }
        Command::List { data_dir, backup_dir } => {
            for backup in keeper::list(&directory(backup_dir.as_deref(), &data_dir))? {
                println!("{}", line(&backup));
            }
        }
        Command::Restore { data_dir, backup } => {
            let restored = restore::restore(&backup, &data_dir)?;
            println!("{}", line(&restored));
        }
    }
    Ok(())
}

fn line(backup: &Backup) -> String {
    let Backup { name, created, revision, objects, size } = backup;
    format!("{name}  {}  revision {revision}, {objects} objects, {size} bytes", created.strftime("%Y-%m-%dT%H:%M:%SZ"))
}
