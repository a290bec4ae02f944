//! Disks behind iSCSI, by `iscsiadm`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Host;
use crate::host::Failed;

/// Names and passwords, by the names that `iscsiadm` has for them.
pub type Secret = BTreeMap<String, String>;

/// With as many paths a multipath disk is good enough.
const ENOUGH_PATHS: usize = 2;
/// How often the other paths are tried then.
const FEW_TRIES: usize = 2;
/// How often the paths are tried with fewer.
const MOST_TRIES: usize = 5;
/// `iscsiadm`: there is a session already.
const SESSION_EXISTS: i32 = 15;
/// `iscsiadm`: there is no such session, or nothing at all.
const NOT_THERE: [i32; 2] = [2, 21];

const DISCOVERY_SECRETS: [&str; 4] = [
    "discovery.sendtargets.auth.username",
    "discovery.sendtargets.auth.password",
    "discovery.sendtargets.auth.username_in",
    "discovery.sendtargets.auth.password_in",
];
const SESSION_SECRETS: [&str; 4] = [
    "node.session.auth.username",
    "node.session.auth.password",
    "node.session.auth.username_in",
    "node.session.auth.password_in",
];

/// A disk of a target. The secrets that it takes to log in are no part of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iscsi {
    /// The volume's name.
    pub volume: String,
    /// `address:port`, the first one first.
    pub portals: Vec<String>,
    pub iqn: String,
    pub lun: i32,
    /// The interface of the system that is used, or copied.
    pub interface: String,
    /// Under which name this machine shows itself, if not under its usual one.
    pub initiator: Option<String>,
    /// Whether discovery needs a name and a password.
    pub chap_discovery: bool,
    /// Whether the session needs a name and a password.
    pub chap_session: bool,
}

/// What trying one portal came to.
enum Tried {
    Found(PathBuf),
    /// Not now, maybe later.
    Not(String),
}

/// A portal with its port.
pub(crate) fn with_port(portal: &str) -> String {
    if portal.contains(':') { portal.to_owned() } else { format!("{portal}:3260") }
}

impl Iscsi {
    /// Takes the portals as a volume names them.
    pub fn at(self, portals: impl IntoIterator<Item = String>) -> Self {
        Self { portals: portals.into_iter().map(|portal| with_port(&portal)).collect(), ..self }
    }

    fn first(&self) -> &str {
        self.portals.first().map_or("", String::as_str)
    }

    pub(crate) fn iface(&self) -> String {
        match &self.initiator {
            Some(_) => format!("{}:{}", self.first(), self.volume),
            None => self.interface.clone(),
        }
    }

    pub(crate) fn directory(&self) -> String {
        format!("{}-{}-lun-{}", self.first(), self.iqn, self.lun)
    }

    pub(crate) fn place(&self) -> PathBuf {
        PathBuf::from(format!("iface-{}", self.iface())).join(self.directory())
    }

    pub(crate) async fn attach(&self, host: &Host, secret: &Secret) -> Result<PathBuf, String> {
        let shown = host.run("iscsiadm", &["-m", "iface", "-I", &self.interface, "-o", "show"]).await;
        let shown = shown.map_err(|failed| failed.why)?;
        if self.initiator.is_some() {
            self.copy_interface(host, &shown).await?;
        }
        let transport = transport(&shown);
        let mut found: BTreeMap<&str, PathBuf> = BTreeMap::new();
        let mut last = String::new();
        for attempt in 1..=MOST_TRIES {
            for portal in self.portals.iter().filter(|portal| !portal.is_empty()) {
                if found.contains_key(portal.as_str()) {
                    continue;
                }
                match self.reach(host, portal, transport.as_deref(), secret).await? {
                    Tried::Found(device) => drop(found.insert(portal, device)),
                    Tried::Not(why) => last = why,
                }
            }
            if found.is_empty() {
                if self.initiator.is_some() {
                    let _ = host.run("iscsiadm", &["-m", "iface", "-I", &self.iface(), "-o", "delete"]).await;
                }
                return Err(format!("failed to get any path for iscsi disk, last err seen:\n{last}"));
            }
            if found.len() == self.portals.len() || (found.len() >= ENOUGH_PATHS && attempt >= FEW_TRIES) {
                break;
            }
        }
        let first = self.portals.iter().find_map(|portal| found.get(portal.as_str())).cloned().unwrap_or_default();
        Ok(found.values().find_map(|device| host.multipath(device)).unwrap_or(first))
    }

