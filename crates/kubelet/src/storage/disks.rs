//! Disks of storage networks: from a volume that a pod wants to a directory, or a device, that its containers see.
//!
//! As with drivers, the disk is the memory: a record in the pod's directory comes before anything is done and goes last, and a disk is let go
//! of when no pod has a record of it.

use std::path::{Path, PathBuf};

use ::disks::{Disk, Fc, Iscsi, Secret};
use k8s_openapi::api::core::v1::{PersistentVolume, Pod, SecretReference, Volume};
use serde::{Deserialize, Serialize};

use super::device::remove;
use super::mount::failed;
use super::unmount::is_mounted;
use super::{Mounted, NotMounted, Storage, data, layout};
use crate::pod::spec;
use crate::volumes;

const ATTACH: &str = "MountVolume.WaitForAttach failed";
const ATTACH_DEVICE: &str = "MapVolume.WaitForAttach failed";
const MOUNT_DEVICE: &str = "MountVolume.MountDevice failed";
const SET_UP: &str = "MountVolume.SetUp failed";
/// Where disks may be behind.
const PLUGINS: [&str; 2] = ["iscsi", "fc"];
const RECORD: &str = "disk.json";

/// A disk, as a pod asks for it.
#[derive(Debug, Clone)]
pub(crate) struct WantedDisk {
    /// The persistent volume's name, or the pod's own for the volume.
    pub(crate) name: String,
    /// The name under which the volume is given to this node, if somebody does that.
    attached_as: Option<String>,
    /// Nothing can be done with a volume that does not say which disk it is.
    disk: Result<Disk, String>,
    fs_type: String,
    read_only: bool,
    block: bool,
    options: Vec<String>,
    secret: Option<SecretReference>,
}

impl WantedDisk {
    /// A volume that the pod itself describes; nothing if it is no such disk.
    pub(crate) fn inline(pod: &Pod, volume: &Volume) -> Option<Self> {
        let name = volume.name.clone();
        let plain = Self {
            name: name.clone(),
            attached_as: None,
            disk: Err(String::new()),
            fs_type: String::new(),
            read_only: false,
            block: false,
            options: Vec::new(),
            secret: None,
        };
        if let Some(source) = volume.iscsi.clone() {
            let chap = [source.chap_auth_discovery, source.chap_auth_session].map(|on| on == Some(true));
            let disk = Iscsi {
                volume: name,
                iqn: source.iqn,
                lun: source.lun,
                interface: source.iscsi_interface.unwrap_or_else(|| "default".to_owned()),
                initiator: source.initiator_name.filter(|name| !name.is_empty()),
                chap_discovery: chap[0],
                chap_session: chap[1],
                portals: Vec::new(),
            };
            let portals = std::iter::once(source.target_portal).chain(source.portals.into_iter().flatten());
            let namespace = Some(spec::namespace(pod).to_owned());
            let secret = source.secret_ref.map(|secret| SecretReference { name: Some(secret.name), namespace });
            return Some(Self {
                disk: Ok(Disk::Iscsi(disk.at(portals))),
                fs_type: source.fs_type.unwrap_or_default(),
                read_only: source.read_only == Some(true),
                secret: secret.filter(|_| chap.contains(&true)),
                ..plain
            });
        }
        let source = volume.fc.clone()?;
        let wwids = source.wwids.unwrap_or_default();
        Some(Self {
            disk: Fc::new(source.target_wwns.unwrap_or_default(), source.lun, &wwids).map(Disk::Fc),
            fs_type: source.fs_type.unwrap_or_default(),
            read_only: source.read_only == Some(true),
            ..plain
        })
    }

