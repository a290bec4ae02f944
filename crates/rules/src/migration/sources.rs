//! What each kind of old says, in the words of its driver.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{CSIPersistentVolumeSource, PersistentVolume, SecretReference};

use super::topology::BETWEEN;

/// A volume of a driver.
pub(super) struct Disk {
    pub(super) source: CSIPersistentVolumeSource,
    /// Where these are others than the volume's.
    pub(super) access_modes: Option<Vec<String>>,
}

type Found = Option<Result<Disk, String>>;

const ONCE: &str = "ReadWriteOnce";
const READ_MANY: &str = "ReadOnlyMany";
/// What a part of a handle is called that nobody knows.
const UNSPECIFIED: &str = "UNSPECIFIED";

fn source(
    driver: &str,
    handle: String,
    fs_type: Option<String>,
    read_only: Option<bool>,
    attributes: &[(&str, String)],
) -> CSIPersistentVolumeSource {
    let attributes: BTreeMap<String, String> =
        attributes.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
    CSIPersistentVolumeSource {
        driver: driver.to_owned(),
        volume_handle: handle,
        fs_type: fs_type.filter(|fs_type| !fs_type.is_empty()),
        read_only: read_only.filter(|read_only| *read_only),
        volume_attributes: Some(attributes),
        ..CSIPersistentVolumeSource::default()
    }
}

fn disk(source: CSIPersistentVolumeSource) -> Disk {
    Disk { source, access_modes: None }
}

const EBS: &str = "ebs.csi.aws.com";

/// `aws://zone/vol-1` and `aws:///vol-1` are `vol-1`.
fn ebs_handle(id: &str) -> Result<String, String> {
    let failed = |why: String| format!("failed to translate Kubernetes ID to EBS Volume ID {why}");
    let Some(rest) = id.strip_prefix("aws://") else { return Ok(id.to_owned()) };
    let path = rest.find('/').map_or("", |at| &rest[at..]).trim_matches('/');
    if path.starts_with("vol-") && !path.contains('/') {
        Ok(path.to_owned())
    } else {
        Err(failed(format!("Invalid format for AWS volume ({id})")))
    }
}

pub(super) fn ebs(volume: &PersistentVolume) -> Found {
    let disk = volume.spec.as_ref()?.aws_elastic_block_store.clone()?;
    let partition = [("partition", disk.partition.unwrap_or(0).to_string())];
    Some(
        ebs_handle(&disk.volume_id)
            .map(|handle| self::disk(source(EBS, handle, disk.fs_type, disk.read_only, &partition))),
    )
}

const AZURE_DISK: &str = "disk.csi.azure.com";

fn managed(kind: Option<&str>) -> Result<(), String> {
    match kind {
        Some(kind) if !kind.eq_ignore_ascii_case("Managed") => {
            Err(format!("kind({kind}) is not supported in csi migration"))
        }
        _ => Ok(()),
    }
}

fn azure_disk_source(disk: k8s_openapi::api::core::v1::AzureDiskVolumeSource) -> CSIPersistentVolumeSource {
    let mut attributes = vec![("kind", "Managed".to_owned())];
    attributes.extend(disk.caching_mode.filter(|mode| !mode.is_empty()).map(|mode| ("cachingmode", mode)));
    attributes.extend(disk.fs_type.clone().map(|fs_type| ("fstype", fs_type)));
    source(AZURE_DISK, disk.disk_uri, disk.fs_type, disk.read_only, &attributes)
}

pub(super) fn azure_disk(volume: &PersistentVolume) -> Found {
    let disk = volume.spec.as_ref()?.azure_disk.clone()?;
    Some(managed(disk.kind.as_deref()).map(|()| self::disk(azure_disk_source(disk))))
}

const AZURE_FILE: &str = "file.csi.azure.com";

/// The account in the name of its secret, where that is called as usual.
fn account(secret: &str) -> &str {
    let rest = secret.find("azure-storage-account-").map(|at| &secret[at + "azure-storage-account-".len()..]);
    let account = rest.and_then(|rest| rest.rfind("-secret").map(|at| &rest[..at]));
    account.filter(|account| !account.is_empty()).unwrap_or(secret)
}

fn azure_share(
    handle: String,
    share: String,
    read_only: Option<bool>,
    secret: String,
    namespace: String,
) -> CSIPersistentVolumeSource {
    CSIPersistentVolumeSource {
        node_stage_secret_ref: Some(SecretReference { name: Some(secret), namespace: Some(namespace) }),
        ..source(AZURE_FILE, handle, None, read_only, &[("sharename", share)])
    }
}

pub(super) fn azure_file(volume: &PersistentVolume) -> Found {
    let spec = volume.spec.as_ref()?;
    let share = spec.azure_file.clone()?;
    let group = volume.metadata.annotations.as_ref();
    let group = group.and_then(|all| all.get("kubernetes.io/azure-file-resource-group")).cloned().unwrap_or_default();
    let claimed = spec.claim_ref.as_ref().and_then(|claim| claim.namespace.clone());
    let Some(namespace) = share.secret_namespace.or(claimed).filter(|namespace| !namespace.is_empty()) else {
        return Some(Err("could not find a secret namespace in PersistentVolumeSource or ClaimRef".to_owned()));
    };
    let name = volume.metadata.name.clone().unwrap_or_default();
    let handle = format!("{group}#{}#{}#{name}#{namespace}", account(&share.secret_name), share.share_name);
    Some(Ok(self::disk(azure_share(handle, share.share_name, share.read_only, share.secret_name, namespace))))
}

