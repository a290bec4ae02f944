//! What a table shows of Deployments.

use machinery::selector::label::LabelSelector;
use machinery::{Value, value};
use serde_json::json;

use crate::table::cells::{age, containers, name, number};
use crate::table::{AGE, CONTAINERS, IMAGES, NAME, Printer, of, own, text};

const DEPLOYMENT_STATUS: &str = "io.k8s.api.apps.v1.DeploymentStatus";

pub static TABLE: Printer = Printer::new(
    &[
        NAME,
        text("Ready", own("How many pods are ready, and how many are wanted.")),
        text("Up-to-date", of(DEPLOYMENT_STATUS, "updatedReplicas")),
        text("Available", of(DEPLOYMENT_STATUS, "availableReplicas")),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        text("Selector", of("io.k8s.api.apps.v1.DeploymentSpec", "selector")).wide(),
    ],
    |object, now| {
        let [containers, images] = containers(object, "spec.template.spec");
        let selector = LabelSelector::from_value(value::at(object, "spec.selector").unwrap_or(&Value::Null));
        vec![
            name(object),
            json!(format!("{}/{}", number(object, "status.readyReplicas"), number(object, "spec.replicas"))),
            json!(number(object, "status.updatedReplicas")),
            json!(number(object, "status.availableReplicas")),
            age(object, now),
            containers,
            images,
            json!(selector.map_or_else(|_| "<invalid>".to_owned(), |selector| selector.to_string())),
        ]
    },
);
