//! The server's certificates, renewed while it runs: in time, when one is taken away (`trireme certificates renew`), and at SIGHUP.
//!
//! New connections get the new ones, those that there are keep the old ones until they end. etcd reads its files again by itself. The authorities stay: what
//! is signed by them is believed by everybody who believed it before. Certificates that an administrator gave (`--tls-cert-file`, `--tls-sni-cert-key`) are read
//! again when their files change; what cannot be read leaves the old one in use.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use apiserver::serve::{ByName, Named, Shown};
use jiff::{SignedDuration, Timestamp};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::component::{Components, Failure};
use crate::server::Error;
use crate::server::flags::serving::Read;
use crate::servers::Directory;
use crate::tls::Files;

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
    /// What an administrator gave, and the files that it comes from: for all names, which is [`Certificates::server`] then, or for some.
    given: Vec<(Files, Arc<Shown>)>,
    by_name: Arc<ByName>,
    /// The files of the certificate for all names, if they are given.
    own: Option<Files>,
    /// Whether kubelets are shown the cluster's own.
    own_to_kubelets: bool,
    /// Where the cluster's own is put for others to read.
    cert_dir: Option<PathBuf>,
}

impl Certificates {
    pub fn of(keys: &pki::Cluster, settings: &Read) -> Result<Self, Error> {
        let shown = |files: &Files| {
            let pair = files.read().map_err(|message| Error::Option { option: "tls-cert-file", message })?;
            Ok::<_, Error>((Shown::new(&pair)?, pair))
        };
        let mut given = Vec::new();
        let server = match &settings.own {
            None => Shown::new(&keys.server)?,
            Some(files) => {
                let (shown, _) = shown(files)?;
                given.push((files.clone(), shown.clone()));
                shown
            }
        };
        let mut named = Vec::new();
        for one in &settings.named {
            let (shown, pair) = shown(&one.files)?;
            given.push((one.files.clone(), shown.clone()));
            let names = if one.names.is_empty() { names(&pair)? } else { one.names.clone() };
            named.push(Named { names, shown });
        }
        if let Some(directory) = &settings.cert_dir {
            leave_copy(keys, directory)?;
        }
        Ok(Self {
            cert_dir: settings.cert_dir.clone(),
            by_name: Arc::new(ByName { default: server.clone(), named }),
            server,
            kubelets: Shown::new(settings.kubelet_client.as_ref().unwrap_or(&keys.kubelet_client))?,
            given,
            own: settings.own.clone(),
            own_to_kubelets: settings.kubelet_client.is_none(),
        })
    }

    /// Shows what the files have now.
    fn read_again(&self) {
        for (files, shown) in &self.given {
            let read = files.read().and_then(|pair| shown.show(&pair).map_err(|error| error.to_string()));
            match read {
                Ok(()) => tracing::info!("{}: read again", files.certificate.display()),
                Err(why) => tracing::warn!("{}: {why}; the old one stays", files.certificate.display()),
            }
        }
    }

    /// Lets an API server show them, whichever they are at the time.
    pub fn configure(&self, config: &mut apiserver::Config) {
        config.tls.config = self.by_name.clone().served(&config.tls.config);
        config.kubelet_client = self.kubelets.sent(&config.kubelet_client);
    }
}

/// Puts the serving certificate, its authority and its key where `--cert-dir` wants them.
fn leave_copy(keys: &pki::Cluster, directory: &Path) -> Result<(), Error> {
    let failed = |error: std::io::Error| {
        let message = format!("cannot write to {}: {error}", directory.display());
        Error::Option { option: "cert-dir", message }
    };
    std::fs::create_dir_all(directory).map_err(failed)?;
    let chain = format!("{}{}", keys.server.chain_pem, keys.authority_pem());
    let certificate = directory.join("apiserver.crt");
    pki::write_private(&certificate, &chain)?;
    std::fs::set_permissions(&certificate, Permissions::from_mode(0o644)).map_err(failed)?;
    Ok(pki::write_private(&directory.join("apiserver.key"), &keys.server.key_pem)?)
}

/// The names that a certificate is good for, where none are given for it.
fn names(pair: &pki::Pair) -> Result<Vec<String>, pki::Error> {
    let certificate = pki::Certificate::from_pem(&pair.chain_pem)?;
    let dns = certificate.sans.iter().filter_map(|san| match san {
        pki::San::Dns(name) => Some(name.to_ascii_lowercase()),
        _ => None,
    });
    let names: Vec<String> = dns.collect();
    Ok(if names.is_empty() { vec![certificate.subject.common_name.to_ascii_lowercase()] } else { names })
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
        let folders: BTreeSet<PathBuf> =
            self.certificates.given.iter().flat_map(|(files, _)| files.folders()).collect();
        let mut given: Vec<_> =
            folders.iter().map(|folder| common::files::Watch::new(folder)).collect::<Result<_, _>>()?;
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
                () = any(&mut given) => {
                self.certificates.read_again();
                continue;
            }
                () = stop.cancelled() => return Ok(()),
            }
            let keeper = Arc::clone(&self);
            tokio::task::spawn_blocking(move || keeper.renew()).await??;
        }
    }

    fn renew(&self) -> Result<(), Failure> {
        let wanted = pki::Options { now: Timestamp::now(), ..self.wanted.clone() };
        let keys = pki::Cluster::ensure(&self.data_dir.join("pki"), &wanted)?;
        let certificates = &self.certificates;
        if certificates.own.is_none() {
            certificates.server.show(&keys.server)?;
        }
        if certificates.own_to_kubelets {
            certificates.kubelets.show(&keys.kubelet_client)?;
        }
        if let Some(directory) = &certificates.cert_dir {
            leave_copy(&keys, directory)?;
        }
        super::write_kubeconfig(&self.data_dir, self.address, &keys, certificates.own.as_ref())?;
        if let Some((directory, etcd)) = &self.etcd {
            let directory = Directory::open(&self.data_dir, &directory.member)?;
            etcd.reload_certificates(&directory.reach(directory.endpoints()))?;
        }
        Ok(())
    }
}

/// Ends when something changes in one of the directories; never where there is none.
async fn any(watches: &mut [common::files::Watch]) {
    if watches.is_empty() {
        return std::future::pending().await;
    }
    let changed = watches.iter_mut().map(|watch| Box::pin(watch.changed()));
    match futures::future::select_all(changed).await {
        (Ok(_), ..) => {}
        (Err(error), ..) => {
            tracing::warn!("files of certificates are not followed any more: {error}");
            std::future::pending::<()>().await;
        }
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
