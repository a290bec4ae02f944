//! `trireme store`: what an operator does with a store that no server has open.

use std::path::PathBuf;

use clap::Subcommand;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store refuses.
    #[error("{0}")]
    Store(#[from] store::Error),
}

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
    /// Verify every checksum of a store, changing nothing.
    Check {
        /// The server's data directory.
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
    },
}

/// Runs one command and says what it found.
pub fn run(command: &Command) -> Result<(), Error> {
    let summary = match command {
        Command::Backup { data_dir, file } => store::admin::backup(&directory(data_dir), file)?,
        Command::Restore { data_dir, file } => store::admin::restore(file, &directory(data_dir))?,
        Command::Check { data_dir } => store::admin::check(&directory(data_dir))?,
    };
    println!("{summary}");
    Ok(())
}

/// Where the embedded store lies in a data directory.
pub fn directory(data_dir: &std::path::Path) -> PathBuf {
    data_dir.join("store")
}
