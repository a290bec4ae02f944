//! Volumes under the names of old: what upstream once mounted by itself, and what drivers mount today.
//!
//! Objects keep the old names (`kubernetes.io/aws-ebs`, `spec.awsElasticBlockStore`), because they were written that way. Whoever attaches, places or mounts a volume reads
//! it as if it had been written for the driver ([`volume`]). Nothing of the translation is ever stored.

mod sources;
#[cfg(test)]
mod tests;
mod topology;

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeSpec};

use sources::Disk;
use topology::Keys;

/// On a volume or claim of an old name: the driver that looks after it.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// On a CSINode: the old names that drivers serve there.
pub const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// An old name, and its driver.
#[derive(Debug)]
pub struct Plugin {
    pub name: &'static str,
    pub driver: &'static str,
    topology: Option<Keys>,
    of_volume: fn(&PersistentVolume) -> Option<Result<Disk, String>>,
}

const fn zone(key: &'static str) -> Option<Keys> {
    Some(Keys { zone: key, region: None })
}

/// All of them, by name.
pub static PLUGINS: [Plugin; 7] = [
    Plugin {
        name: "kubernetes.io/aws-ebs",
        driver: "ebs.csi.aws.com",
        topology: zone("topology.ebs.csi.aws.com/zone"),
        of_volume: sources::ebs,
    },
    Plugin {
        name: "kubernetes.io/azure-disk",
        driver: "disk.csi.azure.com",
        topology: None,
        of_volume: sources::azure_disk,
    },
    Plugin {
        name: "kubernetes.io/azure-file",
        driver: "file.csi.azure.com",
        topology: None,
        of_volume: sources::azure_file,
    },
    Plugin {
        name: "kubernetes.io/cinder",
        driver: "cinder.csi.openstack.org",
        topology: zone("topology.cinder.csi.openstack.org/zone"),
        of_volume: sources::cinder,
    },
    Plugin {
        name: "kubernetes.io/gce-pd",
        driver: "pd.csi.storage.gke.io",
        topology: zone("topology.gke.io/zone"),
        of_volume: sources::gce,
    },
    Plugin {
        name: "kubernetes.io/portworx-volume",
        driver: "pxd.portworx.com",
        topology: None,
        of_volume: sources::portworx,
    },
    Plugin {
        name: "kubernetes.io/vsphere-volume",
        driver: "csi.vsphere.vmware.com",
        topology: Some(Keys { zone: "topology.csi.vmware.com/zone", region: Some("topology.csi.vmware.com/region") }),
        of_volume: sources::vsphere,
    },
];

/// The driver for a provisioner of an old name; the name itself otherwise.
pub fn driver_of(provisioner: &str) -> &str {
    PLUGINS.iter().find(|plugin| plugin.name == provisioner).map_or(provisioner, |plugin| plugin.driver)
}

/// The old name of a volume's kind, if it has one.
pub fn plugin_of(volume: &PersistentVolume) -> Option<&'static Plugin> {
    let spec = volume.spec.as_ref()?;
    let has = |name: &str| match name {
        "kubernetes.io/aws-ebs" => spec.aws_elastic_block_store.is_some(),
        "kubernetes.io/azure-disk" => spec.azure_disk.is_some(),
        "kubernetes.io/azure-file" => spec.azure_file.is_some(),
        "kubernetes.io/cinder" => spec.cinder.is_some(),
        "kubernetes.io/gce-pd" => spec.gce_persistent_disk.is_some(),
        "kubernetes.io/portworx-volume" => spec.portworx_volume.is_some(),
        _ => spec.vsphere_volume.is_some(),
    };
    PLUGINS.iter().find(|plugin| has(plugin.name))
}

/// A volume as its driver knows it. One without an old name is what it is.
pub fn volume(volume: &PersistentVolume) -> Result<Cow<'_, PersistentVolume>, String> {
    let Some(plugin) = plugin_of(volume) else { return Ok(Cow::Borrowed(volume)) };
    let Some(disk) = (plugin.of_volume)(volume) else { return Ok(Cow::Borrowed(volume)) };
    let disk = disk?;
    let mut changed = volume.clone();
    if let Some(keys) = &plugin.topology {
        topology::translate(&mut changed, keys);
    }
    let spec = changed.spec.get_or_insert_default();
    forget_sources(spec);
    if let Some(modes) = disk.access_modes {
        spec.access_modes = Some(modes);
    }
    spec.csi = Some(disk.source);
    Ok(Cow::Owned(changed))
}

fn forget_sources(spec: &mut PersistentVolumeSpec) {
    spec.aws_elastic_block_store = None;
    spec.azure_disk = None;
    spec.azure_file = None;
    spec.cinder = None;
    spec.gce_persistent_disk = None;
    spec.portworx_volume = None;
    spec.vsphere_volume = None;
}
