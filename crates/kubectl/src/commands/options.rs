//! `kubectl options`: the flags of every command.

use crate::command::{Command, Invocation};
use crate::error::Outcome;
use crate::flags::sets;
use crate::help;

pub static COMMAND: Command = Command {
    name: "options",
    aliases: &[],
    usage: "",
    short: "Print the list of flags inherited by all commands",
    flags: &[],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    invocation.print("The following options can be passed to any command:\n\n")?;
    let lines: Vec<String> = sets::GLOBAL.iter().flat_map(|group| group.iter()).map(help::line).collect();
    invocation.say(&lines.join("\n\n"))
}
