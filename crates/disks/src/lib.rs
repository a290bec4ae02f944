//! Disks of storage networks (iSCSI, Fibre Channel), by the system's own tools: `iscsiadm`, `multipath`, `blkid`, `mkfs`, `fsck`.
//!
//! ```text
//! attach: log in or rescan ▸ wait for the link in /dev/disk ▸ the multipath device over it, if any ─► device
//! mount:  blkid ▸ (nothing on it) mkfs, otherwise fsck ▸ mount
//! detach: multipath -f ▸ let the kernel forget the devices ▸ log out
//! ```
//! Nothing is remembered here: who calls says what a disk is, and takes care that one thing at a time happens to it. Where a tool is
//! missing, the words are those in which users know that.

mod fc;
mod format;
mod host;
mod iscsi;
mod sysfs;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use fc::Fc;
pub use host::Host;
pub use iscsi::{Iscsi, Secret};

/// A disk, with all that is needed to take it away again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Disk {
    Iscsi(Iscsi),
    Fc(Fc),
}

impl Disk {
    /// The plug-in that it belongs to, as in the names of directories.
    pub fn plugin(&self) -> &'static str {
        match self {
            Self::Iscsi(_) => "iscsi",
            Self::Fc(_) => "fc",
        }
    }

    /// Where below the plug-in's directory it is mounted for all pods: upstream's names.
    pub fn place(&self) -> PathBuf {
        match self {
            Self::Iscsi(disk) => disk.place(),
            Self::Fc(disk) => PathBuf::from(disk.name()),
        }
    }

    /// What has to be done to one at a time.
    pub fn target(&self) -> String {
        match self {
            Self::Iscsi(disk) => disk.iqn.clone(),
            Self::Fc(disk) => disk.name(),
        }
    }

    /// Why it cannot be a directory of ours: its names are somebody else's text.
    pub fn refused(&self) -> Option<String> {
        let names: Vec<String> = match self {
            Self::Iscsi(disk) => vec![disk.iface(), disk.directory()],
            Self::Fc(disk) => vec![disk.name()],
        };
        let plain = |name: &String| !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']);
        names.iter().find(|name| !plain(name)).map(|name| format!("{name:?} is no name of a directory"))
    }

    /// The device, there for use.
    pub async fn attach(&self, host: &Host, secret: &Secret) -> Result<PathBuf, String> {
        match self {
            Self::Iscsi(disk) => disk.attach(host, secret).await,
            Self::Fc(disk) => disk.attach(host),
        }
    }

    /// Lets go of it. `shared` says that other disks of the same target are in use.
    pub async fn detach(&self, host: &Host, shared: bool) -> Result<(), String> {
        match self {
            Self::Iscsi(disk) => disk.detach(host, shared).await,
            Self::Fc(disk) => disk.detach(host).await,
        }
    }
}

#[cfg(test)]
mod tests;
