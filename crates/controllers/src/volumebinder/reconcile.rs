//! Observes, applies what `plan` decides, and reports.

use std::sync::Arc;

use informer::{Action, EventType, Informer, Key, Reconciler};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;

use super::figures::Collector;
use super::plan::{self, Claim, Volume};
use crate::Error;
use crate::common::meta::MetaExt;
use crate::context::{Context, Tools};
use crate::metrics::{self, Collect};

const WORKERS: usize = 5;
/// Keys of volumes have this namespace; no claim can.
const VOLUMES: &str = "\u{0}volumes";

pub(crate) async fn start(context: Context) {
    let mut inputs = context.inputs();
    let controller = Binder {
        tools: context.tools.clone(),
        claims: inputs.read(),
        volumes: inputs.read(),
        classes: inputs.read(),
        _figures: metrics::collected(Collector { volumes: inputs.read(), claims: inputs.read() }),
    };
    inputs.feed(&controller.claims, |change| {
        let claim = change.object();
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty());
        let mut keys = vec![claim.metadata.key()];
        keys.extend(volume.map(|name| Key::new(VOLUMES, name)));
        keys
    });
    let claims = controller.claims.clone();
    inputs.feed(&controller.volumes, move |change| {
        let volume = change.object();
        let mut keys = vec![Key::new(VOLUMES, volume.metadata.name())];
        match plan::claim_key(volume) {
            Some(key) => keys.push(key),
            // A free volume may be what any pending claim waits for.
            None => keys
                .extend(claims.list().iter().filter(|claim| plan::is_pending(claim)).map(|claim| claim.metadata.key())),
        }
        keys
    });
    let claims = controller.claims.clone();
    inputs.feed(&controller.classes, move |change| {
        let name = change.object().metadata.name();
        let waiting = claims.list();
        let of_class = waiting.iter().filter(|claim| plan::is_pending(claim) && plan::class_of(claim) == Some(name));
        of_class.map(|claim| claim.metadata.key()).collect::<Vec<_>>()
    });
    inputs.run(controller, WORKERS).await;
}

struct Binder {
    tools: Tools,
    claims: Informer<PersistentVolumeClaim>,
    volumes: Informer<PersistentVolume>,
    classes: Informer<StorageClass>,
    _figures: Arc<dyn Collect>,
}

impl Reconciler for Binder {
    type Error = Error;

    async fn reconcile(&self, key: &Key) -> Result<Action, Error> {
        if key.namespace == VOLUMES {
            match self.volumes.get(&Key::cluster(&key.name)) {
                Some(volume) => self.sync_volume(&volume).await?,
                None => return Ok(Action::Done),
            }
        } else if let Some(claim) = self.claims.get(key) {
            self.sync_claim(&claim).await?;
        }
        Ok(Action::Done)
    }
}

impl Binder {
    async fn sync_claim(&self, claim: &PersistentVolumeClaim) -> Result<(), Error> {
        if let Some(changed) = plan::migrated_claim(claim) {
            // The change brings the claim back here.
            return Ok(self.tools.client.update(&changed).await.map(drop)?);
        }
        let class = plan::class_of(claim).and_then(|name| self.classes.get(&Key::cluster(name)));
        let volumes = self.volumes.list();
        match plan::claim(claim, class.as_deref(), &volumes) {
            Claim::Settled => Ok(()),
            Claim::Lost => {
                let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
                self.set_claim_phase(claim, None, "Lost", Some(("ClaimLost", message))).await
            }
            Claim::Misbound => {
                let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
                self.set_claim_phase(claim, None, "Lost", Some(("ClaimMisbound", message))).await
            }
            Claim::Bind(volume) => self.bind(claim, &volume).await,
            Claim::Wait { reason, message } => {
                self.tools.recorder.event(claim, EventType::Normal, reason, message);
                self.set_claim_phase(claim, None, "Pending", None).await
            }
            Claim::Provision(provisioner) => {
                let changed = plan::for_provisioner(claim, &provisioner);
                if let Some(changed) = changed {
                    self.tools.client.update(&changed).await?;
                }
                let message = format!(
                    "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
                );
                self.tools.recorder.event(claim, EventType::Normal, "ExternalProvisioning", message);
                self.set_claim_phase(claim, None, "Pending", None).await
            }
        }
    }

    /// The four writes, as far as they are missing.
    async fn bind(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<(), Error> {
        let volume = match plan::with_claim(volume, claim) {
            Some(changed) => self.tools.client.update(&changed).await?,
            None => volume.clone(),
        };
        let volume = self.set_volume_phase(volume, "Bound").await?;
        let claim = match plan::with_volume(claim, &volume) {
            Some(changed) => self.tools.client.update(&changed).await?,
            None => claim.clone(),
        };
        self.set_claim_phase(&claim, Some(&volume), "Bound", None).await
    }

    async fn set_volume_phase(&self, volume: PersistentVolume, phase: &str) -> Result<PersistentVolume, Error> {
        match plan::with_volume_phase(&volume, phase, self.tools.clock.now()) {
            Some(changed) => Ok(self.tools.client.update_status(&changed).await?),
            None => Ok(volume),
        }
    }

    async fn set_claim_phase(
        &self,
        claim: &PersistentVolumeClaim,
        volume: Option<&PersistentVolume>,
        phase: &str,
        warning: Option<(&str, &str)>,
    ) -> Result<(), Error> {
        let Some(changed) = plan::with_claim_phase(claim, volume, phase) else { return Ok(()) };
        self.tools.client.update_status(&changed).await?;
        if let Some((reason, message)) = warning {
            self.tools.recorder.event(claim, EventType::Warning, reason, message);
        }
        Ok(())
    }

    async fn sync_volume(&self, volume: &PersistentVolume) -> Result<(), Error> {
        if let Some(changed) = plan::migrated_volume(volume) {
            return Ok(self.tools.client.update(&changed).await.map(drop)?);
        }
        let claim = plan::claim_key(volume).map(|key| self.claims.get(&key));
        let claim = match claim {
            // The cache may not know the claim yet that a provisioner made the volume for.
            Some(None) => {
                let key = plan::claim_key(volume).unwrap_or_else(|| Key::cluster(""));
                match self.tools.client.get::<PersistentVolumeClaim>(&key.namespace, &key.name).await {
                    Ok(claim) => Some(Some(Arc::new(claim))),
                    Err(error) if error.is_not_found() => Some(None),
                    Err(error) => return Err(error.into()),
                }
            }
            known => known,
        };
        match plan::volume(volume, claim.as_ref().map(Option::as_deref)) {
            Volume::Settled => Ok(()),
            Volume::Phase(phase) => self.set_volume_phase(volume.clone(), phase).await.map(drop),
            Volume::Bound(claim) => {
                self.set_volume_phase(volume.clone(), "Bound").await?;
                // A volume made for a claim that does not know it yet.
                if plan::is_pending(&claim) { self.sync_claim(&claim).await } else { Ok(()) }
            }
            Volume::Unbind => {
                let mut changed = volume.clone();
                plan::forget_claim(&mut changed);
                self.tools.client.update(&changed).await?;
                Ok(())
            }
        }
    }
}
