//! Makes backups beside a running store, one at a time, and removes old ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use apiserver::backups::Backups;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use node::private;
use serde_json::Value;
use store::embedded::Embedded;

use super::{Backup, DESCRIPTION, Error, KEYS, STORE};

/// A backup under way is below this name, which no finished one has.
const PARTIAL: &str = ".partial";

/// Who asked for a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Operator,
    Schedule,
}

impl Origin {
    fn word(self) -> &'static str {
        match self {
            Self::Operator => "manual",
            Self::Schedule => "scheduled",
        }
    }
}

pub struct Keeper {
    store: Arc<Embedded>,
    data_dir: PathBuf,
    directory: PathBuf,
    /// One at a time: what lies below [`PARTIAL`] is nobody else's.
    turn: tokio::sync::Mutex<()>,
}

impl Keeper {
    pub fn new(store: Arc<Embedded>, data_dir: &Path, directory: PathBuf) -> Self {
        Self { store, data_dir: data_dir.to_owned(), directory, turn: tokio::sync::Mutex::default() }
    }

    pub async fn create(&self, origin: Origin) -> Result<Backup, Error> {
        let _turn = self.turn.lock().await;
        let partial = self.directory.join(PARTIAL);
        let (data_dir, directory, below) = (self.data_dir.clone(), self.directory.clone(), partial.clone());
        blocking(move || prepare(&data_dir, &directory, &below)).await?;
        let written = self.store.backup(&partial.join(STORE)).await?;
        let created = Timestamp::now();
        let name = format!("{}-{}-{}", origin.word(), created.strftime("%Y%m%dT%H%M%SZ"), written.revision);
        let (revision, objects, size) = (written.revision, written.keys, written.disk_bytes);
        let backup = Backup { name, created, revision, objects, size };
        let directory = self.directory.clone();
        blocking(move || finish(&directory, &partial, backup)).await
    }

    pub fn path(&self, backup: &Backup) -> PathBuf {
        self.directory.join(&backup.name)
    }

    /// Removes the oldest backups of the schedule, all but so many; their names.
    pub async fn prune(&self, keep: usize) -> Result<Vec<String>, Error> {
        let _turn = self.turn.lock().await;
        let directory = self.directory.clone();
        blocking(move || {
            let surplus = surplus(&list(&directory)?, keep);
            for name in &surplus {
                let path = directory.join(name);
                fs::remove_dir_all(&path).map_err(Error::file(&path))?;
            }
            Ok(surplus)
        })
        .await
    }
}

impl Backups for Keeper {
    fn create(&self) -> BoxFuture<'_, Result<Value, String>> {
        async {
            let backup = self.create(Origin::Operator).await.map_err(|error| error.to_string())?;
            serde_json::to_value(backup).map_err(|error| error.to_string())
        }
        .boxed()
    }
}

/// Files are slow on a busy disk, and the workers of the runtime are everybody's.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// An empty place for the next backup, with the keys in it. What a crash left there goes.
fn prepare(data_dir: &Path, directory: &Path, partial: &Path) -> Result<(), Error> {
    private::directory(directory).map_err(Error::file(directory))?;
    if partial.exists() {
        fs::remove_dir_all(partial).map_err(Error::file(partial))?;
    }
    private::directory(partial).map_err(Error::file(partial))?;
    for name in KEYS {
        copy(&data_dir.join(name), &partial.join(name))?;
    }
    Ok(())
}

/// Copies a file, or the files of a directory, for their owner alone. What is not there is not copied.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), Error> {
    if from.is_dir() {
        private::directory(to).map_err(Error::file(to))?;
        for entry in fs::read_dir(from).map_err(Error::file(from))? {
            let entry = entry.map_err(Error::file(from))?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        sync(to)
    } else if from.is_file() {
        let bytes = fs::read(from).map_err(Error::file(from))?;
        private::write(to, bytes).map_err(Error::file(to))?;
        sync(to)
    } else {
        Ok(())
    }
}

/// Brings a file, or the names in a directory, to the disk.
pub(super) fn sync(path: &Path) -> Result<(), Error> {
    fs::File::open(path).and_then(|file| file.sync_all()).map_err(Error::file(path))
}

