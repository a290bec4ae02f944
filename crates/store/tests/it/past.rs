//! The past of the embedded engine: everything that was, at any revision that is kept, through compaction, restarts and backups; and
//! no more of it than was asked for.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use store::embedded::{Embedded, Options};
use store::{Changes, Error, Expect, Op, Outcome, Range, Revision, Store, Txn, admin};

use crate::support::{DEADLINE, setting};

/// A state, by key.
type State = BTreeMap<String, (Revision, Bytes)>;

const HOUR: u64 = 3_600_000;

/// Small parts, so that some thousand writes make many tables, and a log that gives up what it can.
fn small() -> Options {
    Options {
        segment_bytes: 16 << 10,
        history_time: Duration::ZERO,
        history_revisions: 50,
        past_unit: 4 << 10,
        ..Options::default()
    }
}

fn open(dir: &Path, options: Options) -> Arc<Embedded> {
    Embedded::open(dir, options).unwrap()
}

async fn write(store: &Embedded, key: &str, value: Option<Bytes>, note: &str) -> Revision {
    let expect = store.get(key).await.unwrap().map_or(Expect::Absent, |record| Expect::At(record.revision));
    let op = value.map_or(Op::Delete, |value| Op::Put { value, ttl: None });
    let txn = Txn { key: key.into(), expect, op, write: None, note: Bytes::copy_from_slice(note.as_bytes()) };
    match store.txn(txn).await.unwrap() {
        Outcome::Committed(revision) => revision,
        Outcome::Conflict(other) => panic!("nobody else writes {key}: {other:?}"),
    }
}

/// What was written, and what there was after each revision.
#[derive(Default)]
struct Model {
    state: State,
    then: BTreeMap<Revision, State>,
    changed: BTreeMap<Revision, (String, String)>,
}

impl Model {
    async fn churn(&mut self, store: &Embedded, rng: &mut StdRng, writes: usize) {
        for _ in 0..writes {
            // Names that begin alike, and names that come back after they were gone.
            let key = format!("/registry/{}/k{}", ["pods", "pod"][rng.random_range(0..2)], rng.random_range(0..25));
            let removed = self.state.contains_key(&key) && rng.random_range(0..4) == 0;
            let length = rng.random_range(0..400);
            let value = (!removed).then(|| Bytes::from(vec![rng.random::<u8>() % 7 + b'a'; length]));
            let note = format!("user-{}", rng.random_range(0..9));
            let revision = write(store, &key, value.clone(), &note).await;
            match value {
                Some(value) => self.state.insert(key.clone(), (revision, value)),
                None => self.state.remove(&key),
            };
            self.then.insert(revision, self.state.clone());
            self.changed.insert(revision, (key, note));
        }
    }

    /// Asks for everything at some revisions, and for all changes.
    async fn check(&self, store: &Embedded, rng: &mut StdRng) {
        let oldest = store.kept().await.unwrap().oldest;
        let revisions: Vec<_> = self.then.keys().copied().filter(|revision| *revision >= oldest).collect();
        for _ in 0..25 {
            let at = revisions[rng.random_range(0..revisions.len())];
            let then = &self.then[&at];
            let prefix = ["/registry/", "/registry/pods/", "/registry/pod"][rng.random_range(0..3)];
            let page = store.range(Range { prefix: prefix.into(), at: Some(at), ..Range::default() }).await.unwrap();
            let found: State = page.records.into_iter().map(|r| (r.key.to_string(), (r.revision, r.value))).collect();
            let expected: State =
                then.iter().filter(|(key, _)| key.starts_with(prefix)).map(|(k, v)| (k.clone(), v.clone())).collect();
            assert_eq!(found, expected, "{prefix} at {at}");
            for number in 0..25 {
                let key = format!("/registry/pods/k{number}");
                let found = store.at(&key, at).await.unwrap().map(|record| (record.revision, record.value));
                assert_eq!(found.as_ref(), then.get(&key), "{key} at {at}");
            }
        }
        let upto = *revisions.last().unwrap();
        let mut next = upto;
        loop {
            let query = Changes { prefix: "/registry/".into(), exact: false, after: 0, upto: next, limit: 97 };
            let page = store.changes(query).await.unwrap();
            for change in &page {
                assert_eq!(change.revision, next, "every revision once, newest first");
                let (key, note) = &self.changed[&change.revision];
                assert_eq!((&*change.key, &*change.note), (key.as_str(), note.as_bytes()));
                let after = self.then[&change.revision].get(key);
                assert_eq!(change.value.as_ref(), after.map(|(_, value)| value));
                if let Some(before) = self.then.get(&(change.revision - 1)) {
                    let previous = change.previous.as_ref().map(|record| (record.revision, record.value.clone()));
                    assert_eq!(previous.as_ref(), before.get(key));
                }
                next -= 1;
            }
            if page.is_empty() {
                break;
            }
        }
        assert_eq!(next, oldest, "all of them");
    }
}

