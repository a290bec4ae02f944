//! `kubectl logs`: what containers wrote.

use std::io::Write as _;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::{BoxStream, SelectAll};
use machinery::value::text;
use serde_json::Value;
use tokio::time::Instant;

use super::pods;
use crate::api::Chunks;
use crate::command::{Command, Invocation};
use crate::discovery::{query, segment};
use crate::error::{Failure, Outcome};
use crate::flags::{Flag, Given};
use crate::resource::arguments::parse_single;
use crate::resource::{Builder, Target, list};

pub static COMMAND: Command = Command {
    name: "logs",
    aliases: &["log"],
    usage: "[-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]",
    short: "Print the logs for a container in a pod",
    flags: &[&[
        Flag::bool("all-containers", "Logs of every container of a pod."),
        Flag::bool("all-pods", "Logs of every pod of a workload, each line with its pod."),
        Flag::string("container", "", "The container.").short('c'),
        Flag::bool("follow", "Go on as more is written.").short('f'),
        Flag::bool("ignore-errors", "Go on when a log cannot be read."),
        Flag::bool("insecure-skip-tls-verify-backend", "Believe any certificate of the node."),
        Flag::int("limit-bytes", "0", "The most bytes to show; 0 is all."),
        Flag::int("max-log-requests", "5", "How many logs may be followed at once with a selector."),
        Flag::duration("pod-running-timeout", "20s", "How long to wait for a pod that runs."),
        Flag::bool("prefix", "Put pod and container before each line."),
        Flag::bool("previous", "The log of the container's life before this one.").short('p'),
        Flag::string("selector", "", "Label query of the pods.").short('l'),
        Flag::duration("since", "0s", "Only what is newer than this."),
        Flag::string("since-time", "", "Only what was written after this time."),
        Flag::int("tail", "-1", "The last lines; -1 is all, but with a selector it is 10."),
        Flag::bool("timestamps", "Put the time before each line."),
    ]],
    children: &[],
    run: Some(|invocation| Box::pin(run(invocation))),
};

const EXPECTED: &str = "expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\nPOD or TYPE/NAME is a required argument for the logs command";

/// One log to be read.
struct Log {
    pod: String,
    container: String,
    path: String,
}

/// Whether the command line names what has logs.
fn check_arguments(invocation: &Invocation) -> Outcome {
    let flags = &invocation.flags;
    let selector = !flags.text("selector").is_empty();
    match flags.arguments.len() {
        0 if !selector => return Err(invocation.usage(EXPECTED)),
        1 if selector => return Err(invocation.usage("only a selector (-l) or a POD name is allowed")),
        0..=2 => {}
        _ => return Err(invocation.usage(EXPECTED)),
    }
    let time = flags.text("since-time");
    if !time.is_empty() && machinery::time::parse(time).is_none() {
        return Err(Failure::Message(format!(
            "parsing time {0:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {0:?} as \"2006\"",
            time
        )));
    }
    Ok(())
}

/// Whether flags agree with each other, once it is known that there is something to show.
fn check_flags(flags: &Given) -> Outcome {
    let (since, time) = (flags.nanos("since"), flags.text("since-time"));
    let wrong = if since != 0 && !time.is_empty() {
        "at most one of `sinceTime` or `sinceSeconds` may be specified".to_owned()
    } else if flags.is("all-containers") && !flags.text("container").is_empty() {
        format!("--all-containers=true should not be specified with container name {}", flags.text("container"))
    } else if let Some(inline) = flags.arguments.get(1).filter(|_| flags.is("all-containers")) {
        format!("--all-containers=true should not be specified with container name {inline}")
    } else if flags.arguments.len() == 2 && !flags.text("container").is_empty() {
        "only one of -c or an inline [CONTAINER] arg is allowed".to_owned()
    } else if flags.int("limit-bytes") < 0 {
        "--limit-bytes must be greater than 0".to_owned()
    } else if since < 0 {
        "--since must be greater than 0".to_owned()
    } else if flags.int("tail") < -1 {
        "--tail must be greater than or equal to -1".to_owned()
    } else {
        return Ok(());
    };
    Err(Failure::Message(wrong))
}

