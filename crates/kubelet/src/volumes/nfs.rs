//! Directories of file servers, mounted with the system's own tools.

use std::collections::BTreeSet;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{NFSVolumeSource, PersistentVolume, Volume};

use super::pod_dir;

/// A directory of a server, as a pod asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Share {
    /// The persistent volume's name, or the pod's own for the volume.
    pub(crate) name: String,
    source: String,
    options: Vec<String>,
}

impl Share {
    /// A volume that the pod itself describes; nothing if it is no share.
    pub(crate) fn inline(volume: &Volume) -> Option<Self> {
        Some(Self::new(&volume.name, volume.nfs.as_ref()?, false, &[]))
    }

    /// A volume that outlives its pod; nothing if it is no share.
    pub(crate) fn persistent(volume: &PersistentVolume, read_only: bool) -> Option<Self> {
        let spec = volume.spec.as_ref()?;
        let options = spec.mount_options.as_deref().unwrap_or_default();
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        Some(Self::new(name, spec.nfs.as_ref()?, read_only, options))
    }

    fn new(name: &str, source: &NFSVolumeSource, read_only: bool, options: &[String]) -> Self {
        let server = &source.server;
        let server = if server.parse::<Ipv6Addr>().is_ok() { format!("[{server}]") } else { server.clone() };
        let mut options: BTreeSet<String> = options.iter().filter(|option| !option.is_empty()).cloned().collect();
        if read_only || source.read_only == Some(true) {
            options.insert("ro".to_owned());
        }
        let source = format!("{server}:{}", source.path);
        Self { name: name.to_owned(), source, options: options.into_iter().collect() }
    }

    /// Mounts it for a pod. Mounted already is fine.
    pub(crate) async fn mount(&self, root: &Path, pod: &str) -> Result<PathBuf, String> {
        let path = pod_dir(root, pod).join("volumes/kubernetes.io~nfs").join(&self.name);
        let is_mounted = || node::mounts::is_mounted(&path).map_err(|error| format!("read mounts: {error}"));
        if is_mounted()? {
            return Ok(path);
        }
        std::fs::create_dir_all(&path).map_err(|error| format!("make {}: {error}", path.display()))?;
        if let Err(why) = node::mount_program::mount("nfs", &self.source, &path, &self.options).await {
            // Its helper may have failed with the mount made.
            if is_mounted()? {
                node::mounts::unmount(&path).map_err(|error| error.to_string())?;
            }
            let _ = std::fs::remove_dir(&path);
            return Err(why);
        }
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_share_has_its_server_and_options_as_mount_takes_them() {
        let share = |nfs: serde_json::Value, options: serde_json::Value, read_only| {
            let volume = json!({"metadata": {"name": "pv"}, "spec": {"nfs": nfs, "mountOptions": options}});
            Share::persistent(&serde_json::from_value(volume).unwrap(), read_only).unwrap()
        };
        let plain = share(json!({"server": "fd00::1", "path": "/data"}), json!(["soft", "nolock", "soft"]), true);
        assert_eq!((plain.name.as_str(), plain.source.as_str()), ("pv", "[fd00::1]:/data"));
        assert_eq!(plain.options, ["nolock", "ro", "soft"]);
        let own = json!({"name": "v", "nfs": {"server": "s", "path": "/", "readOnly": true}});
        let own = Share::inline(&serde_json::from_value(own).unwrap()).unwrap();
        assert_eq!((own.source.as_str(), own.options), ("s:/", vec!["ro".to_owned()]));
        assert_eq!(Share::inline(&serde_json::from_value(json!({"name": "v", "emptyDir": {}})).unwrap()), None);
    }
}
