//! Where the kubelet keeps its pods, and where storage drivers look for it.
//!
//! Manifests of storage drivers name `/var/lib/kubelet/plugins`, `/var/lib/kubelet/plugins_registry` and `/var/lib/kubelet/pods` as host
//! paths, and a driver mounts volumes at paths that the kubelet tells it. Both must mean the same directories, so the node of a
//! machine has its root there, as upstream's has. A node with another data directory is one of several, or of a test: it
//! keeps everything below that one, and drivers have it in their own settings.
//!
//! Whoever has the root removes what it does not know from it. So a root outside of the data directory carries the name of the
//! data directory that it belongs to, and nobody else takes it.

use std::path::{Path, PathBuf};

use node::private;

use crate::component::Failure;

/// Where drivers look for a kubelet.
const USUAL_ROOT: &str = "/var/lib/kubelet";
/// The data directory of a machine's own node.
const USUAL_DATA: &str = "/var/lib/trireme";
/// The file that names the data directory.
const OWNER: &str = ".trireme";

/// The root for a data directory, where the administrator names no other.
pub fn of(data_dir: &Path, given: Option<&Path>) -> PathBuf {
    let inside = data_dir.join("agent/kubelet");
    match given {
        Some(given) => given.to_owned(),
        // Pods that were begun below the data directory end there.
        None if data_dir == Path::new(USUAL_DATA) && !has_entries(&inside.join("pods")) => PathBuf::from(USUAL_ROOT),
        None => inside,
    }
}

/// Makes the root, and marks it as this data directory's.
pub fn claim(root: &Path, data_dir: &Path) -> Result<(), Failure> {
    check(root, data_dir)?;
    let made = private::directory(root).and_then(|()| {
        if root.starts_with(data_dir) {
            return Ok(());
        }
        private::write(&root.join(OWNER), std::path::absolute(data_dir)?.as_os_str().as_encoded_bytes())
    });
    made.map_err(|error| format!("{}: {error}", root.display()).into())
}

/// Whether a root is this data directory's, or may become it.
pub fn check(root: &Path, data_dir: &Path) -> Result<(), Failure> {
    if root.starts_with(data_dir) {
        return Ok(());
    }
    let (place, data_dir) = (root.display(), std::path::absolute(data_dir)?);
    match std::fs::read_to_string(root.join(OWNER)) {
        Ok(owner) if Path::new(&owner) == data_dir || !Path::new(&owner).exists() => Ok(()),
        Ok(owner) => {
            Err(format!("{place} belongs to the node with the data directory {owner}: give another --kubelet-root")
                .into())
        }
        Err(_) if has_entries(&root.join("pods")) => {
            Err(format!("{place} has pods of another kubelet: remove them, or give another --kubelet-root").into())
        }
        Err(_) => Ok(()),
    }
}

fn has_entries(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_own_node_is_where_drivers_look_for_it() {
        assert_eq!(of(Path::new(USUAL_DATA), None), Path::new(USUAL_ROOT));
        assert_eq!(of(Path::new("/data"), None), Path::new("/data/agent/kubelet"));
        assert_eq!(of(Path::new(USUAL_DATA), Some(Path::new("/k"))), Path::new("/k"));
    }

    #[test]
    fn a_root_is_taken_by_one_node_and_never_from_another_kubelet() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name);
        for data in ["one", "two"] {
            std::fs::create_dir(at(data)).expect("a data directory");
        }
        let refused = |root: &str, data: &str| claim(&at(root), &at(data)).expect_err("it is another's").to_string();
        claim(&at("root"), &at("one")).expect("nobody has it");
        std::fs::create_dir_all(at("root/pods/uid")).expect("a pod");
        claim(&at("root"), &at("one")).expect("it is ours");
        assert!(refused("root", "two").contains("belongs to the node with the data directory"));
        std::fs::remove_dir(at("one")).expect("it is empty");
        claim(&at("root"), &at("two")).expect("its owner has gone");

        std::fs::create_dir_all(at("other/pods/uid")).expect("somebody's pod");
        assert!(refused("other", "two").contains("has pods of another kubelet"));
        std::fs::create_dir_all(at("two/agent/kubelet/pods/uid")).expect("a pod of our own");
        claim(&at("two/agent/kubelet"), &at("two")).expect("what is in the data directory is ours");
    }
}
