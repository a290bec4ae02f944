//! What a table shows of VolumeAttachments.

use machinery::value;
use serde_json::json;

use crate::table::cells::{age, name};
use crate::table::{AGE, Column, NAME, Printer, boolean, of, text};

const ATTACHMENT: &str = "io.k8s.api.storage.v1.VolumeAttachmentSpec";

pub static TABLE: Printer = Printer::new(
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
