//! A user's streams joined to those of a container: what `exec`, `attach`, `run` and `debug` have in common. No command itself.

use serde_json::Value;

use machinery::value::text;

use super::pods;
use crate::command::Invocation;
use crate::discovery::{segment, whole_query};
use crate::error::{Failure, Outcome};
use crate::remote::{self, Ends, Protocols, detach, terminal};

/// What the user wants to be joined.
#[derive(Clone, Default)]
pub struct StreamOptions {
    pub stdin: bool,
    pub tty: bool,
    pub quiet: bool,
    /// Keys that end the conversation and not the container.
    pub detach_keys: String,
}

/// Whether there is a terminal to be given away; whoever wants one and has none is told.
pub fn has_terminal(invocation: &mut Invocation, stream: &StreamOptions) -> bool {
    if !stream.stdin || !stream.tty {
        return false;
    }
    if !invocation.streams.typed && !stream.quiet {
        invocation.streams.error("Unable to use a TTY - input is not a terminal or the right kind of file");
    }
    invocation.streams.typed
}

/// The path of a conversation with a container.
pub fn path(pod: &Value, what: &str, container: &str, command: &[String], stdin: bool, raw: bool) -> String {
    let yes = |wanted: bool| if wanted { "true" } else { "" };
    let options =
        [("container", container), ("stderr", yes(!raw)), ("stdin", yes(stdin)), ("stdout", "true"), ("tty", yes(raw))];
    let mut pairs: Vec<(&str, &str)> = command.iter().map(|word| ("command", word.as_str())).collect();
    pairs.extend(options.into_iter().filter(|(_, value)| !value.is_empty()));
    let (namespace, name) = (text(pod, "metadata.namespace"), text(pod, "metadata.name"));
    format!("/api/v1/namespaces/{}/pods/{}/{what}{}", segment(namespace), segment(name), whole_query(pairs))
}

/// Joins the user's streams to the container's until the command ends, or the user detaches.
pub async fn join(
    invocation: &mut Invocation,
    path: &str,
    stream: &StreamOptions,
    raw: bool,
    sizes: Vec<(u16, u16)>,
) -> Outcome {
    let api = invocation.session.api()?;
    let protocols = Protocols::by(&invocation.session.environment, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS");
    let keys = if raw && !stream.detach_keys.is_empty() {
        Some(
            detach::Keys::parse(&stream.detach_keys)
                .map_err(|error| Failure::Message(format!("could not bind detach keys: {error}")))?,
        )
    } else {
        None
    };
    let input = stream.stdin.then(|| remote::typed(invocation.streams.take_input(), keys));
    let sizes = if raw { Some(terminal::sizes(sizes)?) } else { None };
    let held = if raw { Some(terminal::Raw::begin()?) } else { None };
    let streams = &mut invocation.streams;
    let err: Option<&mut dyn std::io::Write> = if raw { None } else { Some(&mut *streams.err) };
    let conversation = remote::converse(&api, protocols, path, Ends { input, out: &mut *streams.out, err, sizes });
    let outcome = if raw {
        tokio::select! {
            outcome = conversation => outcome,
            // The terminal is put back before the program ends.
            signalled = terminal::interrupted() => signalled.and(Err(Failure::Exit(0))),
        }
    } else {
        conversation.await
    };
    drop(held);
    outcome
}

/// Attaches to a container of a pod that runs.
pub async fn attach(
    invocation: &mut Invocation,
    pod: &Value,
    container: &str,
    stream: &StreamOptions,
    command: &str,
) -> Outcome {
    let quiet = stream.quiet;
    let mut stream = stream.clone();
    let found = pods::container_to_talk_to(invocation, pod, container, quiet);
    let name = found.map_err(|error| Failure::Message(format!("cannot attach to the container: {}", error.bare())))?;
    let (has_tty, ephemeral) = pods::spec_of(pod, &name).map_or((false, false), |(spec, ephemeral)| {
        (spec.get("tty").and_then(Value::as_bool).unwrap_or_default(), ephemeral)
    });
    if stream.tty && !has_tty && !quiet {
        invocation.streams.error(&format!("error: Unable to use a TTY - container {name} did not allocate one"));
    }
    // A container that has a terminal speaks as terminals do, whatever the user wants.
    stream.tty = has_tty;
    let raw = has_terminal(invocation, &stream);
    // A size that changes has the screen drawn again.
    let size = terminal::size().filter(|_| raw);
    let sizes = size.map_or_else(Vec::new, |(width, height)| vec![(width + 1, height + 1), (width, height)]);
    if !quiet {
        invocation.streams.error("All commands and output from this session will be recorded in container logs, including credentials and sensitive information passed through the command prompt.");
        invocation.streams.error("If you don't see a command prompt, try pressing enter.");
    }
    let path = path(pod, "attach", &name, &[], stream.stdin, raw);
    join(invocation, &path, &stream, raw, sizes).await?;
    if quiet || !stream.stdin || !raw {
        return Ok(());
    }
    let (pod, namespace) = (text(pod, "metadata.name"), text(pod, "metadata.namespace"));
    let again = format!("'{command} {pod} -c {name} -n {namespace} -i -t'");
    invocation.say(&if ephemeral {
        format!("Session ended, the ephemeral container will not be restarted but may be reattached using {again} if it is still running")
    } else {
        format!("Session ended, resume using {again} command")
    })
}
