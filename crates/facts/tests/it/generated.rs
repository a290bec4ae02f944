//! The checked-in files are what the generator writes.

use std::path::Path;

use crate::generator;

#[test]
fn checked_in_files_are_what_the_generator_writes() {
    let facts = generator::default_folder();
    if !facts.is_dir() {
        eprintln!("skipped: no upstream facts beside the workspace");
        return;
    }
    for (name, expected) in generator::files(&facts).expect("the facts are readable") {
        let found = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("is checked in");
        let differs = found.lines().zip(expected.lines()).position(|(found, expected)| found != expected);
        assert!(
            found == expected,
            "{name} is stale (line {:?}): run `cargo run -p facts --example generate`",
            differs.map(|at| at + 1)
        );
    }
}

#[test]
fn presence_of_packages_without_source_is_kept() {
    let facts = generator::default_folder();
    if !facts.is_dir() {
        eprintln!("skipped: no upstream facts beside the workspace");
        return;
    }
    let nowhere = Path::new(env!("CARGO_MANIFEST_DIR")).join("no-such-source");
    let before =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("presence.txt")).expect("checked in");
    assert_eq!(generator::presence(&facts, &nowhere, &before).expect("the facts are readable"), before);
}
