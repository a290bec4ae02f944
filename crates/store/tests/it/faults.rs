//! Damage to the embedded engine's files, everywhere: a tail that was never acknowledged is cut off, everything else is
//! refused with nothing changed. What was acknowledged a store says in a file of its own; an older store has none.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use store::embedded::{Embedded, Options};
use store::{Error, admin};

use crate::support::Fixture;

/// A copy of a store's directory, file by file.
type Files = BTreeMap<PathBuf, Vec<u8>>;

/// Another test's child process has our files open, locks included, until it has become its program.
fn patient() -> Options {
    Options { predecessor: Duration::from_secs(60), ..Options::default() }
}

fn read(dir: &Path) -> Files {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let logs = files.filter(|path| path.extension().is_some_and(|e| e == "log"));
    logs.map(|path| (path.file_name().unwrap().into(), fs::read(&path).unwrap())).collect()
}

fn write(files: &Files) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, bytes)| fs::write(dir.path().join(name), bytes).unwrap());
    dir
}

/// A store of a few writes, each synced by itself, as it is on disk at this moment and, if so wished, after a clean end.
struct Sample {
    running: Files,
    closed: Files,
    /// The end of each acknowledged write in the only segment.
    ends: Vec<usize>,
    /// The file that says what was acknowledged, after each write.
    acknowledged: Vec<Vec<u8>>,
}

const ACKNOWLEDGED: &str = "ACKNOWLEDGED";

/// With the file that says what was acknowledged.
fn told(mut files: Files, acknowledged: &[u8]) -> Files {
    files.insert(ACKNOWLEDGED.into(), acknowledged.to_vec());
    files
}

const WRITES: usize = 6;

async fn sample() -> Sample {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), patient()).unwrap();
    let f = Fixture { store: Arc::clone(&store) as _, root: "/registry/".into() };
    let (mut ends, mut acknowledged) = (Vec::new(), Vec::new());
    for i in 0..WRITES {
        f.put(&format!("k{i}"), format!("value {i}")).await;
        ends.push(read(dir.path()).values().map(Vec::len).sum());
        acknowledged.push(fs::read(dir.path().join(ACKNOWLEDGED)).unwrap());
    }
    let running = read(dir.path());
    assert_eq!(running.len(), 1);
    store.close().await;
    Sample { running, closed: read(dir.path()), ends, acknowledged }
}

fn cut(files: &Files, length: usize) -> Files {
    files.iter().map(|(name, bytes)| (name.clone(), bytes[..length].to_vec())).collect()
}

fn flip(files: &Files, bit: usize) -> Files {
    let mut files = files.clone();
    let bytes = files.values_mut().next().unwrap();
    bytes[bit / 8] ^= 1 << (bit % 8);
    files
}

#[tokio::test]
async fn a_write_cut_anywhere_is_dropped_and_all_before_it_stay() {
    let sample = sample().await;
    for length in 0..*sample.ends.last().unwrap() {
        let whole = sample.ends.iter().filter(|end| **end <= length).count();
        let older = cut(&sample.running, length);
        let mut stores = vec![older.clone()];
        stores.extend(whole.checked_sub(1).map(|last| told(older, &sample.acknowledged[last])));
        for files in stores {
            let found = admin::check(write(&files).path()).unwrap_or_else(|e| panic!("cut at {length}: {e}"));
            assert_eq!(found.keys, whole as u64, "cut at {length}");
            let torn = length - whole.checked_sub(1).map_or(0, |last| sample.ends[last]);
            assert_eq!(found.torn_bytes, if whole == 0 { 0 } else { torn as u64 }, "cut at {length}");
        }
    }
}

/// Whatever of the last write got to the disk: any byte of it wrong, or any part of it still zeros.
fn last_write_spoilt(sample: &Sample) -> Vec<Files> {
    let (start, end) = (sample.ends[WRITES - 2], sample.ends[WRITES - 1]);
    let mut all: Vec<_> = (start..end).map(|byte| flip(&sample.running, byte * 8 + byte % 8)).collect();
    for from in (start..end).step_by(7) {
        for to in (from + 1..=end).step_by(7) {
            let mut files = sample.running.clone();
            files.values_mut().next().unwrap()[from..to].fill(0);
            // What is zero anyway is not spoilt by it.
            if files != sample.running {
                all.push(files);
            }
        }
    }
    all.extend((start..end).map(|length| cut(&sample.running, length)));
    all
}

