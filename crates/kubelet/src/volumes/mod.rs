//! Volumes: directories of a pod that its containers see, made before they start and kept up to date while they run.
//!
//! [`payload`] says which files a volume of objects has, purely; [`atomic`] writes them so that no reader sees half an
//! update; [`setup`] makes every volume of a pod on disk; [`mounts`] says what each container sees of them. What has to be
//! asked of the API first (claims, tokens) is in [`Resolved`].

pub mod atomic;
mod empty_dir;
mod host_path;
pub mod mounts;
pub(crate) mod nfs;
mod ownership;
pub mod payload;
pub mod references;
mod trust;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, Pod, Volume};

use crate::cri_config::{NodeFacts, References};
use crate::pod::spec;
use crate::shared::certificates::Credential;

/// Why a volume is not there. The words reach users in the FailedMount event.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The volume cannot be made.
    #[error("MountVolume.SetUp failed for volume {volume:?} : {why}")]
    SetUp { volume: String, why: String },
    /// What is left of a pod cannot be removed.
    #[error("remove {path}: {why}", path = path.display())]
    Remove { path: PathBuf, why: String },
}

/// What the API said about a pod's volumes.
#[derive(Debug, Clone, Default)]
pub struct Resolved {
    /// The objects it refers to.
    pub references: References,
    /// Volumes behind its claims, by the claim's name.
    pub claims: HashMap<String, PersistentVolume>,
    /// Tokens, by volume name and place in its sources.
    pub tokens: HashMap<(String, usize), String>,
    pub certificates: HashMap<(String, usize), Arc<Credential>>,
    /// The pod's addresses, for downward API files.
    pub ips: Vec<String>,
    /// Volumes that their drivers mounted, by name; nothing for one that is not there.
    pub mounted: HashMap<String, Option<PathBuf>>,
}

/// Where each volume is on the node, by name.
pub type Paths = HashMap<String, PathBuf>;

/// Where everything is that belongs to pods.
pub fn pods_dir(root: &Path) -> PathBuf {
    root.join("pods")
}

/// The directory of everything that belongs to a pod: `<root>/pods/<uid>`.
pub fn pod_dir(root: &Path, uid: &str) -> PathBuf {
    pods_dir(root).join(uid)
}

/// Where images are shown that are volumes of a pod.
pub fn images_dir(root: &Path, uid: &str) -> PathBuf {
    pod_dir(root, uid).join("volumes/kubernetes.io~image")
}

/// Makes every volume that containers of a pod use, or brings it up to date. The others are made even if one fails.
pub fn setup(root: &Path, pod: &Pod, resolved: &Resolved, facts: &NodeFacts) -> (Paths, Vec<Error>) {
    let dir = pod_dir(root, spec::uid(pod));
    let (mut paths, mut errors) = (Paths::new(), Vec::new());
    if let Err(e) = std::fs::create_dir_all(dir.join("volumes")) {
        errors.push(Error::SetUp { volume: String::new(), why: format!("make {}: {e}", dir.display()) });
        return (paths, errors);
    }
    for volume in references::used(pod) {
        // Images are there once they were pulled, for the first container that wants them.
        if volume.image.is_some() {
            continue;
        }
        if let Some(mounted) = resolved.mounted.get(&volume.name) {
            paths.extend(mounted.clone().map(|path| (volume.name.clone(), path)));
            continue;
        }
        match one(&dir, pod, volume, resolved, facts) {
            Ok(path) => {
                paths.insert(volume.name.clone(), path);
            }
            Err(why) => errors.push(Error::SetUp { volume: volume.name.clone(), why }),
        }
    }
    (paths, errors)
}