    /// A volume that outlives its pod; nothing if it is no such disk.
    pub(crate) fn persistent(pod: &Pod, volume: &PersistentVolume, read_only: bool) -> Option<Self> {
        let spec = volume.spec.as_ref()?;
        // Both kinds of source say the same in the same words, but for the secret's namespace.
        let mut source = serde_json::json!({"name": volume.metadata.name});
        match (&spec.iscsi, &spec.fc) {
            (Some(iscsi), _) => source["iscsi"] = serde_json::to_value(iscsi).ok()?,
            (None, Some(fc)) => source["fc"] = serde_json::to_value(fc).ok()?,
            (None, None) => return None,
        }
        let wanted = Self::inline(pod, &serde_json::from_value(source).ok()?)?;
        let named = spec.iscsi.as_ref().and_then(|source| source.secret_ref.as_ref()?.namespace.clone());
        let named = named.filter(|namespace| !namespace.is_empty());
        let secret =
            wanted.secret.map(|secret| SecretReference { namespace: named.clone().or(secret.namespace), ..secret });
        Some(Self {
            attached_as: rules::network_disks::unique_name(volume).map(|(_, name)| name),
            read_only,
            block: spec.volume_mode.as_deref() == Some("Block"),
            options: spec.mount_options.clone().unwrap_or_default(),
            secret,
            ..wanted
        })
    }
}

/// What is left beside a pod's volume: enough to take it away again, whoever comes later.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    disk: Disk,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attached_as: Option<String>,
}

impl Record {
    fn load(dir: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(dir.join(RECORD)).ok()?).ok()
    }
}

/// Records of a pod: the plug-in, the volume's name, and the directory of each.
fn records(root: &Path, pod: &str) -> Vec<(&'static str, String, PathBuf)> {
    let all = PLUGINS.into_iter().flat_map(|plugin| {
        let dir = volumes::pod_dir(root, pod).join("plugins").join(format!("kubernetes.io~{plugin}"));
        layout::entries(&dir).into_iter().map(move |dir| (plugin, dir))
    });
    all.filter_map(|(plugin, dir)| Some((plugin, dir.file_name()?.to_str()?.to_owned(), dir))).collect()
}

/// The names under which this node was given the disks that a pod has.
pub(super) fn names(root: &Path, pod: &str) -> Vec<String> {
    records(root, pod).iter().filter_map(|(_, _, dir)| Record::load(dir)?.attached_as).collect()
}

/// Whether a pod has, or may have, disks.
pub(super) fn has_disks(root: &Path, pod: &str) -> bool {
    !records(root, pod).is_empty()
}

impl Storage {
    /// Makes a disk visible to a pod. May be called again for one that is there.
    pub(crate) async fn mount_disk(&self, pod: &Pod, wanted: &WantedDisk) -> Result<Mounted, NotMounted> {
        let attach = if wanted.block { ATTACH_DEVICE } else { ATTACH };
        let disk = wanted.disk.as_ref().map_err(|why| failed(attach)(why.clone()))?;
        if let Some(why) = disk.refused() {
            return Err(failed(attach)(why));
        }
        let (plugin, dir) = (disk.plugin(), volumes::pod_dir(&self.root, spec::uid(pod)));
        let place = |kind: &str| dir.join(kind).join(format!("kubernetes.io~{plugin}")).join(&wanted.name);
        let (record, target) = (place("plugins"), place("volumes"));
        if !wanted.block && self.published.lock().contains_key(&target) {
            return Ok(Mounted::still(target));
        }
        if wanted.attached_as.as_ref().is_some_and(|name| !self.is_attached(pod, name)) {
            return Err(NotMounted::Waiting);
        }
        let _turn = self.locks.turn(plugin, &disk.target()).await;
        let saved = Record { disk: disk.clone(), attached_as: wanted.attached_as.clone() };
        let saved = data::save(&record, RECORD, &saved);
        saved.map_err(|error| failed(attach)(format!("write {}: {error}", record.display())))?;
        let secret = self.disk_secret(wanted).await.map_err(failed(attach))?;
        let device = disk.attach(&self.disks, &secret).await.map_err(failed(attach))?;
        if wanted.block {
            return Ok(Mounted::still(device));
        }
        let global = self.global(disk);
        self.mount_device(wanted, &device, &global).await.map_err(failed(MOUNT_DEVICE))?;
        let shown = std::fs::create_dir_all(&target).map_err(|error| error.to_string());
        let shown = shown.and_then(|()| match is_mounted(&target)? {
            true => Ok(()),
            false => node::mounts::bind(&global, &target).map_err(|error| error.to_string()),
        });
        shown.map_err(failed(SET_UP))?;
        if !wanted.read_only {
            let given = volumes::give_to_group(pod, &target).await;
            given.map_err(|error| failed(SET_UP)(format!("set group of {}: {error}", target.display())))?;
        }
        self.published.lock().insert(target.clone(), 0);
        Ok(Mounted::still(target))
    }

