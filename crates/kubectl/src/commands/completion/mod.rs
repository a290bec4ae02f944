//! `kubectl completion`: scripts for shells, and the command that they ask with each key.

mod candidates;
mod scripts;
mod words;

use crate::command::{Command, Environment, Invocation};
use crate::error::Outcome;
use crate::flags::Flag;
use crate::streams::Streams;

pub static COMMAND: Command = Command {
    name: "completion",
    aliases: &[],
    usage: "SHELL",
    short: "Output shell completion code for the specified shell (bash, zsh, fish, or powershell)",
    flags: &[&[Flag::bool("no-descriptions", "Leave descriptions out.").hidden()]],
    children: &[],
    run: Some(|invocation| Box::pin(async move { run(invocation) })),
};

fn run(invocation: &mut Invocation) -> Outcome {
    let shell = match &invocation.flags.arguments[..] {
        [] => return Err(invocation.usage("Shell not specified.")),
        [shell] => shell.clone(),
        _ => return Err(invocation.usage("Too many arguments. Expected only the shell type.")),
    };
    match scripts::of(&shell) {
        Some(script) => invocation.print(script),
        None => Err(invocation.usage(format_args!("Unsupported shell type {shell:?}."))),
    }
}

/// What a shell should do besides offering the words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Directive {
    /// Offer files where there are no words.
    Files,
    /// Put no space after the word.
    NoSpace,
    NoFiles,
    NoSpaceNoFiles,
    /// Offer files that end in one of the words.
    Endings,
}

impl Directive {
    fn number(self) -> u8 {
        match self {
            Self::Files => 0,
            Self::NoSpace => 2,
            Self::NoFiles => 4,
            Self::NoSpaceNoFiles => 6,
            Self::Endings => 8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Files => "ShellCompDirectiveDefault",
            Self::NoSpace => "ShellCompDirectiveNoSpace",
            Self::NoFiles => "ShellCompDirectiveNoFileComp",
            Self::NoSpaceNoFiles => "ShellCompDirectiveNoSpace, ShellCompDirectiveNoFileComp",
            Self::Endings => "ShellCompDirectiveFilterFileExt",
        }
    }
}

/// Answers a shell: words, one on each line, and what to do with them.
pub async fn answer(environment: Environment, words: &[String], descriptions: bool, streams: &mut Streams) -> Outcome {
    let (offers, directive) = words::complete(environment, words).await;
    for offer in offers {
        match offer.1.split('\n').next().filter(|text| descriptions && !text.is_empty()) {
            Some(text) => streams.line(&format!("{}\t{text}", offer.0))?,
            None => streams.line(&offer.0)?,
        }
    }
    streams.line(&format!(":{}", directive.number()))?;
    streams.error(&format!("Completion ended with directive: {}", directive.name()));
    Ok(())
}
