//! `--help`, and guesses at what was meant.

use crate::command::Command;
use crate::flags::Kind;

/// The help of a command: what it does, how it is called, what it knows.
pub fn of(command: &Command, path: &str) -> String {
    let mut text = format!("{}\n", command.short);
    if !command.children.is_empty() {
        let width = command.children.iter().map(|child| child.name.len()).max().unwrap_or_default();
        text += "\nAvailable Commands:\n";
        for child in command.children {
            text += &format!("  {:width$}   {}\n", child.name, child.short.trim_end_matches('.'));
        }
    }
    let mut flags: Vec<_> = command.flags.iter().flat_map(|group| group.iter()).collect();
    flags.sort_by_key(|flag| flag.name);
    if !flags.is_empty() {
        text += "\nOptions:\n";
        for flag in flags {
            text += &line(flag);
        }
    }
    let usage = if command.run.is_none() && !command.children.is_empty() { "[command]" } else { command.usage };
    text += &format!("\nUsage:\n  {path} {usage}{}\n", if command.flags.is_empty() { "" } else { " [options]" });
    if path != "kubectl" {
        text += "\nUse \"kubectl options\" for a list of global command-line options (applies to all commands).\n";
    }
    text
}

/// One flag with its default.
pub fn line(flag: &crate::flags::Flag) -> String {
    let short = flag.short.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
    let default = match flag.kind {
        Kind::String => format!("'{}'", flag.default),
        Kind::Slice | Kind::Array => format!("[{}]", flag.default),
        _ => flag.default.to_owned(),
    };
    format!("    {short}--{}={default}:\n\t{}\n\n", flag.name, flag.help)
}

/// Commands that differ from what was written by two letters at most, or begin with it.
pub fn suggestions(root: &Command, typed: &str) -> String {
    let near: Vec<&str> = root
        .children
        .iter()
        .map(|child| child.name)
        .filter(|name| distance(&typed.to_lowercase(), name) <= 2 || name.starts_with(&typed.to_lowercase()))
        .collect();
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
