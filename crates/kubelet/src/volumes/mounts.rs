//! What a container sees of its pod's volumes, and the files the kubelet adds: hosts and last words.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, VolumeDevice, VolumeMount};
use node::cri::v1;

use super::{Paths, pod_dir};
use crate::cri_config::{Abilities, Error, NodeFacts, hosts};
use crate::pod::spec;
use rules::expansion::expand_strictly;

const HOSTS: &str = "/etc/hosts";

/// An image that is a volume.
#[derive(Debug, Clone, PartialEq)]
pub enum Image {
    /// The runtime mounts it.
    ByRuntime(v1::ImageSpec),
    /// Its files are shown here.
    At(PathBuf),
}

/// Images that are mounted, by the volume's name.
pub type Images = HashMap<String, Image>;

/// What mounts are made from besides the specification.
#[derive(Debug)]
pub struct Around<'a> {
    pub root: &'a Path,
    pub paths: &'a Paths,
    /// Volumes that are images.
    pub images: &'a Images,
    /// Volumes whose files get the container's SELinux label.
    pub relabelled: &'a HashSet<String>,
    pub env: &'a BTreeMap<String, String>,
    pub ips: &'a [String],
    pub facts: &'a NodeFacts,
    /// What the runtime can do.
    pub abilities: Abilities,
}

/// The mounts of a container.
pub fn of_container(pod: &Pod, container: &Container, around: &Around<'_>) -> Result<Vec<v1::Mount>, Error> {
    let Around { root, paths, env, ips, facts, .. } = *around;
    let dir = pod_dir(root, spec::uid(pod));
    let mut mounts = Vec::new();
    let mut own_hosts = false;
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        own_hosts |= mount.mount_path == HOSTS;
        let inside =
            if mount.mount_path.starts_with('/') { mount.mount_path.clone() } else { format!("/{}", mount.mount_path) };
        let recursive_read_only = recursive_read_only(mount, around.abilities.recursive_read_only)
            .map_err(|why| Error::Other(format!("failed to resolve recursive read-only mode: {why}")))?;
        let image = around.images.get(&mount.name);
        if let Some(Image::ByRuntime(image)) = image {
            let sub = sub_path(mount, env)?.unwrap_or_default();
            mounts.push(v1::Mount {
                container_path: inside,
                image: Some(image.clone()),
                image_sub_path: sub.to_string_lossy().into_owned(),
                readonly: true,
                recursive_read_only,
                ..Default::default()
            });
            continue;
        }
        let shown = if let Some(Image::At(path)) = image { Some(path) } else { None };
        let volume = shown.or_else(|| paths.get(&mount.name)).ok_or_else(|| {
            Error::Other(format!("cannot find volume {:?} to mount into container {:?}", mount.name, container.name))
        })?;
        let host_path = match sub_path(mount, env)? {
            Some(sub) => bind_sub_path(&dir, volume, &sub, mount, container, index)?,
            None => volume.clone(),
        };
        mounts.push(v1::Mount {
            container_path: inside,
            host_path: host_path.to_string_lossy().into_owned(),
            readonly: mount.read_only == Some(true) || shown.is_some() || is_read_only(pod, &mount.name),
            propagation: propagation(mount).into(),
            recursive_read_only,
            selinux_relabel: around.relabelled.contains(&mount.name),
            ..Default::default()
        });
    }
    // A host-network pod has the node's names even before it has an address.
    if !own_hosts && (!ips.is_empty() || spec::is_host_network(pod)) {
        mounts.push(hosts_file(&dir, pod, ips, facts)?);
    }
    if let Some(inside) = container.termination_message_path.as_deref().filter(|path| !path.is_empty()) {
        mounts.push(last_words(&dir, container, inside)?);
    }
    Ok(mounts)
}

/// Whether nobody may write to a volume, whatever containers say of their mounts: its files are made by the kubelet, or the pod asks for it so.
fn is_read_only(pod: &Pod, name: &str) -> bool {
    let mut volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let Some(volume) = volumes.find(|volume| volume.name == name) else { return false };
    let made = volume.config_map.is_some() || volume.secret.is_some() || volume.projected.is_some();
    made || volume.downward_api.is_some()
        || volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.read_only == Some(true))
        || volume.csi.as_ref().is_some_and(|source| source.read_only == Some(true))
        || volume.nfs.as_ref().is_some_and(|source| source.read_only == Some(true))
        || volume.iscsi.as_ref().is_some_and(|source| source.read_only == Some(true))
        || volume.fc.as_ref().is_some_and(|source| source.read_only == Some(true))
}

