//! Plug-ins: programs on the path whose name begins with `kubectl-`, and `kubectl plugin list`, which names them.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::command::{Command, Environment, Invocation};
use crate::error::{Failure, Outcome, os_error};
use crate::flags::Flag;
use crate::program;
use crate::streams::Streams;

pub static COMMAND: Command = Command {
    name: "plugin",
    aliases: &[],
    usage: "[flags]",
    short: "Provides utilities for interacting with plugins",
    flags: &[],
    children: &[&LIST],
    run: None,
};

static LIST: Command = Command {
    name: "list",
    aliases: &[],
    usage: "[flags]",
    short: "List all visible plugin executables on a user's PATH",
    flags: &[&[Flag::bool("name-only", "Show names without directories.")]],
    children: &[],
    run: Some(|invocation| Box::pin(async move { list(invocation) })),
};

/// The plug-in that a command line means, and how many of its words are the plug-in's name. At least `least` of them are.
pub fn find(environment: &Environment, arguments: &[String], least: usize) -> Result<Option<(String, usize)>, String> {
    let words: Vec<String> =
        arguments.iter().take_while(|word| !word.starts_with('-')).map(|word| word.replace('-', "_")).collect();
    if words.is_empty() {
        let first = arguments.first().map_or("", String::as_str);
        return Err(format!("flags cannot be placed before plugin name: {first}"));
    }
    for count in (least..=words.len()).rev() {
        let name = format!("kubectl-{}", words[..count].join("-"));
        if let Some(path) = program::find(environment, &name) {
            return Ok(Some((path.to_string_lossy().into_owned(), count)));
        }
    }
    Ok(None)
}

/// Runs the plug-in that a command line means, if there is one. Its exit code is ours.
pub fn run(environment: &Environment, streams: &mut Streams, arguments: &[String], least: usize) -> Outcome {
    let found = find(environment, arguments, least).map_err(|error| Failure::Plain(format!("Error: {error}")))?;
    let Some((path, count)) = found else { return Ok(()) };
    let mut environment = environment.clone();
    let called = std::env::args_os().next().unwrap_or_default();
    if let Some(own) = own_path(&environment, Path::new(&called)) {
        environment.variables.insert("KUBECTL_PATH".to_owned(), own.display().to_string());
    }
    match program::run(&environment, streams, Path::new(&path), &arguments[count..]) {
        Ok(code) => Err(Failure::Exit(code)),
        Err(error) => Err(Failure::Plain(format!("Error: {error}"))),
    }
}

/// Where this program is, as a plug-in can call it. The link by which it was called says that it is kubectl, what the link leads to does not.
fn own_path(environment: &Environment, called: &Path) -> Option<PathBuf> {
    let is_link = called.file_name().is_some_and(|name| name == "kubectl");
    let found = match called.parent() {
        Some(directory) if is_link && !directory.as_os_str().is_empty() => {
            Some(environment.path(&called.to_string_lossy()))
        }
        _ if is_link => program::find(environment, "kubectl"),
        _ => None,
    };
    found.or_else(|| std::env::current_exe().ok())
}

fn list(invocation: &mut Invocation) -> Outcome {
    let environment = invocation.session.environment.clone();
    let path = environment.variable("PATH").unwrap_or_default();
    let (mut plugins, mut directories) = (Vec::new(), Vec::new());
    for directory in std::env::split_paths(path) {
        let shown = directory.to_string_lossy().into_owned();
        if shown.trim().is_empty() || directories.contains(&shown) {
            continue;
        }
        match std::fs::read_dir(&directory) {
            Err(error) => {
                let why = os_error("open", &shown, &error);
                invocation
                    .streams
                    .error(&format!("Unable to read directory {shown:?} from your PATH: {why}. Skipping..."));
            }
            Ok(entries) => {
                let mut names: Vec<String> = entries
                    .flatten()
                    .filter(|entry| !entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.file_name().to_string_lossy().into_owned())
                    .filter(|name| name.starts_with("kubectl-"))
                    .collect();
                names.sort();
                plugins.extend(names.into_iter().map(|name| (shown.clone(), name)));
            }
        }
        directories.push(shown);
    }
    let mut errors = String::new();
    if plugins.is_empty() {
        errors += "error: unable to find any kubectl plugins in your PATH\n";
    } else {
        invocation.say("The following compatible plugins are available:\n")?;
    }
    let (mut seen, mut warnings) = (HashMap::new(), 0);
    for (directory, name) in plugins {
        let path = format!("{}/{name}", directory.trim_end_matches('/'));
        invocation.say(if invocation.flags.is("name-only") { &name } else { &path })?;
        for warning in warnings_of(&path, &name, &mut seen) {
            invocation.streams.error(&format!("  - {warning}"));
            warnings += 1;
        }
    }
    match warnings {
        0 => {}
        1 => errors += "error: one plugin warning was found\n",
        many => errors += &format!("error: {many} plugin warnings were found\n"),
    }
    if errors.is_empty() { Ok(()) } else { Err(Failure::Message(errors)) }
}

/// What is wrong with a plug-in.
fn warnings_of(path: &str, name: &str, seen: &mut HashMap<String, String>) -> Vec<String> {
    let mut warnings = Vec::new();
    match std::fs::metadata(path) {
        Ok(_) if program::is_executable(Path::new(path)) => {}
        Ok(_) => warnings.push(format!("warning: {path} identified as a kubectl plugin, but it is not executable")),
        Err(error) => warnings.push(format!(
            "error: unable to identify {path} as an executable file: {}",
            os_error("stat", path, &error)
        )),
    }
    match seen.get(name) {
        Some(first) => {
            warnings.push(format!("warning: {path} is overshadowed by a similarly named plugin: {first}"));
        }
        None => {
            seen.insert(name.to_owned(), path.to_owned());
        }
    }
    let mut command: &'static Command = &super::ROOT;
    let mut known = "kubectl".to_owned();
    for word in name.split('-').skip(1) {
        // What follows a command that is known are its arguments, unless it has commands of its own only.
        let Some(child) = command.child(word) else { break };
        known = format!("{known} {}", child.name);
        command = child;
    }
    if command.name == "kubectl" {
        return warnings;
    }
    warnings.push(format!("warning: {name} overwrites existing command: {known:?}"));
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plug_in_calls_kubectl_by_the_link_that_the_user_called() {
        let folder = tempfile::tempdir().expect("a directory");
        let link = folder.path().join("kubectl");
        std::os::unix::fs::symlink(std::env::current_exe().expect("this test"), &link).expect("a link");
        let variables = [("PATH".to_owned(), folder.path().display().to_string())].into();
        let environment = Environment { variables, directory: "/home".into(), fallback: None };
        let own = std::env::current_exe().ok();
        for (called, expected) in [
            ("kubectl", Some(link)),
            ("/usr/bin/kubectl", Some("/usr/bin/kubectl".into())),
            ("bin/kubectl", Some("/home/bin/kubectl".into())),
            ("/usr/bin/trireme", own),
        ] {
            assert_eq!(own_path(&environment, Path::new(called)), expected, "{called}");
        }
    }
}