#[tokio::test]
async fn a_last_write_that_was_not_acknowledged_is_dropped_whatever_of_it_arrived() {
    let sample = sample().await;
    for files in last_write_spoilt(&sample) {
        let files = told(files, &sample.acknowledged[WRITES - 2]);
        assert_eq!(admin::check(write(&files).path()).unwrap().keys as usize, WRITES - 1);
    }
}

#[tokio::test]
async fn a_last_write_that_was_acknowledged_is_refused_by_name_when_it_cannot_be_read() {
    let sample = sample().await;
    for (number, files) in last_write_spoilt(&sample).into_iter().enumerate() {
        let files = told(files, &sample.acknowledged[WRITES - 1]);
        let dir = write(&files);
        let found = admin::check(dir.path());
        let Err(Error::Damaged(what)) = &found else { panic!("{number}: {found:?}") };
        let revision = 1 + WRITES;
        assert!(what.contains(&format!("revisions {revision} to {revision} were acknowledged")), "{what}");
        assert!(what.contains("backup") && what.contains(ACKNOWLEDGED), "it says what to do: {what}");
        if number % 10 == 0 {
            assert!(matches!(Embedded::open(dir.path(), patient()), Err(Error::Damaged(_))));
            for (name, bytes) in &files {
                assert_eq!(&fs::read(dir.path().join(name)).unwrap(), bytes, "a damaged store is left as it is");
            }
            // An operator without a backup takes the loss.
            fs::remove_file(dir.path().join(ACKNOWLEDGED)).unwrap();
            let store = Embedded::open(dir.path(), patient()).unwrap();
            let f = Fixture { store: Arc::clone(&store) as _, root: "/registry/".into() };
            assert_eq!(f.all().await.records.len(), WRITES - 1);
        }
    }
}

#[tokio::test]
async fn a_file_cut_shorter_than_what_was_acknowledged_is_refused() {
    let sample = sample().await;
    for length in 0..*sample.ends.last().unwrap() {
        let dir = write(&told(cut(&sample.running, length), &sample.acknowledged[WRITES - 1]));
        assert!(matches!(admin::check(dir.path()), Err(Error::Damaged(_))), "cut at {length}");
    }
}

/// The file that says what was acknowledged is damaged itself, or a power cut left it behind: the log is all there is.
#[tokio::test]
async fn without_word_of_what_was_acknowledged_the_log_is_believed() {
    let sample = sample().await;
    let mut others = vec![Vec::new(), vec![0; 20], vec![0; 4096], sample.acknowledged[0].clone()];
    others.extend((0..20).map(|byte| {
        let mut bad = sample.acknowledged[WRITES - 1].clone();
        bad[byte] ^= 4;
        bad
    }));
    for other in others {
        let dir = write(&told(sample.running.clone(), &other));
        let store = Embedded::open(dir.path(), patient()).unwrap();
        let f = Fixture { store: Arc::clone(&store) as _, root: "/registry/".into() };
        assert_eq!(f.all().await.records.len(), WRITES);
        assert_eq!(
            fs::read(dir.path().join(ACKNOWLEDGED)).unwrap(),
            sample.acknowledged[WRITES - 1],
            "it is put right"
        );
    }
}

#[tokio::test]
async fn a_store_goes_on_after_its_torn_tail_was_cut_off() {
    let sample = sample().await;
    for length in (0..*sample.ends.last().unwrap()).step_by(37) {
        let whole = sample.ends.iter().filter(|end| **end <= length).count();
        let dir = write(&cut(&sample.running, length));
        for life in 0..2 {
            let store = Embedded::open(dir.path(), patient()).unwrap();
            let f = Fixture { store: Arc::clone(&store) as _, root: "/registry/".into() };
            assert_eq!(f.all().await.records.len(), whole + life);
            let revision = f.put(&format!("later-{life}"), "x").await;
            assert_eq!(revision as usize, 1 + whole + life + 1, "revisions go on without a hole");
        }
        assert_eq!(admin::check(dir.path()).unwrap().keys as usize, whole + 2);
    }
}

#[tokio::test]
async fn a_flipped_bit_before_the_tail_is_refused() {
    let sample = sample().await;
    let tail = sample.ends[WRITES - 2];
    // One bit in each byte: what a bit means does not matter to a checksum.
    for byte in 0..*sample.ends.last().unwrap() {
        let files = flip(&sample.running, byte * 8 + byte % 8);
        let dir = write(&files);
        let found = admin::check(dir.path());
        if byte >= tail {
            assert_eq!(found.unwrap().keys as usize, WRITES - 1, "byte {byte} is of the last write");
            continue;
        }
        let Err(Error::Damaged(what)) = &found else { panic!("byte {byte}: {found:?}") };
        let name = files.keys().next().unwrap().to_str().unwrap();
        assert!(what.contains(name) && what.contains("at byte") && what.contains("backup"), "{what}");
        let opened = Embedded::open(dir.path(), patient()).err();
        assert!(matches!(opened, Some(Error::Damaged(_))), "byte {byte}: {opened:?}");
        assert_eq!(read(dir.path()), files, "a damaged store is left as it is");
    }
}

