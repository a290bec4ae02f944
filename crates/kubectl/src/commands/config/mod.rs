//! `kubectl config`: reads and changes kubeconfigs.

mod delete;
mod get;
mod set;
mod set_entries;
mod view;

use crate::command::{Command, Invocation};
use crate::config::{Config, modify};
use crate::error::Outcome;

pub static COMMAND: Command = Command {
    name: "config",
    aliases: &[],
    usage: "SUBCOMMAND",
    short: "Modify kubeconfig files",
    flags: &[],
    children: &[
        &get::CURRENT_CONTEXT,
        &delete::CLUSTER,
        &delete::CONTEXT,
        &delete::USER,
        &get::CLUSTERS,
        &get::CONTEXTS,
        &get::USERS,
        &set::RENAME_CONTEXT,
        &set::SET,
        &set_entries::CLUSTER,
        &set_entries::CONTEXT,
        &set_entries::CREDENTIALS,
        &set::UNSET,
        &set::USE_CONTEXT,
        &view::COMMAND,
    ],
    run: None,
};

/// The configuration, with files that are not there taken for empty ones.
fn load(invocation: &Invocation) -> Outcome<Config> {
    invocation.session.access().load(false)
}

/// Writes what a command changed.
fn save(invocation: &Invocation, before: &Config, after: &Config) -> Outcome {
    modify::write(&invocation.session.access(), before, after)
}

/// The file that messages name.
fn file(invocation: &Invocation) -> String {
    invocation.session.access().default_file().display().to_string()
}
