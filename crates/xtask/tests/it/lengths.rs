//! No crate over 25,000 lines; no file over 500, no function over 80, but for those of `long.txt`: a list that can only shrink.
//!
//! `TRIREME_BLESS=1 cargo test -p xtask` writes it anew, when files were moved or have become short: it never gets more entries.

use std::collections::BTreeMap;

use crate::source::{crates, files, production};

/// Its tests included. One that grows beyond this is two things.
const LARGEST_CRATE: usize = 25_000;
const LONGEST_FILE: usize = 500;
const LONGEST_FUNCTION: usize = 80;

/// Files by path, functions by path and name, that are too long.
fn long() -> BTreeMap<String, usize> {
    let all = crates().into_iter().flat_map(|name| files(&format!("crates/{name}")));
    let counted = all.map(|(path, text)| (path, text.lines().count()));
    let mut long: BTreeMap<String, usize> = counted.filter(|(_, lines)| *lines > LONGEST_FILE).collect();
    for (path, text) in production() {
        for (name, lines) in functions(&text).into_iter().filter(|(_, lines)| *lines > LONGEST_FUNCTION) {
            let known = long.entry(format!("{path}#{name}")).or_default();
            *known = lines.max(*known);
        }
    }
    long
}

/// Names and lengths. The formatter puts the end of a function below its beginning, so indentation says where it is.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = line.split_whitespace().take(6).collect();
        let Some(place) = words.iter().position(|word| *word == "fn") else { continue };
        let modifiers = ["pub", "async", "const", "unsafe", "extern", "default"];
        if !words[..place].iter().all(|word| modifiers.iter().any(|known| word.starts_with(known)) || *word == "\"C\"")
        {
            continue;
        }
        let name = words.get(place + 1).and_then(|name| name.split(['(', '<']).next()).unwrap_or_default();
        // One that fits a line ends there; a declaration without a body ends with a semicolon.
        let ends = |line: &&str| {
            let same = line.len() - line.trim_start().len() == indent;
            same && (line.trim() == "}" || line.ends_with(';'))
        };
        let further = if line.ends_with('}') { Some(0) } else { lines[at..].iter().position(ends) };
        found.push((name.to_owned(), further.map_or(1, |further| further + 1)));
    }
    found
}

#[test]
fn files_and_functions_are_short() {
    let path = xtask::root().join("crates/xtask/tests/it/long.txt");
    let listed = std::fs::read_to_string(&path).expect("the list");
    let listed: BTreeMap<&str, usize> = listed
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(name, lines)| (name, lines.parse().expect("a number")))
        .collect();
    let long = long();
    if std::env::var_os("TRIREME_BLESS").is_some() {
        assert!(long.len() <= listed.len(), "{} are too long, and {} were: {long:#?}", long.len(), listed.len());
        let shorter: String = long.iter().map(|(name, lines)| format!("{name} {lines}\n")).collect();
        return std::fs::write(&path, shorter).expect("written");
    }
    for (name, lines) in &long {
        let allowed = listed.get(&**name).copied();
        assert!(
            allowed.is_some(),
            "{name} has {lines} lines: {LONGEST_FILE} is the most for a file, {LONGEST_FUNCTION} for a function"
        );
        assert!(allowed >= Some(*lines), "{name} has grown to {lines} lines: make it shorter, not longer");
    }
    let gone: Vec<&&str> = listed.keys().filter(|name| !long.contains_key(**name)).collect();
    assert!(gone.is_empty(), "short by now: {gone:?}; TRIREME_BLESS=1 takes them off the list");
}

#[test]
fn crates_are_small() {
    for name in crates() {
        let lines: usize = files(&format!("crates/{name}")).iter().map(|(_, text)| text.lines().count()).sum();
        assert!(lines <= LARGEST_CRATE, "{name} has {lines} lines: {LARGEST_CRATE} is the most for a crate");
        assert!(lines > 0, "{name} was not read");
    }
}

#[test]
fn lengths_are_counted() {
    let text = "fn short() {}\npub async fn long(\n    a: u8,\n) -> u8 {\n    if a {\n        b();\n    }\n    a\n}\ntrait T {\n    fn declared(&self);\n}\n";
    let expected = [("short", 1), ("long", 8), ("declared", 1)];
    assert_eq!(functions(text), expected.map(|(name, lines)| (name.to_owned(), lines)));
}
