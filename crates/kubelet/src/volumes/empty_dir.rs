//! Directories that live and die with their pod, on disk or in memory.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::{fs_group, ownership};
use crate::cri_config::NodeFacts;
use crate::pod::{resources, spec};

const HUGE_PAGES: &str = "HugePages";

/// Makes the directory, once: what the pod changed about it since is the pod's. The file `ready` says that all of it was done, group included:
/// without it whoever made the directory may have been killed on the way.
pub(super) fn make(
    path: &Path,
    ready: &Path,
    source: &EmptyDirVolumeSource,
    pod: &Pod,
    facts: &NodeFacts,
) -> Result<(), String> {
    let done = ready.is_file();
    let limit = source.size_limit.as_ref().map(resources::value).filter(|&bytes| bytes > 0);
    match source.medium.as_deref().unwrap_or_default() {
        "" => {
            if done && path.is_dir() {
                return Ok(());
            }
            make_dir(path)?;
        }
        "Memory" => {
            let most = [limit, Some(facts.memory)].into_iter().flatten().filter(|&b| b > 0).min();
            if !mount_memory(path, most.and_then(|b| u64::try_from(b).ok()))? && done {
                return Ok(());
            }
        }
        huge if huge.starts_with(HUGE_PAGES) => {
            let mounted = node::mounts::is_mounted(path).map_err(|e| format!("read mounts: {e}"))?;
            if mounted && done {
                return Ok(());
            }
            if !mounted {
                let page = page_size(huge, pod)?;
                make_dir(path)?;
                node::mounts::huge_pages(path, page).map_err(|e| e.to_string())?;
            }
        }
        other => return Err(format!("unknown storage medium {other:?}")),
    }
    if let Some(group) = fs_group(pod) {
        ownership::apply(path, group, false).map_err(|e| format!("set group of {}: {e}", path.display()))?;
    }
    let parent = ready.parent().unwrap_or(ready);
    let written = std::fs::create_dir_all(parent).and_then(|()| std::fs::write(ready, b""));
    written.map_err(|e| format!("write {}: {e}", ready.display()))
}

/// A directory in memory; says whether it was made just now. One that is there already is left alone, its mode included: it
/// carries the bit by which new files get the pod's group.
pub(super) fn mount_memory(path: &Path, size: Option<u64>) -> Result<bool, String> {
    if node::mounts::is_mounted(path).map_err(|e| format!("read mounts: {e}"))? {
        return Ok(false);
    }
    make_dir(path)?;
    // As the kernel makes it unless told otherwise: nobody removes what others put there.
    node::mounts::tmpfs(path, size, 0o1777).map_err(|e| e.to_string())?;
    Ok(true)
}

/// How large the pages are, of those that the pod asks for.
fn page_size(medium: &str, pod: &Pod) -> Result<u64, String> {
    let bytes = |text: &str| u64::try_from(resources::value(&Quantity(text.to_owned()))).unwrap_or(0);
    let own = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let members = spec::members(pod).filter_map(|member| member.container.resources.clone());
    let mut asked: BTreeSet<u64> = members
        .chain(own.cloned())
        .filter_map(|resources| resources.requests)
        .flat_map(|requests| requests.into_keys())
        .filter_map(|name| name.strip_prefix("hugepages-").map(bytes))
        .collect();
    if let Some(size) = medium.strip_prefix(HUGE_PAGES).and_then(|rest| rest.strip_prefix('-')) {
        asked.retain(|page| *page == bytes(size));
    }
    match asked.len() {
        0 => Err(format!(
            "medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        )),
        1 => Ok(asked.into_iter().next().unwrap_or_default()),
        _ => Err(format!("medium: {medium} can't be used if container requests multiple huge page sizes")),
    }
}

fn make_dir(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|e| format!("make {}: {e}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777))
        .map_err(|e| format!("change mode of {}: {e}", path.display()))
}
