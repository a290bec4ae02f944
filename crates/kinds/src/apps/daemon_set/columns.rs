//! What a table shows of DaemonSets.

use serde_json::json;

use crate::table::cells::{age, containers, labels, name, number, selector};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, Printer, integer, of, text};

const DAEMON_SET_STATUS: &str = "io.k8s.api.apps.v1.DaemonSetStatus";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        integer("Desired", of(DAEMON_SET_STATUS, "desiredNumberScheduled")),
        integer("Current", of(DAEMON_SET_STATUS, "currentNumberScheduled")),
        integer("Ready", of(DAEMON_SET_STATUS, "numberReady")),
        integer("Up-to-date", of(DAEMON_SET_STATUS, "updatedNumberScheduled")),
        integer("Available", of(DAEMON_SET_STATUS, "numberAvailable")),
        text("Node Selector", of("io.k8s.api.core.v1.PodSpec", "nodeSelector")),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        text("Selector", of("io.k8s.api.apps.v1.DaemonSetSpec", "selector")).wide(),
    ],
    |object, now| {
        let [containers, images] = containers(object, "spec.template.spec");
        vec![
            name(object),
            json!(number(object, "status.desiredNumberScheduled")),
            json!(number(object, "status.currentNumberScheduled")),
            json!(number(object, "status.numberReady")),
            json!(number(object, "status.updatedNumberScheduled")),
            json!(number(object, "status.numberAvailable")),
            json!(labels(object, "spec.template.spec.nodeSelector")),
            age(object, now),
            containers,
            images,
            json!(selector(object, "spec.selector")),
        ]
    },
);
