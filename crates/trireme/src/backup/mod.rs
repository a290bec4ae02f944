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
//! With `--to s3://BUCKET/PREFIX` it is moved there when it is whole: the same files below `PREFIX/NAME/`, the description last here, too.
//!
//! It holds secrets in the form that the store has them: sealed where encryption at rest is on, and then only with the keys of that
//! configuration, which are not in it.

mod keeper;
mod remote;
mod restore;
mod schedule;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use rules::cron::Schedule;
use serde::{Deserialize, Serialize};

use crate::component::Failure;
use crate::standalone::connect;

pub use keeper::Keeper;
pub use remote::Destination;
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
    #[error("{0}")]
    Remote(#[from] s3::Error),
    #[error("{0} has a file {1:?}, which is no name for one")]
    Name(s3::Address, String),
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
    /// Move backups of the schedule to a bucket when they are made, and keep so many of them there: s3://BUCKET/PREFIX.
    #[arg(long, value_name = "ADDRESS", requires = "backup_schedule")]
    pub backup_to: Option<s3::Address>,
    #[command(flatten)]
    pub s3: Access,
}

/// How a bucket is reached. Secrets are in the environment or in a file, never on the command line.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct Access {
    /// Who keeps the bucket, if not AWS: https://HOST:PORT [default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL].
    #[arg(long, value_name = "URL")]
    pub s3_endpoint: Option<String>,
    /// The region that requests are signed for [default: AWS_REGION, AWS_DEFAULT_REGION, us-east-1].
    #[arg(long, value_name = "REGION")]
    pub s3_region: Option<String>,
    /// A file of the form of `~/.aws/credentials` [default: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or that file].
    #[arg(long, value_name = "FILE")]
    pub s3_credentials: Option<PathBuf>,
    /// Authorities that the endpoint's certificate is checked against [default: AWS_CA_BUNDLE, those of the system].
    #[arg(long, value_name = "FILE")]
    pub s3_ca_file: Option<PathBuf>,
}

impl Access {
    /// The bucket of an address, with the credentials that are found.
    pub fn bucket(&self, address: &s3::Address) -> Result<s3::Bucket, s3::Error> {
        let settings = s3::Settings::find(&self.given(), |name| std::env::var(name).ok())?;
        Ok(s3::Bucket::new(settings, &address.bucket))
    }

    fn given(&self) -> s3::Given {
        let Self { s3_endpoint, s3_region, s3_credentials, s3_ca_file } = self.clone();
        s3::Given { endpoint: s3_endpoint, region: s3_region, credentials: s3_credentials, authorities: s3_ca_file }
    }
}

impl Options {
    /// Where backups of the schedule go, if they do not stay here.
    pub fn destination(&self) -> Option<Destination> {
        Some(Destination { address: self.backup_to.clone()?, given: self.s3.given() })
    }

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
        /// Where the server writes backups, if not in the data directory.
        #[arg(long, value_name = "DIR")]
        backup_dir: Option<PathBuf>,
        /// Move it to a bucket when it is made: s3://BUCKET/PREFIX.
        #[arg(long, value_name = "ADDRESS")]
        to: Option<s3::Address>,
        #[command(flatten)]
        s3: Access,
    },
    /// Show the backups that there are, oldest first. The server need not run.
    List {
        /// The server's data directory.
        #[arg(long, value_name = "DIR", required_unless_present = "from")]
        data_dir: Option<PathBuf>,
        /// Where backups are, if not in the data directory.
        #[arg(long, value_name = "DIR")]
        backup_dir: Option<PathBuf>,
        /// Show those in a bucket: s3://BUCKET/PREFIX.
        #[arg(long, value_name = "ADDRESS", conflicts_with = "backup_dir")]
        from: Option<s3::Address>,
        #[command(flatten)]
        s3: Access,
    },
    /// Make a new data directory from a backup.
    ///
    /// All of the backup is verified before anything is written. A server started on the new directory is the old one as of that
    /// revision: nodes, users and tokens know it. Nodes that look for it at its old address find it there only.
    Restore {
        /// The new server's data directory.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
        /// The backup's directory, or s3://BUCKET/PREFIX/NAME.
        backup: PathBuf,
        #[command(flatten)]
        s3: Access,
    },
}

pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Create { data_dir, backup_dir, to, s3 } => {
            let to = to.map(|address| Destination { address, given: s3.given() });
            // What is wrong with it is said before anything is made.
            let remote = to.as_ref().map(Destination::open).transpose()?;
            let client = connect(&data_dir.join("admin.kubeconfig"))?;
            let made = client.post::<_, Backup>(apiserver::backups::PATH, &serde_json::json!({})).await;
            let backup = made.map_err(|error| {
                format!("{error}; a store whose server is stopped is backed up with `trireme store backup`")
            })?;
            if let Some(remote) = remote {
                let here = directory(backup_dir.as_deref(), &data_dir).join(&backup.name);
                let moved = remote.take(&here, &backup.name).await;
                moved.map_err(|error| format!("{error}; the backup is in {}", here.display()))?;
            }
            println!("{}", line(&backup));
        }
        Command::List { data_dir, backup_dir, from, s3 } => {
            let found = match (from, data_dir) {
                (Some(address), _) => Destination { address, given: s3.given() }.open()?.list().await?,
                (None, Some(data_dir)) => keeper::list(&directory(backup_dir.as_deref(), &data_dir))?,
                (None, None) => Vec::new(),
            };
            for backup in found {
                println!("{}", line(&backup));
            }
        }
        Command::Restore { data_dir, backup, s3 } => {
            let text = backup.to_string_lossy();
            let restored = if s3::Address::is_meant(&text) {
                let address: s3::Address = text.parse()?;
                remote::restore(&address, s3.given(), &data_dir).await?
            } else {
                restore::restore(&backup, &data_dir)?
            };
            println!("{}", line(&restored));
        }
    }
    Ok(())
}

fn line(backup: &Backup) -> String {
    let Backup { name, created, revision, objects, size } = backup;
    format!("{name}  {}  revision {revision}, {objects} objects, {size} bytes", created.strftime("%Y-%m-%dT%H:%M:%SZ"))
}
