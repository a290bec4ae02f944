//! What this process was started with, for `/flagz`, and since when it runs, for `/statusz`.
//!
//! Flags have their values from the command line, from a file or by default, all in one place: what clap read. What is secret shows as
//! upstream shows it.

use std::sync::OnceLock;

use clap::{ArgMatches, Command};
use jiff::Timestamp;
use rules::zpages::{CLASSIFIED, Component};

/// Flags whose values are secrets themselves, not names of files that have them.
const SECRET: [&str; 1] = ["token"];

static GIVEN: OnceLock<(Timestamp, Vec<(String, String)>)> = OnceLock::new();

/// Keeps what a command was started with.
pub fn remember(cli: &Command, matches: &ArgMatches) {
    let (mut command, mut matches) = (cli, matches);
    while let Some((name, below)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else { break };
        (command, matches) = (found, below);
    }
    // Once: a process has one command line.
    let _ = GIVEN.set((Timestamp::now(), flags(command, matches)));
}

fn flags(command: &Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let given = |arg: &clap::Arg| {
        let name = arg.get_long()?;
        let values = matches.try_get_raw(arg.get_id().as_str()).ok()?;
        let values: Vec<_> = values.into_iter().flatten().map(|value| value.to_string_lossy()).collect();
        let shown = if SECRET.contains(&name) && !values.is_empty() { CLASSIFIED.into() } else { values.join(",") };
        Some((name.to_owned(), shown))
    };
    command
        .get_arguments()
        .filter(|arg| !matches!(arg.get_id().as_str(), "help" | "version"))
        .filter_map(given)
        .collect()
}

/// A component of this process, by upstream's name.
pub fn component(name: &str) -> Component {
    let (started, flags) = GIVEN.get().cloned().unwrap_or_else(|| (Timestamp::now(), Vec::new()));
    let reported = flags.iter().find(|(flag, value)| flag == "reported-version" && !value.is_empty());
    let reported_version = reported.map(|(_, version)| version.clone());
    Component { name: name.to_owned(), started, flags, reported_version, ..Component::default() }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn every_flag_has_its_value_and_no_secret_is_among_them() {
        let mut cli = crate::cli::Cli::command();
        let line = "trireme agent --server https://a:6443 --token abcdef.0123456789abcdef --data-dir /d";
        let matches = cli.try_get_matches_from_mut(line.split(' ')).expect("a command line");
        let (command, below) = (cli.find_subcommand("agent").expect("a command"), matches.subcommand().expect("one").1);
        let flags = flags(command, below);
        let value = |name: &str| flags.iter().find(|(flag, _)| flag == name).map(|(_, value)| value.as_str());
        assert_eq!(value("server"), Some("https://a:6443"));
        assert_eq!(value("data-dir"), Some("/d"));
        assert_eq!(value("token"), Some("CLASSIFIED"));
        assert!(flags.iter().all(|(_, value)| !value.contains("0123456789abcdef")), "{flags:?}");
        assert_eq!(value("help"), None);
    }
}