fn past_files(dir: &Path) -> Vec<(std::path::PathBuf, u64)> {
    let Ok(entries) = fs::read_dir(dir.join("history")) else { return Vec::new() };
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "past"));
    let mut files: Vec<_> = files.filter_map(|path| Some((path.clone(), fs::metadata(&path).ok()?.len()))).collect();
    files.sort();
    files
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(DEADLINE, wait).await.is_ok(), "{what} did not happen");
}

#[tokio::test]
async fn every_revision_can_be_read_whatever_the_log_gave_up_and_after_a_restart() {
    let seed = setting("STORE_PAST_SEED", 7);
    println!("seed {seed}");
    let dir = tempfile::tempdir().unwrap();
    let (mut rng, mut model) = (StdRng::seed_from_u64(seed), Model::default());
    for round in 0..4 {
        let store = open(dir.path(), small());
        model.churn(&store, &mut rng, 700).await;
        // Asked while tables are made and joined, and the log is rewritten.
        model.check(&store, &mut rng).await;
        if round == 1 {
            until("compaction", || store.stats().compacted > 500).await;
        }
        model.check(&store, &mut rng).await;
        if round % 2 == 0 {
            store.close().await;
        }
    }
    let files = past_files(dir.path());
    assert!((2..30).contains(&files.len()), "tables are joined: {files:?}");
    assert_eq!(open(dir.path(), small()).kept().await.unwrap().oldest, 1, "nothing was given up");
}

#[tokio::test]
async fn a_backup_has_the_past_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (mut rng, mut model) = (StdRng::seed_from_u64(11), Model::default());
    let store = open(&dir.path().join("store"), small());
    model.churn(&store, &mut rng, 500).await;
    store.backup(&dir.path().join("running")).await.unwrap();
    let written = store.revision().await.unwrap();
    // What comes later is not in it.
    write(&store, "/registry/later", Some("x".into()), "").await;
    store.close().await;
    drop(store);
    admin::backup(&dir.path().join("store"), &dir.path().join("stopped")).unwrap();
    for (name, revision) in [("running", written), ("stopped", written + 1)] {
        let restored = dir.path().join(format!("{name}-restored"));
        admin::restore(&dir.path().join(name), &restored).unwrap();
        let store = open(&restored, small());
        assert_eq!(store.revision().await.unwrap(), revision, "{name}");
        assert_eq!(store.kept().await.unwrap().oldest, 1);
        if name == "running" {
            model.check(&store, &mut rng).await;
            model.churn(&store, &mut rng, 100).await;
            model.check(&store, &mut rng).await;
        }
    }
    fs::remove_dir_all(dir.path().join("running.history")).unwrap();
    let restored = dir.path().join("without");
    admin::restore(&dir.path().join("running"), &restored).unwrap();
    let kept = open(&restored, small()).kept().await.unwrap();
    assert_eq!((kept.oldest, kept.latest), (written, written), "a backup without its past is whole");
}