/// Volumes that a container sees as devices.
pub fn devices(pod: &Pod, container: &Container, paths: &Paths) -> Result<Vec<v1::Device>, Error> {
    let device = |wanted: &VolumeDevice| {
        if !wanted.device_path.starts_with('/') {
            let path = &wanted.device_path;
            return Err(Error::Other(format!("error DevicePath `{path}` must be an absolute path")));
        }
        let path = paths.get(&wanted.name).ok_or_else(|| {
            Error::Other(format!("cannot find volume {:?} to pass into container {:?}", wanted.name, container.name))
        })?;
        Ok(v1::Device {
            container_path: wanted.device_path.clone(),
            host_path: path.to_string_lossy().into_owned(),
            permissions: if is_read_only(pod, &wanted.name) { "r" } else { "mrw" }.to_owned(),
        })
    };
    container.volume_devices.iter().flatten().map(device).collect()
}

fn sub_path(mount: &VolumeMount, env: &BTreeMap<String, String>) -> Result<Option<PathBuf>, Error> {
    let text = match (mount.sub_path_expr.as_deref(), mount.sub_path.as_deref()) {
        (Some(expr), _) if !expr.is_empty() => {
            expand_strictly(expr, |name| env.get(name).cloned()).map_err(Error::Other)?
        }
        (_, Some(sub)) if !sub.is_empty() => sub.to_owned(),
        _ => return Ok(None),
    };
    if text.starts_with('/') {
        return Err(Error::Other(format!("error SubPath `{text}` must not be an absolute path")));
    }
    if text.split('/').any(|part| part == "..") {
        return Err(Error::Other(format!("unable to provision SubPath `{text}`: must not contain '..'")));
    }
    Ok(Some(PathBuf::from(text)))
}

/// Shows a path inside a volume at a place the container cannot bend: opened by the kernel below the volume's root, then
/// mounted by its descriptor.
fn bind_sub_path(
    dir: &Path,
    volume: &Path,
    sub: &Path,
    mount: &VolumeMount,
    container: &Container,
    index: usize,
) -> Result<PathBuf, Error> {
    let failed = || {
        Error::Other(format!(
            "failed to prepare subPath for volumeMount {:?} of container {:?}",
            mount.name, container.name
        ))
    };
    let log = |e: &dyn std::fmt::Display| tracing::warn!(error = %e, volume = %volume.display(), "sub path refused");
    let opened = match node::mounts::open_beneath(volume, sub) {
        Ok(opened) => opened,
        Err(e) if e.source.kind() == std::io::ErrorKind::NotFound => {
            // With the bit by which new files get the pod's group.
            let mode = volume.metadata().map_or(0o750, |m| std::os::unix::fs::MetadataExt::mode(&m) & 0o7777);
            node::mounts::make_beneath(volume, sub, mode).inspect_err(|e| log(e)).map_err(|_| failed())?
        }
        Err(e) => {
            log(&e);
            return Err(failed());
        }
    };
    let target = dir.join("volume-subpaths").join(&mount.name).join(&container.name).join(index.to_string());
    // What an earlier start of the container mounted there may be another file by now.
    node::mounts::unmount(&target).map_err(|_| failed())?;
    let is_dir = std::fs::metadata(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened)))
        .map_err(|_| failed())?
        .is_dir();
    let prepared = (|| {
        std::fs::create_dir_all(target.parent().unwrap_or(dir))?;
        if is_dir {
            if !target.is_dir() {
                let _ = std::fs::remove_file(&target);
                std::fs::create_dir(&target)?;
            }
        } else if !target.is_file() {
            let _ = std::fs::remove_dir(&target);
            std::fs::write(&target, b"")?;
        }
        Ok::<(), std::io::Error>(())
    })();
    prepared.map_err(|e| {
        log(&e);
        failed()
    })?;
    node::mounts::bind_fd(&opened, &target).inspect_err(|e| log(e)).map_err(|_| failed())?;
    Ok(target)
}

/// Whether a mount is read-only all the way down.
fn recursive_read_only(mount: &VolumeMount, supported: bool) -> Result<bool, String> {
    let mode = mount.recursive_read_only.as_deref().unwrap_or("Disabled");
    if mode == "Disabled" {
        return Ok(false);
    }
    let name = &mount.name;
    if mount.read_only != Some(true) {
        return Err(format!("volume {name:?} requested recursive read-only mode, but it is not read-only"));
    }
    if let Some(propagation) = mount.mount_propagation.as_deref().filter(|propagation| *propagation != "None") {
        return Err(format!(
            "volume {name:?} requested recursive read-only mode, but it is not compatible with propagation {propagation:?}"
        ));
    }
    match mode {
        "IfPossible" => Ok(supported),
        "Enabled" if supported => Ok(true),
        "Enabled" => {
            Err(format!("volume {name:?} requested recursive read-only mode, but it is not supported by the runtime"))
        }
        other => Err(format!("unknown recursive read-only mode {other:?}")),
    }
}