const CINDER: &str = "cinder.csi.openstack.org";

pub(super) fn cinder(volume: &PersistentVolume) -> Found {
    let disk = volume.spec.as_ref()?.cinder.clone()?;
    Some(Ok(self::disk(source(CINDER, disk.volume_id, disk.fs_type, disk.read_only, &[]))))
}

const GCE: &str = "pd.csi.storage.gke.io";

/// Zones are called `{locale}-{region}-{zone}`.
fn region(zones: &[&str]) -> Result<String, String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        let parts: Vec<&str> = zone.split('-').collect();
        let [locale, region, _] = parts[..] else {
            return Err(format!(
                "failed to get region from zones: zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            ));
        };
        regions.insert(format!("{locale}-{region}"));
    }
    let all: Vec<String> = regions.iter().map(|region| format!("{region}:{{}}")).collect();
    match regions.len() {
        1 => Ok(regions.into_iter().next().unwrap_or_default()),
        _ => Err(format!(
            "failed to get region from zones: multiple or no regions gotten from zones, got: map[{}]",
            all.join(" ")
        )),
    }
}

fn gce_handle(volume: &PersistentVolume, disk: &str) -> Result<String, String> {
    let label =
        |key: &str| volume.metadata.labels.as_ref().and_then(|all| all.get(key)).filter(|zone| !zone.is_empty());
    let zones = label("failure-domain.beta.kubernetes.io/zone").or_else(|| label("topology.kubernetes.io/zone"));
    let zones: Vec<&str> = zones.map(|zones| zones.split(BETWEEN).collect()).unwrap_or_default();
    Ok(match &zones[..] {
        [] => format!("projects/{UNSPECIFIED}/zones/{UNSPECIFIED}/disks/{disk}"),
        [zone] => format!("projects/{UNSPECIFIED}/zones/{zone}/disks/{disk}"),
        several => format!("projects/{UNSPECIFIED}/regions/{}/disks/{disk}", region(several)?),
    })
}

fn partition(number: Option<i32>) -> [(&'static str, String); 1] {
    [("partition", number.filter(|number| *number != 0).map(|number| number.to_string()).unwrap_or_default())]
}

/// The driver refuses modes that nobody ever checked: what is written by several, or written and read, is written by one.
fn modes(volume: &PersistentVolume) -> Option<Vec<String>> {
    let modes = volume.spec.as_ref()?.access_modes.as_ref()?;
    let read_only =
        modes.iter().any(|mode| mode == READ_MANY) && !modes.iter().any(|mode| mode == ONCE || mode == "ReadWriteMany");
    Some(vec![if read_only { READ_MANY } else { ONCE }.to_owned()])
}

pub(super) fn gce(volume: &PersistentVolume) -> Found {
    let disk = volume.spec.as_ref()?.gce_persistent_disk.clone()?;
    let handle = gce_handle(volume, &disk.pd_name);
    Some(handle.map(|handle| Disk {
        access_modes: modes(volume),
        ..self::disk(source(GCE, handle, disk.fs_type, disk.read_only, &partition(disk.partition)))
    }))
}

const PORTWORX: &str = "pxd.portworx.com";

pub(super) fn portworx(volume: &PersistentVolume) -> Found {
    let disk = volume.spec.as_ref()?.portworx_volume.clone()?;
    let said = |key: &str| volume.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned();
    let (name, namespace) = (said("openstorage.io/auth-secret-name"), said("openstorage.io/auth-secret-namespace"));
    let secret = (name.is_some() && namespace.is_some()).then_some(SecretReference { name, namespace });
    Some(Ok(self::disk(CSIPersistentVolumeSource {
        controller_publish_secret_ref: secret.clone(),
        node_stage_secret_ref: secret.clone(),
        node_publish_secret_ref: secret.clone(),
        controller_expand_secret_ref: secret.clone(),
        node_expand_secret_ref: secret,
        ..source(PORTWORX, disk.volume_id, disk.fs_type, None, &[])
    })))
}

const VSPHERE: &str = "csi.vsphere.vmware.com";

fn vsphere_source(disk: k8s_openapi::api::core::v1::VsphereVirtualDiskVolumeSource) -> CSIPersistentVolumeSource {
    let policy = disk.storage_policy_name.filter(|name| !name.is_empty()).map(|name| ("storagepolicyname", name));
    let policy: Vec<(&str, String)> = policy.into_iter().collect();
    source(VSPHERE, disk.volume_path, disk.fs_type, None, &policy)
}

pub(super) fn vsphere(volume: &PersistentVolume) -> Found {
    Some(Ok(self::disk(vsphere_source(volume.spec.as_ref()?.vsphere_volume.clone()?))))
}
