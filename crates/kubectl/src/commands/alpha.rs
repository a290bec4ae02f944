//! `kubectl alpha`: commands that are not ready yet, of which this version has none.

use crate::command::{Command, Invocation};
use crate::error::Outcome;

pub static COMMAND: Command = Command {
    name: "alpha",
    aliases: &[],
    usage: "",
    short: "Commands for features in alpha",
    flags: &[],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// All there is to say, as help too.
pub const NOTHING: &str = "No alpha commands are available in this version of kubectl";

async fn run(invocation: &mut Invocation) -> Outcome {
    invocation.streams.error(NOTHING);
    Ok(())
}
