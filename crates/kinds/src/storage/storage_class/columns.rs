//! What a table shows of StorageClasses.

use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, annotated, name, text_or};
use crate::table::{AGE, NAME, Printer, of, text};

const CLASS: &str = "io.k8s.api.storage.v1.StorageClass";

pub static TABLE: Printer = Printer {
    list: mark_default,
    ..Printer::new(
        &[
            NAME,
            text("Provisioner", of(CLASS, "provisioner")),
            text("ReclaimPolicy", of(CLASS, "reclaimPolicy")),
            text("VolumeBindingMode", of(CLASS, "volumeBindingMode")),
            text("AllowVolumeExpansion", of(CLASS, "allowVolumeExpansion")),
            AGE,
        ],
        |class, now| {
            vec![
                name(class),
                json!(value::text(class, "provisioner")),
                json!(text_or(class, "reclaimPolicy", "Delete")),
                json!(text_or(class, "volumeBindingMode", "Immediate")),
                json!(value::flag(class, "allowVolumeExpansion")),
                age(class, now),
            ]
        },
    )
};

/// Several classes may say that they are the default; the youngest of them is, and among equals the first by name.
fn mark_default(rows: &mut [(Value, Vec<Value>)]) {
    let is_default = |class: &Value| {
        annotated(class, "storageclass.kubernetes.io/is-default-class")
            || annotated(class, "storageclass.beta.kubernetes.io/is-default-class")
    };
    let rank = |class: &Value| {
        (
            value::text(class, "metadata.creationTimestamp").to_owned(),
            std::cmp::Reverse(value::text(class, "metadata.name").to_owned()),
        )
    };
    if let Some((class, cells)) =
        rows.iter_mut().filter(|(class, _)| is_default(class)).max_by_key(|(class, _)| rank(class))
    {
        cells[0] = json!(format!("{} (default)", value::text(class, "metadata.name")));
    }
}
