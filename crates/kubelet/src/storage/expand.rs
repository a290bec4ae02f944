//! Volumes that grew: what is in them is made as large, on the node that has them, and the claim is told.

use csi::v1;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use serde_json::Value;

use super::mount::Known;
use super::{Growth, Source, Storage};

/// What came of growing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grown {
    /// There was nothing to do, or it is left as it is.
    No,
    Yes,
    /// The volume is larger, and may not be written to.
    ReadOnly,
}

/// What drivers said about growing a volume, as long as it is on this node.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Refusals {
    /// A try ended without success.
    ended: bool,
    /// Not while a pod has it.
    in_use: bool,
}

/// Why a volume did not grow.
struct Refused {
    why: String,
    /// Nothing of the call goes on.
    ended: bool,
    unsupported: bool,
    in_use: bool,
    infeasible: bool,
}

impl Refused {
    fn early(why: String) -> Self {
        Self { why, ended: true, unsupported: false, in_use: false, infeasible: false }
    }
}

impl From<csi::Error> for Refused {
    fn from(error: csi::Error) -> Self {
        let infeasible = error.is_infeasible();
        let between = if infeasible { " " } else { " : " };
        let why = format!("Expander.NodeExpand failed to expand the volume{between}{error}");
        Self { why, ended: error.is_final(), unsupported: false, in_use: error.is_precondition(), infeasible }
    }
}

impl Storage {
    /// Lets the driver make the volume's contents as large as the volume. `online` says that pods have it.
    pub(super) async fn expand(
        &self,
        source: &Source,
        known: &Known,
        (path, staging): (&str, &str),
        online: bool,
    ) -> Result<Grown, String> {
        let Some(growth) = source.growth.as_ref() else { return Ok(Grown::No) };
        // A mount that is made now has the size of now.
        if growth.elsewhere && !online {
            return Ok(Grown::No);
        }
        if source.read_only {
            return Ok(Grown::ReadOnly);
        }
        let volume = (source.driver.clone(), source.handle.clone());
        let refusals = self.refusals.lock().get(&volume).copied().unwrap_or_default();
        if refusals.in_use && online {
            return Ok(Grown::No);
        }
        let growth = if growth.recovers && !growth.elsewhere {
            self.tell(growth, growth.begun()).await?
        } else {
            growth.clone()
        };
        let Err(refused) = self.ask_to_expand(source, known, &growth, (path, staging)).await else {
            self.refusals.lock().remove(&volume);
            if !growth.elsewhere {
                let written = self.tell(&growth, growth.finished()).await;
                let what = if growth.recovers { "pvc status failed:" } else { "PVC status failed :" };
                written.map_err(|why| format!("mountVolume.NodeExpandVolume update {what} {why}"))?;
            }
            return Ok(Grown::Yes);
        };
        if refused.unsupported && (growth.elsewhere || !growth.recovers) {
            return Ok(Grown::No);
        }
        if growth.recovers && refused.ended {
            let infeasible = refused.infeasible || (growth.outdated && refusals.ended);
            let patch = growth.failed(&refused.why, infeasible, self.clock.now());
            if let Err(why) = self.tell(&growth, patch).await {
                tracing::warn!(claim = growth.claim, why, "claim not told that it did not grow");
            }
        }
        let mut all = self.refusals.lock();
        let entry = all.entry(volume).or_default();
        entry.ended |= refused.ended;
        entry.in_use |= refused.in_use;
        // A volume that cannot grow while somebody has it keeps nobody from having it.
        if refused.in_use { Ok(Grown::No) } else { Err(refused.why) }
    }

    async fn ask_to_expand(
        &self,
        source: &Source,
        known: &Known,
        growth: &Growth,
        (path, staging): (&str, &str),
    ) -> Result<(), Refused> {
        if !known.abilities.expand {
            let why = format!("NodeExpand is not supported by the CSI driver {}", source.driver);
            return Err(Refused { unsupported: true, ..Refused::early(why) });
        }
        let secrets = self.secrets("NodeExpandSecretRef", source.expand_secret.as_ref()).await;
        let request = v1::NodeExpandVolumeRequest {
            volume_id: source.handle.clone(),
            volume_path: path.to_owned(),
            capacity_range: Some(v1::CapacityRange { required_bytes: growth.bytes, limit_bytes: 0 }),
            staging_target_path: staging.to_owned(),
            volume_capability: Some(source.capability(known.abilities, None)),
            secrets: secrets.map_err(Refused::early)?,
        };
        known.driver.expand(request).await.map(drop).map_err(Refused::from)
    }

    /// Writes a claim's status; answers what is missing by the claim as it is then.
    async fn tell(&self, growth: &Growth, patch: Value) -> Result<Growth, String> {
        let patch = client::Patch::Merge(patch);
        let written = self.client.patch_status::<PersistentVolumeClaim>(&growth.namespace, &growth.claim, &patch).await;
        let written = written.map_err(|e| format!("patchPVCStatus failed to patch PVC {:?}: {e}", growth.claim))?;
        Ok(growth.after(&written))
    }
}