/// Gives a whole backup its name, by which it is one.
fn finish(directory: &Path, partial: &Path, backup: Backup) -> Result<Backup, Error> {
    let description = partial.join(DESCRIPTION);
    let text = serde_json::to_vec_pretty(&backup).expect("names, numbers and a time can be written");
    private::write(&description, text).map_err(Error::file(&description))?;
    sync(&description)?;
    sync(partial)?;
    let named = directory.join(&backup.name);
    if named.exists() {
        // The same revision within the same second: the one that is there is as good.
        fs::remove_dir_all(partial).map_err(Error::file(partial))?;
    } else {
        fs::rename(partial, &named).map_err(Error::file(&named))?;
    }
    sync(directory)?;
    Ok(backup)
}

/// What a directory says that it is, if it is a backup.
pub(super) fn describe(path: &Path) -> Result<Backup, Error> {
    let text = fs::read(path.join(DESCRIPTION)).map_err(|_| Error::NoBackup(path.to_owned()))?;
    serde_json::from_slice(&text).map_err(|_| Error::NoBackup(path.to_owned()))
}

/// All backups in a directory, oldest first. What is no backup is passed over; no directory has none.
pub(super) fn list(directory: &Path) -> Result<Vec<Backup>, Error> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::file(directory)(error)),
    };
    let named = entries.filter_map(Result::ok).filter(|entry| entry.file_name() != PARTIAL);
    let mut found: Vec<Backup> = named
        .filter_map(|entry| {
            let backup = describe(&entry.path()).ok()?;
            // One that was copied under another name is listed, and removed, by the name that it has here.
            Some(Backup { name: entry.file_name().into_string().ok()?, ..backup })
        })
        .collect();
    found.sort_by(|a, b| a.created.cmp(&b.created).then_with(|| a.name.cmp(&b.name)));
    Ok(found)
}

/// The backups of the schedule that are more than `keep`, of a list with the oldest first.
pub(super) fn surplus(all: &[Backup], keep: usize) -> Vec<String> {
    let scheduled: Vec<&Backup> =
        all.iter().filter(|backup| backup.name.starts_with(Origin::Schedule.word())).collect();
    let (old, _) = scheduled.split_at(scheduled.len().saturating_sub(keep));
    old.iter().map(|backup| backup.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup(name: &str, second: i64) -> Backup {
        let created = Timestamp::from_second(second).expect("a time");
        Backup { name: name.to_owned(), created, revision: 7, objects: 1, size: 9 }
    }

    #[test]
    fn only_the_oldest_of_the_schedule_are_too_many() {
        let all = [backup("manual-1", 1), backup("scheduled-2", 2), backup("scheduled-3", 3), backup("scheduled-4", 4)];
        assert_eq!(surplus(&all, 2), ["scheduled-2"]);
        assert_eq!(surplus(&all, 1), ["scheduled-2", "scheduled-3"]);
        assert!(surplus(&all, 3).is_empty() && surplus(&[], 3).is_empty());
    }

    #[tokio::test]
    async fn a_crash_in_the_middle_leaves_no_backup_and_is_cleaned_up() {
        let home = tempfile::tempdir().expect("a directory");
        let (data_dir, directory) = (home.path().join("data"), home.path().join("backups"));
        let store = Embedded::open(&data_dir.join("store"), store::embedded::Options::default()).expect("a store");
        let left = directory.join(PARTIAL);
        fs::create_dir_all(&left).expect("made");
        fs::write(left.join(STORE), "half").expect("written");
        fs::write(left.join(DESCRIPTION), serde_json::to_vec(&backup("x", 1)).expect("JSON")).expect("written");
        assert!(list(&directory).expect("a list").is_empty());
        let keeper = Keeper::new(store.clone(), &data_dir, directory.clone());
        let made = keeper.create(Origin::Schedule).await.expect("a backup");
        assert_eq!(list(&directory).expect("a list"), std::slice::from_ref(&made));
        assert!(!left.exists());
        keeper.create(Origin::Operator).await.expect("a backup");
        assert_eq!(keeper.prune(0).await.expect("removed"), [made.name]);
        assert_eq!(list(&directory).expect("a list").len(), 1);
        store.close().await;
    }
}
