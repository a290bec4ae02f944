//! What a table shows of PersistentVolumeClaims.

use machinery::value;
use serde_json::json;

use crate::core::volume_cells::{access_modes, phase, storage_class};
use crate::table::cells::{age, name, plain, text_or};
use crate::table::{AGE, NAME, Printer, of, own, text};

const PVC_SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeClaimSpec";
const PVC_STATUS: &str = "io.k8s.api.core.v1.PersistentVolumeClaimStatus";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Status", of(PVC_STATUS, "phase")),
        text("Volume", of(PVC_SPEC, "volumeName")),
        text("Capacity", of(PVC_STATUS, "capacity")),
        text("Access Modes", of(PVC_STATUS, "accessModes")),
        text("StorageClass", own("The StorageClass of the claim.")),
        text("VolumeAttributesClass", own("The VolumeAttributesClass of the claim.")),
        AGE,
        text("VolumeMode", of(PVC_SPEC, "volumeMode")).wide(),
    ],
    |claim, now| {
        let volume = value::text(claim, "spec.volumeName");
        let (capacity, modes) = if volume.is_empty() {
            (String::new(), String::new())
        } else {
            let capacity = value::at(claim, "status.capacity.storage").map_or_else(|| "0".to_owned(), plain);
            (capacity, access_modes(claim, "status.accessModes"))
        };
        vec![
            name(claim),
            json!(phase(claim)),
            json!(volume),
            json!(capacity),
            json!(modes),
            json!(storage_class(claim)),
            json!(text_or(claim, "spec.volumeAttributesClassName", "<unset>")),
            age(claim, now),
            json!(text_or(claim, "spec.volumeMode", "<unset>")),
        ]
    },
);
