//! The pod's volumes: asking the API for what they hold, then making them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use informer::{Backoff, EventType};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod};

use super::Worker;
use crate::cri_config::References;
use crate::pod::spec;
use crate::storage::{Growth, NotMounted, Source};
use crate::volumes::{self, Paths, Resolved, references};

/// Between looks at a claim that is not bound.
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
        let references = self.references().await;
        let mut resolved = Resolved { references, ips: self.ips(), ..Resolved::default() };
        let mut failures = Vec::new();
        let tokens = self.resolve_tokens(&mut resolved, &mut failures).await;
        let certificates = self.resolve_certificates(&mut resolved, &mut failures).await;
        let others = failures.len();
        self.resolve_claims(&mut resolved, &mut failures).await;
        let unbound = failures.len() > others;
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
        let known = |text: &str| failures.iter().any(|(volume, _)| text.contains(&format!("volume {volume:?} ")));
        let mut messages: Vec<String> = errors.iter().map(ToString::to_string).filter(|text| !known(text)).collect();
        messages.extend(
            failures.iter().map(|(volume, why)| format!("MountVolume.SetUp failed for volume {volume:?} : {why}")),
        );
        let mut messages: Vec<(&str, String)> = messages.into_iter().map(|text| ("FailedMount", text)).collect();
        messages.extend(drivers.failures);
        for (reason, message) in &messages {
            self.shared.event(&self.pod, EventType::Warning, reason, message.clone());
        }
        let due = if messages.is_empty() && !drivers.waiting {
            self.tries.reset();
            tokens.into_iter().chain(certificates).chain(drivers.due).min()
        } else if self.volumes.is_none() {
            // Nobody announces that a claim was bound; that a volume was attached is announced.
            let again = if messages.is_empty() { LAST_TRY } else { self.tries.delay() };
            return Err(if unbound { AGAIN } else { again });
        } else {
            Some(informer::clock::add(self.now(), self.tries.delay()))
        };
        // A volume whose update failed is where it was.
        let mut all = self.volumes.take().map(|before| before.paths).unwrap_or_default();
        all.extend(paths);
        self.volumes = Some(Made { paths: all, references, due, ips, pod });
        Ok(())
    }

    /// The objects the pod refers to, as far as they exist.
    async fn references(&self) -> References {
        let names = references::of(&self.pod);
        let (namespace, shared) = (spec::namespace(&self.pod), &self.shared);
        shared.config_maps.hold(self.uid(), namespace, &names.config_maps);
        shared.secrets.hold(self.uid(), namespace, &names.secrets);
        shared.trust_bundles.hold(self.uid(), "", &names.trust_bundles.then(String::new));
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
        for volume in self.pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
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

    async fn resolve_claims(&mut self, resolved: &mut Resolved, failures: &mut Vec<(String, String)>) {
        let pod = self.pod.clone();
        let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
        let volumes =
            volumes.filter_map(|v| Some((v.name.clone(), references::claim_of(&pod, v)?, v.ephemeral.is_some())));
        // Claims are looked at again when it is time to: their volumes may have grown.
        let due = self.volumes.as_ref().and_then(|made| made.due).is_some_and(|at| self.now() >= at);
        for (volume, claim, own) in volumes {
            let known = self.claims.contains_key(&claim);
            if known && !due {
                continue;
            }
            match self.bound_volume(&claim, own).await {
                Ok(found) => drop(self.claims.insert(claim, found)),
                Err(_) if known => {}
                Err(why) => failures.push((volume, why)),
            }
        }
        resolved.claims = self.claims.iter().map(|(name, claimed)| (name.clone(), claimed.volume.clone())).collect();
    }

    /// The volume behind a claim. One that was made for a volume of the pod must be the pod's own.
    async fn bound_volume(&self, claim: &str, own: bool) -> Result<Claimed, String> {
        let client = &self.shared.client;
        let claim: PersistentVolumeClaim =
            client.get(spec::namespace(&self.pod), claim).await.map_err(|e| e.to_string())?;
        if own && rules::owners::controller_uid(&claim.metadata) != Some(self.uid()) {
            let (namespace, pod) = (spec::namespace(&self.pod), spec::name(&self.pod));
            let claim = claim.metadata.name.unwrap_or_default();
            return Err(format!(
                "PVC {namespace}/{claim} was not created for pod {namespace}/{pod} (pod is not owner)"
            ));
        }
        let bound = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
        let name = claim.spec.as_ref().and_then(|s| s.volume_name.clone()).filter(|name| bound && !name.is_empty());
        let name = name.ok_or_else(|| {
            format!("PersistentVolumeClaim is not bound: {:?}", claim.metadata.name.clone().unwrap_or_default())
        })?;
        let volume: PersistentVolume = client.get("", &name).await.map_err(|e| e.to_string())?;
        Ok(Claimed { growth: Growth::of(&volume, &claim), claim: informer::events::reference(&claim), volume })
    }

    /// Lets drivers mount the volumes that are theirs, all at once. The calls run to their end whatever becomes of this turn.
    async fn mount_drivers(&mut self, resolved: &mut Resolved) -> Drivers {
        let volumes = self.pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
        let sources = volumes.filter_map(|volume| {
            let claimed = |name| {
                let read_only =
                    volume.persistent_volume_claim.as_ref().is_some_and(|claim| claim.read_only == Some(true));
                let claimed = self.claims.get(&name)?;
                let source = Source::persistent(&claimed.volume, read_only)?;
                Some(Source { growth: claimed.growth.clone(), ..source })
            };
            let claim = references::claim_of(&self.pod, volume).and_then(claimed);
            Some((volume.name.clone(), claim.or_else(|| Source::inline(&self.pod, volume))?))
        });
        let calls = sources.map(|(volume, source)| {
            let (shared, pod) = (self.shared.clone(), self.pod.clone());
            let call = self.mounts.spawn(async move {
                let (storage, tokens) = (&shared.storage, &shared.tokens);
                let mounted = match source.block {
                    true => storage.map(&pod, &source, tokens).await,
                    false => storage.mount(&pod, &source, tokens).await,
                };
                (source.name, mounted)
            });
            async move { (volume, call.await) }
        });
        let mut drivers = Drivers::default();
        for (volume, called) in futures::future::join_all(calls.collect::<Vec<_>>()).await {
            let path = match called {
                Ok((name, Ok(mounted))) => {
                    drivers.due = [drivers.due, mounted.due].into_iter().flatten().min();
                    if mounted.grown {
                        self.note_growth(&name);
                    }
                    Some(mounted.path)
                }
                Ok((_, Err(NotMounted::Waiting))) => {
                    drivers.waiting = true;
                    None
                }
                Ok((name, Err(NotMounted::Failed { step, why }))) => {
                    let reason = if step.starts_with("MapVolume") { "FailedMapVolume" } else { "FailedMount" };
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

    /// Tells the pod and the claim that a volume is as large as it was asked to be.
    fn note_growth(&mut self, volume: &str) {
        let node = self.shared.facts().node_name.clone();
        let message = format!("MountVolume.NodeExpandVolume succeeded for volume {volume:?} {node}");
        self.shared.event(&self.pod, EventType::Normal, "FileSystemResizeSuccessful", message.clone());
        let named = |claimed: &&mut Claimed| claimed.volume.metadata.name.as_deref() == Some(volume);
        for claimed in self.claims.values_mut().filter(named) {
            claimed.growth = None;
            let (about, kind) = (claimed.claim.clone(), EventType::Normal);
            self.shared.recorder.event_about(about, kind, "FileSystemResizeSuccessful", message.clone());
        }
    }
}

/// A claim that is bound, and what it is bound to.
#[derive(Debug)]
pub(super) struct Claimed {
    claim: ObjectReference,
    volume: PersistentVolume,
    /// What the claim does not have yet.
    growth: Option<Growth>,
}

/// What came of asking drivers.
#[derive(Debug, Default)]
struct Drivers {
    /// Reasons and messages of events.
    failures: Vec<(&'static str, String)>,
    /// Whether volumes are not attached yet.
    waiting: bool,
    /// When the first has to be published again.
    due: Option<Timestamp>,
}