    /// Where a disk is mounted for all pods.
    fn global(&self, disk: &Disk) -> PathBuf {
        self.root.join("plugins/kubernetes.io").join(disk.plugin()).join(disk.place())
    }

    async fn mount_device(&self, wanted: &WantedDisk, device: &Path, global: &Path) -> Result<(), String> {
        if is_mounted(global)? {
            return Ok(());
        }
        std::fs::create_dir_all(global).map_err(|error| format!("make {}: {error}", global.display()))?;
        let read_only = wanted.read_only.then(|| "ro".to_owned());
        let options: Vec<String> = wanted.options.iter().cloned().chain(read_only).collect();
        let mounted = self.disks.mount(device, global, &wanted.fs_type, &options).await;
        if mounted.is_err() {
            let _ = std::fs::remove_dir(global);
        }
        mounted
    }

    async fn disk_secret(&self, wanted: &WantedDisk) -> Result<Secret, String> {
        let Some(reference) = &wanted.secret else { return Ok(Secret::new()) };
        let part = |part: &Option<String>| part.clone().unwrap_or_default();
        let (namespace, name) = (part(&reference.namespace), part(&reference.name));
        let found = self.secret_of(&namespace, &name).await;
        found.map_err(|error| format!("couldn't get secret {namespace}/{name} error: {error}"))
    }

    /// Takes all disks of a pod away. What fails is to be tried again.
    pub(super) async fn unmount_disks(&self, pod: &str) -> Result<(), String> {
        let mut failures = Vec::new();
        for (plugin, name, dir) in records(&self.root, pod) {
            failures
                .extend(self.unmount_disk(pod, plugin, &name, &dir).await.err().map(|why| format!("{name}: {why}")));
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("; ")) }
    }

    async fn unmount_disk(&self, pod: &str, plugin: &str, name: &str, dir: &Path) -> Result<(), String> {
        let Some(Record { disk, .. }) = Record::load(dir) else {
            // Nothing was done before the record was written.
            data::forget(dir, RECORD)?;
            return remove(dir);
        };
        let _turn = self.locks.turn(plugin, &disk.target()).await;
        let target = volumes::pod_dir(&self.root, pod).join(format!("volumes/kubernetes.io~{plugin}")).join(name);
        node::mounts::unmount(&target).map_err(|error| error.to_string())?;
        self.published.lock().remove(&target);
        remove(&target)?;
        let others = self.other_disks(dir);
        let global = self.global(&disk);
        if !others.iter().any(|other| self.global(other) == global) {
            node::mounts::unmount(&global).map_err(|error| error.to_string())?;
            let shared = others.iter().any(|other| other.target() == disk.target());
            disk.detach(&self.disks, shared).await?;
            remove(&global)?;
        }
        data::forget(dir, RECORD)?;
        remove(dir)
    }

    /// The disks of all records but one.
    fn other_disks(&self, dir: &Path) -> Vec<Disk> {
        let all = volumes::pods_on_disk(&self.root).into_iter().flat_map(|pod| records(&self.root, &pod));
        let others = all.filter(|(_, _, other)| other != dir);
        others.filter_map(|(_, _, other)| Some(Record::load(&other)?.disk)).collect()
    }
}
