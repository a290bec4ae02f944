//! From a command line to the command that it means: aliases, plug-ins, flags, and the exit code.

use std::io::Write as _;

use cliruntime::command::{Command, Environment, Invocation};
use cliruntime::error::{Failure, Outcome};
use cliruntime::flags::{self, Mistake, sets};
use cliruntime::preferences::{self, Alias, Preferences};
use cliruntime::print::{OBJECTS, Printer, Request};
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
            for deprecation in invocation.flags.deprecations() {
                invocation.streams.error(&deprecation);
            }
            let outcome = match check(&mut invocation) {
                Ok(()) => {
                    let run = invocation.command.run.expect("only commands that run are dispatched");
                    run(&mut invocation).await
                }
                Err(failure) => Err(failure),
            };
            invocation.warn();
            let outcome = outcome.and_then(|()| invocation.session.end());
            finish(outcome, &mut invocation.streams)
        }
        Ok(None) => finish(Ok(()), &mut streams),
        Err(failure) => finish(Err(failure), &mut streams),
    }
}

/// Commands that want their arguments before they look at flags.
const ARGUMENTS_FIRST: [&str; 5] = ["run", "scale", "cordon", "uncordon", "drain"];
/// Commands that look at `--dry-run` and `-o` before anything else. So do generators, once they have a name.
const FLAGS_FIRST: [&str; 15] = [
    "annotate",
    "apply set-last-applied",
    "auth whoami",
    "certificate approve",
    "certificate deny",
    "events",
    "expose",
    "label",
    "replace",
    "set env",
    "set image",
    "set resources",
    "set selector",
    "set serviceaccount",
    "set subject",
];

/// What upstream checks in all commands, before they begin.
fn check(invocation: &mut Invocation) -> Outcome {
    let profile = invocation.flags.text("profile");
    let command_has_its_own = invocation.command.name == "debug";
    let known = ["", "none", "cpu", "heap", "goroutine", "threadcreate", "block", "mutex", "trace"];
    if !command_has_its_own && !known.contains(&profile) {
        return Err(Failure::Message(format!("unknown profile '{profile}'")));
    }
    let name = invocation.path.strip_prefix("kubectl ").unwrap_or_default().to_owned();
    let generator = name.starts_with("create ");
    let empty = invocation.flags.arguments.is_empty();
    // Other commands look at their arguments first, and for these flags themselves.
    let needs = commands::REQUIRED.iter().find(|(command, _)| generator && *command == name);
    if let Some((_, needed)) = needs {
        commands::create::required(invocation, needed)?;
    }
    let waits = ARGUMENTS_FIRST.contains(&&*name) || name.starts_with("create secret ");
    if !(waits && empty) {
        warn_of_dry_run(invocation);
    }
    // Objects are missed before formats are judged; flags that a generator must have are missed before anything.
    let late = matches!(&*name, "annotate" | "label") && empty && invocation.flags.list("filename").is_empty();
    let flags_first =
        (FLAGS_FIRST.contains(&&*name) && !late) || (name == "wait" && !empty) || (generator && invocation.names_one());
    if !flags_first {
        return Ok(());
    }
    let flags = &invocation.flags;
    DryRun::from_flags(flags)?;
    let request = Request { allowed: OBJECTS, typed: true };
    Printer::from_flags(flags, &invocation.session.environment, &request).map(drop)
}

/// Old forms of `--dry-run` still work.
fn warn_of_dry_run(invocation: &mut Invocation) {
    let (place, text) = match invocation.flags.text("dry-run") {
        "" | "none" | "client" | "server" => return,
        "unchanged" => {
            ("helpers.go:714", "--dry-run is deprecated and can be replaced with --dry-run=client.".to_owned())
        }
        old => match DryRun::from_flags(&invocation.flags) {
            Err(_) => return,
            Ok(meant) => {
                let (place, new) =
                    if meant == DryRun::Client { ("helpers.go:728", "client") } else { ("helpers.go:731", "none") };
                let text =
                    format!("--dry-run={old} is deprecated (boolean value) and can be replaced with --dry-run={new}.");
                (place, text)
            }
        },
    };
    invocation.streams.log('W', place, &text);
}

