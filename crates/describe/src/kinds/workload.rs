//! Controllers that keep pods: replication controllers, replica sets, deployments, stateful sets, daemon sets.

use machinery::selector::label::LabelSelector;
use machinery::{Value, time, value};

use super::claim::storage_class;
use super::template::template;
use crate::read::{self, PODS, Resource, is_controlled_by};
use crate::show::{
    Scene, at, bracketed, format_labels, format_selector, int, labels, or, pairs, plain, quantity, selector,
};
use crate::writer::{Writer, put};
use crate::{Error, Read};

/// The pods that a selector finds in the namespace of an object.
fn pods(object: &Value, selector: &LabelSelector) -> Read {
    Read::list(PODS, value::text(object, "metadata.namespace")).with_labels(selector)
}

/// Pods and events of a controller with a selector of labels and expressions.
pub fn reads(object: &Value, show_events: bool) -> Vec<Read> {
    let mut reads: Vec<Read> = selector(object, "spec.selector").iter().map(|found| pods(object, found)).collect();
    reads.extend(read::only_events(object, show_events));
    reads
}

fn by_labels(object: &Value) -> LabelSelector {
    LabelSelector::from_labels(pairs(at(object, "spec.selector")))
}

/// As [`reads`], of one whose selector is a map.
pub fn reads_by_labels(object: &Value, show_events: bool) -> Vec<Read> {
    let mut reads = vec![pods(object, &by_labels(object))];
    reads.extend(read::only_events(object, show_events));
    reads
}

/// How many of a controller's pods are in which phase.
fn phases(scene: &Scene<'_>, selector: &LabelSelector) -> Result<String, Error> {
    let pods = scene.answers.needed(&pods(scene.object, selector))?;
    let uid = scene.text("metadata.uid");
    let count = |phase: &str| {
        pods.iter().filter(|pod| is_controlled_by(pod, uid) && value::text(pod, "status.phase") == phase).count()
    };
    let [running, waiting, succeeded, failed] = ["Running", "Pending", "Succeeded", "Failed"].map(count);
    Ok(format!("{running} Running / {waiting} Waiting / {succeeded} Succeeded / {failed} Failed"))
}

fn conditions(scene: &Scene<'_>, out: &mut Writer) {
    let conditions = scene.list("status.conditions");
    if conditions.is_empty() {
        return;
    }
    put!(out, 0, "Conditions:\n  Type\tStatus\tReason\n");
    put!(out, 1, "----\t------\t------\n");
    for condition in conditions {
        let [kind, status, reason] = ["type", "status", "reason"].map(|field| value::text(condition, field));
        put!(out, 1, "{kind} \t{status}\t{reason}\n");
    }
}

pub fn replication_controller(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    let phases = phases(scene, &by_labels(scene.object))?;
    scene.name(out);
    scene.namespace(out);
    out.field(0, "Selector", format_labels(scene.at("spec.selector")));
    scene.labels(out);
    scene.annotations(out);
    let (current, desired) = (scene.int("status.replicas"), scene.int("spec.replicas"));
    out.field(0, "Replicas", format_args!("{current} current / {desired} desired"));
    out.field(0, "Pods Status", phases);
    template(out, scene.at("spec.template"));
    conditions(scene, out);
    scene.events(out);
    Ok(())
}

pub fn replica_set(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    let found = selector(scene.object, "spec.selector")?;
    scene.name(out);
    scene.namespace(out);
    out.field(0, "Selector", format_selector(scene.at("spec.selector").unwrap_or(&Value::Null)));
    scene.labels(out);
    scene.annotations(out);
    scene.controlled_by(out);
    let (current, desired) = (scene.int("status.replicas"), scene.int("spec.replicas"));
    out.field(0, "Replicas", format_args!("{current} current / {desired} desired"));
    match phases(scene, &found) {
        Ok(phases) => out.field(0, "Pods Status", phases),
        Err(error) => out.field(0, "Pods Status", format_args!("error in fetching pods: {error}")),
    }
    template(out, Some(scene.at("spec.template").unwrap_or(&Value::Null)));
    conditions(scene, out);
    scene.events(out);
    Ok(())
}

