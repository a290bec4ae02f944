//! `trireme completion` and `trireme man`: what shells and `man` need to know, written from the same options that are read.

use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::component::Failure;

/// Options of `trireme completion`.
#[derive(Debug, clap::Args)]
pub struct Completion {
    /// For which shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Options of `trireme man`.
#[derive(Debug, clap::Args)]
pub struct Man {
    /// Where the pages are written, one for each command.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Prints a script that completes command lines.
pub fn completion(options: &Completion) -> Result<(), Failure> {
    clap_complete::generate(options.shell, &mut Cli::command(), "trireme", &mut std::io::stdout());
    Ok(())
}

/// Writes pages for `man`.
pub fn man(options: &Man) -> Result<(), Failure> {
    std::fs::create_dir_all(&options.directory)?;
    Ok(clap_mangen::generate_to(Cli::command(), &options.directory)?)
}
