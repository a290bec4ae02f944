//! `--help` in upstream's layout, and guesses at what was meant.

pub mod examples;

use crate::command::Command;
use crate::flags::{Flag, Kind};

/// Names in a list of commands are at least this wide.
const NAME_WIDTH: usize = 11;

/// The commands of kubectl by what they are for, as its own help groups them. What no group has is listed last.
const GROUPS: &[(&str, &[&str])] = &[
    ("Basic Commands (Beginner):", &["create", "expose", "run", "set"]),
    ("Basic Commands (Intermediate):", &["explain", "get", "edit", "delete"]),
    ("Deploy Commands:", &["rollout", "scale", "autoscale"]),
    ("Cluster Management Commands:", &["certificate", "cluster-info", "top", "cordon", "uncordon", "drain", "taint"]),
    (
        "Troubleshooting and Debugging Commands:",
        &[
            "describe",
            "logs",
            "attach",
            "exec",
            "port-forward",
            "proxy",
            "cp",
            "auth",
            "debug",
            "events",
            "why",
            "trace",
            "ui",
            "history",
        ],
    ),
    ("Advanced Commands:", &["diff", "apply", "patch", "replace", "wait", "kustomize", "undo"]),
    ("Settings Commands:", &["label", "annotate", "completion"]),
    ("Subcommands provided by plugins:", &[]),
];

/// What help of everything does not name.
pub const UNLISTED: [&str; 2] = ["alpha", "options"];

/// The help of a command: what it does, how it is called, what it knows.
pub fn of(command: &Command, path: &str) -> String {
    let mut text = format!("{}.\n\n", command.short.trim_end_matches('.'));
    if !command.aliases.is_empty() {
        text += &format!("Aliases:\n{}, {}\n\n", command.name, command.aliases.join(", "));
    }
    let examples = examples::of(path.strip_prefix("kubectl ").unwrap_or_default());
    if !examples.is_empty() {
        let shown: Vec<String> = examples.iter().map(|(what, line)| format!("  # {what}\n  {line}\n")).collect();
        text += &format!("Examples:\n{}\n", shown.join("  \n"));
    }
    if path == "kubectl" {
        text += &groups(command);
    } else if !command.children.is_empty() {
        text += &listed("Available Commands:", command, command.children.iter().copied());
    }
    let mut flags: Vec<_> = command.flags.iter().flat_map(|group| group.iter()).filter(|flag| !flag.hidden).collect();
    flags.sort_by_key(|flag| flag.name);
    if !flags.is_empty() {
        let lines: Vec<String> = flags.into_iter().map(line).collect();
        text += &format!("Options:\n{}\n\n", lines.join("\n\n"));
    }
    text += &format!("Usage:\n  {}\n\n", usage_line(command, path));
    if !command.children.is_empty() {
        text += &format!("Use \"{path} <command> --help\" for more information about a given command.\n");
    }
    text + "Use \"kubectl options\" for a list of global command-line options (applies to all commands).\n"
}

/// How a command is called; its flags stand for themselves.
fn usage_line(command: &Command, path: &str) -> String {
    let mut line = format!("{path} {}", command.usage);
    if command.usage.is_empty() {
        line.truncate(path.len());
    }
    if !line.contains("[options]") {
        line += " [options]";
    }
    line
}

fn groups(root: &Command) -> String {
    let named = |name: &&str| root.child(name);
    let mut text: String =
        GROUPS.iter().map(|(title, names)| listed(title, root, names.iter().filter_map(named))).collect();
    let grouped = |child: &&Command| GROUPS.iter().any(|(_, names)| names.contains(&child.name));
    let others = root.children.iter().copied().filter(|child| !grouped(child) && !UNLISTED.contains(&child.name));
    text += &listed("Other Commands:", root, others);
    text
}

fn listed<'a>(title: &str, parent: &Command, commands: impl Iterator<Item = &'a Command>) -> String {
    let width = parent.children.iter().map(|child| child.name.len()).max().unwrap_or_default().max(NAME_WIDTH);
    let lines: String = commands
        .map(|command| format!("  {:width$}   {}\n", command.name, command.short.trim_end_matches('.')))
        .collect();
    format!("{title}\n{lines}\n")
}

/// One flag with its default.
pub fn line(flag: &Flag) -> String {
    let short = flag.short.map_or(String::new(), |letter| format!("-{letter}, "));
    let default = match flag.kind {
        Kind::String => format!("'{}'", flag.default),
        Kind::Slice | Kind::Array => format!("[{}]", flag.default),
        _ => flag.default.to_owned(),
    };
    format!("    {short}--{}={default}:\n\t{}", flag.name, flag.help)
}

/// What people write who know other programs, and which command that is here.
const MEANT: &[(&str, &[&str])] =
    &[("get", &["list", "ls"]), ("delete", &["rm", "remove"]), ("describe", &["inspect"]), ("top", &["stats"])];

/// Commands that differ from what was written by two letters at most, begin with it, or are called so elsewhere. In the order of
/// their groups.
pub fn suggestions(root: &Command, typed: &str) -> String {
    let meant = |name: &str| MEANT.iter().any(|(known, words)| *known == name && words.contains(&typed));
    let close = |name: &str| distance(&typed.to_lowercase(), name) <= 2 || name.starts_with(&typed.to_lowercase());
    let mut near: Vec<&str> = root
        .children
        .iter()
        .map(|child| child.name)
        .filter(|name| *name != "alpha" && (close(name) || meant(name)))
        .collect();
    let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    near.sort_by_key(|name| grouped.iter().position(|known| known == name).unwrap_or(grouped.len()));
    if near.is_empty() {
        return String::new();
    }
    near.iter().fold("\n\nDid you mean this?\n".to_owned(), |text, name| text + &format!("\t{name}\n"))
}

/// How many letters have to be put in, taken out or changed.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (at, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = at + 1;
        for (place, other) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *other);
            diagonal = row[place + 1];
            row[place + 1] = changed.min(row[place] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_counted_in_letters() {
        for (from, to, expected) in [("foo", "top", 2), ("get", "get", 0), ("gte", "get", 2), ("", "get", 3)] {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
    }
}
