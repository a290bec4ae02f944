//! storage.k8s.io.

use machinery::{Value, value};
use serde_json::json;

use super::cells::{age, annotated, is_set, name, text_or};
use super::{AGE, Column, NAME, Printer, boolean, integer, of, own, text};

/// The printer of a kind of storage. Capacities have none.
pub fn printer(kind: &str) -> Option<&'static Printer> {
    Some(match kind {
        "CSIDriver" => &CSI_DRIVER,
        "CSINode" => &CSI_NODE,
        "StorageClass" => &STORAGE_CLASS,
        "VolumeAttachment" => &VOLUME_ATTACHMENT,
        "VolumeAttributesClass" => &VOLUME_ATTRIBUTES_CLASS,
        _ => return None,
    })
}

const CLASS: &str = "io.k8s.api.storage.v1.StorageClass";
const DRIVER: &str = "io.k8s.api.storage.v1.CSIDriverSpec";
const ATTACHMENT: &str = "io.k8s.api.storage.v1.VolumeAttachmentSpec";

static STORAGE_CLASS: Printer = Printer {
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

static VOLUME_ATTRIBUTES_CLASS: Printer = Printer::new(
    &[NAME, text("DriverName", of("io.k8s.api.storage.v1.VolumeAttributesClass", "driverName")), AGE],
    |class, now| vec![name(class), json!(value::text(class, "driverName")), age(class, now)],
);

static CSI_NODE: Printer =
    Printer::new(&[NAME, integer("Drivers", own("How many CSI drivers the node has.")), AGE], |node, now| {
        vec![name(node), json!(value::list(node, "spec.drivers").len()), age(node, now)]
    });

static CSI_DRIVER: Printer = Printer::new(
    &[
        NAME,
        boolean("AttachRequired", of(DRIVER, "attachRequired")),
        boolean("PodInfoOnMount", of(DRIVER, "podInfoOnMount")),
        boolean("StorageCapacity", of(DRIVER, "storageCapacity")),
        text("TokenRequests", of(DRIVER, "tokenRequests")),
        boolean("RequiresRepublish", of(DRIVER, "requiresRepublish")),
        text("Modes", of(DRIVER, "volumeLifecycleModes")),
        AGE,
    ],
    |driver, now| {
        let names = |path: &str, field: Option<&str>| {
            let items = value::list(driver, path).iter();
            let texts = items
                .map(|item| field.map_or_else(|| item.as_str().unwrap_or_default(), |field| value::text(item, field)));
            texts.collect::<Vec<_>>().join(",")
        };
        let tokens = if is_set(driver, "spec.tokenRequests") {
            names("spec.tokenRequests", Some("audience"))
        } else {
            "<unset>".to_owned()
        };
        let modes = names("spec.volumeLifecycleModes", None);
        vec![
            name(driver),
            json!(value::at(driver, "spec.attachRequired").and_then(Value::as_bool).unwrap_or(true)),
            json!(value::flag(driver, "spec.podInfoOnMount")),
            json!(value::flag(driver, "spec.storageCapacity")),
            json!(tokens),
            json!(value::flag(driver, "spec.requiresRepublish")),
            json!(if modes.is_empty() { "<none>".to_owned() } else { modes }),
            age(driver, now),
        ]
    },
);

static VOLUME_ATTACHMENT: Printer = Printer::new(
    &[
        NAME,
        Column { format: "name", ..text("Attacher", of(ATTACHMENT, "attacher")) },
        text("PV", of("io.k8s.api.storage.v1.VolumeAttachmentSource", "persistentVolumeName")),
        text("Node", of(ATTACHMENT, "nodeName")),
        boolean("Attached", of("io.k8s.api.storage.v1.VolumeAttachmentStatus", "attached")),
        AGE,
    ],
    |object, now| {
        vec![
            name(object),
            json!(value::text(object, "spec.attacher")),
            json!(value::text(object, "spec.source.persistentVolumeName")),
            json!(value::text(object, "spec.nodeName")),
            json!(value::flag(object, "status.attached")),
            age(object, now),
        ]
    },
);
