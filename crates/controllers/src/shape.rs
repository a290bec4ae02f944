//! What ARCHITECTURE.md promises of the folders, checked in their text.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::registry;

/// The crates whose folders are controllers.
const CRATES: [&str; 2] = ["controllers", "workloads"];
const MOST_LINES: usize = 500;

/// Who writes more than one status in a turn, and why. Everybody else has one place that does.
const STATUSES: [(&str, usize, &str); 4] = [
    ("disruption", 2, "the budget's, and that of pods with a stale condition"),
    ("nodelifecycle", 2, "the node's, and that of the pods on it"),
    ("resourceclaim", 3, "of pods, of claims reserved for them, and of claims nobody needs any more"),
    ("volumebinder", 2, "the claim's and the volume's"),
];
/// Who leaves the reconciling itself to other files, and why.
const SPLIT: [(&str, &str); 1] = [("resourceclaim", "two controllers in one folder: pods and claims")];
/// Who is not in the registry, and why.
const APART: [(&str, &str); 1] =
    [("serviceloadbalancer", "a part of the server, with an identity, a lease and a switch of its own")];
/// Whose plan is not one function of that name, and why.
const PLANS: [(&str, &str); 6] = [
    ("certificates", "four controllers, with a decision each"),
    ("garbage", "what goes and what stays is asked at different times, because owners may have to be asked for"),
    ("nodeipam", "its plan is the ledger of ranges"),
    ("volumeattributesclassprotection", "what follows from use is decided in common::protection"),
    ("volumebinder", "a decision for claims, another for volumes"),
    ("volumeprotection", "what follows from use is decided in common::protection"),
];
/// What a decision must not have: then it would not be pure.
const IMPURE: [&str; 6] = [".await", "async fn", "Client", "Informer<", "clock.now()", "tokio::"];

fn sources() -> impl Iterator<Item = PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of the crates");
    CRATES.into_iter().map(|name| crates.join(name).join("src"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// A controller's folder: its name, and its files by name.
struct Folder {
    name: String,
    files: Vec<(String, String)>,
}

impl Folder {
    fn file(&self, name: &str) -> &str {
        let found = self.files.iter().find(|(known, _)| known == name);
        found.map_or_else(|| panic!("{} has no {name}", self.name), |(_, text)| text)
    }

    /// The text without tests.
    fn code(&self) -> String {
        let files = self.files.iter().filter(|(name, _)| !name.contains("tests"));
        files.map(|(_, text)| text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default()).collect()
    }
}

fn folders() -> Vec<Folder> {
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
    let folders = sources().flat_map(|source| entries(&source)).filter(|path| path.is_dir());
    let folders: Vec<Folder> = folders
        .map(|path| {
            let files = entries(&path).into_iter().map(|file| (name(&file), read(&file))).collect();
            Folder { name: name(&path), files }
        })
        .collect();
    assert!(folders.len() > 40, "the folders are not found any more");
    folders
}

fn is_apart(folder: &str) -> bool {
    APART.iter().any(|(name, _)| *name == folder)
}

/// The names in `opening<...>` or between quotes after `opening`.
fn after<'a>(text: &'a str, opening: &str, closing: char) -> BTreeSet<&'a str> {
    text.split(opening).skip(1).filter_map(|rest| rest.split(closing).next()).collect()
}

#[test]
fn every_folder_has_the_same_files() {
    for folder in folders() {
        let name = &folder.name;
        let description = folder.file("mod.rs");
        assert!(description.starts_with("//! "), "{name}: mod.rs says what it is about");
        let registered = description.contains(" const CONTROLLER");
        assert_eq!(registered, !is_apart(name), "{name}: mod.rs has its CONTROLLER");
        assert!(!description.contains("async fn"), "{name}: mod.rs does nothing");
        let reconciles = folder.file("reconcile.rs").contains("Reconciler for");
        assert_eq!(reconciles, !SPLIT.iter().any(|(split, _)| split == name), "{name}: reconcile.rs reconciles");
        let plan = folder.file("plan.rs");
        let other = PLANS.iter().any(|(other, _)| other == name);
        assert_eq!(plan.contains("fn plan("), !other, "{name}: plan.rs has a plan");
        let tested = folder.files.iter().any(|(name, _)| name == "tests.rs") || plan.contains("mod tests {");
        assert!(tested, "{name}: its decisions have tests beside them");
    }
}

#[test]
fn decisions_are_pure() {
    for folder in folders() {
        for (file, text) in folder.files.iter().filter(|(file, _)| matches!(file.as_str(), "plan.rs" | "status.rs")) {
            for word in IMPURE {
                assert!(!text.contains(word), "{}/{file} has {word:?}", folder.name);
            }
        }
    }
}

#[test]
fn a_turn_writes_one_status() {
    for folder in folders() {
        let code = folder.code();
        let writes = code.matches(".update_status(").count() + code.matches(".patch_status").count();
        let exception = STATUSES.iter().find(|(name, ..)| *name == folder.name);
        match exception {
            Some((name, most, why)) => assert_eq!(writes, *most, "{name}: {why}"),
            None => assert!(writes <= 1, "{} writes a status in {writes} places", folder.name),
        }
    }
}

#[test]
fn controllers_never_touch_each_other() {
    let folders = folders();
    for folder in &folders {
        let code = folder.code();
        for other in folders.iter().filter(|other| other.name != folder.name) {
            for path in [format!("crate::{}::", other.name), format!("workloads::{}::", other.name)] {
                assert!(!code.contains(&path), "{} names {}", folder.name, other.name);
            }
        }
    }
}

#[test]
fn a_controller_says_what_it_watches() {
    for folder in folders().into_iter().filter(|folder| !is_apart(&folder.name)) {
        let code = folder.code();
        let description = folder.file("mod.rs");
        let declared: BTreeSet<&str> = registry::all()
            .filter(|controller| description.contains(&format!("name: \"{}\"", controller.name)))
            .flat_map(|controller| controller.watches.iter().copied())
            .collect();
        assert!(!declared.is_empty(), "{} is not in the registry", folder.name);
        let mut read = after(&code, "Informer<", '>');
        read.remove("K");
        let missing: Vec<&&str> = read.difference(&declared).collect();
        assert!(missing.is_empty(), "{} reads {missing:?} and does not say so", folder.name);
        for kind in declared {
            // Slices are watched for two controllers by what they have in common.
            let used = code.matches(kind).count() > description.matches(kind).count() || kind == "EndpointSlice";
            assert!(used, "{} says that it watches {kind}", folder.name);
        }
    }
}

#[test]
fn names_are_there_once() {
    let mut names: Vec<&str> = registry::all().map(|controller| controller.name).collect();
    names.extend(registry::all().map(|controller| controller.alias).filter(|alias| !alias.is_empty()));
    let distinct: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(distinct.len(), names.len());
}

#[test]
fn files_can_be_read_at_one_sitting() {
    let mut left: Vec<PathBuf> = sources().collect();
    while let Some(path) = left.pop() {
        if path.is_dir() {
            left.extend(entries(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let lines = read(&path).lines().count();
            assert!(lines <= MOST_LINES, "{} has {lines} lines", path.display());
        }
    }
}
