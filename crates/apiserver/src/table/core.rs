//! The core group, except pods, nodes and services, which have files of their own; and events, in both their groups.

use jiff::Timestamp;
use machinery::{Value, value};
use serde_json::json;

use super::cells::{age, annotation_of, containers, is_set, labels, name, number, plain, since, text_or};
use super::{AGE, Column, NAME, Printer, integer, node, of, own, pod, service, text};

/// The printer of a kind of the core group.
pub fn printer(kind: &str) -> Option<&'static Printer> {
    Some(match kind {
        "Pod" => &pod::POD,
        "Node" => &node::NODE,
        "Service" => &service::SERVICE,
        "Endpoints" => &service::ENDPOINTS,
        "ComponentStatus" => &COMPONENT_STATUS,
        "ConfigMap" => &CONFIG_MAP,
        "Event" => &EVENT,
        "Namespace" => &NAMESPACE,
        "PersistentVolume" => &PERSISTENT_VOLUME,
        "PersistentVolumeClaim" => &PERSISTENT_VOLUME_CLAIM,
        "PodTemplate" => &POD_TEMPLATE,
        "ReplicationController" => &REPLICATION_CONTROLLER,
        "ResourceQuota" => &RESOURCE_QUOTA,
        "Secret" => &SECRET,
        "ServiceAccount" => &SERVICE_ACCOUNT,
        _ => return None,
    })
}

/// The names of containers, in tables of what makes pods.
pub const CONTAINERS: Column = text("Containers", own("The names of the template's containers."));
/// Their images.
pub const IMAGES: Column = text("Images", own("The images of the template's containers."));

static NAMESPACE: Printer =
    Printer::new(&[NAME, text("Status", own("Whether the namespace is in use or going.")), AGE], |object, now| {
        vec![name(object), json!(value::text(object, "status.phase")), age(object, now)]
    });

static SERVICE_ACCOUNT: Printer = Printer::new(&[NAME, AGE], |object, now| vec![name(object), age(object, now)]);

static SECRET: Printer = Printer::new(
    &[
        NAME,
        text("Type", of("io.k8s.api.core.v1.Secret", "type")),
        text("Data", of("io.k8s.api.core.v1.Secret", "data")),
        AGE,
    ],
    |object, now| {
        vec![name(object), json!(value::text(object, "type")), json!(entries(object, "data")), age(object, now)]
    },
);

static CONFIG_MAP: Printer =
    Printer::new(&[NAME, text("Data", of("io.k8s.api.core.v1.ConfigMap", "data")), AGE], |object, now| {
        vec![name(object), json!(entries(object, "data") + entries(object, "binaryData")), age(object, now)]
    });

fn entries(object: &Value, path: &str) -> usize {
    value::at(object, path).and_then(Value::as_object).map_or(0, |map| map.len())
}

static COMPONENT_STATUS: Printer = Printer::new(
    &[
        NAME,
        text("Status", own("Whether the component is healthy.")),
        text("Message", own("What it says about itself.")),
        text("Error", own("Why it could not be asked.")),
    ],
    |object, _| {
        let mut conditions = value::list(object, "conditions").iter();
        let healthy = conditions.find(|condition| value::text(condition, "type") == "Healthy");
        let status = match healthy.map(|condition| value::text(condition, "status")) {
            None => "Unknown",
            Some("True") => "Healthy",
            Some(_) => "Unhealthy",
        };
        let said = |field| healthy.map_or("", |condition| value::text(condition, field));
        vec![name(object), json!(status), json!(said("message")), json!(said("error"))]
    },
);

static POD_TEMPLATE: Printer = Printer::new(
    &[NAME, CONTAINERS, IMAGES, text("Pod Labels", own("The labels of the template's pods."))],
    |object, _| {
        let [containers, images] = containers(object, "template.spec");
        vec![name(object), containers, images, json!(labels(object, "template.metadata.labels"))]
    },
);

static REPLICATION_CONTROLLER: Printer = Printer::new(
    &[
        NAME,
        integer("Desired", of("io.k8s.api.core.v1.ReplicationControllerSpec", "replicas")),
        integer("Current", of("io.k8s.api.core.v1.ReplicationControllerStatus", "replicas")),
        integer("Ready", of("io.k8s.api.core.v1.ReplicationControllerStatus", "readyReplicas")),
        AGE,
        CONTAINERS.wide(),
        IMAGES.wide(),
        text("Selector", of("io.k8s.api.core.v1.ReplicationControllerSpec", "selector")).wide(),
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
            json!(labels(object, "spec.selector")),
        ]
    },
);

