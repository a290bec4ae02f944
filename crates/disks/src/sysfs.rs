//! What the kernel says of its disks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::Host;

/// Names in a directory, in order; none where there is none.
fn names(dir: &Path) -> Vec<String> {
    let listing = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = listing.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn portal(connection: &Path, prefix: &str) -> Option<String> {
    let part = |name: &str| text(&connection.join(format!("{prefix}{name}")));
    let (address, port) = (part("address")?, part("port")?);
    Some(if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") })
}

impl Host {
    /// Sessions with a target: the number of the SCSI host, and the session's directory.
    fn sessions(&self, iqn: &str) -> Vec<(u32, PathBuf)> {
        let hosts = self.sys.join("class/iscsi_host");
        let mut found = Vec::new();
        for host in names(&hosts) {
            let Some(number) = host.strip_prefix("host").and_then(|number| number.parse().ok()) else { continue };
            let device = hosts.join(&host).join("device");
            for session in names(&device).into_iter().filter(|name| name.starts_with("session")) {
                let path = device.join(&session);
                let target = text(&path.join("iscsi_session").join(&session).join("targetname"));
                if target.as_deref() == Some(iqn) {
                    found.push((number, path));
                }
            }
        }
        found
    }

    /// Which SCSI host is logged in to which portal of a target.
    pub(crate) fn portals(&self, iqn: &str) -> BTreeMap<String, u32> {
        let mut portals = BTreeMap::new();
        for (host, session) in self.sessions(iqn) {
            for connection in names(&session).into_iter().filter(|name| name.starts_with("connection")) {
                let path = session.join(&connection).join("iscsi_connection").join(&connection);
                let both = ["", "persistent_"].map(|prefix| portal(&path, prefix));
                portals.extend(both.into_iter().flatten().map(|portal| (portal, host)));
            }
        }
        portals
    }

    /// Names of the devices (`sdX`) that a LUN of a target is.
    pub(crate) fn lun_devices(&self, iqn: &str, lun: i32) -> Vec<String> {
        let sessions = self.sessions(iqn).into_iter();
        let blocks = sessions.map(|(host, path)| path.join(format!("target{host}:0:0/{host}:0:0:{lun}/block")));
        blocks.filter_map(|block| names(&block).into_iter().next()).collect()
    }

    /// Lets the kernel look for one LUN of a host: a look at the whole bus would find disks that are not ours.
    pub(crate) fn scan(&self, host: u32, lun: i32) -> Result<(), String> {
        let file = self.sys.join(format!("class/scsi_host/host{host}/scan"));
        std::fs::write(&file, format!("0 0 {lun}")).map_err(|error| format!("open {}: {error}", file.display()))
    }

    /// Lets the kernel look at every bus.
    pub(crate) fn scan_all(&self) {
        let hosts = self.sys.join("class/scsi_host");
        for host in names(&hosts) {
            // Not every host can be asked to.
            let _ = std::fs::write(hosts.join(host).join("scan"), "- - -");
        }
    }

    /// Lets the kernel forget a device (`sdX`). One that is gone is forgotten.
    pub(crate) fn forget(&self, device: &str) {
        let file = self.sys.join("block").join(device).join("device/delete");
        if file.exists()
            && let Err(error) = std::fs::write(&file, "1")
        {
            tracing::warn!(%error, device, "block device not deleted");
        }
    }

    /// The multipath device over a device, which may itself be one.
    pub(crate) fn multipath(&self, device: &Path) -> Option<PathBuf> {
        let device = device.canonicalize().ok()?;
        let name = device.file_name()?.to_str()?;
        if name.starts_with("dm-") {
            return Some(device);
        }
        let block = self.sys.join("block");
        let over = |dm: &String| dm.starts_with("dm-") && block.join(dm).join("slaves").join(name).exists();
        names(&block).into_iter().find(over).map(|dm| self.dev.join(dm))
    }

    /// The devices below a multipath device.
    pub(crate) fn slaves(&self, dm: &Path) -> Vec<String> {
        let name = dm.file_name().unwrap_or_default();
        names(&self.sys.join("block").join(name).join("slaves"))
    }

    /// The links of a directory of `/dev/disk`.
    pub(crate) fn links(&self, by: &str) -> Vec<String> {
        names(&self.dev.join("disk").join(by))
    }
}
