//! The group `storage.k8s.io`: classes, attachments and what CSI drivers say about themselves.

pub mod classes;
pub mod csi_driver;
pub mod csi_node;
pub mod csi_storage_capacity;
pub mod storage_class;
pub mod volume_attachment;
pub mod volume_attributes_class;

use crate::kind::Kind;

/// The kinds of the group.
pub const KINDS: &[Kind] = &[
    Kind::new("csidrivers", "CSIDriver").strategy(&csi_driver::CsiDrivers).columns(&csi_driver::columns::TABLE),
    Kind::new("csinodes", "CSINode").strategy(&csi_node::CsiNodes).columns(&csi_node::columns::TABLE),
    Kind::new("csistoragecapacities", "CSIStorageCapacity").strategy(&csi_storage_capacity::CsiStorageCapacities),
    Kind::new("storageclasses", "StorageClass")
        .strategy(&storage_class::StorageClasses)
        .columns(&storage_class::columns::TABLE),
    Kind::new("volumeattachments", "VolumeAttachment")
        .strategy(&volume_attachment::VolumeAttachments)
        .columns(&volume_attachment::columns::TABLE),
    Kind::new("volumeattributesclasses", "VolumeAttributesClass")
        .strategy(&volume_attributes_class::VolumeAttributesClasses)
        .columns(&volume_attributes_class::columns::TABLE),
];
