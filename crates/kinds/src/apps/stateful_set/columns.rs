//! What a table shows of StatefulSets.

use serde_json::json;

use crate::table::cells::{age, containers, name, number};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, Printer, own, text};

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Ready", own("How many pods are ready, and how many are wanted.")),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
    ],
    |object, now| {
        let [containers, images] = containers(object, "spec.template.spec");
        let ready = format!("{}/{}", number(object, "status.readyReplicas"), number(object, "spec.replicas"));
        vec![name(object), json!(ready), age(object, now), containers, images]
    },
);