static RESOURCE_QUOTA: Printer = Printer::new(
    &[
        NAME,
        text("Request", own("What is used of what may be asked for.")),
        text("Limit", own("What is used of what may be allowed at most.")),
        AGE,
    ],
    |object, now| {
        let quantity = |map: &str, resource: &str| {
            let found = value::at(object, map).and_then(|map| map.get(resource));
            found.map_or_else(|| "0".to_owned(), plain)
        };
        let mut resources: Vec<&String> = value::at(object, "status.hard")
            .and_then(Value::as_object)
            .into_iter()
            .flat_map(|hard| hard.keys())
            .collect();
        resources.sort_unstable();
        let (limits, requests): (Vec<&String>, Vec<&String>) =
            resources.into_iter().partition(|resource| resource.starts_with("limits."));
        let shown = |resources: Vec<&String>| {
            let each = resources.iter().map(|resource| {
                format!("{resource}: {}/{}", quantity("status.used", resource), quantity("status.hard", resource))
            });
            each.collect::<Vec<_>>().join(", ")
        };
        vec![name(object), json!(shown(requests)), json!(shown(limits)), age(object, now)]
    },
);

const PV_SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeSpec";
const PV_STATUS: &str = "io.k8s.api.core.v1.PersistentVolumeStatus";

static PERSISTENT_VOLUME: Printer = Printer::new(
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

const PVC_SPEC: &str = "io.k8s.api.core.v1.PersistentVolumeClaimSpec";
const PVC_STATUS: &str = "io.k8s.api.core.v1.PersistentVolumeClaimStatus";

static PERSISTENT_VOLUME_CLAIM: Printer = Printer::new(
    &[
        NAME,
        text("Status", of(PVC_STATUS, "phase")),
        text("Volume", of(PVC_SPEC, "volumeName")),
        text("Capacity", of(PVC_STATUS, "capacity")),
        text("Access Modes", of(PVC_STATUS, "accessModes")),
        text("StorageClass", own("The StorageClass of the claim.")),
        text("VolumeAttributesClass", own("The VolumeAttributesClass of the claim.")),
        AGE,
        text("VolumeMode", of(PVC_SPEC, "volumeMode")).wide(),
    ],
    |claim, now| {
        let volume = value::text(claim, "spec.volumeName");
        let (capacity, modes) = if volume.is_empty() {
            (String::new(), String::new())
        } else {
            let capacity = value::at(claim, "status.capacity.storage").map_or_else(|| "0".to_owned(), plain);
            (capacity, access_modes(claim, "status.accessModes"))
        };
        vec![
            name(claim),
            json!(phase(claim)),
            json!(volume),
            json!(capacity),
            json!(modes),
            json!(storage_class(claim)),
            json!(text_or(claim, "spec.volumeAttributesClassName", "<unset>")),
            age(claim, now),
            json!(text_or(claim, "spec.volumeMode", "<unset>")),
        ]
    },
);

fn phase(object: &Value) -> &str {
    if is_set(object, "metadata.deletionTimestamp") { "Terminating" } else { value::text(object, "status.phase") }
}

fn storage_class(object: &Value) -> &str {
    annotation_of(object, "volume.beta.kubernetes.io/storage-class")
        .unwrap_or_else(|| value::text(object, "spec.storageClassName"))
}

fn access_modes(object: &Value, path: &str) -> String {
    const MODES: [(&str, &str); 4] =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let given = value::list(object, path);
    let known = MODES.iter().filter(|(mode, _)| given.iter().any(|given| given == mode));
    known.map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}

const EVENT_TYPE: &str = "io.k8s.api.core.v1.Event";

static EVENT: Printer = Printer::new(
    &[
        text("Last Seen", of(EVENT_TYPE, "lastTimestamp")),
        text("Type", of(EVENT_TYPE, "type")),
        text("Reason", of(EVENT_TYPE, "reason")),
        text("Object", of(EVENT_TYPE, "involvedObject")),
        text("Subobject", of("io.k8s.api.core.v1.ObjectReference", "fieldPath")).wide(),
        text("Source", of(EVENT_TYPE, "source")).wide(),
        text("Message", of(EVENT_TYPE, "message")),
        text("First Seen", of(EVENT_TYPE, "firstTimestamp")).wide(),
        text("Count", of(EVENT_TYPE, "count")).wide(),
        NAME.wide(),
    ],
    event,
);

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    let first = since(event, if is_set(event, "firstTimestamp") { "firstTimestamp" } else { "eventTime" }, now);
    let (last, count) = if is_set(event, "series") {
        (since(event, "series.lastObservedTime", now), number(event, "series.count"))
    } else {
        let last = if is_set(event, "lastTimestamp") { since(event, "lastTimestamp", now) } else { first.clone() };
        // An event of the newer API that happened once has no count.
        (last, number(event, "count").max(1))
    };
    let kind = value::text(event, "involvedObject.kind").to_lowercase();
    let object = match value::text(event, "involvedObject.name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let component = text_or(event, "source.component", value::text(event, "reportingComponent"));
    let instance = text_or(event, "source.host", value::text(event, "reportingInstance"));
    vec![
        json!(last),
        json!(value::text(event, "type")),
        json!(value::text(event, "reason")),
        json!(object),
        json!(value::text(event, "involvedObject.fieldPath")),
        json!(if instance.is_empty() { component } else { format!("{component}, {instance}") }),
        json!(value::text(event, "message").trim()),
        json!(first),
        json!(count),
        name(event),
    ]
}
