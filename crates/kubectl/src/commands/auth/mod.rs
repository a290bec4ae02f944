//! `kubectl auth`: who somebody is, and what they may do.

mod can_i;
mod reconcile;
mod whoami;

use crate::command::Command;

pub static COMMAND: Command = Command {
    name: "auth",
    aliases: &[],
    usage: "[flags]",
    short: "Inspect authorization",
    flags: &[],
    children: &[&can_i::COMMAND, &reconcile::COMMAND, &whoami::COMMAND],
    run: None,
};
