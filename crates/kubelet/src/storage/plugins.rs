//! Sockets of plug-ins: each that appears in the directory is asked who is behind it, and is told what came of that.
//!
//! A socket is tried until it answers or goes; one that hangs or talks nonsense costs nothing but a task of its own. The same name with
//! another file behind it is a plug-in that was started anew.

use std::collections::HashMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::Client;
use csi::registration;
use informer::{Backoff, Informer, Key};
use k8s_openapi::api::storage::v1::CSIDriver;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::{Drivers, node_object};

/// More sockets than a node has drivers; what comes after them is left alone.
const MOST: usize = 256;
/// How often the directory is looked at though nothing was announced.
const LOOK: Duration = Duration::from_secs(300);

/// Follows the directory.
pub(crate) struct Plugins {
    pub(crate) dir: PathBuf,
    pub(crate) node: String,
    pub(crate) client: Client,
    pub(crate) drivers: Arc<Drivers>,
    /// What cluster administrators say about drivers.
    pub(crate) objects: Informer<CSIDriver>,
}

/// A file, told from another of the same name.
type Identity = (u64, i64, i64);

impl Plugins {
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30), 0.2);
        while let Err(error) = node_object::ensure(&self.client, &self.node).await {
            tracing::warn!(%error, "CSINode not made yet");
            tokio::time::sleep(backoff.delay()).await;
        }
        let changed = watch::Sender::new(());
        let announce = changed.clone();
        self.objects.subscribe(move |_| announce.send_replace(()));
        let mut running: HashMap<PathBuf, (Identity, AbortOnDropHandle<()>)> = HashMap::new();
        while !stop.is_cancelled() {
            // Before looking: what appears after that is announced.
            let watch = common::files::Watch::new(&self.dir);
            let found = sockets(&self.dir);
            let gone: Vec<PathBuf> = running
                .iter()
                .filter(|(path, (identity, _))| found.get(*path) != Some(identity))
                .map(|(path, _)| path.clone())
                .collect();
            for path in gone {
                running.remove(&path);
                // A socket that was replaced is about to be asked again, maybe under another name.
                if let Some(name) = self.drivers.remove(&path)
                    && !found.contains_key(&path)
                {
                    tracing::info!(driver = name, "storage driver is gone");
                    if let Err(error) = node_object::uninstall(&self.client, &self.node, &name).await {
                        tracing::warn!(%error, driver = name, "storage driver not taken out of CSINode");
                    }
                }
            }
            for (path, identity) in found.into_iter().take(MOST) {
                running.entry(path.clone()).or_insert_with(|| {
                    let (me, changed) = (self.clone(), changed.subscribe());
                    (identity, AbortOnDropHandle::new(tokio::spawn(async move { me.register(&path, changed).await })))
                });
            }
            let news = async {
                match watch {
                    Ok(mut watch) => drop(watch.changed().await),
                    Err(error) => {
                        tracing::warn!(%error, "directory of plug-ins cannot be watched");
                        tokio::time::sleep(Duration::from_secs(10)).await;
                    }
                }
            };
            tokio::select! {
                () = news => {}
                () = tokio::time::sleep(LOOK) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// Tries until it works, and keeps what the driver says of this node up to date until the socket goes.
    async fn register(&self, socket: &Path, mut changed: watch::Receiver<()>) {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(120), 0.2);
        let name = loop {
            match self.try_register(socket).await {
                Ok(name) => break name,
                Err(why) => tracing::warn!(socket = %socket.display(), why, "plug-in not registered"),
            }
            tokio::time::sleep(backoff.delay()).await;
        };
        loop {
            // Before looking: what changes after that is announced.
            changed.mark_unchanged();
            let object = self.objects.get(&Key::cluster(&name));
            let period = object.and_then(|object| object.spec.node_allocatable_update_period_seconds);
            let Some(period) = period.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0)
            else {
                if changed.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let waited = tokio::time::timeout(Duration::from_secs(period), changed.changed()).await;
            if waited.is_err()
                && let Err(why) = self.ask_again(&name).await
            {
                tracing::warn!(driver = name, why, "what a node takes of volumes is not known anew");
            }
        }
    }

    /// How many volumes the node takes may change with what else is attached to it.
    async fn ask_again(&self, name: &str) -> Result<(), String> {
        let Some(driver) = self.drivers.get(name) else { return Ok(()) };
        let about = driver.info().await.map_err(|error| error.to_string())?;
        node_object::install(&self.client, &self.node, name, &about).await
    }

    /// The driver's name.
    async fn try_register(&self, socket: &Path) -> Result<String, String> {
        let info = registration::info(socket).await.map_err(|e| e.to_string())?;
        let outcome = self.install(&info, socket).await;
        let notified = registration::notify(socket, outcome.as_ref().copied().map_err(String::as_str)).await;
        if let Err(error) = notified {
            // Upstream goes on with a plug-in that cannot be told, and takes it for unregistered; the next try tells it again.
            return Err(format!("not told: {error}"));
        }
        outcome.map(|()| info.name)
    }

    async fn install(&self, info: &registration::v1::PluginInfo, socket: &Path) -> Result<(), String> {
        if info.r#type != registration::CSI_PLUGIN {
            let (kind, socket) = (&info.r#type, socket.display());
            return Err(format!(
                "RegisterPlugin error -- no handler registered for plugin type: {kind} at socket {socket}"
            ));
        }
        let version = self.drivers.check(&info.name, &info.supported_versions, socket);
        let version =
            version.map_err(|why| format!("RegisterPlugin error -- plugin validation failed with err: {why}"))?;
        let endpoint = if info.endpoint.is_empty() { socket.to_owned() } else { PathBuf::from(&info.endpoint) };
        let driver = csi::Driver::new(&endpoint);
        let failed = |why: String| format!("RegisterPlugin error -- plugin registration failed with err: {why}");
        let about = driver.info().await.map_err(|error| failed(error.to_string()))?;
        node_object::install(&self.client, &self.node, &info.name, &about).await.map_err(failed)?;
        self.drivers.add(&info.name, driver, version, socket);
        tracing::info!(driver = info.name, "storage driver registered");
        Ok(())
    }
}

/// The sockets of a directory. Links are none, whatever they lead to.
fn sockets(dir: &Path) -> HashMap<PathBuf, Identity> {
    let listing = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let visible = listing.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    visible
        .filter_map(|entry| {
            let about = entry.path().symlink_metadata().ok()?;
            about.file_type().is_socket().then(|| (entry.path(), (about.ino(), about.ctime(), about.ctime_nsec())))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_count_and_a_new_one_of_the_same_name_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("d-reg.sock");
        let first = std::os::unix::net::UnixListener::bind(&path).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        std::os::unix::fs::symlink(&path, dir.path().join("link.sock")).unwrap();
        let _hidden = std::os::unix::net::UnixListener::bind(dir.path().join(".hidden.sock")).unwrap();
        let before = sockets(dir.path());
        assert_eq!(before.keys().collect::<Vec<_>>(), [&path]);
        std::fs::remove_file(&path).unwrap();
        let _second = std::os::unix::net::UnixListener::bind(&path).unwrap();
        drop(first);
        assert_ne!(sockets(dir.path()), before);
    }
}
