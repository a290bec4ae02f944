//! `trireme image`: makes small images from what is on this machine, for demonstrations and tests without a registry.

use std::path::PathBuf;

use crate::component::Failure;

/// What to make.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// An image of this machine's statically linked busybox (Debian: busybox-static), as an OCI archive.
    ///
    /// Put it into the data directory's `images` folder, and the server imports it at its next start.
    Busybox {
        /// The image's name.
        #[arg(long, value_name = "NAME", default_value = "docker.io/library/busybox:stable")]
        name: String,
        /// The program.
        #[arg(long, value_name = "FILE", default_value = "/bin/busybox")]
        program: PathBuf,
        /// The archive to write.
        #[arg(value_name = "ARCHIVE")]
        archive: PathBuf,
    },
}

/// What of busybox is at hand under its own name.
const APPLETS: [&str; 24] = [
    "sh", "httpd", "nc", "wget", "nslookup", "cat", "echo", "sleep", "true", "false", "ls", "ps", "hostname", "env",
    "id", "date", "tail", "head", "grep", "test", "mkdir", "rm", "tar", "kill",
];

pub fn run(command: &Command) -> Result<(), Failure> {
    let Command::Busybox { name, program, archive } = command;
    let bytes = std::fs::read(program).map_err(|error| {
        format!(
            "cannot read {}: {error}; install Debian's busybox-static, or name another with --program",
            program.display()
        )
    })?;
    if let Some(folder) = archive.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(archive, node::oci::busybox(name, bytes, &APPLETS))?;
    println!("{} holds {name}", archive.display());
    Ok(())
}
