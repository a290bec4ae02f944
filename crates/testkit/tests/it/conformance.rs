//! The table of upstream's conformance names: each has a test of ours that would catch its loss, or says what is missing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const TABLE: &str = include_str!("../../../../conformance/v1.37/tests.tsv");
/// How many names the suite of v1.37 has.
const NAMES: usize = 465;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All source files below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
}

/// The module of a file, below its crate: `["it", "kubectl"]`, `["pod", "plan"]`.
fn module(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if matches!(parts.last().map(String::as_str), Some("mod" | "lib" | "main")) {
        parts.pop();
    }
    parts
}

/// The paths of all tests of a crate, as `cargo test` names them, with the crate before them.
fn tests_of(name: &str) -> BTreeSet<String> {
    let mut tests = BTreeSet::new();
    for folder in ["src", "tests"] {
        let root = crates().join(name).join(folder);
        if !root.is_dir() {
            continue;
        }
        let mut files = Vec::new();
        sources(&root, &mut files);
        for file in files {
            let module = module(file.strip_prefix(&root).expect("it was found below"));
            let text = std::fs::read_to_string(&file).expect("a source");
            let mut lines = text.lines();
            while let Some(line) = lines.next() {
                if !["#[test]", "#[tokio::test"].iter().any(|mark| line.trim_start().starts_with(mark)) {
                    continue;
                }
                let function = lines.by_ref().find_map(|line| line.split_once("fn ")).expect("a test is a function").1;
                let function = function.split('(').next().unwrap_or_default();
                // Tests beside their code are in a module of their own, and so indented.
                let inner = line.starts_with(' ').then_some("tests");
                let parts = [name].into_iter().chain(module.iter().map(String::as_str)).chain(inner).chain([function]);
                tests.insert(parts.collect::<Vec<_>>().join("::"));
            }
        }
    }
    tests
}

#[test]
fn every_name_has_a_test_or_says_what_is_missing() {
    let lines: Vec<Vec<&str>> = TABLE.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines.len(), NAMES);
    let names: Vec<&str> = lines.iter().map(|line| line[0]).collect();
    assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "each name once, and in order");
    assert!(names.iter().all(|name| name.starts_with("[sig-") && name.contains("[Conformance]")));

    let mut known = std::collections::BTreeMap::new();
    let mut wrong = Vec::new();
    for line in &lines {
        match line[..] {
            [name, "-", why] if why.trim().len() > 10 => println!("gap: {name}: {why}"),
            [name, tests] if tests != "-" => {
                for test in tests.split(',') {
                    let own = test.split("::").next().unwrap_or_default().to_owned();
                    let all = known.entry(own).or_insert_with_key(|own| tests_of(own));
                    if !all.contains(test) {
                        wrong.push(format!("{name}: no test {test}"));
                    }
                }
            }
            _ => wrong.push(format!("{line:?} is neither a list of tests nor a gap with its reason")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
