//! `DIR/manifests`: whatever lies there is applied, as k3s has it.
//!
//! Each file is a set of its own (an ApplySet whose parent is a ConfigMap in `default`): what a later version of the file does not have any more is removed from
//! the cluster. A file that is removed leaves what it made, as there: a directory that was lost must not take a cluster with it. `FILE.skip` beside a file keeps
//! it from being applied. The directory is watched; nothing is looked at by the clock, but what failed, which is tried again ever more slowly: a custom object
//! may come before its definition.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::component::Failure;

const MANAGER: &str = "trireme-manifests";
const AGAIN: Duration = Duration::from_secs(2);
const AT_LAST: Duration = Duration::from_secs(120);
/// Editors and copies write in pieces: a file is read when nothing happened for so long.
const SETTLED: Duration = Duration::from_millis(200);
/// No larger file is read.
const LARGEST: u64 = 16 << 20;

/// What was applied of each file, or failed to be.
#[derive(Default)]
struct Known {
    applied: BTreeMap<PathBuf, Vec<u8>>,
}

/// Applies what is there and what comes, until it is stopped.
pub async fn run(directory: PathBuf, kubeconfig: PathBuf, stop: CancellationToken) -> Result<(), Failure> {
    node::private::directory(&directory)?;
    let mut changes = common::files::Watch::new(&directory)?;
    let (mut known, mut again) = (Known::default(), AGAIN);
    loop {
        let failed = turn(&directory, &kubeconfig, &mut known).await?;
        again = if failed { (again * 2).min(AT_LAST) } else { AGAIN };
        tokio::select! {
            events = changes.changed() => {
                events?;
                again = AGAIN;
                while let Ok(events) = tokio::time::timeout(SETTLED, changes.changed()).await {
                    events?;
                }
            }
            () = tokio::time::sleep(again), if failed => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
}

/// Applies every file that is not as it was applied last. Whether one failed.
async fn turn(directory: &Path, kubeconfig: &Path, known: &mut Known) -> Result<bool, Failure> {
    let mut failed = false;
    let files = files(directory)?;
    known.applied.retain(|path, _| files.contains(path));
    for path in files {
        let text = match std::fs::metadata(&path) {
            Ok(about) if about.len() <= LARGEST => std::fs::read(&path),
            Ok(_) => Err(std::io::Error::other("it is too large")),
            Err(error) => Err(error),
        };
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                tracing::warn!("{}: {error}", path.display());
                continue;
            }
        };
        if known.applied.get(&path) == Some(&text) {
            continue;
        }
        match apply(&path, kubeconfig).await {
            Ok(said) => {
                tracing::info!("{}: {}", path.display(), said.trim().replace('\n', "; "));
                known.applied.insert(path, text);
            }
            Err(why) => {
                tracing::warn!("{}: {}", path.display(), why.trim().replace('\n', "; "));
                failed = true;
            }
        }
    }
    Ok(failed)
}

/// The files to be applied, in the order of their names.
fn files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    let all: Vec<PathBuf> = entries.collect();
    let skipped = |path: &Path| {
        let mut name = path.as_os_str().to_owned();
        name.push(".skip");
        all.contains(&PathBuf::from(name))
    };
    let is_manifest = |path: &&PathBuf| {
        let hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        let ends = path.extension().is_some_and(|end| ["yaml", "yml", "json"].iter().any(|known| end == *known));
        ends && !hidden && !skipped(path) && path.is_file()
    };
    let mut files: Vec<PathBuf> = all.iter().filter(is_manifest).cloned().collect();
    files.sort();
    Ok(files)
}

/// The name of a file's set: what can be an object's name of it.
fn set(path: &Path) -> String {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().to_lowercase()).unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let name: String = stem.chars().map(plain).take(200).collect();
    format!("manifest-{}", name.trim_matches(['-', '.']))
}

/// `kubectl apply`, as an administrator would type it. What it said.
async fn apply(path: &Path, kubeconfig: &Path) -> Result<String, String> {
    let arguments: Vec<String> = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--prune",
        "--namespace=default",
        "--request-timeout=60s",
        &format!("--field-manager={MANAGER}"),
        &format!("--applyset=configmaps/{}", set(path)),
        &format!("--filename={}", path.display()),
    ]
    .map(str::to_owned)
    .to_vec();
    crate::kubectl::inside(arguments, kubeconfig).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_found_in_order_and_some_are_skipped() {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["b.yaml", "a.json", "c.yml", "c.yml.skip", ".hidden.yaml", "notes.txt"] {
            std::fs::write(directory.path().join(name), "").expect("a file");
        }
        std::fs::create_dir(directory.path().join("d.yaml")).expect("a directory");
        let names: Vec<_> = files(directory.path()).expect("files").into_iter().collect();
        assert_eq!(names, [directory.path().join("a.json"), directory.path().join("b.yaml")]);
    }

    #[test]
    fn a_file_s_set_has_its_name() {
        for (file, name) in
            [("web.yaml", "manifest-web"), ("10 My_App.v2.yml", "manifest-10-my-app.v2"), ("-.yaml", "manifest-")]
        {
            assert_eq!(set(Path::new(file)), name);
        }
    }
}