    /// Logs in at a portal, unless that is done, and waits for the disk there. Fails where trying again is of no use.
    async fn reach(
        &self,
        host: &Host,
        portal: &str,
        transport: Option<&str>,
        secret: &Secret,
    ) -> Result<Tried, String> {
        let mut scsi = host.portals(&self.iqn).get(portal).copied();
        if scsi.is_none() {
            if let Err(why) = self.log_in(host, portal, secret).await {
                return Ok(Tried::Not(why));
            }
            scsi = host.portals(&self.iqn).get(portal).copied();
        }
        let Some(scsi) = scsi else {
            return Ok(Tried::Not(format!("Could not get SCSI host number for portal {portal} after logging in")));
        };
        host.scan(scsi, self.lun)?;
        let transport = transport.ok_or_else(|| format!("could not parse iface file for {}", self.iface()))?;
        // Links have no brackets.
        let address = portal.replace(['[', ']'], "");
        let end = format!("ip-{address}-iscsi-{}-lun-{}", self.iqn, self.lun);
        let by_path = host.dev.join("disk/by-path");
        let link = match transport {
            "tcp" => Some(end.clone()),
            // Through an adapter, whose address stands before it.
            _ => host.links("by-path").into_iter().find(|l| l.starts_with("pci-") && l.ends_with(&format!("-{end}"))),
        };
        let path = by_path.join(link.unwrap_or(end));
        if host.appears(&path).await {
            return Ok(Tried::Found(path));
        }
        let seconds = host.patience.as_secs();
        Ok(Tried::Not(format!("Timed out waiting for device at path {} after {seconds}s", path.display())))
    }

    async fn log_in(&self, host: &Host, portal: &str, secret: &Secret) -> Result<(), String> {
        let iface = self.iface();
        let discovery = ["-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", &iface];
        let node = ["-m", "node", "-p", portal, "-T", &self.iqn, "-I", &iface];
        // It may be there.
        let _ = host.iscsiadm(&discovery, &["-o", "new"]).await;
        if self.chap_discovery {
            let method = "discovery.sendtargets.auth.authmethod";
            self.tell_secrets(host, &discovery, (method, &DISCOVERY_SECRETS), secret, "discoverydb")
                .await
                .map_err(|why| format!("iscsi: failed to update discoverydb to portal {portal} error: {why}"))?;
        }
        if let Err(Failed { why, said, .. }) = host.iscsiadm(&discovery, &["--discover"]).await {
            let _ = host.iscsiadm(&discovery, &["-o", "delete"]).await;
            return Err(format!("iscsi: failed to sendtargets to portal {portal} output: {said}, err {why}"));
        }
        if let Err(failed) = host.iscsiadm(&node, &["-o", "update", "-n", "node.session.scan", "-v", "manual"]).await {
            tracing::warn!(why = failed.why, "iscsi: node.session.scan is not manual: disks of others may appear");
        }
        if self.chap_session {
            let method = "node.session.auth.authmethod";
            self.tell_secrets(host, &node, (method, &SESSION_SECRETS), secret, "node")
                .await
                .map_err(|why| format!("iscsi: failed to update iscsi node to portal {portal} error: {why}"))?;
        }
        if let Err(Failed { why, said, .. }) = host.iscsiadm(&node, &["--login"]).await {
            let _ = host.iscsiadm(&node, &["-o", "delete"]).await;
            return Err(format!("iscsi: failed to attach disk: Error: {said} ({why})"));
        }
        // Otherwise a machine that starts waits for a target that may be gone.
        let manual = ["-o", "update", "-n", "node.startup", "-v", "manual"];
        if let Err(failed) = host.iscsiadm(&node[..6], &manual).await {
            tracing::warn!(why = failed.why, "iscsi: login is not manual");
        }
        Ok(())
    }

