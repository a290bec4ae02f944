//! What is written beside a volume before its driver is asked anything: enough to take it away again, whoever comes later.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::device::remove;
use super::layout::DATA_FILE;

/// The content of `vol_data.json`, by upstream's keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Data {
    #[serde(rename = "volumeHandle")]
    pub(crate) handle: String,
    #[serde(rename = "driverName")]
    pub(crate) driver: String,
    #[serde(rename = "specVolID", skip_serializing_if = "String::is_empty")]
    pub(crate) volume: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) node_name: String,
    #[serde(rename = "attachmentID", skip_serializing_if = "String::is_empty")]
    pub(crate) attachment: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) volume_lifecycle_mode: String,
}

impl Data {
    /// Whether the volume lives and dies with its pod.
    pub(crate) fn is_ephemeral(&self) -> bool {
        self.volume_lifecycle_mode == "Ephemeral"
    }

    /// Whether both are about one volume of a driver.
    pub(crate) fn is_same_volume(&self, other: &Self) -> bool {
        self.driver == other.driver && self.handle == other.handle
    }

    /// Writes it into a directory, which is made, so that it is there whole or not at all.
    pub(crate) fn save(&self, dir: &Path) -> std::io::Result<()> {
        save(dir, DATA_FILE, self)
    }

    /// Removes it from a directory.
    pub(crate) fn forget(dir: &Path) -> Result<(), String> {
        forget(dir, DATA_FILE)
    }

    /// What a directory says; nothing if it says nothing.
    pub(crate) fn load(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(dir.join(DATA_FILE)).ok()?).ok()
    }
}

fn draft(dir: &Path, file: &str) -> PathBuf {
    dir.join(format!(".{file}"))
}

/// Writes a record into a directory, which is made, so that it is there whole or not at all.
pub(super) fn save(dir: &Path, file: &str, record: &impl Serialize) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let draft = draft(dir, file);
    std::fs::write(&draft, serde_json::to_vec(record)?)?;
    std::fs::File::open(&draft)?.sync_all()?;
    std::fs::rename(&draft, dir.join(file))
}

/// Removes a record, and what is left of one that could not be written.
pub(super) fn forget(dir: &Path, file: &str) -> Result<(), String> {
    remove(&draft(dir, file))?;
    remove(&dir.join(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_upstream_writes_it() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"attachmentID":"csi-1","driverName":"d","nodeName":"n","specVolID":"pv","volumeHandle":"h","volumeLifecycleMode":"Persistent"}"#;
        std::fs::write(dir.path().join(DATA_FILE), text).unwrap();
        let data = Data::load(dir.path()).unwrap();
        assert_eq!((data.driver.as_str(), data.handle.as_str(), data.volume.as_str()), ("d", "h", "pv"));
        assert!(!data.is_ephemeral());
        let again = dir.path().join("again");
        data.save(&again).unwrap();
        assert_eq!(Data::load(&again), Some(data));
        assert_eq!(std::fs::read_dir(&again).unwrap().count(), 1, "no draft is left");
        assert_eq!(Data::load(&dir.path().join("none")), None);
    }
}