pub fn daemon_set(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    let found = selector(scene.object, "spec.selector")?;
    let phases = phases(scene, &found)?;
    scene.name(out);
    scene.namespace(out);
    out.field(0, "Selector", &found);
    out.field(0, "Node-Selector", format_labels(scene.at("spec.template.spec.nodeSelector")));
    scene.labels(out);
    scene.annotations(out);
    for (title, field) in [
        ("Desired Number of Nodes Scheduled", "desiredNumberScheduled"),
        ("Current Number of Nodes Scheduled", "currentNumberScheduled"),
        ("Number of Nodes Scheduled with Up-to-date Pods", "updatedNumberScheduled"),
        ("Number of Nodes Scheduled with Available Pods", "numberAvailable"),
        ("Number of Nodes Misscheduled", "numberMisscheduled"),
    ] {
        put!(out, 0, "{title}: {}\n", scene.int(&format!("status.{field}")));
    }
    out.field(0, "Pods Status", phases);
    template(out, Some(scene.at("spec.template").unwrap_or(&Value::Null)));
    scene.events(out);
    Ok(())
}

pub fn stateful_set(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    let found = selector(scene.object, "spec.selector")?;
    let phases = phases(scene, &found)?;
    scene.name(out);
    scene.namespace(out);
    scene.created(out);
    out.field(0, "Selector", &found);
    scene.labels(out);
    scene.annotations(out);
    for (title, path) in [("Service Name", "spec.serviceName"), ("Pod Management Policy", "spec.podManagementPolicy")] {
        match scene.text(path) {
            "" => {}
            said => out.field(0, title, said),
        }
    }
    let (desired, total) = (scene.int("spec.replicas"), scene.int("status.replicas"));
    out.field(0, "Replicas", format_args!("{desired} desired | {total} total"));
    out.field(0, "Update Strategy", scene.text("spec.updateStrategy.type"));
    if let Some(rolling) = scene.at("spec.updateStrategy.rollingUpdate").filter(|it| at(it, "partition").is_some()) {
        out.field(1, "Partition", int(rolling, "partition"));
        if let Some(most) = at(rolling, "maxUnavailable") {
            out.field(1, "MaxUnavailable", plain(most));
        }
    }
    if let Some(policy) = scene.at("spec.persistentVolumeClaimRetentionPolicy") {
        put!(out, 0, "Persistent Volume Claim Retention Policy:\n");
        out.field(1, "WhenDeleted", value::text(policy, "whenDeleted"));
        out.field(1, "WhenScaled", value::text(policy, "whenScaled"));
    }
    out.field(0, "Pods Status", phases);
    template(out, Some(scene.at("spec.template").unwrap_or(&Value::Null)));
    claims(out, scene.list("spec.volumeClaimTemplates"));
    scene.events(out);
    Ok(())
}

fn claims(out: &mut Writer, templates: &[Value]) {
    if templates.is_empty() {
        return out.field(0, "Volume Claims", "<none>");
    }
    put!(out, 0, "Volume Claims:\n");
    for claim in templates {
        out.field(1, "Name", value::text(claim, "metadata.name"));
        out.field(1, "StorageClass", storage_class(claim));
        labels(out, "  ", "Labels", at(claim, "metadata.labels"));
        labels(out, "  ", "Annotations", at(claim, "metadata.annotations"));
        match at(claim, "spec.resources.requests.storage") {
            Some(size) => out.field(1, "Capacity", quantity(Some(size))),
            None => out.field(1, "Capacity", "<default>"),
        }
        out.field(1, "Access Modes", bracketed(value::list(claim, "spec.accessModes")));
    }
}