    async fn tell_secrets(
        &self,
        host: &Host,
        record: &[&str],
        (method, names): (&str, &[&str]),
        secret: &Secret,
        what: &str,
    ) -> Result<(), String> {
        let failed = |failed: Failed| format!("iscsi: failed to update {what} with CHAP, output: {}", failed.said);
        host.iscsiadm(record, &["-o", "update", "-n", method, "-v", "CHAP"]).await.map_err(failed)?;
        for name in names {
            let Some(value) = secret.get(*name).filter(|value| !value.is_empty()) else { continue };
            let what = if what == "node" { "node session" } else { what };
            host.iscsiadm(record, &["-o", "update", "-n", name, "-v", value])
                .await
                .map_err(|failed| format!("iscsi: failed to update {what} key {name:?} error: {}", failed.said))?;
        }
        Ok(())
    }

    /// Makes an interface of its own, as the given one but for the name that this machine shows.
    async fn copy_interface(&self, host: &Host, shown: &str) -> Result<(), String> {
        let iface = self.iface();
        if iface == self.interface {
            return Err(format!("iscsi: cannot clone iface with same name: {iface}"));
        }
        let mut settings =
            settings(shown).map_err(|why| format!("iscsi: failed to parse iface records: {shown} ({why})"))?;
        settings.insert("iface.initiatorname".to_owned(), self.initiator.clone().unwrap_or_default());
        match host.run("iscsiadm", &["-m", "iface", "-I", &iface, "-o", "new"]).await {
            Err(failed) if failed.code != Some(SESSION_EXISTS) => {
                return Err(format!("iscsi: failed to create new iface: {} ({})", failed.said, failed.why));
            }
            _ => {}
        }
        for (name, value) in &settings {
            let update = ["-m", "iface", "-I", &iface, "-o", "update", "-n", name, "-v", value];
            if let Err(Failed { why, said, .. }) = host.run("iscsiadm", &update).await {
                let _ = host.run("iscsiadm", &["-m", "iface", "-I", &iface, "-o", "delete"]).await;
                let given = &self.interface;
                return Err(format!(
                    "iscsi: failed to update iface records: {said} ({why}). iface({given}) will be used"
                ));
            }
        }
        Ok(())
    }

    pub(crate) async fn detach(&self, host: &Host, shared: bool) -> Result<(), String> {
        let devices = host.lun_devices(&self.iqn, self.lun);
        let paths: std::collections::BTreeSet<PathBuf> =
            devices.iter().filter_map(|device| host.multipath(&host.dev.join(device))).collect();
        for dm in paths {
            if let Err(failed) = host.run("multipath", &["-f", &dm.to_string_lossy()]).await {
                tracing::warn!(device = %dm.display(), why = failed.why, "multipath device not flushed");
            }
        }
        devices.iter().for_each(|device| host.forget(device));
        if shared {
            return Ok(());
        }
        let iface = self.iface();
        for portal in &self.portals {
            let record = ["-m", "node", "-p", portal, "-T", &self.iqn];
            undo(host, &record, &["--logout", "-I", &iface]).await?;
            undo(host, &record, &["-o", "delete", "-I", &iface]).await?;
        }
        if self.initiator.is_some() {
            undo(host, &["-m", "iface", "-I", &iface], &["-o", "delete"]).await?;
        }
        Ok(())
    }
}

/// Asks for something to go. It may be gone.
async fn undo(host: &Host, record: &[&str], how: &[&str]) -> Result<(), String> {
    match host.iscsiadm(record, how).await {
        Err(failed) if failed.code.is_some_and(|code| NOT_THERE.contains(&code)) => Ok(()),
        Err(failed) => Err(format!("failed to finish detachISCSIDisk, err: {}", failed.why)),
        Ok(_) => Ok(()),
    }
}

/// How an interface talks, as `iscsiadm` shows it.
fn transport(shown: &str) -> Option<String> {
    let value = shown.lines().find_map(|line| line.strip_prefix("iface.transport_name = "))?.trim();
    Some(if value == "<empty>" { "tcp" } else { value }.to_owned())
}

/// The settings of an interface, as `iscsiadm` shows them; its own name is none.
fn settings(shown: &str) -> Result<BTreeMap<String, String>, String> {
    let mut settings = BTreeMap::new();
    for line in shown.lines().filter(|line| line.starts_with("iface.") && !line.contains("<empty>")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["iface.iscsi_ifacename", "=", _] => {}
            [name, "=", value] => drop(settings.insert(name.to_owned(), value.to_owned())),
            _ => return Err(format!("error: invalid iface setting: [{}]", words.join(" "))),
        }
    }
    Ok(settings)
}
