//! Backups in a bucket: the files of a backup's directory, below its name.

use std::fs;
use std::path::{Component, Path, PathBuf};

use node::private;
use s3::{Address, Bucket, Given, Settings};

use super::keeper::{describe, surplus, sync};
use super::{Backup, DESCRIPTION, Error, restore as local};

/// Where backups go, and how to get in.
#[derive(Debug, Clone)]
pub struct Destination {
    pub address: Address,
    pub given: Given,
}

impl Destination {
    pub fn open(&self) -> Result<Remote, Error> {
        let settings = Settings::find(&self.given, |name| std::env::var(name).ok())?;
        Ok(Remote { bucket: Bucket::new(settings, &self.address.bucket), address: self.address.clone() })
    }
}

/// The backups below an address.
pub struct Remote {
    bucket: Bucket,
    address: Address,
}

impl Remote {
    /// Takes a backup over: it is not here any more when it is whole there.
    pub async fn take(&self, directory: &Path, name: &str) -> Result<(), Error> {
        for file in files(directory, Path::new(""))? {
            let key = self.key(name, &file.to_string_lossy());
            self.bucket.upload(&key, &directory.join(&file)).await?;
        }
        fs::remove_dir_all(directory).map_err(Error::file(directory))
    }

    /// All of them, oldest first. What is no backup is passed over.
    pub async fn list(&self) -> Result<Vec<Backup>, Error> {
        let above = self.address.key("");
        let mut found = Vec::new();
        for folder in self.bucket.list(&above, true).await?.folders {
            let name = folder[above.len().min(folder.len())..].trim_end_matches('/').to_owned();
            let described = match self.bucket.get(&self.key(&name, DESCRIPTION)).await {
                Ok(text) => serde_json::from_slice::<Backup>(&text).ok(),
                Err(error) if error.is_not_found() => None,
                Err(error) => return Err(error.into()),
            };
            found.extend(described.map(|backup| Backup { name, ..backup }));
        }
        found.sort_by(|a, b| a.created.cmp(&b.created).then_with(|| a.name.cmp(&b.name)));
        Ok(found)
    }

    /// Removes the oldest backups of the schedule, all but so many; their names.
    pub async fn prune(&self, keep: usize) -> Result<Vec<String>, Error> {
        let old = surplus(&self.list().await?, keep);
        for name in &old {
            // Without its description it is no backup any more, whatever becomes of the rest.
            self.bucket.delete(&self.key(name, DESCRIPTION)).await?;
            for key in self.bucket.list(&self.key(name, ""), false).await?.keys {
                self.bucket.delete(&key).await?;
            }
        }
        Ok(old)
    }

    /// Writes a backup's files into a directory, the description last.
    async fn fetch(&self, name: &str, directory: &Path) -> Result<(), Error> {
        let above = self.key(name, "");
        let mut keys = self.bucket.list(&above, false).await?.keys;
        keys.sort_by_key(|key| key.ends_with(&format!("/{name}/{DESCRIPTION}")));
        private::directory(directory).map_err(Error::file(directory))?;
        for key in keys {
            let file = directory.join(self.file(&key[above.len().min(key.len())..])?);
            if let Some(parent) = file.parent() {
                private::directory(parent).map_err(Error::file(parent))?;
            }
            private::write(&file, b"").map_err(Error::file(&file))?;
            let mut opened = fs::OpenOptions::new().write(true).open(&file).map_err(Error::file(&file))?;
            self.bucket.download(&key, &mut opened).await?;
            sync(&file)?;
        }
        Ok(())
    }

    /// The file that a name in the bucket stands for: none outside of the backup.
    fn file(&self, name: &str) -> Result<PathBuf, Error> {
        let path = Path::new(name);
        let plain = !name.is_empty() && path.components().all(|part| matches!(part, Component::Normal(_)));
        if plain { Ok(path.to_owned()) } else { Err(Error::Name(self.address.clone(), name.to_owned())) }
    }

    fn key(&self, name: &str, file: &str) -> String {
        self.address.key(&format!("{name}/{file}"))
    }
}

/// Restores a backup from a bucket into a data directory. It is brought here whole first, so that all of it is verified before anything is made of it.
pub async fn restore(address: &Address, given: Given, data_dir: &Path) -> Result<Backup, Error> {
    let none = || Error::NoBackup(PathBuf::from(address.to_string()));
    let (above, name) = address.split().ok_or_else(none)?;
    let remote = Destination { address: above, given }.open()?;
    let fetched = data_dir.join(".restore");
    if fetched.exists() {
        fs::remove_dir_all(&fetched).map_err(Error::file(&fetched))?;
    }
    let made = !data_dir.exists();
    private::directory(data_dir).map_err(Error::file(data_dir))?;
    let restored = async {
        remote.fetch(name, &fetched).await?;
        describe(&fetched).map_err(|_| none())?;
        local::restore(&fetched, data_dir)
    };
    let restored = restored.await;
    let _ = fs::remove_dir_all(&fetched);
    if restored.is_err() && made {
        // Nothing of ours is in it, or it is not empty and stays.
        let _ = fs::remove_dir(data_dir);
    }
    restored
}

/// The files below a directory, relative to it; the description last.
fn files(directory: &Path, below: &Path) -> Result<Vec<PathBuf>, Error> {
    let here = directory.join(below);
    let mut found = Vec::new();
    for entry in fs::read_dir(&here).map_err(Error::file(&here))? {
        let entry = entry.map_err(Error::file(&here))?;
        let path = below.join(entry.file_name());
        if entry.path().is_dir() {
            found.extend(files(directory, &path)?);
        } else {
            found.push(path);
        }
    }
    found.sort();
    found.sort_by_key(|path| path == Path::new(DESCRIPTION));
    Ok(found)
}
