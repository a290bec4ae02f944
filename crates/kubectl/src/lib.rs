//! kubectl: the first hop of every request, with upstream's commands, flags, messages and outputs.
//!
//! [`run`] finds the command that a command line means ([`dispatch`]), and runs its file in [`commands`]. What all of them are made of is in
//! [`cliruntime`].

pub mod commands;
pub mod dispatch;
mod record;
mod selector;

use std::path::PathBuf;

pub use cliruntime::command::Environment;
pub use cliruntime::streams::Streams;
use cliruntime::{
    api, command, config, discovery, error, flags, help, patch, preferences, print, program, remote, report, resource,
    session, streams,
};
pub use dispatch::run;

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