#[tokio::test]
async fn after_a_clean_end_any_flip_is_refused() {
    let sample = sample().await;
    let length = sample.closed.values().next().unwrap().len();
    assert_eq!(admin::check(write(&sample.closed).path()).unwrap().keys as usize, WRITES);
    for byte in 0..length {
        let dir = write(&flip(&sample.closed, byte * 8 + byte % 8));
        let found = admin::check(dir.path());
        // Damage to the very seal cannot be told from a seal that was never finished, and costs nothing.
        if byte >= *sample.ends.last().unwrap() {
            assert_eq!(found.unwrap().keys as usize, WRITES, "byte {byte}");
        } else {
            assert!(matches!(found, Err(Error::Damaged(_))), "byte {byte}: {found:?}");
        }
    }
}

/// A store of several segments.
async fn segments() -> Files {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options { segment_bytes: 2000, ..patient() }).unwrap();
    let f = Fixture { store: Arc::clone(&store) as _, root: "/registry/".into() };
    for i in 0..60 {
        f.put(&format!("k{i}"), vec![b'x'; 100]).await;
    }
    store.close().await;
    let files = read(dir.path());
    assert!(files.len() > 3);
    told(files, &fs::read(dir.path().join(ACKNOWLEDGED)).unwrap())
}

fn logs(files: &Files) -> Vec<PathBuf> {
    files.keys().filter(|name| name.extension().is_some()).cloned().collect()
}

/// The last group and the seal of a full segment are written together; no later group is there to vouch for them.
#[tokio::test]
async fn a_flipped_bit_in_the_last_full_segment_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), Options { segment_bytes: 2000, ..patient() }).unwrap();
    let f = Fixture { store: Arc::clone(&store) as _, root: "/registry/".into() };
    let mut writes = 0;
    let files = loop {
        f.put(&format!("k{writes}"), vec![b'x'; 100]).await;
        writes += 1;
        let files = read(dir.path());
        if files.len() == 2 && files.values().next_back().unwrap().len() >= 2000 {
            break told(files, &fs::read(dir.path().join(ACKNOWLEDGED)).unwrap());
        }
    };
    let last = logs(&files).pop().unwrap();
    let seal = files[&last].len() - 60;
    for byte in 0..files[&last].len() {
        let mut bad = files.clone();
        bad.get_mut(&last).unwrap()[byte] ^= 1;
        let found = admin::check(write(&bad).path());
        // The seal itself holds nothing that anybody was told.
        if byte >= seal {
            assert_eq!(found.unwrap().keys, writes, "byte {byte}");
        } else {
            assert!(matches!(found, Err(Error::Damaged(_))), "byte {byte}: {found:?}");
        }
    }
}

#[tokio::test]
async fn a_missing_segment_is_noticed() {
    let files = segments().await;
    let names = logs(&files);
    for name in &names {
        let mut left = files.clone();
        left.remove(name);
        let dir = write(&left);
        assert!(matches!(admin::check(dir.path()), Err(Error::Damaged(_))), "without {}", name.display());
    }
}

#[tokio::test]
async fn a_cut_in_any_segment_but_the_last_is_refused() {
    let files = segments().await;
    let names = logs(&files);
    for name in &names[..names.len() - 1] {
        for keep in [0, 10, 48, 500, files[name].len() - 1] {
            let mut cut = files.clone();
            cut.get_mut(name).unwrap().truncate(keep);
            let dir = write(&cut);
            assert!(matches!(admin::check(dir.path()), Err(Error::Damaged(_))), "{} cut at {keep}", name.display());
        }
    }
}

#[tokio::test]
async fn segments_swapped_under_their_names_are_noticed() {
    let files = segments().await;
    let names = logs(&files);
    let mut swapped = files.clone();
    swapped.insert(names[0].clone(), files[&names[1]].clone());
    swapped.insert(names[1].clone(), files[&names[0]].clone());
    assert!(matches!(admin::check(write(&swapped).path()), Err(Error::Damaged(_))));
}
