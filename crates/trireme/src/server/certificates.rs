//! The server's certificates, renewed while it runs: in time, when one is taken away (`trireme certificates renew`), and at SIGHUP.
//!
//! New connections get the new ones, those that there are keep the old ones until they end. etcd reads its files again by itself. The authorities stay: what
//! is signed by them is believed by everybody who believed it before.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use apiserver::serve::Shown;
use jiff::{SignedDuration, Timestamp};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::component::{Components, Failure};
use crate::servers::Directory;

/// What ends within this is renewed, as at a start.
const BEFORE: SignedDuration = SignedDuration::from_hours(24 * 90);
/// The longest wait: clocks are set, and machines sleep.
const LOOK: Duration = Duration::from_secs(24 * 3600);
/// The shortest: a certificate that cannot be renewed is no reason to do nothing else.
const AGAIN: Duration = Duration::from_secs(60);

/// What is shown to whom.
#[derive(Clone)]
pub struct Certificates {
    pub server: Arc<Shown>,
    pub kubelets: Arc<Shown>,
}

impl Certificates {
    pub fn of(keys: &pki::Cluster) -> Result<Self, pki::Error> {
        Ok(Self { server: Shown::new(&keys.server)?, kubelets: Shown::new(&keys.kubelet_client)? })
    }

    /// Lets an API server show them, whichever they are at the time.
    pub fn configure(&self, config: &mut apiserver::Config) {
        config.tls = self.server.served(&config.tls);
        config.kubelet_client = self.kubelets.sent(&config.kubelet_client);
    }
}

/// Renews them.
struct Keeper {
    certificates: Certificates,
    data_dir: PathBuf,
    /// What they say.
    wanted: pki::Options,
    /// Where the administrator's kubeconfig points.
    address: SocketAddr,
    /// The etcd whose certificates are ours, too.
    etcd: Option<(Directory, Arc<store::etcd::Etcd>)>,
}

/// Starts what renews the certificates of a server at this address: those in a data directory, which say this.
pub fn start(
    components: &mut Components,
    certificates: Certificates,
    (data_dir, wanted): (&Path, pki::Options),
    address: SocketAddr,
    etcd: Option<(Directory, Arc<store::etcd::Etcd>)>,
) {
    let keeper = Arc::new(Keeper { certificates, data_dir: data_dir.to_owned(), wanted, address, etcd });
    components.start("certificates", move |stop| Arc::clone(&keeper).keep(stop));
}

impl Keeper {
    /// Keeps them good until it is stopped.
    async fn keep(self: Arc<Self>, stop: CancellationToken) -> Result<(), Failure> {
        let mut hangup = signal(SignalKind::hangup())?;
        let directory = self.data_dir.join("pki");
        let mut changes = common::files::Watch::new(&directory)?;
        loop {
            let wait = wait(&ends(&directory), Timestamp::now());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = hangup.recv() => tracing::info!("SIGHUP: certificates are looked at"),
                events = changes.changed() => match events?.iter().find(|event| is_gone(&directory, &event.name)) {
                    Some(event) => tracing::info!(file = event.name, "a certificate was taken away, and is made anew"),
                    // What is made here is heard of, too.
                    None => continue,
                },
                () = stop.cancelled() => return Ok(()),
            }
            let keeper = Arc::clone(&self);
            tokio::task::spawn_blocking(move || keeper.renew()).await??;
        }
    }

    fn renew(&self) -> Result<(), Failure> {
        let wanted = pki::Options { now: Timestamp::now(), ..self.wanted.clone() };
        let keys = pki::Cluster::ensure(&self.data_dir.join("pki"), &wanted)?;
        self.certificates.server.show(&keys.server)?;
        self.certificates.kubelets.show(&keys.kubelet_client)?;
        super::write_kubeconfig(&self.data_dir, self.address, &keys)?;
        if let Some((directory, etcd)) = &self.etcd {
            let directory = Directory::open(&self.data_dir, &directory.member)?;
            etcd.reload_certificates(&directory.reach(directory.endpoints()))?;
        }
        Ok(())
    }
}

/// Whether a certificate of this name was there.
fn is_gone(directory: &Path, name: &str) -> bool {
    name.ends_with(".crt") && !directory.join(name).exists()
}

/// When the certificates in a directory end.
fn ends(directory: &Path) -> Vec<Timestamp> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let certificates = entries.filter(|path| path.extension().is_some_and(|end| end == "crt"));
    let read = |path: PathBuf| pki::Certificate::from_pem(&std::fs::read_to_string(path).ok()?).ok();
    certificates.filter_map(read).map(|certificate| certificate.not_after).collect()
}

/// How long until the first of them has to be renewed.
fn wait(ends: &[Timestamp], now: Timestamp) -> Duration {
    let due = ends.iter().filter_map(|end| end.checked_sub(BEFORE).ok()).min();
    let left = due.map_or(SignedDuration::MAX, |due| due.duration_since(now));
    Duration::try_from(left).unwrap_or(AGAIN).clamp(AGAIN, LOOK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_to_end_is_waited_for_within_limits() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let now = at("2026-06-01T00:00:00Z");
        assert_eq!(wait(&[at("2027-06-01T00:00:00Z")], now), LOOK);
        let soon = now + BEFORE + SignedDuration::from_secs(7200);
        assert_eq!(wait(&[at("2027-06-01T00:00:00Z"), soon], now), Duration::from_secs(7200));
        assert_eq!(wait(&[at("2026-06-02T00:00:00Z")], now), AGAIN, "one that cannot be renewed does not make it spin");
        assert_eq!(wait(&[], now), LOOK);
    }
}
