//! Persistent volume claims.

use machinery::{Value, value};

use crate::read::PODS;
use crate::show::{Scene, annotations, at, bracketed, conditions, labels, multiline, quantity};
use crate::writer::{Writer, put};
use crate::{Error, Read, read};

fn pods(claim: &Value) -> Read {
    Read::list(PODS, value::text(claim, "metadata.namespace"))
}

pub fn reads(claim: &Value, show_events: bool) -> Vec<Read> {
    let mut reads = vec![pods(claim)];
    reads.extend(read::only_events(claim, show_events));
    reads
}

pub fn text(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    let users = users(scene.object, scene.answers.needed(&pods(scene.object))?);
    claim(out, scene.object, Some(scene));
    multiline(out, "", "Used By", &users);
    conditions(
        scene,
        out,
        &[
            ("Type", "type"),
            ("Status", "status"),
            ("LastProbeTime", "lastProbeTime"),
            ("LastTransitionTime", "lastTransitionTime"),
            ("Reason", "reason"),
            ("Message", "message"),
        ],
        " \t",
    );
    scene.events(out);
    Ok(())
}

/// The names of the pods that mount it, and of those that own it.
fn users(claim: &Value, pods: &[Value]) -> Vec<String> {
    let name = value::text(claim, "metadata.name");
    let uid = |pod: &Value| value::text(pod, "metadata.uid").to_owned();
    let mut users: Vec<&Value> = Vec::new();
    for pod in pods {
        let volumes = value::list(pod, "spec.volumes").iter();
        let mounts = volumes.filter(|volume| {
            at(volume, "persistentVolumeClaim").is_some_and(|source| value::text(source, "claimName") == name)
        });
        users.extend(mounts.map(|_| pod));
    }
    for owner in value::list(claim, "metadata.ownerReferences") {
        if value::text(owner, "kind") != "Pod" {
            continue;
        }
        let owner = pods.iter().find(|pod| uid(pod) == value::text(owner, "uid"));
        users.extend(owner.filter(|owner| users.iter().all(|user| uid(user) != uid(owner))));
    }
    let mut names: Vec<String> = users.into_iter().map(|pod| value::text(pod, "metadata.name").to_owned()).collect();
    names.sort();
    names
}

/// A claim, or the template of one, which has no scene.
pub fn claim(out: &mut Writer, claim: &Value, whole: Option<&Scene<'_>>) {
    if let Some(scene) = whole {
        scene.name(out);
        scene.namespace(out);
    }
    out.field(0, "StorageClass", storage_class(claim));
    if let Some(scene) = whole {
        status(scene, out);
    }
    let volume = value::text(claim, "spec.volumeName");
    out.field(0, "Volume", volume);
    labels(out, "", "Labels", at(claim, "metadata.labels"));
    annotations(out, "Annotations", at(claim, "metadata.annotations"));
    if whole.is_some() {
        out.field(0, "Finalizers", bracketed(value::list(claim, "metadata.finalizers")));
    }
    let bound = !volume.is_empty();
    let capacity = if bound { quantity(at(claim, "status.capacity.storage")).to_string() } else { String::new() };
    out.field(0, "Capacity", capacity);
    let modes = if bound { access_modes(value::list(claim, "status.accessModes")) } else { String::new() };
    out.field(0, "Access Modes", modes);
    if at(claim, "spec.volumeMode").is_some() {
        out.field(0, "VolumeMode", value::text(claim, "spec.volumeMode"));
    }
    if let Some(source) = at(claim, "spec.dataSource") {
        put!(out, 0, "DataSource:\n");
        if at(source, "apiGroup").is_some() {
            out.field(1, "APIGroup", value::text(source, "apiGroup"));
        }
        out.field(1, "Kind", value::text(source, "kind"));
        out.field(1, "Name", value::text(source, "name"));
    }
}

/// The phase, or since when it is being deleted.
pub fn status(scene: &Scene<'_>, out: &mut Writer) {
    if scene.at("metadata.deletionTimestamp").is_some() {
        let since = scene.since(scene.object, "metadata.deletionTimestamp");
        out.field(0, "Status", format_args!("Terminating (lasts {since})"));
    } else {
        out.field(0, "Status", scene.text("status.phase"));
    }
}

/// The class, which an annotation of the past names first.
pub fn storage_class(object: &Value) -> &str {
    let annotation =
        at(object, "metadata.annotations").and_then(|all| all.get("volume.beta.kubernetes.io/storage-class"));
    annotation.and_then(Value::as_str).unwrap_or_else(|| value::text(object, "spec.storageClassName"))
}

pub fn access_modes(modes: &[Value]) -> String {
    let short =
        [("ReadWriteOnce", "RWO"), ("ReadOnlyMany", "ROX"), ("ReadWriteMany", "RWX"), ("ReadWriteOncePod", "RWOP")];
    let has = |name: &str| modes.iter().any(|mode| mode.as_str() == Some(name));
    short.iter().filter(|(name, _)| has(name)).map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}