fn replica_sets(deployment: &Value) -> Option<Read> {
    const REPLICA_SETS: Resource = Resource::new("apps", "v1", "replicasets");
    let found = selector(deployment, "spec.selector").ok()?;
    Some(Read::list(REPLICA_SETS, value::text(deployment, "metadata.namespace")).with_labels(found))
}

pub fn deployment_reads(deployment: &Value, show_events: bool) -> Vec<Read> {
    let mut reads = read::only_events(deployment, show_events);
    reads.extend(replica_sets(deployment));
    reads
}

pub fn deployment(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    let found = selector(scene.object, "spec.selector")?;
    scene.name(out);
    scene.namespace(out);
    scene.created(out);
    scene.labels(out);
    scene.annotations(out);
    out.field(0, "Selector", found);
    let [updated, total, available, unavailable] =
        ["updatedReplicas", "replicas", "availableReplicas", "unavailableReplicas"]
            .map(|field| scene.int(&format!("status.{field}")));
    let desired = scene.int("spec.replicas");
    out.field(
        0,
        "Replicas",
        format_args!(
            "{desired} desired | {updated} updated | {total} total | {available} available | {unavailable} unavailable"
        ),
    );
    out.field(0, "StrategyType", scene.text("spec.strategy.type"));
    out.field(0, "MinReadySeconds", scene.int("spec.minReadySeconds"));
    if let Some(rolling) = scene.at("spec.strategy.rollingUpdate") {
        let [unavailable, surge] = ["maxUnavailable", "maxSurge"].map(|field| or(rolling, field, "<nil>"));
        let shown = format_args!("{unavailable} max unavailable, {surge} max surge");
        out.field(0, "RollingUpdateStrategy", shown);
    }
    template(out, Some(scene.at("spec.template").unwrap_or(&Value::Null)));
    conditions(scene, out);
    revisions(scene, out);
    scene.events(out);
    Ok(())
}

/// The replica sets of a deployment: the oldest one with its template is the new one.
fn revisions(scene: &Scene<'_>, out: &mut Writer) {
    let Some(listed) = replica_sets(scene.object).and_then(|read| scene.answers.items(&read)) else { return };
    let uid = scene.text("metadata.uid");
    let mut owned: Vec<&Value> = listed.iter().filter(|set| is_controlled_by(set, uid)).collect();
    owned.sort_by_key(|set| {
        (time::parse_clamped(value::text(set, "metadata.creationTimestamp")), value::text(set, "metadata.name"))
    });
    let wanted = without_hash(scene.at("spec.template"));
    let new = owned.iter().position(|set| without_hash(at(set, "spec.template")) == wanted);
    let new: Vec<&Value> = new.map(|at| owned.remove(at)).into_iter().collect();
    if owned.is_empty() && new.is_empty() {
        return;
    }
    out.field(0, "OldReplicaSets", sets(&owned));
    out.field(0, "NewReplicaSet", sets(&new));
}

/// A template as it is compared: the hash of it is not a part of it, and what is empty is as if it were absent.
fn without_hash(template: Option<&Value>) -> Value {
    let mut template = template.cloned().unwrap_or(Value::Null);
    if let Some(labels) = value::at_mut(&mut template, "metadata.labels").and_then(Value::as_object_mut) {
        labels.remove("pod-template-hash");
    }
    prune(&mut template);
    template
}

fn prune(of: &mut Value) {
    let empty = |of: &Value| match of {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    match of {
        Value::Object(fields) => {
            fields.values_mut().for_each(prune);
            fields.retain(|_, field| !empty(field));
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

fn sets(sets: &[&Value]) -> String {
    let shown = sets.iter().map(|set| {
        let (name, current, desired) =
            (value::text(set, "metadata.name"), int(set, "status.replicas"), int(set, "spec.replicas"));
        format!("{name} ({current}/{desired} replicas created)")
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    if shown.is_empty() { "<none>".to_owned() } else { shown }
}
