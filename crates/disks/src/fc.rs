//! Disks behind Fibre Channel: the kernel finds them by itself, or when it is told to look.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Host;

/// A disk, by the names of its ports and its number there, or by its own.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fc {
    /// World wide names of the target's ports.
    pub wwns: Vec<String>,
    pub lun: i32,
    /// World wide names of the disk; used where there are no others.
    pub wwids: Vec<String>,
}

impl Fc {
    /// A disk; what is missing to know which one otherwise.
    pub fn new(wwns: Vec<String>, lun: Option<i32>, wwids: &[String]) -> Result<Self, String> {
        match lun {
            Some(lun) if !wwns.is_empty() => Ok(Self { wwns, lun, wwids: Vec::new() }),
            _ if !wwids.is_empty() => {
                let wwids = wwids.iter().map(|wwid| wwid.replace(' ', "_")).collect();
                Ok(Self { wwns: Vec::new(), lun: 0, wwids })
            }
            _ => Err("fc: no fc disk information found. failed to make a new mounter".to_owned()),
        }
    }

    pub(crate) fn name(&self) -> String {
        if self.wwns.is_empty() { self.wwids.join("-") } else { format!("{}-lun-{}", self.wwns.join("-"), self.lun) }
    }

    /// The directory of `/dev/disk` that its links are in.
    fn by(&self) -> &'static str {
        if self.wwns.is_empty() { "by-id" } else { "by-path" }
    }

    /// Whether a link there leads to the disk.
    fn is_link(&self, link: &str) -> bool {
        if self.wwns.is_empty() {
            return self.wwids.iter().any(|wwid| link.strip_prefix("scsi-") == Some(wwid.as_str()));
        }
        self.wwns.iter().any(|wwn| {
            let end = format!("fc-0x{wwn}-lun-{}", self.lun);
            link == end || (link.starts_with("pci-") && link.ends_with(&format!("-{end}")))
        })
    }

    fn find(&self, host: &Host) -> Option<PathBuf> {
        let dir = host.dev.join("disk").join(self.by());
        let mut links = host.links(self.by()).into_iter().filter(|link| self.is_link(link));
        links.find_map(|link| dir.join(link).canonicalize().ok())
    }

    pub(crate) fn attach(&self, host: &Host) -> Result<PathBuf, String> {
        let multipath = |disk: PathBuf| host.multipath(&disk).ok_or(disk);
        match self.find(host).map(multipath) {
            Some(Ok(dm)) => return Ok(dm),
            // One path may be there before the others are.
            Some(Err(_)) | None => host.scan_all(),
        }
        let found = self.find(host).map(|disk| multipath(disk).unwrap_or_else(|disk| disk));
        found.ok_or_else(|| "no fc disk found".to_owned())
    }

    pub(crate) async fn detach(&self, host: &Host) -> Result<(), String> {
        let Some(disk) = self.find(host) else { return Ok(()) };
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let devices = match host.multipath(&disk) {
            Some(dm) => {
                let below = host.slaves(&dm);
                let path = dm.to_string_lossy();
                host.run("multipath", &["-f", &path]).await.map_err(|failed| {
                    format!("failed to flush multipath device {path}: {}\n{}", failed.why, failed.said)
                })?;
                below
            }
            None => name(&disk).into_iter().collect(),
        };
        for device in devices {
            let path = host.dev.join(&device);
            if let Err(failed) = host.run("blockdev", &["--flushbufs", &path.to_string_lossy()]).await {
                tracing::warn!(device, why = failed.why, "device not flushed");
            }
            host.forget(&device);
        }
        Ok(())
    }
}
