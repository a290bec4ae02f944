//! What is linked in: the rules of `deny.toml` that need no database, held by every test run. `make lint` asks cargo-deny for the rest
//! (advisories, texts of licences) where it is installed.

use std::collections::BTreeSet;
use std::process::Command;

use serde::Deserialize;
use spdx::{Expression, ParseMode};

use xtask::root;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

fn packages() -> Vec<Package> {
    let arguments = ["metadata", "--locked", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("cargo's metadata");
    assert!(metadata.packages.len() > 100, "only {} packages", metadata.packages.len());
    metadata.packages
}

/// The strings of a list in `deny.toml`, which has one of them on a line.
fn listed(list: &str, key: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let (_, rest) = text.split_once(&format!("\n{list} = [\n")).expect("the list");
    let (lines, _) = rest.split_once("\n]").expect("its end");
    let strings = lines.lines().filter_map(|line| line.split_once(&format!("{key}\""))?.1.split_once('"'));
    let found: BTreeSet<String> = strings.map(|(string, _)| string.to_owned()).collect();
    assert!(!found.is_empty(), "{list} is empty");
    found
}

#[test]
fn every_licence_is_allowed() {
    let allowed = listed("allow", "");
    let mut refused = Vec::new();
    for package in packages() {
        // A package of the house has the house's licence.
        let text = package.license.unwrap_or_default();
        let fits = Expression::parse_mode(&text, ParseMode::LAX)
            .is_ok_and(|licence| licence.evaluate(|one| allowed.contains(&one.to_string())));
        if !fits {
            refused.push(format!("{} {}: {text:?}", package.name, package.version));
        }
    }
    assert!(refused.is_empty(), "deny.toml does not allow {refused:#?}");
}

#[test]
fn everything_comes_from_the_registry_and_nothing_is_banned() {
    let banned = listed("deny", "name = ");
    for Package { name, version, source, .. } in packages() {
        assert!(!banned.contains(&name), "{name} {version} is banned by deny.toml");
        if let Some(source) = source {
            assert!(source.starts_with("registry+"), "{name} {version} comes from {source}");
        }
    }
}
