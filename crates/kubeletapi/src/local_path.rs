//! Volumes of the local-path provisioner: directories of this node, which only it can remove.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use http::StatusCode;

use crate::answer::{self, Answer};

/// The directory of a volume: one right below the root, and one that the provisioner names.
fn directory(root: &Path, name: &str) -> Option<PathBuf> {
    let named = name.starts_with("pvc-") && !name.contains(['/', '\0']);
    named.then(|| root.join(name))
}

/// Removes a volume with everything in it. One that is not there is removed.
pub async fn answer(root: Option<&Path>, name: String) -> Answer {
    let Some(root) = root else {
        return answer::text(StatusCode::NOT_FOUND, "404: Page Not Found");
    };
    let Some(directory) = directory(root, &name) else {
        return answer::text(StatusCode::BAD_REQUEST, format!("{name:?} is no volume of the local-path provisioner"));
    };
    let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(directory)).await;
    match removed.unwrap_or_else(|panicked| Err(std::io::Error::other(panicked))) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            answer::text(StatusCode::INTERNAL_SERVER_ERROR, format!("remove {name}: {error}"))
        }
        _ => answer::text(StatusCode::OK, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_volumes_are_removed_and_nothing_beside_them() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("volumes");
        for name in ["pvc-1_ns_data/deep", "pvc-2_ns_data", "other"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::fs::write(dir.path().join("kept"), "").unwrap();
        // What the volume's user made of it is not followed.
        std::os::unix::fs::symlink(dir.path(), root.join("pvc-1_ns_data/link")).unwrap();
        for (name, status) in [
            ("pvc-1_ns_data", StatusCode::OK),
            ("pvc-1_ns_data", StatusCode::OK),
            ("other", StatusCode::BAD_REQUEST),
            ("..", StatusCode::BAD_REQUEST),
            ("pvc-/../other", StatusCode::BAD_REQUEST),
            ("", StatusCode::BAD_REQUEST),
        ] {
            assert_eq!(answer(Some(&root), name.to_owned()).await.status(), status, "{name}");
        }
        assert_eq!(answer(None, "pvc-2_ns_data".to_owned()).await.status(), StatusCode::NOT_FOUND);
        assert!(!root.join("pvc-1_ns_data").exists());
        assert!(root.join("pvc-2_ns_data").exists() && root.join("other").exists() && dir.path().join("kept").exists());
    }
}
