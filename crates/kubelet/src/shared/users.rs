//! User namespaces: every pod with `hostUsers: false` gets a block of the machine's user numbers of its own.
//!
//! Blocks have 65536 numbers; the first one is the machine's. Which block a pod has is in a file beside its volumes, so that
//! a kubelet that starts anew gives it to nobody else.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use node::cri::v1;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::volumes::{pod_dir, pods_on_disk};

/// Numbers of one block.
const LENGTH: u32 = 65_536;

/// Why a pod has no block.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not find an empty slot to allocate a user namespace")]
    Full,
    /// The file cannot be written.
    #[error("write {path}: {source}", path = path.display())]
    Write {
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The file beside a pod's volumes, in upstream's form.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    uid_mappings: Vec<Mapping>,
    gid_mappings: Vec<Mapping>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mapping {
    host_id: u32,
    container_id: u32,
    length: u32,
}

/// The blocks in use.
#[derive(Debug)]
pub struct Users {
    root: PathBuf,
    most: u32,
    /// The first number of each pod's block, by uid.
    taken: Mutex<HashMap<String, u32>>,
}

impl Users {
    /// Blocks for as many pods as the node may have; those of pods that are still here stay theirs.
    pub fn new(root: &Path, most: u32) -> Self {
        let taken = pods_on_disk(root).into_iter().filter_map(|uid| Some((uid.clone(), read(root, &uid)?))).collect();
        Self { root: root.to_owned(), most, taken: Mutex::new(taken) }
    }

    /// A pod's namespace: the block it has, or one that is free.
    pub fn get(&self, uid: &str) -> Result<v1::UserNamespace, Error> {
        let mut taken = self.taken.lock();
        let first = match taken.get(uid) {
            Some(first) => *first,
            None => {
                let free =
                    (1..=self.most).map(|block| block * LENGTH).find(|first| !taken.values().any(|t| t == first));
                let first = free.ok_or(Error::Full)?;
                self.write(uid, first)?;
                taken.insert(uid.to_owned(), first);
                first
            }
        };
        let mapping = v1::IdMapping { host_id: first, container_id: 0, length: LENGTH };
        Ok(v1::UserNamespace { mode: v1::NamespaceMode::Pod.into(), uids: vec![mapping], gids: vec![mapping] })
    }

    /// A pod is gone.
    pub fn release(&self, uid: &str) {
        self.taken.lock().remove(uid);
    }

    fn write(&self, uid: &str, first: u32) -> Result<(), Error> {
        let mapping = Mapping { host_id: first, container_id: 0, length: LENGTH };
        let file = File { uid_mappings: vec![mapping], gid_mappings: vec![mapping] };
        let text = serde_json::to_vec(&file).expect("numbers become JSON");
        let path = path(&self.root, uid);
        let written = path.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::write(&path, text));
        written.map_err(|source| Error::Write { path, source })
    }
}

fn path(root: &Path, uid: &str) -> PathBuf {
    pod_dir(root, uid).join("userns")
}

fn read(root: &Path, uid: &str) -> Option<u32> {
    let file: File = serde_json::from_slice(&std::fs::read(path(root, uid)).ok()?).ok()?;
    Some(file.uid_mappings.first()?.host_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pod_has_a_block_of_its_own_over_restarts() {
        let dir = tempfile::tempdir().unwrap();
        let first = |users: &Users, uid: &str| users.get(uid).map(|namespace| namespace.uids[0].host_id);
        let users = Users::new(dir.path(), 2);
        assert_eq!((first(&users, "a").unwrap(), first(&users, "b").unwrap()), (LENGTH, 2 * LENGTH));
        assert_eq!(first(&users, "a").unwrap(), LENGTH);
        assert!(matches!(first(&users, "c"), Err(Error::Full)));
        let users = Users::new(dir.path(), 2);
        assert_eq!(first(&users, "b").unwrap(), 2 * LENGTH);
        users.release("a");
        assert_eq!(first(&users, "c").unwrap(), LENGTH);
    }
}
