//! `trireme store`: what an operator does with a store that no server has open.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Subcommand;
use store::Store as _;

use crate::component::Failure;
use crate::servers::{Directory, Member, Record};

/// How long a member of etcd may take to answer.
const ANSWERS: Duration = Duration::from_secs(60);

/// Commands on the embedded store.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write everything in a store into one file.
    ///
    /// The file holds every object as of one revision, checksummed, and can be restored on any machine. Stop the server
    /// first: the store is opened read-only and must not be in use.
    Backup {
        /// The server's data directory.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
        /// The file to write; it must not exist.
        file: PathBuf,
    },
    /// Make a new store from a backup.
    ///
    /// The whole backup is verified before anything is written. The data directory must not have a store yet.
    Restore {
        /// The new server's data directory.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
        /// The backup to read.
        file: PathBuf,
    },
    /// Move everything from the store of one server into an etcd that several can share, or back.
    ///
    /// Stop the server first. Objects keep their revisions; clients that were watching go on if they had seen everything, and read everything again if not. The
    /// old store stays beside the new one, under another name, until you remove it.
    Move {
        /// The server's data directory.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
        /// Where to.
        #[arg(long, value_enum)]
        to: crate::cli::Engine,
        /// The address at which other servers will reach this one's etcd; needed to move there.
        #[arg(long, value_name = "ADDRESS", required_if_eq("to", "etcd"))]
        advertise_address: Option<IpAddr>,
        /// The etcd to start: a path, or a name to be looked for.
        #[arg(long, value_name = "PROGRAM", default_value = "etcd")]
        etcd_binary: PathBuf,
        /// Where that etcd answers API servers.
        #[arg(long, value_name = "PORT", default_value_t = 2379)]
        etcd_client_port: u16,
        /// Where it talks with its peers.
        #[arg(long, value_name = "PORT", default_value_t = 2380)]
        etcd_peer_port: u16,
    },
    /// Verify every checksum of a store, changing nothing.
    Check {
        /// The server's data directory.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
    },
}

/// Runs one command and says what it found.
pub async fn run(command: Command) -> Result<(), Failure> {
    let summary = match command {
        Command::Backup { data_dir, file } => store::admin::backup(&directory(&data_dir), &file)?,
        Command::Restore { data_dir, file } => store::admin::restore(&file, &directory(&data_dir))?,
        Command::Check { data_dir } => store::admin::check(&directory(&data_dir))?,
        Command::Move { data_dir, to, advertise_address, etcd_binary, etcd_client_port, etcd_peer_port } => match to {
            crate::cli::Engine::Embedded => to_embedded(&data_dir, &etcd_binary).await?,
            crate::cli::Engine::Etcd => {
                let address = advertise_address.ok_or("give --advertise-address")?;
                let member = Member::at(address, etcd_client_port, etcd_peer_port);
                to_etcd(&data_dir, member, &etcd_binary).await?
            }
        },
    };
    println!("{summary}");
    Ok(())
}

async fn to_etcd(data_dir: &Path, member: Member, program: &Path) -> Result<store::admin::Summary, Failure> {
    let (old, record) = (directory(data_dir), Record::read(data_dir)?);
    if record.is_some_and(|record| record.etcd.is_some()) {
        return Err(format!("the server in {} has an etcd already", data_dir.display()).into());
    }
    // Read first: a store that is damaged, or in use, is no reason to begin.
    store::admin::check(&old)?;
    let place = Directory::open(data_dir, &member)?;
    if place.path.exists() {
        return Err(format!("{} is in the way: remove it, or give it another name", place.path.display()).into());
    }
    let etcd = node::etcd::Etcd::start(place.program(program, &[])).await?;
    let moved = async {
        let store = reached(&place).await?;
        Ok::<_, Failure>(store::etcd::to_etcd(&old, &store).await?)
    };
    let moved = moved.await;
    etcd.stop().await?;
    if moved.is_err() {
        let _ = std::fs::remove_dir_all(&place.path);
    }
    let summary = moved?;
    set_aside(&old, summary.revision)?;
    Record { joined: None, settings: None, encryption: None, etcd: Some(member) }.write(data_dir)?;
    Ok(summary)
}

async fn to_embedded(data_dir: &Path, program: &Path) -> Result<store::admin::Summary, Failure> {
    let without = || Failure::from(format!("the server in {} looks after no etcd", data_dir.display()));
    let mut record = Record::read(data_dir)?.ok_or_else(without)?;
    let member = record.etcd.take().ok_or_else(without)?;
    let place = Directory::open(data_dir, &member)?;
    let config = place.program(program, &[]);
    if config.is_running() {
        return Err("etcd runs on this machine: stop the server first".into());
    }
    let etcd = node::etcd::Etcd::start(config).await?;
    let moved = async {
        let store = reached(&place).await?;
        let members = store.members().list(true).await?;
        if members.len() > 1 {
            let message = "etcd has several members: let their servers go first (`trireme etcd remove`), for one store is one server's";
            return Err(Failure::from(message));
        }
        Ok(store::etcd::to_embedded(&store, &directory(data_dir)).await?)
    };
    let moved = moved.await;
    etcd.stop().await?;
    let summary = moved?;
    record.write(data_dir)?;
    set_aside(&place.path, summary.revision)?;
    Ok(summary)
}

/// The etcd, once it answers.
async fn reached(place: &Directory) -> Result<std::sync::Arc<store::etcd::Etcd>, Failure> {
    let options = store::etcd::Options { compaction: None, ..place.reach(vec![place.own_endpoint()]) };
    let store = store::etcd::Etcd::open(&options)?;
    let answers = async {
        while let Err(error) = store.revision().await {
            tracing::debug!("etcd: {error}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let waited = tokio::time::timeout(ANSWERS, answers).await;
    waited.map_err(|_| format!("etcd does not answer; its log is in {}", place.path.display()))?;
    Ok(store)
}

/// Keeps what was moved, under another name.
fn set_aside(path: &Path, revision: u64) -> Result<(), Failure> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".moved-{revision}"));
    std::fs::rename(path, &name).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{} is {} now", path.display(), Path::new(&name).display());
    Ok(())
}

/// Where the embedded store lies in a data directory.
pub fn directory(data_dir: &std::path::Path) -> PathBuf {
    data_dir.join("store")
}