fn one(dir: &Path, pod: &Pod, volume: &Volume, resolved: &Resolved, facts: &NodeFacts) -> Result<PathBuf, String> {
    let place = |plugin: &str| dir.join("volumes").join(format!("kubernetes.io~{plugin}")).join(&volume.name);
    if let Some(source) = &volume.empty_dir {
        let path = place("empty-dir");
        let ready = dir.join("plugins/kubernetes.io~empty-dir").join(&volume.name).join("ready");
        empty_dir::make(&path, &ready, source, pod, facts)?;
        return Ok(path);
    }
    if let Some(source) = &volume.host_path {
        host_path::check(&source.path, source.type_.as_deref().unwrap_or_default())?;
        return Ok(PathBuf::from(&source.path));
    }
    if let Some(files) = payload::of_volume(pod, volume, resolved, facts)? {
        let path = place(files.plugin);
        if files.in_memory {
            empty_dir::mount_memory(&path, None)?;
        } else {
            std::fs::create_dir_all(&path).map_err(|e| format!("make {}: {e}", path.display()))?;
        }
        let group = fs_group(pod);
        atomic::write(&path, &files.files, |made| ownership::apply_read_only(made, group))
            .map_err(|e| e.to_string())?;
        return Ok(path);
    }
    if let Some(name) = references::claim_of(pod, volume) {
        let claim = resolved.claims.get(&name);
        let claim = claim.ok_or_else(|| format!("persistentvolumeclaim {name:?} is not bound"))?;
        return persistent(pod, claim);
    }
    Err(format!("no volume plugin matched name: {}", volume.name))
}

/// A volume that outlives its pod. Only those on this node's own disks need no other party.
fn persistent(pod: &Pod, volume: &PersistentVolume) -> Result<PathBuf, String> {
    let spec = volume.spec.clone().unwrap_or_default();
    let path = if let Some(local) = spec.local {
        if !Path::new(&local.path).exists() {
            return Err(format!("path {:?} does not exist", local.path));
        }
        PathBuf::from(local.path)
    } else if let Some(host) = spec.host_path {
        host_path::check(&host.path, host.type_.as_deref().unwrap_or_default())?;
        PathBuf::from(host.path)
    } else {
        return Err("no volume plugin matched the volume's source".to_owned());
    };
    own(pod, &path).map_err(|e| format!("set group of {}: {e}", path.display()))?;
    Ok(path)
}

/// Gives a volume's files to the pod's group, if it has one, as its policy says. A device has no files.
fn own(pod: &Pod, path: &Path) -> std::io::Result<()> {
    let Some(group) = fs_group(pod).filter(|_| path.is_dir()) else { return Ok(()) };
    let on_mismatch = pod
        .spec
        .as_ref()
        .and_then(|s| s.security_context.as_ref())
        .is_some_and(|c| c.fs_group_change_policy.as_deref() == Some("OnRootMismatch"));
    ownership::apply(path, group, on_mismatch)
}

/// As the pod's policy says, away from the threads that others wait for: a volume may have a million files.
pub async fn give_to_group(pod: &Pod, path: &Path) -> std::io::Result<()> {
    let (pod, path) = (pod.clone(), path.to_owned());
    tokio::task::spawn_blocking(move || own(&pod, &path)).await.map_err(std::io::Error::other)?
}

pub(crate) fn fs_group(pod: &Pod) -> Option<u32> {
    let group = pod.spec.as_ref()?.security_context.as_ref()?.fs_group?;
    u32::try_from(group).ok()
}

/// Removes what is left of a pod: mounts first, then directories. Contents of host paths and claims are not below it.
pub fn remove(root: &Path, uid: &str) -> Result<(), Error> {
    let dir = pod_dir(root, uid);
    let failed = |why: String| Error::Remove { path: dir.clone(), why };
    // What a driver mounted is the driver's to take away. To remove it would be to remove what is in it.
    if crate::storage::has_volumes(root, uid) {
        return Err(failed("a storage driver has not let go of its volumes".to_owned()));
    }
    node::mounts::unmount_below(&dir).map_err(|e| failed(e.to_string()))?;
    // What is mounted is somebody's data, and would be removed with the directory.
    if let Some(left) = node::mounts::below(&dir).map_err(|e| failed(e.to_string()))?.first() {
        return Err(failed(format!("{} is mounted", left.target.display())));
    }
    match std::fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(failed(e.to_string())),
        _ => Ok(()),
    }
}

/// UIDs of the pods something is left of.
pub fn pods_on_disk(root: &Path) -> Vec<String> {
    let listing = std::fs::read_dir(pods_dir(root)).into_iter().flatten().flatten();
    listing.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[cfg(test)]
mod tests;
