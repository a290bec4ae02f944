//! `kubectl exec`: a command in a container.

use machinery::value::text;
use serde_json::Value;

use super::pods;
use super::talk::{self, StreamOptions};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::remote::terminal;
use crate::resource::Builder;

pub static COMMAND: Command = Command {
    name: "exec",
    aliases: &[],
    usage: "(POD | TYPE/NAME) [-c CONTAINER] [flags] -- COMMAND [args...]",
    short: "Execute a command in a container",
    flags: &[
        sets::CONTAINER,
        &[
            Flag::slice("filename", "Files or directories with the object to run the command in.").short('f'),
            Flag::duration("pod-running-timeout", "1m0s", "How long to wait for a pod that runs."),
            Flag::bool("quiet", "Show nothing but what the command says.").short('q'),
            Flag::bool("stdin", "Pass standard input to the container.").short('i'),
            Flag::bool("tty", "Standard input is a terminal.").short('t'),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// The object, and the command to run in it.
fn arguments(invocation: &Invocation) -> Outcome<(Option<String>, Vec<String>)> {
    let flags = &invocation.flags;
    let files = !flags.list("filename").is_empty();
    let resource = flags.arguments.first().filter(|_| flags.dash != Some(0)).cloned();
    let command = match flags.dash {
        Some(at @ (0 | 1)) => flags.arguments[at..].to_vec(),
        _ if flags.arguments.len() > 1 || (!flags.arguments.is_empty() && files) => {
            return Err(
                invocation.usage("exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead")
            );
        }
        _ => Vec::new(),
    };
    if resource.is_none() && !files {
        return Err(Failure::message("pod, type/name or --filename must be specified"));
    }
    if command.is_empty() {
        return Err(Failure::message("you must specify at least one command for the container"));
    }
    Ok((resource, command))
}

async fn run(invocation: &mut Invocation) -> Outcome {
    let patience = super::patience(invocation)?;
    let (resource, command) = arguments(invocation)?;
    let object = match resource {
        Some(word) => pods::object(invocation, &word).await?,
        None => from_files(invocation).await?,
    };
    let pod = pods::one_of(invocation, &object, patience).await?;
    let stream = StreamOptions {
        stdin: invocation.flags.is("stdin"),
        tty: invocation.flags.is("tty"),
        quiet: invocation.flags.is("quiet"),
        detach_keys: String::new(),
    };
    let container = invocation.flags.text("container").to_owned();
    in_pod(invocation, &pod, &container, &command, &stream).await
}

async fn from_files(invocation: &mut Invocation) -> Outcome<Value> {
    let mut builder = Builder::from_flags(&invocation.session, &invocation.flags)?;
    // What is on the command line is the command.
    builder.arguments.clear();
    let found = builder.infos(&invocation.session, &mut invocation.streams).await?;
    Failure::all(found.errors)?;
    match &found.infos[..] {
        [one] => Ok(one.object.clone()),
        _ => Err(Failure::message("cannot exec into multiple objects at a time")),
    }
}

/// Whether a command can run in a pod at all.
pub fn refuse_completed(pod: &Value, doing: &str) -> Outcome {
    match text(pod, "status.phase") {
        phase @ ("Succeeded" | "Failed") => {
            Err(Failure::Message(format!("cannot {doing} a container in a completed pod; current phase is {phase}")))
        }
        _ => Ok(()),
    }
}

async fn in_pod(
    invocation: &mut Invocation,
    pod: &Value,
    container: &str,
    command: &[String],
    stream: &StreamOptions,
) -> Outcome {
    refuse_completed(pod, "exec into")?;
    let container = pods::container_to_talk_to(invocation, pod, container, stream.quiet)?;
    let raw = talk::has_terminal(invocation, stream);
    let path = talk::path(pod, "exec", &container, command, stream.stdin, raw);
    talk::join(invocation, &path, stream, raw, terminal::size().into_iter().collect()).await
}
