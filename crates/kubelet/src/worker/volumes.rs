//! The pod's volumes: asking the API for what they hold, then making them. Claims are in `claims`.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use informer::{Backoff, EventType};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Volume};
use rules::owners::controller_uid;

use super::Worker;
use crate::cri_config::References;
use crate::pod::spec;
use crate::storage::{Knows, Mounted, NotMounted, Shown, Source, WantedDisk, selinux};
use crate::volumes::nfs::Share;
use crate::volumes::{self, Paths, Resolved, references};

/// After a failure that is our own.
const AGAIN: Duration = Duration::from_secs(2);
/// After a failure, doubled each time. Objects that arrive are announced earlier.
const FIRST_TRY: Duration = Duration::from_millis(500);
const LAST_TRY: Duration = Duration::from_secs(122);

/// Waits between tries that fail.
pub(super) fn tries() -> Backoff {
    Backoff::new(FIRST_TRY, LAST_TRY, 0.0)
}

/// Volumes that were made.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) paths: Paths,
    pub(super) references: References,
    /// Volumes whose files get the container's SELinux label.
    pub(super) relabelled: HashSet<String>,
    /// When to look at them though nothing was announced: the first of their tokens has to be renewed, or an update failed.
    pub(super) due: Option<Timestamp>,
    /// The addresses the files were made with.
    ips: Vec<String>,
    /// The pod whose fields they show.
    pod: Arc<Pod>,
}

/// Whether files that show fields of the one pod show the same of the other.
fn shows_the_same(one: &Pod, other: &Pod) -> bool {
    let (a, b) = (&one.metadata, &other.metadata);
    a.labels == b.labels && a.annotations == b.annotations && one.spec == other.spec
}

impl Worker {
    /// Whether the volumes may not be what they should be.
    pub(super) fn volumes_due(&self) -> bool {
        let Some(made) = &self.volumes else { return true };
        self.news.references.load(Ordering::Acquire)
            || made.due.is_some_and(|at| self.now() >= at)
            || made.ips != self.ips()
            || !shows_the_same(&made.pod, &self.pod)
    }

