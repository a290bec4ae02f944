//! What tables show alike of PersistentVolumes and PersistentVolumeClaims.

use machinery::{Value, value};

use crate::table::cells::{annotation_of, is_set};

/// What it is in, or that it goes.
pub fn phase(object: &Value) -> &str {
    if is_set(object, "metadata.deletionTimestamp") { "Terminating" } else { value::text(object, "status.phase") }
}

/// Its class, wherever it is said.
pub fn storage_class(object: &Value) -> &str {
    annotation_of(object, "volume.beta.kubernetes.io/storage-class")
        .unwrap_or_else(|| value::text(object, "spec.storageClassName"))
}

/// The short names of access modes, in their order.
pub fn access_modes(object: &Value, path: &str) -> String {
    const MODES: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let given = value::list(object, path);
    let known = MODES.iter().filter(|(mode, _)| given.iter().any(|given| given == mode));
    known.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}