#[tokio::test]
async fn who_compacts_forgets_and_who_keeps_nothing_has_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut rng, mut model) = (StdRng::seed_from_u64(3), Model::default());
    let store = open(dir.path(), small());
    model.churn(&store, &mut rng, 400).await;
    store.compact(300).await.unwrap();
    assert!(matches!(store.at("/registry/pods/k1", 299).await, Err(Error::Compacted { oldest }) if oldest >= 300));
    model.check(&store, &mut rng).await;
    drop(store);
    let store = open(dir.path(), Options { past_time: Duration::ZERO, ..small() });
    model.churn(&store, &mut rng, 400).await;
    until("compaction", || store.stats().compacted > 600).await;
    assert!(matches!(store.at("/registry/pods/k1", 500).await, Err(Error::Compacted { .. })));
    assert!(past_files(dir.path()).is_empty());
    drop(store);
    // What was given up meanwhile is a hole: history begins anew.
    let store = open(dir.path(), small());
    model.churn(&store, &mut rng, 100).await;
    model.check(&store, &mut rng).await;
}

#[tokio::test]
async fn a_damaged_table_costs_its_own_past_and_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut rng, mut model) = (StdRng::seed_from_u64(5), Model::default());
    let store = open(dir.path(), small());
    model.churn(&store, &mut rng, 1500).await;
    until("several tables", || past_files(dir.path()).len() > 2).await;
    store.close().await;
    drop(store);
    let files = past_files(dir.path());
    let (middle, length) = &files[files.len() / 2];
    let good = fs::read(middle).unwrap();
    // Somewhere in its blocks: it is found when it is read.
    let mut bad = good.clone();
    bad[20..*length as usize / 2].iter_mut().for_each(|byte| *byte ^= 0x55);
    admin::check(dir.path()).unwrap();
    fs::write(middle, &bad).unwrap();
    let checked = admin::check(dir.path());
    assert!(matches!(&checked, Err(Error::Damaged(what)) if what.contains(".past")), "{checked:?}");
    let store = open(dir.path(), small());
    let query = Changes {
        prefix: "/registry/".into(),
        exact: false,
        after: 0,
        upto: store.revision().await.unwrap(),
        limit: usize::MAX,
    };
    let asked = store.changes(query.clone()).await;
    let name = middle.file_name().unwrap().to_str().unwrap();
    assert!(matches!(&asked, Err(Error::Damaged(what)) if what.contains(name)), "{asked:?}");
    write(&store, "/registry/goes-on", Some("x".into()), "").await;
    drop(store);
    // Its end: it cannot be opened, so the past begins after it.
    for cut in [0, 50, *length as usize - 1] {
        fs::write(middle, &good[..cut]).unwrap();
        let store = open(dir.path(), small());
        let kept = store.kept().await.unwrap();
        assert!(kept.oldest > 1 && kept.oldest < kept.latest, "{kept:?}");
        assert!(matches!(store.at("/registry/pods/k1", 2).await, Err(Error::Compacted { .. })));
        drop(store);
        for (path, _) in &files[..files.len() / 2] {
            assert!(!path.exists(), "what is before the hole is of no use");
        }
    }
}

#[tokio::test]
async fn leftovers_of_a_crash_are_put_right_and_another_log_s_past_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let (mut rng, mut model) = (StdRng::seed_from_u64(6), Model::default());
    let store = open(dir.path(), small());
    model.churn(&store, &mut rng, 300).await;
    until("a table", || !past_files(dir.path()).is_empty()).await;
    store.close().await;
    drop(store);
    let history = dir.path().join("history");
    fs::write(history.join("00000000000000000001.tmp"), b"half a table").unwrap();
    let (first, _) = past_files(dir.path()).remove(0);
    // A part that a joined table has taken the place of.
    let name = first.file_name().unwrap().to_str().unwrap();
    let part = history.join(format!("{}-{:020}.past", &name[..20], 3));
    fs::copy(&first, &part).unwrap();
    let store = open(dir.path(), small());
    assert!(!part.exists() && !history.join("00000000000000000001.tmp").exists());
    model.check(&store, &mut rng).await;
    store.close().await;
    drop(store);
    // An operator puts an older log back, and leaves the history where it is.
    let older = tempfile::tempdir().unwrap();
    let store = open(older.path(), small());
    write(&store, "/registry/a", Some("x".into()), "").await;
    store.close().await;
    drop(store);
    fs::rename(&history, older.path().join("history")).unwrap();
    let store = open(older.path(), small());
    let kept = store.kept().await.unwrap();
    assert_eq!((kept.oldest, kept.latest), (1, 2));
    assert!(older.path().join("history.of-another-log").is_dir());
}

