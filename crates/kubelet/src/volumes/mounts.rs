//! What a container sees of its pod's volumes, and the files the kubelet adds: hosts and last words.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use node::cri::v1;

use super::{Paths, pod_dir};
use crate::config::expansion::expand_strictly;
use crate::config::{Error, Facts, hosts};
use crate::pod::spec;

const HOSTS: &str = "/etc/hosts";

/// The mounts of a container.
pub fn of_container(
    root: &Path,
    pod: &Pod,
    container: &Container,
    paths: &Paths,
    env: &std::collections::BTreeMap<String, String>,
    ips: &[String],
    facts: &Facts,
) -> Result<Vec<v1::Mount>, Error> {
    let dir = pod_dir(root, spec::uid(pod));
    let mut mounts = Vec::new();
    let mut own_hosts = false;
    for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
        own_hosts |= mount.mount_path == HOSTS;
        let volume = paths.get(&mount.name).ok_or_else(|| {
            Error::Other(format!("cannot find volume {:?} to mount into container {:?}", mount.name, container.name))
        })?;
        let host_path = match sub_path(mount, env)? {
            Some(sub) => bind_sub_path(&dir, volume, &sub, mount, container, index)?,
            None => volume.clone(),
        };
        let inside =
            if mount.mount_path.starts_with('/') { mount.mount_path.clone() } else { format!("/{}", mount.mount_path) };
        mounts.push(v1::Mount {
            container_path: inside,
            host_path: host_path.to_string_lossy().into_owned(),
            readonly: mount.read_only == Some(true),
            propagation: propagation(mount).into(),
            recursive_read_only: false,
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

fn sub_path(mount: &VolumeMount, env: &std::collections::BTreeMap<String, String>) -> Result<Option<PathBuf>, Error> {
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
            let mode = volume.metadata().map_or(0o750, |m| std::os::unix::fs::MetadataExt::mode(&m) & 0o777);
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

fn propagation(mount: &VolumeMount) -> v1::MountPropagation {
    match mount.mount_propagation.as_deref() {
        Some("HostToContainer") => v1::MountPropagation::PropagationHostToContainer,
        Some("Bidirectional") => v1::MountPropagation::PropagationBidirectional,
        _ => v1::MountPropagation::PropagationPrivate,
    }
}

fn hosts_file(dir: &Path, pod: &Pod, ips: &[String], facts: &Facts) -> Result<v1::Mount, Error> {
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
