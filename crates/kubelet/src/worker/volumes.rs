//! The pod's volumes: asking the API for what they hold, then making them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use informer::EventType;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};

use super::Worker;
use crate::config::References;
use crate::pod::spec;
use crate::volumes::{self, Paths, Resolved, references};

/// After a failure; objects that arrive are announced earlier.
const AGAIN: Duration = Duration::from_secs(2);

/// Volumes that were made.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) paths: Paths,
    pub(super) references: References,
    /// When the first of its tokens has to be renewed.
    pub(super) renew: Option<Timestamp>,
    /// The addresses the files were made with.
    ips: Vec<String>,
}

impl Worker {
    /// Whether the volumes may not be what they should be.
    pub(super) fn volumes_due(&self) -> bool {
        let Some(made) = &self.volumes else { return true };
        self.news.references.load(Ordering::Acquire)
            || made.renew.is_some_and(|at| self.now() >= at)
            || made.ips != self.state.ips()
    }

    /// Makes the volumes, or brings them up to date; else says when to try again.
    pub(super) async fn make_volumes(&mut self) -> Result<(), Duration> {
        if !self.volumes_due() {
            return Ok(());
        }
        self.news.references.store(false, Ordering::Release);
        let references = self.references().await;
        let mut resolved = Resolved { references, ips: self.state.ips().to_vec(), ..Resolved::default() };
        let mut failures = Vec::new();
        let renew = self.resolve_tokens(&mut resolved, &mut failures).await;
        self.resolve_claims(&mut resolved, &mut failures).await;
        let (root, pod, facts) = (self.shared.settings.root.clone(), self.pod.clone(), self.shared.facts());
        let (ips, references) = (resolved.ips.clone(), resolved.references.clone());
        let work = move || volumes::setup(&root, &pod, &resolved, &facts);
        let (paths, errors) = match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(error) => {
                tracing::error!(%error, "making volumes panicked");
                return Err(AGAIN);
            }
        };
        // What could not be resolved is told by its own reason and not by what followed from it.
        let known = |text: &str| failures.iter().any(|(volume, _)| text.contains(&format!("volume {volume:?} ")));
        let mut messages: Vec<String> = errors.iter().map(ToString::to_string).filter(|text| !known(text)).collect();
        messages.extend(
            failures.iter().map(|(volume, why)| format!("MountVolume.SetUp failed for volume {volume:?} : {why}")),
        );
        for message in &messages {
            self.shared.event(&self.pod, EventType::Warning, "FailedMount", message.clone());
        }
        if !messages.is_empty() {
            return Err(AGAIN);
        }
        self.volumes = Some(Made { paths, references, renew, ips });
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
        let volumes: Vec<(String, String)> = self
            .pod
            .spec
            .iter()
            .flat_map(|s| s.volumes.iter().flatten())
            .filter_map(|v| v.persistent_volume_claim.as_ref().map(|c| (v.name.clone(), c.claim_name.clone())))
            .collect();
        for (volume, claim) in volumes {
            if !self.claims.contains_key(&claim) {
                match self.bound_volume(&claim).await {
                    Ok(found) => {
                        self.claims.insert(claim.clone(), found);
                    }
                    Err(why) => failures.push((volume, why)),
                }
            }
        }
        resolved.claims = self.claims.clone();
    }

    async fn bound_volume(&self, claim: &str) -> Result<PersistentVolume, String> {
        let client = &self.shared.client;
        let claim: PersistentVolumeClaim =
            client.get(spec::namespace(&self.pod), claim).await.map_err(|e| e.to_string())?;
        let bound = claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound");
        let name = claim.spec.as_ref().and_then(|s| s.volume_name.clone()).filter(|name| bound && !name.is_empty());
        let name = name.ok_or_else(|| {
            format!("PersistentVolumeClaim is not bound: {:?}", claim.metadata.name.clone().unwrap_or_default())
        })?;
        client.get("", &name).await.map_err(|e| e.to_string())
    }
}
