//! `kubectl cp`: files to and from containers, as archives that a `tar` in the container makes or takes apart.

mod archive;
mod paths;

use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

use machinery::value::text;
use serde_json::Value;

use super::exec::refuse_completed;
use super::{pods, talk};
use crate::command::{Command, Invocation};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, sets};
use crate::remote::{self, Ends, Input, Protocols};
use paths::Spec;

pub static COMMAND: Command = Command {
    name: "cp",
    aliases: &[],
    usage: "<file-spec-src> <file-spec-dest>",
    short: "Copy files and directories to and from containers",
    flags: &[
        sets::CONTAINER,
        &[
            Flag::bool("no-preserve", "Owners and permissions are not kept in the container."),
            Flag::int("retries", "0", "How often a copy from a container is resumed; negative is without limit."),
        ],
    ],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

/// How long it may take to find out whether the destination is a directory.
const LOOK: Duration = Duration::from_secs(30);

async fn run(invocation: &mut Invocation) -> Outcome {
    let [source, destination] = &invocation.flags.arguments[..] else {
        return Err(Failure::message("source and destination are required"));
    };
    let source = Spec::parse(source).map_err(Failure::Message)?;
    let destination = Spec::parse(destination).map_err(Failure::Message)?;
    if source.path.is_empty() || destination.path.is_empty() {
        return Err(Failure::message("filepath can not be empty"));
    }
    match (source.is_remote(), destination.is_remote()) {
        (true, true) => Err(Failure::message("one of src or dest must be a local file specification")),
        (false, false) => Err(Failure::message("one of src or dest must be a remote file specification")),
        (true, false) => from_pod(invocation, source, destination).await,
        (false, true) => to_pod(invocation, source, destination).await,
    }
}

/// Where a copy is made: a pod, and the container in it.
struct Place {
    pod: Value,
    container: String,
}

async fn place(invocation: &mut Invocation, spec: &Spec) -> Outcome<Place> {
    let namespace = if spec.namespace.is_empty() { invocation.session.namespace()? } else { spec.namespace.clone() };
    let mapping = invocation.session.mapping("pods").await?;
    let pod = invocation.session.api()?.get(&mapping.path(&namespace, &spec.pod, "")).await?;
    refuse_completed(&pod, "exec into")?;
    let wanted = invocation.flags.text("container").to_owned();
    let container = pods::container_to_talk_to(invocation, &pod, &wanted, false)?;
    Ok(Place { pod, container })
}

/// Runs a command there.
async fn execute(
    invocation: &Invocation,
    place: &Place,
    command: &[&str],
    input: Option<Input>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Outcome {
    let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    let path = talk::path(&place.pod, "exec", &place.container, &command, input.is_some(), false);
    let protocols = Protocols::by(&invocation.session.environment, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS");
    let ends = Ends { input, out, err: Some(err), sizes: None };
    remote::converse(&*invocation.session.api()?, protocols, &path, ends).await
}

async fn to_pod(invocation: &mut Invocation, source: Spec, mut destination: Spec) -> Outcome {
    let local = invocation.session.environment.path(&source.path);
    if !local.exists() {
        return Err(Failure::Message(format!("{} doesn't exist in local filesystem", source.path)));
    }
    let place = place(invocation, &destination).await?;
    let look = ["test", "-d", &destination.path];
    let (mut nowhere, mut nowhere_else) = (std::io::sink(), std::io::sink());
    let looked = execute(invocation, &place, &look, None, &mut nowhere, &mut nowhere_else);
    match tokio::time::timeout(LOOK, looked).await {
        Err(_) => return Err(Failure::message("context deadline exceeded")),
        Ok(Ok(())) => destination.path = paths::join(&destination.path, paths::base(&paths::clean(&source.path))),
        // It is no directory, or not there.
        Ok(Err(_)) => {}
    }
    let target = paths::clean(&destination.path);
    let mut command = if invocation.flags.is("no-preserve") {
        vec!["tar", "--no-same-permissions", "--no-same-owner", "-xmf", "-"]
    } else {
        vec!["tar", "-xmf", "-"]
    };
    let directory = paths::directory(&target).to_owned();
    if !directory.is_empty() {
        command.extend(["-C", &directory]);
    }
    let (input, packed) = archive::pack(local, paths::base(&target).to_owned());
    let (mut out, mut err) = take(invocation);
    let done = execute(invocation, &place, &command, Some(input), &mut *out, &mut *err).await;
    (invocation.streams.out, invocation.streams.err) = (out, err);
    // What went wrong here explains what the container made of it.
    match packed.join() {
        Ok(Err(error)) => Err(Failure::Message(error)),
        _ => done,
    }
}

/// The outputs, so that the session can be used beside them.
fn take(invocation: &mut Invocation) -> (Box<dyn Write + Send>, Box<dyn Write + Send>) {
    let streams = &mut invocation.streams;
    (
        std::mem::replace(&mut streams.out, Box::new(std::io::sink())),
        std::mem::replace(&mut streams.err, Box::new(std::io::sink())),
    )
}

/// An archive on its way from the container to whoever takes it apart.
struct Pipe {
    to: mpsc::SyncSender<Vec<u8>>,
    written: u64,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.to.send(bytes.to_vec()).map_err(|_| std::io::ErrorKind::BrokenPipe)?;
        self.written += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn from_pod(invocation: &mut Invocation, source: Spec, destination: Spec) -> Outcome {
    let place = place(invocation, &source).await?;
    let prefix = paths::without_shortcuts(&paths::clean(source.path.trim_start_matches(['/', '\\'])));
    let unpacking = archive::Unpacking {
        prefix,
        shown: destination.path.clone(),
        to: invocation.session.environment.path(&destination.path),
        advice: format!(
            "kubectl exec -n {:?} {:?} -- tar cf - {:?} | tar xf -",
            source.namespace, source.pod, source.path
        ),
    };
    debug_assert!(!text(&place.pod, "metadata.name").is_empty());
    let (to, from) = mpsc::sync_channel(16);
    let unpacked = archive::unpack(unpacking, from);
    let mut pipe = Pipe { to, written: 0 };
    let most = invocation.flags.int("retries");
    let mut tries = 0;
    let outcome = loop {
        let script = format!("tar cf - '{}' | tail -c+{}", source.path.replace('\'', "'\\''"), pipe.written + 1);
        let command = if most == 0 { vec!["tar", "cf", "-", &source.path] } else { vec!["sh", "-c", script.as_str()] };
        let (mut out, err) = take(invocation);
        // What tar complains of is shown where the archive would have been.
        let done = execute(invocation, &place, &command, None, &mut pipe, &mut *out).await;
        (invocation.streams.out, invocation.streams.err) = (out, err);
        let broken = matches!(&done, Err(failure) if !matches!(failure, Failure::WithCode(..)));
        if !broken || (most >= 0 && tries >= most) || unpacked.is_finished() {
            break done;
        }
        tries += 1;
        invocation.say(&format!("Resuming copy at {} bytes, retry {tries}/{most}", pipe.written))?;
    };
    drop(pipe);
    let taken_apart = unpacked.join().unwrap_or_else(|_| Err("the archive cannot be read".to_owned()));
    match (outcome, taken_apart) {
        (Err(failure @ Failure::WithCode(..)), _) => Err(failure),
        (_, Err(error)) => Err(Failure::Message(error)),
        (Err(failure), Ok(_)) => Err(failure),
        (Ok(()), Ok(warnings)) => {
            for warning in warnings {
                invocation.streams.error(&warning);
            }
            Ok(())
        }
    }
}
