//! What upstream publishes, for tests to compare with: its files where they are, their checksums everywhere.
//!
//! Upstream's discovery documents, OpenAPI schemas, field numbers and encoded objects are not ours to carry along. In `digests.txt` is a
//! checksum of each answer in its canonical form, so a fresh clone compares too: an answer that differs from upstream's fails, though
//! only the full files say where. They are looked for in `shared/upstream` beside the workspace, or where `TRIREME_UPSTREAM` says;
//! if that is set, as in continuous integration, and they are not there, tests fail. `TRIREME_BLESS=1` records the checksums anew.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

const FOLDER: &str = "TRIREME_UPSTREAM";
const BLESS: &str = "TRIREME_BLESS";

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// One of upstream's files or folders; `None` after a loud line if they are not here.
pub fn upstream(path: &str) -> Option<PathBuf> {
    let named = std::env::var_os(FOLDER).filter(|folder| !folder.is_empty());
    let folder = named.as_ref().map_or_else(|| here().join("../../../shared/upstream"), PathBuf::from);
    let found = folder.join(path);
    if found.exists() {
        return Some(found);
    }
    assert!(named.is_none(), "{FOLDER} says that upstream's files are in {}, but there is no {path}", folder.display());
    // Not `eprintln!`, which the test harness keeps to itself when a test passes.
    let _ =
        writeln!(std::io::stderr(), "NOT COMPARED with upstream's {path}, only with its checksum: {FOLDER} is not set");
    None
}

/// Compares a document of ours with upstream's file of this path.
#[track_caller]
pub fn document(path: &str, ours: &Value) {
    if let Some(file) = upstream(path) {
        let text = std::fs::read(&file).expect("a file that can be read");
        let theirs: Value = serde_json::from_slice(&text).expect("JSON");
        if let Some(difference) = difference("", ours, &theirs) {
            panic!("{path}: {difference}");
        }
    }
    recorded(path, &ours.to_string());
}

/// Compares facts, one a line and in any order, with those that upstream's files hold. `theirs` reads them from the files, if they are here.
#[track_caller]
pub fn facts(name: &str, ours: impl IntoIterator<Item = String>, theirs: Option<Vec<String>>) {
    let sorted = |lines: Vec<String>| {
        let mut lines = lines;
        lines.sort_unstable();
        lines
    };
    let ours = sorted(ours.into_iter().collect());
    if let Some(theirs) = theirs.map(sorted) {
        let surplus = ours.iter().find(|line| theirs.binary_search(line).is_err());
        let missing = theirs.iter().find(|line| ours.binary_search(line).is_err());
        assert!(ours == theirs, "{name}: only here: {surplus:?}; only there: {missing:?}");
    }
    recorded(name, &ours.join("\n"));
}

/// Compares a canonical text with the checksum recorded of it.
#[track_caller]
pub fn recorded(name: &str, text: &str) {
    let found = format!("{:016x}", checksum(text));
    if std::env::var_os(BLESS).is_some() {
        return record(name, &found);
    }
    let digests = std::fs::read_to_string(here().join("digests.txt")).expect("the checksums are checked in");
    judge(name, digests.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')), &found);
}

#[track_caller]
fn judge(name: &str, known: Option<&str>, found: &str) {
    assert!(
        known == Some(found),
        "{name} is not upstream's: its checksum is {found}, upstream's is {}. The full files say where ({FOLDER})",
        known.unwrap_or("not recorded")
    );
}

/// FNV-1a: what matters here is that no accident goes unseen.
fn checksum(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Under a lock: tests run side by side.
fn record(name: &str, checksum: &str) {
    let path = here().join("digests.txt");
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).expect("a file to record in");
    file.lock().expect("a lock");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("the checksums so far");
    let mut all: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    all.insert(name, checksum);
    let lines: String = all.iter().map(|(name, checksum)| format!("{name} {checksum}\n")).collect();
    file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(lines.as_bytes())).expect("recorded");
}

/// Where two documents differ first.
pub fn difference(at: &str, ours: &Value, theirs: &Value) -> Option<String> {
    match (ours, theirs) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let missing = theirs.keys().find(|key| !ours.contains_key(*key)).map(|key| format!("{at}: no {key}"));
            let surplus = ours.keys().find(|key| !theirs.contains_key(*key)).map(|key| format!("{at}: surplus {key}"));
            let deeper = || ours.iter().find_map(|(key, ours)| difference(&format!("{at}/{key}"), ours, &theirs[key]));
            missing.or(surplus).or_else(deeper)
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            a.iter().zip(b).enumerate().find_map(|(i, (a, b))| difference(&format!("{at}/{i}"), a, b))
        }
        _ => (ours != theirs).then(|| format!("{at}: {ours} is not {theirs}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_difference_is_named_by_its_place() {
        for (ours, theirs, expect) in [
            (json!({"a": [1, 2]}), json!({"a": [1, 2]}), None),
            (json!({"a": [1, 2]}), json!({"a": [1, 3]}), Some("/a/1: 2 is not 3")),
            (json!({"a": {}}), json!({"a": {"b": 1}}), Some("/a: no b")),
            (json!({"a": 1, "b": 1}), json!({"a": 1}), Some(": surplus b")),
        ] {
            assert_eq!(difference("", &ours, &theirs).as_deref(), expect);
        }
    }

    #[test]
    #[should_panic(expected = "is not upstream's")]
    fn an_answer_that_is_not_upstreams_fails_without_its_files() {
        judge("discovery/api.json", Some("00"), "01");
    }

    #[test]
    #[should_panic(expected = "only here: Some(\"a 2\"); only there: Some(\"a 1\")")]
    fn a_fact_that_is_not_upstreams_is_named() {
        facts("of this test", ["a 2".to_owned()], Some(vec!["a 1".to_owned()]));
    }
}
