//! apps: what keeps pods running.

use machinery::gvk::GroupVersion;
use machinery::selector::label::LabelSelector;
use machinery::{Value, value};
use serde_json::json;

use super::cells::{age, containers, labels, name, number, selector};
use super::core::{CONTAINERS, IMAGES};
use super::{AGE, NAME, Printer, integer, of, own, text};

/// The printer of a kind of apps.
pub fn printer(kind: &str) -> Option<&'static Printer> {
    Some(match kind {
        "ControllerRevision" => &CONTROLLER_REVISION,
        "DaemonSet" => &DAEMON_SET,
        "Deployment" => &DEPLOYMENT,
        "ReplicaSet" => &REPLICA_SET,
        "StatefulSet" => &STATEFUL_SET,
        _ => return None,
    })
}

const DEPLOYMENT_STATUS: &str = "io.k8s.api.apps.v1.DeploymentStatus";
const REPLICA_SET_STATUS: &str = "io.k8s.api.apps.v1.ReplicaSetStatus";
const DAEMON_SET_STATUS: &str = "io.k8s.api.apps.v1.DaemonSetStatus";

static DEPLOYMENT: Printer = Printer::new(
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

static REPLICA_SET: Printer = Printer::new(
    &[
        NAME,
        integer("Desired", of("io.k8s.api.apps.v1.ReplicaSetSpec", "replicas")),
        integer("Current", of(REPLICA_SET_STATUS, "replicas")),
        integer("Ready", of(REPLICA_SET_STATUS, "readyReplicas")),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        text("Selector", of("io.k8s.api.apps.v1.ReplicaSetSpec", "selector")).wide(),
    ],
    |object, now| {
        let [containers, images] = containers(object, "spec.template.spec");
        vec![
            name(object),
            json!(number(object, "spec.replicas")),
            json!(number(object, "status.replicas")),
            json!(number(object, "status.readyReplicas")),
            age(object, now),
            containers,
            images,
            json!(selector(object, "spec.selector")),
        ]
    },
);

static STATEFUL_SET: Printer = Printer::new(
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

static DAEMON_SET: Printer = Printer::new(
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

static CONTROLLER_REVISION: Printer = Printer::new(
    &[
        NAME,
        text("Controller", own("What the revision is one of.")),
        text("Revision", of("io.k8s.api.apps.v1.ControllerRevision", "revision")),
        AGE,
    ],
    |object, now| {
        let mut owners = value::list(object, "metadata.ownerReferences").iter();
        let controller =
            owners.find(|owner| value::flag(owner, "controller")).map_or_else(|| "<none>".to_owned(), controller);
        vec![name(object), json!(controller), json!(number(object, "revision")), age(object, now)]
    },
);

/// `statefulset.apps/web`.
fn controller(owner: &Value) -> String {
    let group = GroupVersion::parse(value::text(owner, "apiVersion")).map_or_else(String::new, |version| version.group);
    let kind = value::text(owner, "kind");
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    format!("{}/{}", kind.to_lowercase(), value::text(owner, "name"))
}