async fn run(invocation: &mut Invocation) -> Outcome {
    check_arguments(invocation)?;
    if invocation.flags.duration("pod-running-timeout").is_zero() {
        return Err(Failure::message("--pod-running-timeout must be higher than zero"));
    }
    let pods = find(invocation).await?;
    if pods.is_empty() {
        let namespace = invocation.session.namespace()?;
        invocation.streams.error(&format!("No resources found in {namespace} namespace."));
    }
    check_flags(&invocation.flags)?;
    if pods.is_empty() {
        return Ok(());
    }
    let logs = logs(invocation, &pods)?;
    let flags = &invocation.flags;
    if flags.is("follow") && logs.len() > 1 {
        let most = flags.int("max-log-requests");
        if i64::try_from(logs.len()).is_ok_and(|count| count > most) {
            return Err(Failure::Message(format!(
                "you are attempting to follow {} log streams, but maximum allowed concurrency is {most}, use --max-log-requests to increase the limit",
                logs.len()
            )));
        }
    }
    if flags.is("follow") {
        return together(invocation, logs).await;
    }
    for log in logs {
        let chunks = match open(invocation, &log).await {
            Ok(chunks) => chunks,
            Err(error) if invocation.flags.is("ignore-errors") => {
                invocation.say(&format!("error: {}", error.bare()))?;
                continue;
            }
            Err(error) => return Err(error),
        };
        copy(invocation, lines(chunks, prefix(invocation, &log))).await?;
    }
    Ok(())
}

/// The pods whose logs are wanted.
async fn find(invocation: &mut Invocation) -> Outcome<Vec<Value>> {
    let namespace = invocation.session.namespace()?;
    let selector = invocation.flags.text("selector").to_owned();
    if !selector.is_empty() {
        let mapping = invocation.session.mapping("pods").await?;
        let target = Target { mapping, namespace, name: None };
        let builder = Builder { selector, ..Builder::default() };
        return list(&invocation.session, &target, &builder, "").await;
    }
    let word = invocation.flags.arguments[0].clone();
    let word = if word.contains('/') { word } else { format!("pods/{word}") };
    let (mapping, name) = parse_single(&invocation.session, &word).await?;
    let object = invocation.session.api()?.get(&mapping.path(&namespace, &name.unwrap_or_default(), "")).await;
    let object = object.map_err(|error| match error {
        Failure::Api(error) if error.is(machinery::status::Reason::NotFound) => {
            let quoted = machinery::status::go_quote(&namespace);
            Failure::Message(format!("error from server (NotFound): {} in namespace {quoted}", error.message))
        }
        other => other,
    })?;
    check_flags(&invocation.flags)?;
    let mut pods = pods::of(invocation, &object).await?;
    if pods.is_empty() {
        // One may come soon.
        let patience = invocation.flags.duration("pod-running-timeout");
        pods.push(pods::one_of(invocation, &object, patience).await?);
    }
    if pods.len() > 1 && !invocation.flags.is("all-pods") {
        let name = text(&pods[0], "metadata.name").to_owned();
        invocation.streams.error(&format!("Found {} pods, using pod/{name}", pods.len()));
        pods.truncate(1);
    }
    Ok(pods)
}

fn logs(invocation: &mut Invocation, pods: &[Value]) -> Outcome<Vec<Log>> {
    let mut wanted = invocation.flags.text("container").to_owned();
    if let Some(inline) = invocation.flags.arguments.get(1) {
        wanted.clone_from(inline);
    }
    let parameters = parameters(invocation);
    let every = invocation.flags.is("all-containers");
    let mut logs = Vec::new();
    for pod in pods {
        let names = if every {
            // In the order in which they start.
            let mut names = pods::containers(pod);
            names.sort_by_key(|(_, kind)| match *kind {
                " (init)" => 0,
                "" => 1,
                _ => 2,
            });
            names.into_iter().map(|(name, _)| name).collect()
        } else {
            let quiet = invocation.flags.is("all-pods");
            vec![pods::container(invocation, pod, &wanted, quiet)?]
        };
        let (name, namespace) = (text(pod, "metadata.name"), text(pod, "metadata.namespace"));
        for container in names {
            let mut pairs: Vec<(&str, &str)> = vec![("container", &container)];
            pairs.extend(parameters.iter().map(|(name, value)| (*name, value.as_str())));
            let path = format!("/api/v1/namespaces/{namespace}/pods/{}/log{}", segment(name), query(&pairs));
            logs.push(Log { pod: name.to_owned(), container, path });
        }
    }
    Ok(logs)
}

fn parameters(invocation: &Invocation) -> Vec<(&'static str, String)> {
    let flags = &invocation.flags;
    let mut pairs = Vec::new();
    for (flag, name) in [
        ("follow", "follow"),
        ("previous", "previous"),
        ("timestamps", "timestamps"),
        ("insecure-skip-tls-verify-backend", "insecureSkipTLSVerifyBackend"),
    ] {
        if flags.is(flag) {
            pairs.push((name, "true".to_owned()));
        }
    }
    if flags.int("limit-bytes") > 0 {
        pairs.push(("limitBytes", flags.int("limit-bytes").to_string()));
    }
    let selects = !flags.text("selector").is_empty();
    match flags.int("tail") {
        -1 if selects && !flags.changed("tail") => pairs.push(("tailLines", "10".to_owned())),
        -1 => {}
        lines => pairs.push(("tailLines", lines.to_string())),
    }
    let since = flags.nanos("since");
    if since > 0 {
        let seconds = (since + 999_999_999) / 1_000_000_000;
        pairs.push(("sinceSeconds", seconds.to_string()));
    }
    let time = flags.text("since-time");
    if !time.is_empty() {
        pairs.push(("sinceTime", time.to_owned()));
    }
    pairs
}