fn finish(outcome: Outcome, streams: &mut Streams) -> i32 {
    let code = match &outcome {
        Ok(()) => 0,
        Err(failure) => {
            let _ = streams.text(failure.printed());
            let _ = streams.out.flush();
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
    let (preferences, complaint) = Preferences::of(&environment, arguments).map_err(unpreferred)?;
    if let Some(complaint) = complaint {
        streams.error(&complaint);
    }
    preferences.check().map_err(unpreferred)?;
    let alias = alias(&preferences, arguments);
    let all = alias.as_ref().map_or(arguments, |alias| &alias.arguments);
    if let Some((word, topic)) = all.split_first()
        && word == "help"
    {
        return tell(topic, streams).map(|()| None);
    }
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
    if std::ptr::eq(command, root)
        && let Some(at) = flags::find_command(sets::GLOBAL, &arguments)
    {
        // Whatever flags it is given: nobody can know them.
        let unknown = &arguments[at];
        let guesses = help::suggestions(root, unknown);
        return Err(Failure::Message(format!("unknown command {unknown:?} for \"kubectl\"{guesses}")));
    }
    let groups = command.flags.iter().chain(flags::sets::GLOBAL);
    let mut given = match flags::parse(groups, &arguments) {
        Ok(given) => given,
        Err(mistake) => return mistaken(command, &path, mistake, streams).map(|()| None),
    };
    if command.run.is_none() {
        let unknown = given.arguments.join(" ");
        if given.arguments.is_empty() || command.name == "certificate" {
            let help = help::of(command, &path);
            return match command.name {
                // Each as its upstream has it.
                "kubectl" | "certificate" => {
                    streams.text(&help)?;
                    Ok(None)
                }
                "rollout" => Err(Failure::Exit(1).after(help)),
                _ => Err(Failure::Plain(help)),
            };
        }
        return Err(Failure::usage(&path, format_args!("unknown command {unknown:?}")));
    }
    let name = path.strip_prefix("kubectl ").unwrap_or(&path).to_owned();
    let options = alias.map_or_else(|| preferences.defaults(&name), |alias| alias.options);
    preferences::fill(&mut given, &options, &name).map_err(unpreferred)?;
    let dash = |word: &String| word == "-";
    let reads = given.list("filename").iter().any(dash) || (name == "set env" && given.arguments.iter().any(dash));
    let session = Session::new(environment, &given.global())
        .traced(streams.trace.clone())
        .with_preferences(preferences)
        .reading_input(reads);
    // The caller puts its own streams in; these are never used.
    let (nowhere, _, _) = Streams::memory(b"");
    Ok(Some(Invocation { path, command, flags: given, streams: nowhere, session }))
}

/// Flags that ask for help, or that nobody can read.
fn mistaken(command: &'static Command, path: &str, mistake: Mistake, streams: &mut Streams) -> Outcome {
    let words = match mistake {
        Mistake::Help if command.name == commands::alpha::COMMAND.name => {
            streams.error(commands::alpha::NOTHING);
            return Ok(());
        }
        Mistake::Help => return Ok(streams.text(&help::of(command, path))?),
        Mistake::Words(words) => words,
    };
    Err(match command.name {
        // One is what differences are told by.
        "diff" => Failure::WithCode(format!("error: {words}\nSee '{path} -h' for help and examples\n"), 2),
        "options" => Failure::Message(format!("{words}\nRun '{path}' without flags.")),
        _ => Failure::Message(format!("{words}\nSee '{path} --help' for usage.")),
    })
}

fn unpreferred(why: String) -> Failure {
    Failure::Plain(format!("error occurred while applying preferences {why}"))
}

/// `kubectl help …`: the help of the command that the words mean.
fn tell(topic: &[String], streams: &mut Streams) -> Outcome {
    let (mut command, mut path): (&'static Command, _) = (&commands::ROOT, "kubectl".to_owned());
    for word in topic.iter().filter(|word| !word.starts_with('-')) {
        match command.child(word) {
            Some(child) => {
                path = format!("{path} {}", child.name);
                command = child;
            }
            None if std::ptr::eq(command, &raw const commands::ROOT) => {
                let shown: Vec<String> = topic.iter().map(|word| format!("`{word}`")).collect();
                streams.error(&format!("Unknown help topic [{}]\n", shown.join(" ")));
                streams.error(help::of(command, &path).trim_end());
                return Ok(());
            }
            None => break,
        }
    }
    if command.name == commands::alpha::COMMAND.name {
        streams.error(commands::alpha::NOTHING);
        return Ok(());
    }
    Ok(streams.text(&help::of(command, &path))?)
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
        let word = flags::find_command(sets::GLOBAL, rest).map_or("", |at| rest[at].as_str());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_is_guessed() {
        let guess = |typed: &str| help::suggestions(&commands::ROOT, typed);
        assert_eq!(guess("list"), "\n\nDid you mean this?\n\tget\n");
        assert_eq!(guess("gett"), "\n\nDid you mean this?\n\tset\n\tget\n");
        assert_eq!(guess("nothing-like-it"), "");
    }

    #[test]
    fn help_has_upstreams_layout() {
        let root: &'static Command = &commands::ROOT;
        let whole = help::of(root, "kubectl");
        assert!(whole.contains("\n\nBasic Commands (Beginner):\n  create          Create"), "{whole}");
        assert!(whole.ends_with("\nUsage:\n  kubectl [flags] [options]\n\nUse \"kubectl <command> --help\" for more information about a given command.\nUse \"kubectl options\" for a list of global command-line options (applies to all commands).\n"), "{whole}");
        let get = help::of(root.child("get").expect("get"), "kubectl get");
        assert!(get.contains("\n\nOptions:\n    -A, --all-namespaces=false:\n\t"), "{get}");
        assert!(get.contains("\n\n    --allow-missing-template-keys=true:\n\t"), "{get}");
        let apply = help::of(root.child("apply").expect("apply"), "kubectl apply");
        assert!(!apply.contains("--record") && !apply.contains("--applyset"), "what is hidden is not shown: {apply}");
    }

    /// Every command that does something, by its path.
    fn below(parent: &'static Command, path: &str, all: &mut Vec<(String, &'static Command)>) {
        for child in parent.children {
            let path = format!("{path} {}", child.name).trim_start().to_owned();
            if child.run.is_some() {
                all.push((path.clone(), child));
            }
            below(child, &path, all);
        }
    }

    #[test]
    fn every_command_has_an_example_whose_flags_it_knows() {
        let mut all = Vec::new();
        below(&commands::ROOT, "", &mut all);
        for (path, command) in all {
            let examples = help::examples::of(&path);
            assert!(!examples.is_empty(), "{path} has no example");
            for (_, line) in examples.iter().filter(|(_, line)| !line.contains('<')) {
                let start = format!("kubectl {path}");
                let at = line.find(&start).unwrap_or_else(|| panic!("{line} does not call {path}"));
                let words: Vec<String> = line[at + start.len()..].split_whitespace().map(str::to_owned).collect();
                let parsed = flags::parse(command.flags.iter().chain(sets::GLOBAL), &words);
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
            }
        }
    }
}
