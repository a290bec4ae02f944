//! What a table shows of PersistentVolumes.

use machinery::value;
use serde_json::json;

use crate::core::volume_cells::{access_modes, phase, storage_class};
use crate::table::cells::{age, is_set, name, plain, text_or};
use crate::table::{AGE, NAME, Printer, of, own, text};

const PV_SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeSpec";
const PV_STATUS: &str = "io.k8s.api.core.v1.PersistentVolumeStatus";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Capacity", of(PV_SPEC, "capacity")),
        text("Access Modes", of(PV_SPEC, "accessModes")),
        text("Reclaim Policy", of(PV_SPEC, "persistentVolumeReclaimPolicy")),
        text("Status", of(PV_STATUS, "phase")),
        text("Claim", of(PV_SPEC, "claimRef")),
        text("StorageClass", own("The StorageClass of the volume.")),
        text("VolumeAttributesClass", own("The VolumeAttributesClass of the volume.")),
        text("Reason", of(PV_STATUS, "reason")),
        AGE,
        text("VolumeMode", of(PV_SPEC, "volumeMode")).wide(),
    ],
    |volume, now| {
        let claim = if is_set(volume, "spec.claimRef") {
            format!("{}/{}", value::text(volume, "spec.claimRef.namespace"), value::text(volume, "spec.claimRef.name"))
        } else {
            String::new()
        };
        vec![
            name(volume),
            json!(value::at(volume, "spec.capacity.storage").map_or_else(|| "0".to_owned(), plain)),
            json!(access_modes(volume, "spec.accessModes")),
            json!(value::text(volume, "spec.persistentVolumeReclaimPolicy")),
            json!(phase(volume)),
            json!(claim),
            json!(storage_class(volume)),
            json!(text_or(volume, "spec.volumeAttributesClassName", "<unset>")),
            json!(value::text(volume, "status.reason")),
            age(volume, now),
            json!(text_or(volume, "spec.volumeMode", "<unset>")),
        ]
    },
);