fn propagation(mount: &VolumeMount) -> v1::MountPropagation {
    match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => v1::MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => v1::MountPropagation::PropagationBidirectional,
        _ => v1::MountPropagation::PropagationPrivate,
    }
}

fn hosts_file(dir: &Path, pod: &Pod, ips: &[String], facts: &NodeFacts) -> Result<v1::Mount, Error> {
    let text = if spec::is_host_network(pod) {
        hosts::file_of_host(pod, &std::fs::read_to_string(HOSTS).unwrap_or_default())
    } else {
        hosts::file(pod, ips, facts)?
    };
    let path = dir.join("etc-hosts");
    if std::fs::read_to_string(&path).map_or(true, |present| present != text) {
        std::fs::create_dir_all(dir)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|e| Error::Other(format!("write hosts file: {e}")))?;
    }
    Ok(v1::Mount {
        container_path: HOSTS.to_owned(),
        host_path: path.to_string_lossy().into_owned(),
        selinux_relabel: true,
        ..Default::default()
    })
}

/// A file of its own for every start of a container.
fn last_words(dir: &Path, container: &Container, inside: &str) -> Result<v1::Mount, Error> {
    let folder = dir.join("containers").join(&container.name);
    let failed = |e: std::io::Error| Error::Other(format!("error on creating termination-log file {:?}: {e}", folder));
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let path =
        (0u32..).map(|n| folder.join(format!("{n:08x}"))).find(|path| !path.exists()).expect("some number is unused");
    std::fs::write(&path, b"").map_err(failed)?;
    // Any user of the container may write it.
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).map_err(failed)?;
    Ok(v1::Mount {
        container_path: inside.to_owned(),
        host_path: path.to_string_lossy().into_owned(),
        selinux_relabel: true,
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_kubelet_makes_and_what_the_pod_wants_so_is_read_only() {
        let check = |source: serde_json::Value, expected: bool| {
            let mut volume = source.clone();
            volume["name"] = json!("v");
            let pod: Pod = serde_json::from_value(json!({"spec": {"volumes": [volume], "containers": []}})).unwrap();
            assert_eq!(is_read_only(&pod, "v"), expected, "{source}");
        };
        for source in ["configMap", "secret", "projected", "downwardAPI"] {
            check(json!({source: {}}), true);
        }
        for source in [json!({"emptyDir": {}}), json!({"hostPath": {"path": "/"}}), json!({"ephemeral": {}})] {
            check(source, false);
        }
        for read_only in [true, false] {
            check(json!({"persistentVolumeClaim": {"claimName": "c", "readOnly": read_only}}), read_only);
            check(json!({"csi": {"driver": "d", "readOnly": read_only}}), read_only);
            check(json!({"nfs": {"server": "s", "path": "/", "readOnly": read_only}}), read_only);
            check(json!({"iscsi": {"targetPortal": "t", "iqn": "i", "lun": 0, "readOnly": read_only}}), read_only);
            check(json!({"fc": {"readOnly": read_only}}), read_only);
        }
    }

    #[test]
    fn read_only_goes_all_the_way_down_where_the_runtime_can() {
        let mount = |mode: &str, read_only: bool, propagation: Option<&str>| VolumeMount {
            name: "v".into(),
            read_only: Some(read_only),
            recursive_read_only: Some(mode.into()),
            mount_propagation: propagation.map(Into::into),
            ..Default::default()
        };
        assert_eq!(recursive_read_only(&VolumeMount::default(), true), Ok(false));
        assert_eq!(recursive_read_only(&mount("IfPossible", true, None), false), Ok(false));
        assert_eq!(recursive_read_only(&mount("IfPossible", true, Some("None")), true), Ok(true));
        assert_eq!(recursive_read_only(&mount("Enabled", true, None), true), Ok(true));
        let refused = |mount: &VolumeMount, supported| recursive_read_only(mount, supported).unwrap_err();
        let begin = "volume \"v\" requested recursive read-only mode, but it is not";
        assert_eq!(refused(&mount("Enabled", true, None), false), format!("{begin} supported by the runtime"));
        assert_eq!(refused(&mount("Enabled", false, None), true), format!("{begin} read-only"));
        let shared = mount("Enabled", true, Some("Bidirectional"));
        assert_eq!(refused(&shared, true), format!("{begin} compatible with propagation \"Bidirectional\""));
    }
}
