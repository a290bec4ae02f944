//! What a table shows of PodTemplates.

use serde_json::json;

use crate::table::cells::{containers, labels, name};
use crate::table::{CONTAINERS, IMAGES, NAME, Printer, own, text};

pub static TABLE: Printer = Printer::new(
    &[NAME, CONTAINERS, IMAGES, text("Pod Labels", own("The labels of the template's pods."))],
    |object, _| {
        let [containers, images] = containers(object, "template.spec");
        vec![name(object), containers, images, json!(labels(object, "template.metadata.labels"))]
    },
);
