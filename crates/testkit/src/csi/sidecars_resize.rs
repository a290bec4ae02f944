//! The resizer: makes volumes as large as their claims ask for, and leaves the rest to the node where the driver says so.

use csi::v1;
use informer::Key;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimCondition};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::sidecars::{Failed, Sidecar, bytes, requested};

impl Sidecar {
    pub(super) async fn grow(&self, claim: &PersistentVolumeClaim) -> Result<(), Failed> {
        let wanted = requested(claim);
        let status = claim.status.clone().unwrap_or_default();
        let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        let Some(volume) = self.volumes.get(&Key::cluster(&name)) else { return Ok(()) };
        let has = bytes(volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()));
        let Some(source) = volume.spec.as_ref().and_then(|spec| spec.csi.clone()) else { return Ok(()) };
        if status.phase.as_deref() != Some("Bound") || wanted <= has || source.driver != self.driver() {
            return Ok(());
        }
        let request = v1::ControllerExpandVolumeRequest {
            volume_id: source.volume_handle,
            capacity_range: Some(v1::CapacityRange { required_bytes: wanted, limit_bytes: 0 }),
            ..Default::default()
        };
        let answer = self.controller()?.controller_expand_volume(request).await?.into_inner();
        let size = [("storage".to_owned(), Quantity(answer.capacity_bytes.to_string()))];
        let mut larger = volume.as_ref().clone();
        larger.spec.get_or_insert_default().capacity = Some(size.clone().into());
        self.client.update(&larger).await?;
        let namespace = claim.metadata.namespace.clone().unwrap_or_default();
        let name = claim.metadata.name.clone().unwrap_or_default();
        let mut claim: PersistentVolumeClaim = self.client.get(&namespace, &name).await?;
        let status = claim.status.get_or_insert_default();
        status.allocated_resources = Some(size.clone().into());
        if answer.node_expansion_required {
            status.allocated_resource_statuses = Some([("storage".to_owned(), "NodeResizePending".to_owned())].into());
            status.conditions = Some(vec![PersistentVolumeClaimCondition {
                type_: "FileSystemResizePending".to_owned(),
                status: "True".to_owned(),
                message: Some(
                    "Waiting for user to (re-)start a pod to finish file system resize of volume on node.".to_owned(),
                ),
                ..Default::default()
            }]);
        } else {
            status.allocated_resource_statuses = None;
            status.capacity = Some(size.into());
        }
        self.client.update_status(&claim).await?;
        Ok(())
    }
}
