//! Volumes that grew: what is in them is made as large, on the node that has them, and the claim is told.

use csi::v1;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, json};

use super::mount::Known;
use super::{Source, Storage};

/// What a claim has to get.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Growth {
    namespace: String,
    claim: String,
    size: String,
    bytes: i64,
    /// What else its status says, to be written without what is over.
    conditions: Vec<Value>,
}

fn bytes(size: Option<&Quantity>) -> Option<i64> {
    Some(size?.0.parse::<machinery::quantity::Quantity>().ok()?.value())
}

impl Growth {
    /// What is missing, when the volume is larger than its claim says.
    pub(crate) fn of(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<Self> {
        let size = volume.spec.as_ref()?.capacity.as_ref()?.get("storage")?;
        let status = claim.status.as_ref()?;
        let granted = bytes(status.capacity.as_ref()?.get("storage"))?;
        let wanted = bytes(Some(size)).filter(|wanted| *wanted > granted)?;
        let over = ["FileSystemResizePending", "Resizing", "ControllerResizeError", "NodeResizeError"];
        let left = status.conditions.iter().flatten().filter(|one| !over.contains(&one.type_.as_str()));
        Some(Self {
            namespace: claim.metadata.namespace.clone()?,
            claim: claim.metadata.name.clone()?,
            size: size.0.clone(),
            bytes: wanted,
            conditions: left.map(|one| json!(one)).collect(),
        })
    }

    fn patch(&self) -> Value {
        json!({"status": {
            "capacity": {"storage": self.size}, "conditions": self.conditions,
            "allocatedResourceStatuses": {"storage": null},
        }})
    }
}

impl Storage {
    /// Lets the driver make the volume's contents as large as the volume; whether that was done.
    pub(super) async fn expand(
        &self,
        source: &Source,
        known: &Known,
        path: &str,
        staging: &str,
    ) -> Result<bool, String> {
        let Some(growth) = source.growth.as_ref().filter(|_| known.abilities.expand && !source.read_only) else {
            return Ok(false);
        };
        let request = v1::NodeExpandVolumeRequest {
            volume_id: source.handle.clone(),
            volume_path: path.to_owned(),
            capacity_range: Some(v1::CapacityRange { required_bytes: growth.bytes, limit_bytes: 0 }),
            staging_target_path: staging.to_owned(),
            volume_capability: Some(source.capability(known.abilities, None)),
            secrets: self.secrets("NodeExpandSecretRef", source.expand_secret.as_ref()).await?,
        };
        let expanded = known.driver.expand(request).await;
        expanded.map_err(|e| format!("Expander.NodeExpand failed to expand the volume : {e}"))?;
        let patch = client::Patch::Merge(growth.patch());
        let told = self.client.patch_status::<PersistentVolumeClaim>(&growth.namespace, &growth.claim, &patch).await;
        told.map_err(|e| format!("mountVolume.NodeExpandVolume update PVC status failed : {e}"))?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_gets_what_its_volume_has_and_loses_what_is_over() {
        let volume = |size: &str| -> PersistentVolume {
            serde_json::from_value(json!({"spec": {"capacity": {"storage": size}}})).unwrap()
        };
        let claim: PersistentVolumeClaim = serde_json::from_value(json!({
            "metadata": {"name": "c", "namespace": "ns"},
            "status": {"capacity": {"storage": "1Gi"}, "conditions": [
                {"type": "FileSystemResizePending", "status": "True"}, {"type": "Other", "status": "True"},
            ]},
        }))
        .unwrap();
        assert_eq!(Growth::of(&volume("1Gi"), &claim), None);
        let growth = Growth::of(&volume("2Gi"), &claim).unwrap();
        assert_eq!(growth.bytes, 2 << 30);
        let patch = growth.patch();
        assert_eq!(patch["status"]["capacity"], json!({"storage": "2Gi"}));
        assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(Growth::of(&volume("2Gi"), &PersistentVolumeClaim::default()), None, "it has none yet");
    }
}
