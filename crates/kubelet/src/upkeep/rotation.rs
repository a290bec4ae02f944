//! Logs that are kept from filling the disk: the runtime writes on into a new file when one got too large, older ones are
//! compressed, the oldest are removed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use informer::Clock;
use jiff::Timestamp;
use node::cri::{Runtime, labels, v1};
use tokio_util::sync::CancellationToken;

use crate::pod::state::RESTART_COUNT;

/// How logs are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// From this size on a file is set aside, in bytes; negative for never.
    pub max_size: i64,
    /// Files of one container, the present one included.
    pub max_files: usize,
    /// Containers whose logs are rotated at the same time.
    pub workers: usize,
    pub interval: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self { max_size: 10 << 20, max_files: 5, workers: 1, interval: Duration::from_secs(10) }
    }
}

/// Why a log was not rotated.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{operation} {path}: {source}", path = path.display())]
    File { operation: &'static str, path: PathBuf, source: std::io::Error },
    #[error("failed to reopen container log: {0}")]
    Reopen(#[from] node::cri::Error),
    #[error("compressing was cut off")]
    Cut,
}

fn failed(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { operation, path, source }
}

pub struct Rotation {
    pub(crate) config: Config,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log_dir: PathBuf,
}

impl Rotation {
    /// Looks from time to time, until it is stopped. Nobody announces that a file got large.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        if self.config.max_size < 0 {
            return;
        }
        loop {
            tokio::select! {
                () = self.clock.sleep(self.config.interval) => {}
                () = stop.cancelled() => return,
            }
            self.look().await;
        }
    }

    async fn look(&self) {
        let running = v1::ContainerStateValue { state: v1::ContainerState::ContainerRunning.into() };
        let filter = v1::ContainerFilter { state: Some(running), ..Default::default() };
        let containers = match self.runtime.list_containers(filter).await {
            Ok(containers) => containers,
            Err(error) => {
                tracing::warn!(%error, "containers not listed; logs stay as they are");
                return;
            }
        };
        let large = containers.into_iter().filter_map(|container| {
            let path = log_of(&self.log_dir, &container)?;
            let size = std::fs::metadata(&path).ok()?.len();
            (i64::try_from(size).unwrap_or(i64::MAX) >= self.config.max_size).then_some((container.id, path))
        });
        futures::stream::iter(large)
            .for_each_concurrent(self.config.workers.max(1), |(id, path)| async move {
                if let Err(error) = self.rotate(&id, &path).await {
                    tracing::warn!(%error, log = %path.display(), "log not rotated");
                }
            })
            .await;
    }

    async fn rotate(&self, id: &str, log: &Path) -> Result<(), Error> {
        let (path, most) = (log.to_owned(), self.config.max_files);
        tokio::task::spawn_blocking(move || tidy(&path, most)).await.map_err(|_| Error::Cut)??;
        let aside = rotated(log, self.clock.now());
        std::fs::rename(log, &aside).map_err(failed("set aside", log))?;
        if let Err(error) = self.runtime.reopen_log(id).await {
            // Nobody may lose what is written meanwhile: it is tried again with the next look.
            std::fs::rename(&aside, log).map_err(failed("put back", log))?;
            return Err(error.into());
        }
        Ok(())
    }
}

/// The log file of a container, from the notes the kubelet left on it.
fn log_of(log_dir: &Path, container: &v1::Container) -> Option<PathBuf> {
    let label = |key: &str| container.labels.get(key);
    let folder = format!("{}_{}_{}", label(labels::POD_NAMESPACE)?, label(labels::POD_NAME)?, label(labels::POD_UID)?);
    let number = container.annotations.get(RESTART_COUNT)?;
    Some(log_dir.join(folder).join(label(labels::CONTAINER_NAME)?).join(format!("{number}.log")))
}

/// The name of a log that is set aside: with the time.
fn rotated(log: &Path, now: Timestamp) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(format!(".{}", now.strftime("%Y%m%d-%H%M%S")));
    PathBuf::from(name)
}

/// Removes what an interrupted run left, then the oldest files, so that there is room for one more; compresses the rest.
fn tidy(log: &Path, most: usize) -> Result<(), Error> {
    let (folder, Some(stem)) = (log.parent().unwrap_or(Path::new("/")), log.file_name().and_then(|name| name.to_str()))
    else {
        return Ok(());
    };
    let prefix = format!("{stem}.");
    let listing = std::fs::read_dir(folder).map_err(failed("list", folder))?;
    let mut names: Vec<String> = listing
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(&prefix))
        .collect();
    // Times sort as they are written.
    names.sort();
    let (mut kept, mut gone) = keep(names);
    // One for the present file, one for what it becomes now.
    let room = most.saturating_sub(2);
    if kept.len() > room {
        gone.extend(kept.drain(..kept.len() - room));
    }
    for name in &gone {
        let path = folder.join(name);
        std::fs::remove_file(&path).map_err(failed("remove", &path))?;
    }
    for name in kept.iter().filter(|name| !name.ends_with(".gz")) {
        compress(&folder.join(name))?;
    }
    Ok(())
}

/// What is in use and what is not: unfinished files, and originals of files that were compressed.
fn keep(names: Vec<String>) -> (Vec<String>, Vec<String>) {
    let compressed: Vec<String> = names.iter().filter_map(|name| name.strip_suffix(".gz").map(str::to_owned)).collect();
    names.into_iter().partition(|name| !name.ends_with(".tmp") && !compressed.contains(name))
}

fn compress(path: &Path) -> Result<(), Error> {
    let with = |suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let (unfinished, finished) = (with(".tmp"), with(".gz"));
    let work = || {
        let mut from = std::fs::File::open(path)?;
        let mode = from.metadata()?.permissions();
        let to = std::fs::File::create(&unfinished)?;
        to.set_permissions(mode)?;
        let mut encoder = flate2::write::GzEncoder::new(to, flate2::Compression::default());
        std::io::copy(&mut from, &mut encoder)?;
        encoder.finish()?.sync_data()?;
        std::fs::rename(&unfinished, &finished)?;
        std::fs::remove_file(path)
    };
    work().map_err(failed("compress", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn old_logs_are_compressed_and_the_oldest_go() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("0.log");
        for name in [
            "0.log",
            "0.log.20260101-000001.gz",
            "0.log.20260101-000002.gz",
            "0.log.20260101-000003",
            "0.log.20260101-000003.tmp",
            "0.log.20260101-000002",
            "0.log.20260101-000004",
            "1.log.20260101-000000",
        ] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        tidy(&log, 4).unwrap();
        assert_eq!(
            names(dir.path()),
            ["0.log", "0.log.20260101-000003.gz", "0.log.20260101-000004.gz", "1.log.20260101-000000"]
        );
        let file = std::fs::File::open(dir.path().join("0.log.20260101-000003.gz")).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
        assert_eq!(text, "0.log.20260101-000003");
        let now: Timestamp = "2026-02-03T04:05:06Z".parse().unwrap();
        assert_eq!(rotated(&log, now), dir.path().join("0.log.20260203-040506"));
    }
}
