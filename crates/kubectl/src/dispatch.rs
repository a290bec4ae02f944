//! From a command line to the command that it means: aliases, plug-ins, flags, and the exit code.

use std::io::Write as _;

use cliruntime::command::{Command, Environment, Invocation};
use cliruntime::error::{Failure, Outcome};
use cliruntime::flags::{self, Mistake, sets};
use cliruntime::preferences::{self, Alias, Preferences};
use cliruntime::resource::helper::DryRun;
use cliruntime::session::Session;
use cliruntime::streams::Streams;

use crate::{commands, help};

/// Finds the command that a command line means, reads its flags and runs it. The answer is the exit code.
pub async fn run(environment: Environment, arguments: &[String], mut streams: Streams) -> i32 {
    if let Some((question @ ("__complete" | "__completeNoDesc"), words)) =
        arguments.split_first().map(|(first, rest)| (first.as_str(), rest))
    {
        let descriptions = question == "__complete";
        let outcome = commands::completion::answer(environment, words, descriptions, &mut streams).await;
        return finish(outcome, &mut streams);
    }
    match dispatch(environment, arguments, &mut streams) {
        Ok(Some(invocation)) => {
            let mut invocation = Invocation { streams, ..invocation };
            warn_of_dry_run(&mut invocation);
            let run = invocation.command.run.expect("only commands that run are dispatched");
            let outcome = run(&mut invocation).await;
            invocation.warn();
            let outcome = outcome.and_then(|()| invocation.session.end());
            finish(outcome, &mut invocation.streams)
        }
        Ok(None) => finish(Ok(()), &mut streams),
        Err(failure) => finish(Err(failure), &mut streams),
    }
}

/// Old forms of `--dry-run` still work.
fn warn_of_dry_run(invocation: &mut Invocation) {
    let text = match invocation.flags.text("dry-run") {
        "" | "none" | "client" | "server" => return,
        "unchanged" => "--dry-run is deprecated and can be replaced with --dry-run=client.".to_owned(),
        old => match DryRun::from_flags(&invocation.flags) {
            Err(_) => return,
            Ok(meant) => {
                let new = if meant == DryRun::Client { "client" } else { "none" };
                format!("--dry-run={old} is deprecated (boolean value) and can be replaced with --dry-run={new}.")
            }
        },
    };
    invocation.streams.log('W', "helpers.go:714", &text);
}

fn finish(outcome: Outcome, streams: &mut Streams) -> i32 {
    let code = match &outcome {
        Ok(()) => 0,
        Err(failure) => {
            let text = failure.render();
            if !text.is_empty() {
                streams.error(text.strip_suffix('\n').unwrap_or(&text));
            }
            failure.code()
        }
    };
    let _ = streams.out.flush();
    code
}

/// The command to run, or nothing where help was all that was wanted.
fn dispatch(environment: Environment, arguments: &[String], streams: &mut Streams) -> Outcome<Option<Invocation>> {
    let root: &'static Command = &commands::ROOT;
    let (preferences, complaint) =
        Preferences::load(&environment, &preferences::given_place(arguments)).map_err(Failure::Message)?;
    if let Some(complaint) = complaint {
        streams.error(&complaint);
    }
    let alias = alias(&preferences, arguments);
    let all = alias.as_ref().map_or(arguments, |alias| &alias.arguments);
    let mut arguments = all.to_vec();
    let (mut command, mut path) = (root, "kubectl".to_owned());
    while !command.children.is_empty() {
        let groups = command.flags.iter().chain(flags::sets::GLOBAL);
        let Some(at) = flags::find_command(groups, &arguments) else { break };
        let Some(child) = command.child(&arguments[at]) else { break };
        path = format!("{path} {}", child.name);
        arguments.remove(at);
        command = child;
    }
    run_plugin(&environment, streams, command, all, &arguments)?;
    let groups = command.flags.iter().chain(flags::sets::GLOBAL);
    let mut given = match flags::parse(groups, &arguments) {
        Ok(given) => given,
        Err(Mistake::Help) => {
            streams.text(&help::of(command, &path))?;
            return Ok(None);
        }
        Err(Mistake::Words(words)) => {
            return Err(Failure::Message(format!("{words}\nSee '{path} --help' for usage.")));
        }
    };
    if command.run.is_none() {
        let Some(unknown) = given.arguments.first() else {
            let help = help::of(command, &path);
            if std::ptr::eq(command, root) {
                streams.text(&help)?;
                return Ok(None);
            }
            return Err(Failure::Plain(help));
        };
        return Err(if std::ptr::eq(command, root) {
            Failure::Message(format!("unknown command {unknown:?} for \"kubectl\"{}", help::suggestions(root, unknown)))
        } else {
            Failure::usage(&path, format_args!("unknown command {unknown:?}"))
        });
    }
    let name = path.strip_prefix("kubectl ").unwrap_or(&path).to_owned();
    let options = alias.map_or_else(|| preferences.defaults(&name), |alias| alias.options);
    preferences::fill(&mut given, &options, &name).map_err(Failure::Message)?;
    let session =
        Session::new(environment, &given.global()).traced(streams.trace.clone()).with_preferences(preferences);
    // The caller puts its own streams in; these are never used.
    let (nowhere, _, _) = Streams::memory(b"");
    Ok(Some(Invocation { path, command, flags: given, streams: nowhere, session }))
}

/// What the user calls a command by another name.
fn alias(preferences: &Preferences, arguments: &[String]) -> Option<Alias> {
    let at = flags::find_command(sets::GLOBAL, arguments)?;
    if commands::ROOT.child(&arguments[at]).is_some() {
        return None;
    }
    preferences.alias(arguments, at)
}

/// A word that is no command may be a plug-in. So may one after `create`, which is no generator.
fn run_plugin(
    environment: &Environment,
    streams: &mut Streams,
    command: &'static Command,
    all: &[String],
    rest: &[String],
) -> Outcome {
    let Some(first) = rest.first() else { return Ok(()) };
    if std::ptr::eq(command, &raw const commands::ROOT) {
        let word = rest.iter().find(|word| !word.starts_with('-')).map_or("", String::as_str);
        if matches!(word, "" | "help" | "__complete" | "__completeNoDesc") {
            return Ok(());
        }
        return commands::plugin::run(environment, streams, all, 1);
    }
    if command.name == "create" && !first.starts_with('-') {
        return commands::plugin::run(environment, streams, all, all.len() - rest.len() + 1);
    }
    Ok(())
}
