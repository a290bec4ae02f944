//! Directories that live and die with their pod, on disk or in memory.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod};

use super::{fs_group, ownership};
use crate::config::Facts;
use crate::pod::resources;

/// Makes the directory, once: what the pod changed about it since is the pod's.
pub(super) fn make(path: &Path, source: &EmptyDirVolumeSource, pod: &Pod, facts: &Facts) -> Result<(), String> {
    let limit = source.size_limit.as_ref().map(resources::value).filter(|&bytes| bytes > 0);
    match source.medium.as_deref().unwrap_or_default() {
        "" => {
            if path.is_dir() {
                return Ok(());
            }
            make_dir(path)?;
        }
        "Memory" => {
            let most = [limit, Some(facts.memory)].into_iter().flatten().filter(|&b| b > 0).min();
            if !mount_memory(path, most.and_then(|b| u64::try_from(b).ok()))? {
                return Ok(());
            }
        }
        other => return Err(format!("unknown storage medium {other:?}")),
    }
    if let Some(group) = fs_group(pod) {
        ownership::apply(path, group, false).map_err(|e| format!("set group of {}: {e}", path.display()))?;
    }
    Ok(())
}

/// A directory in memory; says whether it was made just now.
pub(super) fn mount_memory(path: &Path, size: Option<u64>) -> Result<bool, String> {
    make_dir(path)?;
    if node::mounts::is_mounted(path).map_err(|e| format!("read mounts: {e}"))? {
        return Ok(false);
    }
    node::mounts::tmpfs(path, size, 0o777).map_err(|e| e.to_string())?;
    Ok(true)
}

fn make_dir(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|e| format!("make {}: {e}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))
        .map_err(|e| format!("change mode of {}: {e}", path.display()))
}
