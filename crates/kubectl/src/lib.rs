//! kubectl: the first hop of every request, with upstream's commands, flags, messages and outputs.
//!
//! [`run`] finds the command that a command line means ([`command`], [`flags`]), and runs its file in [`commands`]. A command
//! reads its options from the flags, asks the [`session`] for the configuration, the server and what it serves
//! ([`config`], [`discovery`]), finds objects with the [`resource`] builder and shows them with [`print`]. Everything that decides
//! or formats is pure; what talks to the server goes through the session.

pub mod api;
pub mod command;
pub mod commands;
pub mod config;
pub mod discovery;
pub mod error;
pub mod flags;
pub mod help;
pub mod patch;
pub mod preferences;
pub mod print;
pub mod program;
pub mod remote;
pub mod report;
pub mod resource;
pub mod session;
pub mod streams;
pub mod trace;

use std::path::PathBuf;

pub use command::{Environment, run};
pub use streams::Streams;

/// Runs a command line in this process, and gives its exit code. `fallback` is the configuration for when no other is given.
pub fn main(arguments: impl Iterator<Item = std::ffi::OsString>, fallback: Option<PathBuf>) -> i32 {
    let arguments: Vec<String> = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
    let environment = Environment { fallback, ..Environment::of_process() };
    // One thread is enough for a client, and starts in no time.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: {error}");
            return 1;
        }
    };
    let code = runtime.block_on(run(environment, &arguments, Streams::standard()));
    // What is still open ends with the process; nobody waits for it.
    std::mem::forget(runtime);
    code
}
