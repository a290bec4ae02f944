//! `kubectl attach`: joins the streams of a container that runs.

use super::exec::refuse_completed;
use super::pods;
use super::talk::{self, StreamOptions};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};

pub static COMMAND: Command = Command {
    name: "attach",
    aliases: &[],
    usage: "(POD | TYPE/NAME) -c CONTAINER",
    short: "Attach to a running container",
    flags: &[
        sets::CONTAINER,
        &[
            Flag::string("detach-keys", "ctrl-p,ctrl-q", "Keys that end the session and not the container."),
            Flag::duration("pod-running-timeout", "1m0s", "How long to wait for a pod that runs."),
            Flag::bool("quiet", "Show nothing but what the container says.").short('q'),
            Flag::bool("stdin", "Pass standard input to the container.").short('i'),
            Flag::bool("tty", "Standard input is a terminal.").short('t'),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

async fn run(invocation: &mut Invocation) -> Outcome {
    let patience = super::patience(invocation)?;
    let word = match &invocation.flags.arguments[..] {
        [] => return Err(Failure::message("at least 1 argument is required for attach")),
        [one] => one.clone(),
        [kind, name] => format!("{kind}/{name}"),
        many => {
            return Err(Failure::Message(format!(
                "expected POD, TYPE/NAME, or TYPE NAME, (at most 2 arguments) saw {}: [{}]",
                many.len(),
                many.join(" ")
            )));
        }
    };
    let object = pods::object(invocation, &word).await?;
    let pod = pods::one_of(invocation, &object, patience).await?;
    refuse_completed(&pod, "attach")?;
    let flags = &invocation.flags;
    let stream = StreamOptions {
        stdin: flags.is("stdin"),
        tty: flags.is("tty"),
        quiet: flags.is("quiet"),
        detach_keys: match flags.text("detach-keys") {
            "" => "ctrl-p,ctrl-q".to_owned(),
            keys => keys.to_owned(),
        },
    };
    let container = flags.text("container").to_owned();
    talk::attach(invocation, &pod, &container, &stream, "kubectl attach").await
}