static CLOCK: AtomicU64 = AtomicU64::new(1_800_000_000_000);

fn simulated() -> u64 {
    CLOCK.load(Ordering::Relaxed)
}

/// A day of a busy cluster in a moment: a simulated clock, real writes.
#[tokio::test]
async fn a_day_of_churn_stays_within_the_size_and_the_time_that_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = 192 << 10;
    let keep = Options { past_time: Duration::from_secs(6 * 3600), past_bytes: bytes, clock: simulated, ..small() };
    let store = open(dir.path(), keep.clone());
    let (mut rng, begun, mut moments) = (StdRng::seed_from_u64(1), simulated(), Vec::new());
    let mut largest = 0;
    for minute in 0..24 * 60 {
        CLOCK.fetch_add(60_000, Ordering::Relaxed);
        for write_no in 0..4 {
            // What does not compress, as what is sealed.
            let value: Vec<u8> = (0..rng.random_range(50..300)).map(|_| rng.random()).collect();
            let revision = write(&store, &format!("/registry/leases/n{write_no}"), Some(value.into()), "kubelet").await;
            moments.push((simulated(), revision));
        }
        let size: u64 = past_files(dir.path()).iter().map(|(_, size)| size).sum();
        largest = largest.max(size);
        assert!(size <= bytes, "{size} bytes at minute {minute}");
    }
    assert!(largest > bytes / 2, "the bound was reached: {largest}");
    let kept = store.kept().await.unwrap();
    let since = simulated() - kept.oldest_time.unwrap();
    assert!(since < 7 * HOUR, "{} minutes are kept", since / 60_000);
    assert!(kept.oldest > 1 && kept.latest_time == Some(simulated()), "{kept:?}");
    // Time and revision fit together, at a moment and between two.
    for (time, revision) in moments.iter().rev().step_by(4).take(100) {
        assert_eq!(store.moment(*time).await.unwrap(), Some(*revision));
        assert_eq!(store.moment(time + 30_000).await.unwrap(), Some(*revision));
    }
    let is_kept = |(_, revision): &&(u64, u64)| *revision > kept.oldest;
    for (time, revision) in moments.iter().rev().take_while(is_kept) {
        assert_eq!(store.made(*revision).await.unwrap(), Some(*time), "{revision}");
    }
    assert_eq!(store.made(kept.oldest).await.unwrap(), None);
    assert!(matches!(store.made(kept.latest + 1).await, Err(Error::Future { .. })));
    let long_ago = store.moment(begun).await;
    assert!(matches!(long_ago, Err(Error::Compacted { oldest }) if oldest == kept.oldest), "{long_ago:?}");
    // The clock goes back: what came later is not earlier for that.
    let (last, _) = *moments.last().unwrap();
    CLOCK.fetch_sub(HOUR, Ordering::Relaxed);
    let revision = write(&store, "/registry/back", Some("x".into()), "").await;
    assert_eq!(store.moment(last).await.unwrap(), Some(revision));
    // It jumps far ahead: the past does not go all at once.
    CLOCK.fetch_add(1000 * HOUR, Ordering::Relaxed);
    let before = past_files(dir.path()).len();
    for _ in 0..30 {
        write(&store, "/registry/ahead", Some(Bytes::from(vec![b'x'; 200])), "").await;
    }
    assert!(before < 4 || past_files(dir.path()).len() > 1, "{before} tables");
    CLOCK.fetch_sub(999 * HOUR, Ordering::Relaxed);
    drop(store);
    let store = open(dir.path(), keep);
    assert!(store.kept().await.unwrap().latest > revision);
}
