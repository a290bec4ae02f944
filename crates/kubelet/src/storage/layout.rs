//! Where volumes of drivers are below the kubelet's root. Drivers are told these paths, manifests name them, and after a restart they
//! say what is mounted: they are upstream's.

use std::path::{Path, PathBuf};

const PLUGIN: &str = "plugins/kubernetes.io/csi";
/// In the directory of everything about a volume: what is needed to take it away again.
pub(crate) const DATA_FILE: &str = "vol_data.json";

/// Whether a name can be one of a directory.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

/// A name that would lead somewhere else.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0:?} is no name of a directory")]
pub(crate) struct NotPlain(String);

fn plain(name: &str) -> Result<&str, NotPlain> {
    if is_plain(name) { Ok(name) } else { Err(NotPlain(name.to_owned())) }
}

/// What is about a volume that is staged on this node: `globalmount` is below it.
pub(crate) fn staged(root: &Path, driver: &str, handle: &str) -> Result<PathBuf, NotPlain> {
    Ok(root.join(PLUGIN).join(plain(driver)?).join(csi::names::staging_directory(handle)))
}

/// Where a staged volume is mounted.
pub(crate) fn global_mount(staged: &Path) -> PathBuf {
    staged.join("globalmount")
}

/// What is about a pod's volume: `mount` is below it.
pub(crate) fn published(root: &Path, pod: &str, volume: &str) -> Result<PathBuf, NotPlain> {
    Ok(of_pod(root, pod).join(plain(volume)?))
}

/// Where a pod's volume is mounted.
pub(crate) fn mount(published: &Path) -> PathBuf {
    published.join("mount")
}

fn of_pod(root: &Path, pod: &str) -> PathBuf {
    root.join("pods").join(pod).join("volumes/kubernetes.io~csi")
}

/// Directories of all volumes of a pod that drivers mounted, or were about to.
pub(crate) fn published_to(root: &Path, pod: &str) -> Vec<PathBuf> {
    entries(&of_pod(root, pod))
}

/// Directories of the volumes of all pods.
pub(crate) fn all_published(root: &Path) -> Vec<PathBuf> {
    entries(&root.join("pods")).iter().flat_map(|pod| entries(&pod.join("volumes/kubernetes.io~csi"))).collect()
}

/// The places of a volume that is a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) staging: PathBuf,
    /// What the driver makes for the pod.
    pub(crate) publish: PathBuf,
    /// What says how to take it away.
    pub(crate) data: PathBuf,
    /// What leads from the pod to it.
    pub(crate) link: PathBuf,
}

/// Where a device is for a pod.
pub(crate) fn device(root: &Path, pod: &str, volume: &str) -> Result<Device, NotPlain> {
    let (devices, volume) = (root.join(PLUGIN).join("volumeDevices"), plain(volume)?);
    Ok(Device {
        staging: devices.join("staging").join(volume),
        publish: devices.join("publish").join(volume).join(plain(pod)?),
        data: devices.join(volume).join("data"),
        link: devices_of(root, pod).join(volume),
    })
}

fn devices_of(root: &Path, pod: &str) -> PathBuf {
    root.join("pods").join(pod).join("volumeDevices/kubernetes.io~csi")
}

/// Names of all volumes of a pod that are devices.
pub(crate) fn devices_to(root: &Path, pod: &str) -> Vec<String> {
    let names = entries(&devices_of(root, pod)).into_iter();
    names.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect()
}

/// What is in a directory; nothing when there is none.
pub(crate) fn entries(dir: &Path) -> Vec<PathBuf> {
    let listing = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = listing.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_that_drivers_know() {
        let root = Path::new("/k");
        let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let staged = staged(root, "d.example", "abc").unwrap();
        assert_eq!(
            global_mount(&staged),
            Path::new("/k/plugins/kubernetes.io/csi/d.example").join(hash).join("globalmount")
        );
        let published = published(root, "uid", "pv").unwrap();
        assert_eq!(mount(&published), Path::new("/k/pods/uid/volumes/kubernetes.io~csi/pv/mount"));
        let device = device(root, "uid", "pv").unwrap();
        assert_eq!(device.staging, Path::new("/k/plugins/kubernetes.io/csi/volumeDevices/staging/pv"));
        assert_eq!(device.publish, Path::new("/k/plugins/kubernetes.io/csi/volumeDevices/publish/pv/uid"));
        assert_eq!(device.data, Path::new("/k/plugins/kubernetes.io/csi/volumeDevices/pv/data"));
        assert_eq!(device.link, Path::new("/k/pods/uid/volumeDevices/kubernetes.io~csi/pv"));
    }

    #[test]
    fn no_name_leads_out_of_the_root() {
        for bad in ["..", ".", "", "a/b", "../x"] {
            assert!(staged(Path::new("/k"), bad, "h").is_err(), "{bad}");
            assert!(published(Path::new("/k"), "uid", bad).is_err(), "{bad}");
            assert!(device(Path::new("/k"), "uid", bad).is_err(), "{bad}");
        }
        // A handle may be anything.
        let path = staged(Path::new("/k"), "d", "../../etc").unwrap();
        assert!(!path.to_string_lossy().contains(".."));
    }
}