    /// Makes the volumes, or brings them up to date. Says when to try again where they could not be made; an update that
    /// fails leaves what was there and keeps nobody from starting.
    pub(super) async fn make_volumes(&mut self) -> Result<(), Duration> {
        if !self.volumes_due() {
            return Ok(());
        }
        self.news.references.store(false, Ordering::Release);
        let hop = hops::stage(hops::Stage::Volumes, "ensure");
        let references = self.references().await;
        let mut resolved = Resolved { references, ips: self.ips(), ..Resolved::default() };
        let mut failures = Vec::new();
        let tokens = self.resolve_tokens(&mut resolved, &mut failures).await;
        let certificates = self.resolve_certificates(&mut resolved, &mut failures).await;
        let unprocessed = self.resolve_claims(&mut resolved).await;
        let drivers = self.mount_drivers(&mut resolved).await;
        let (root, pod, facts) = (self.shared.settings.root.clone(), self.pod.clone(), self.shared.facts());
        let (ips, references) = (resolved.ips.clone(), resolved.references.clone());
        let shown = pod.clone();
        let work = move || volumes::setup(&root, &shown, &resolved, &facts);
        let (paths, errors) = match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(%error, "making volumes panicked");
                return Err(AGAIN);
            }
        };
        // What could not be resolved is reported with its own reason and not with what followed from it.
        let known = |text: &str| {
            let mut all = failures.iter().chain(&unprocessed);
            all.any(|(volume, _)| text.contains(&format!("volume {volume:?} ")))
        };
        let mut messages: Vec<String> = errors.iter().map(ToString::to_string).filter(|text| !known(text)).collect();
        messages.extend(
            failures.iter().map(|(volume, why)| format!("MountVolume.SetUp failed for volume {volume:?} : {why}")),
        );
        if drivers.exhausted && self.volumes.is_none() {
            self.refuse_for_limit(&unprocessed, &paths, &drivers.unattached);
            return Err(Duration::ZERO);
        }
        if !unprocessed.is_empty() {
            let why: Vec<&str> = unprocessed.iter().map(|(_, why)| why.as_str()).collect();
            let missing = self.missing(&unprocessed, &paths, &drivers.unattached);
            messages.push(format!("Unable to attach or mount volumes: {missing}: {}", why.join("; ")));
        }
        let mut messages: Vec<(&str, String)> = messages.into_iter().map(|text| ("FailedMount", text)).collect();
        messages.extend(drivers.failures);
        for (reason, message) in &messages {
            self.shared.event(&self.pod, EventType::Warning, reason, message.clone());
        }
        let due = if messages.is_empty() && drivers.unattached.is_empty() {
            self.tries.reset();
            tokens.into_iter().chain(certificates).chain(drivers.due).min()
        } else if self.volumes.is_none() {
            // That a volume was attached is announced.
            return Err(if messages.is_empty() { LAST_TRY } else { self.tries.delay() });
        } else {
            Some(informer::clock::add(self.now(), self.tries.delay()))
        };
        // A volume whose update failed is where it was.
        let mut all = self.volumes.take().map(|before| before.paths).unwrap_or_default();
        all.extend(paths);
        self.shared.storage.show(self.uid(), self.shown(&all));
        hop.end(self.uid(), controller_uid(&pod.metadata).unwrap_or_default(), 0);
        let relabelled = self.relabelled(&all);
        self.volumes = Some(Made { paths: all, references, relabelled, due, ips, pod });
        Ok(())
    }

    /// The objects the pod refers to, as far as they exist.
    async fn references(&self) -> References {
        let names = references::of(&self.pod);
        let (namespace, shared) = (spec::namespace(&self.pod), &self.shared);
        shared.config_maps.hold(self.uid(), namespace, &names.config_maps);
        shared.secrets.hold(self.uid(), namespace, &names.secrets);
        shared.trust_bundles.hold(self.uid(), "", &names.trust_bundles.then(String::new));
        shared.claims.hold(self.uid(), namespace, &names.claims);
        let mut found = References::default();
        for name in &names.config_maps {
            found.config_maps.extend(shared.config_maps.get(namespace, name).await.map(|map| (name.clone(), map)));
        }
        for name in &names.secrets {
            found.secrets.extend(shared.secrets.get(namespace, name).await.map(|secret| (name.clone(), secret)));
        }
        if names.trust_bundles {
            found.trust_bundles = shared.trust_bundles.all().await;
        }
        shared.services.synced().await;
        found.services = shared.services.by_namespace(namespace);
        if namespace != "default" {
            found.services.extend(shared.services.get(&informer::Key::new("default", "kubernetes")));
        }
        found
    }

    async fn resolve_tokens(&self, resolved: &mut Resolved, failures: &mut Vec<(String, String)>) -> Option<Timestamp> {
        let mut renew: Option<Timestamp> = None;
        for volume in references::used(&self.pod) {
            let sources = volume.projected.iter().flat_map(|p| p.sources.iter().flatten()).enumerate();
            for (index, source) in sources {
                let Some(wanted) = &source.service_account_token else { continue };
                match self.shared.tokens.get(&self.pod, wanted).await {
                    Ok(token) => {
                        renew = Some(renew.map_or(token.renew, |at| at.min(token.renew)));
                        resolved.tokens.insert((volume.name.clone(), index), token.value);
                    }
                    Err(why) => failures.push((volume.name.clone(), why)),
                }
            }
        }
        renew
    }

    /// The volumes that others have to be asked for, by name.
    fn asked_of_others(&self) -> Vec<(String, Asked)> {
        let asked = references::used(&self.pod).filter_map(|volume| {
            let read_only = volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.read_only == Some(true));
            let claim = references::claim_of(&self.pod, volume).and_then(|name| self.claims.get(&name));
            let asked = match claim {
                Some(claimed) => {
                    let source = Source::persistent(&claimed.volume, read_only);
                    let source = source.map(|source| Source {
                        growth: claimed.growth.clone(),
                        label: self.mount_label(&volume.name),
                        ..source
                    });
                    let share = || Share::persistent(&claimed.volume, read_only).map(Asked::Server);
                    let disk = || WantedDisk::persistent(&self.pod, &claimed.volume, read_only);
                    let source = source.map(Box::new).map(Asked::Driver);
                    source.or_else(share).or_else(|| disk().map(Box::new).map(Asked::Disk))
                }
                None => {
                    let source = Source::inline(&self.pod, volume).map(Box::new).map(Asked::Driver);
                    let disk = || WantedDisk::inline(&self.pod, volume).map(Box::new).map(Asked::Disk);
                    source.or_else(|| Share::inline(volume).map(Asked::Server)).or_else(disk)
                }
            };
            Some((volume.name.clone(), asked?))
        });
        asked.collect()
    }

    /// The SELinux label that a volume is mounted with, if its driver can do that.
    fn mount_label(&self, volume: &str) -> Option<String> {
        let usual = self.shared.settings.selinux.as_ref()?;
        match selinux::mount_label(&self.pod, volume, usual) {
            Ok(label) => label,
            Err(why) => {
                tracing::warn!(pod = %spec::long_name(&self.pod), volume, why, "volume is not mounted with a label");
                None
            }
        }
    }

    /// Volumes whose files the runtime gives the container's SELinux label: those that are the pod's, and whose file system has labels.
    fn relabelled(&self, paths: &Paths) -> HashSet<String> {
        if self.shared.settings.selinux.is_none() {
            return HashSet::new();
        }
        let mounts = node::mounts::list().unwrap_or_default();
        let has_labels = |volume: &Volume| {
            let path = paths.get(&volume.name);
            let mount = mounts.iter().rfind(|mount| Some(&mount.target) == path);
            mount.is_some_and(|mount| mount.labelled)
        };
        let is_relabelled = |volume: &&Volume| {
            let claim = references::claim_of(&self.pod, volume).and_then(|name| self.claims.get(&name));
            let read_only = volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.read_only == Some(true));
            match claim.and_then(|claimed| claimed.volume.spec.as_ref()) {
                Some(_) if read_only => false,
                Some(spec) => spec.local.is_some() || (spec.csi.is_some() && has_labels(volume)),
                None => {
                    let made = volume.empty_dir.is_some() || volume.config_map.is_some() || volume.secret.is_some();
                    let made = made || volume.projected.is_some() || volume.downward_api.is_some();
                    made || (volume.csi.is_some() && has_labels(volume))
                }
            }
        };
        references::used(&self.pod).filter(is_relabelled).map(|volume| volume.name.clone()).collect()
    }

    /// Lets drivers and servers mount the volumes that are theirs, all at once. The calls run to their end whatever becomes of this turn.
    async fn mount_drivers(&mut self, resolved: &mut Resolved) -> Drivers {
        let calls = self.asked_of_others().into_iter().map(|(volume, asked)| {
            let (shared, pod) = (self.shared.clone(), self.pod.clone());
            let call = self.mounts.spawn(async move {
                let (storage, tokens) = (&shared.storage, &shared.tokens);
                match asked {
                    Asked::Driver(source) if source.block => {
                        (source.name.clone(), storage.map(&pod, &source, tokens).await)
                    }
                    Asked::Driver(source) => (source.name.clone(), storage.mount(&pod, &source, tokens).await),
                    Asked::Disk(disk) => (disk.name.clone(), storage.mount_disk(&pod, &disk).await),
                    Asked::Server(share) => {
                        let mounted = share.mount(&shared.settings.root, spec::uid(&pod)).await;
                        let failed = |why| NotMounted::Failed { step: "MountVolume.SetUp failed", why };
                        (share.name, mounted.map(Mounted::still).map_err(failed))
                    }
                }
            });
            async move { (volume, call.await) }
        });
        let mut drivers = Drivers::default();
        for (volume, called) in futures::future::join_all(calls.collect::<Vec<_>>()).await {
            let path = match called {
                Ok((name, Ok(mounted))) => {
                    drivers.due = [drivers.due, mounted.due].into_iter().flatten().min();
                    self.note_growth(&name, mounted.grown);
                    Some(mounted.path)
                }
                Ok((_, Err(NotMounted::Waiting))) => {
                    drivers.unattached.push(volume.clone());
                    None
                }
                Ok((_, Err(NotMounted::Exhausted))) => {
                    drivers.unattached.push(volume.clone());
                    drivers.exhausted = true;
                    None
                }
                Ok((name, Err(NotMounted::Failed { step, why }))) => {
                    let reason = match step.split('.').next() {
                        Some("MapVolume") => "FailedMapVolume",
                        Some("NodeExpandVolume") => "VolumeResizeFailed",
                        _ => "FailedMount",
                    };
                    drivers.failures.push((reason, format!("{step} for volume {name:?} : {why}")));
                    None
                }
                Err(panicked) => {
                    drivers
                        .failures
                        .push(("FailedMount", format!("MountVolume.SetUp failed for volume {volume:?} : {panicked}")));
                    None
                }
            };
            resolved.mounted.insert(volume, path);
        }
        drivers
    }

    /// The volumes of which somebody else knows how full they are.
    fn shown(&self, paths: &Paths) -> Vec<Shown> {
        let shown = references::used(&self.pod).filter_map(|volume| {
            let path = paths.get(&volume.name)?.clone();
            let claim = references::claim_of(&self.pod, volume);
            let persistent = claim.as_ref().and_then(|name| self.claims.get(name)).map(|claimed| &claimed.volume);
            let source = persistent.and_then(|volume| Source::persistent(volume, false));
            let knows = match source.or_else(|| Source::inline(&self.pod, volume)) {
                Some(source) => Knows::Driver { name: source.driver, handle: source.handle },
                // Of a path of the node nobody says that it is a file system of its own.
                None if volume.nfs.is_some() => Knows::Kernel,
                None if persistent?.spec.as_ref()?.host_path.is_some() => return None,
                None => Knows::Kernel,
            };
            Some(Shown { name: volume.name.clone(), claim, path, knows })
        });
        shown.collect()
    }
}

/// Who has to be asked for a volume.
enum Asked {
    Driver(Box<Source>),
    Disk(Box<WantedDisk>),
    Server(Share),
}

/// What came of asking drivers.
#[derive(Debug, Default)]
struct Drivers {
    /// Reasons and messages of events.
    failures: Vec<(&'static str, String)>,
    /// Volumes that are not attached yet.
    unattached: Vec<String>,
    /// Whether one of them never will be, because the node takes no more.
    exhausted: bool,
    /// When the first has to be published again.
    due: Option<Timestamp>,
}