async fn open(invocation: &Invocation, log: &Log) -> Outcome<Chunks> {
    let (_, chunks) = invocation.session.api()?.stream(http::Method::GET, &log.path, None, "*/*").await?;
    Ok(chunks)
}

/// The log of a container of a pod as it is now, for commands that cannot join its streams.
pub async fn show(invocation: &mut Invocation, pod: &Value, container: &str, since: &str) -> Outcome {
    let container = pods::container(invocation, pod, container, true)?;
    let (name, namespace) = (text(pod, "metadata.name"), text(pod, "metadata.namespace"));
    let pairs = query(&[("container", &container), ("sinceTime", since)]);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{}/log{pairs}", segment(name));
    let log = Log { pod: name.to_owned(), container, path };
    let chunks = open(invocation, &log).await?;
    copy(invocation, lines(chunks, String::new())).await
}

/// Lines of all pods say whose they are, asked or not.
fn says_whose(flags: &Given) -> bool {
    flags.is("prefix") || flags.is("all-pods")
}

fn prefix(invocation: &Invocation, log: &Log) -> String {
    if says_whose(&invocation.flags) { format!("[pod/{}/{}] ", log.pod, log.container) } else { String::new() }
}

type Pieces = BoxStream<'static, Result<Vec<u8>, String>>;

/// The log as it comes; with a prefix, line by line.
fn lines(chunks: Chunks, prefix: String) -> Pieces {
    let failed = |error: std::io::Error| error.to_string();
    if prefix.is_empty() {
        return chunks.map(move |chunk| chunk.map(|bytes| bytes.to_vec()).map_err(failed)).boxed();
    }
    let mut begun = false;
    chunks
        .map(move |chunk| {
            let chunk = chunk.map_err(failed)?;
            let mut out = Vec::with_capacity(chunk.len() + prefix.len());
            for line in chunk.split_inclusive(|byte| *byte == b'\n') {
                if !begun {
                    out.extend_from_slice(prefix.as_bytes());
                }
                out.extend_from_slice(line);
                begun = !line.ends_with(b"\n");
            }
            Ok(out)
        })
        .boxed()
}

async fn copy(invocation: &mut Invocation, mut pieces: Pieces) -> Outcome {
    while let Some(piece) = pieces.next().await {
        write(invocation, piece)?;
    }
    Ok(())
}

fn write(invocation: &mut Invocation, piece: Result<Vec<u8>, String>) -> Outcome {
    invocation.streams.out.write_all(&piece.map_err(Failure::Message)?)?;
    Ok(invocation.streams.out.flush()?)
}

/// How long a log that the server refused is left alone.
const PAUSE: Duration = Duration::from_secs(1);

/// Logs as they are written, all at once. What the server refuses is asked for again: a container may be about to start.
async fn together(invocation: &mut Invocation, logs: Vec<Log>) -> Outcome {
    let until = Instant::now() + invocation.flags.duration("pod-running-timeout");
    let mut all: SelectAll<Pieces> = SelectAll::new();
    let mut waiting = logs;
    loop {
        let next = Instant::now() + PAUSE;
        let mut refused = Vec::new();
        for log in waiting {
            match open(invocation, &log).await {
                Ok(chunks) => all.push(lines(chunks, prefix(invocation, &log))),
                Err(error) => {
                    if !gives_up(invocation, error)? {
                        refused.push(log);
                    }
                }
            }
        }
        waiting = refused;
        if waiting.is_empty() {
            return copy(invocation, all.boxed()).await;
        }
        let pause = next.min(until);
        loop {
            tokio::select! {
                Some(piece) = all.next() => write(invocation, piece)?,
                () = tokio::time::sleep_until(pause) => break,
            }
        }
        if pause == until {
            return Err(Failure::message("context deadline exceeded"));
        }
    }
}

/// Says why a log cannot be read, and whether it is left out for good. What is no answer of the server ends the command.
fn gives_up(invocation: &mut Invocation, error: Failure) -> Outcome<bool> {
    if invocation.flags.is("ignore-errors") {
        invocation.say(&format!("error: {}", error.bare()))?;
        return Ok(true);
    }
    invocation.streams.error(&error.bare());
    if matches!(error, Failure::Api(_)) { Ok(false) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_pods_say_whose_they_are() {
        let given = |word: &str| crate::flags::parse(COMMAND.flags, &[word.to_owned()]).expect("flags");
        let says = |word: &str| says_whose(&given(word));
        assert!(says("--prefix") && says("--all-pods"));
        assert!(!says("--prefix=false"));
    }
}
