//! Pods.

use machinery::{Value, value};
use rules::qos;

use super::container::{Containers, containers, resources};
use super::{template, volume};
use crate::read::events_about;
use crate::show::{Scene, labels};
use crate::writer::{Writer, put};
use crate::{Error, Read};

/// Mirror pods have events under the UID that their kubelet gave them.
const MIRROR: &str = "kubernetes.io/config.mirror";

fn events(pod: &Value) -> Read {
    let annotations = value::at(pod, "metadata.annotations").and_then(Value::as_object);
    let mirrored = annotations.and_then(|all| all.get(MIRROR)).and_then(Value::as_str);
    let uid = mirrored.unwrap_or_else(|| value::text(pod, "metadata.uid"));
    events_about(value::text(pod, "metadata.namespace"), value::text(pod, "metadata.name"), "", uid)
}

pub fn reads(pod: &Value, show_events: bool) -> Vec<Read> {
    if show_events { vec![events(pod)] } else { Vec::new() }
}

pub fn text(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    head(scene, out);
    status(scene, out);
    if let Some(whole) = scene.at("spec.resources") {
        put!(out, 0, "Resources:\n");
        resources(out, 1, whole);
    }
    let of = |title, list, statuses| Containers {
        title,
        containers: scene.list(list),
        statuses: scene.list(statuses),
        pod: Some(scene),
        space: "",
    };
    if !scene.list("spec.initContainers").is_empty() {
        containers(out, &of("Init Containers", "spec.initContainers", "status.initContainerStatuses"));
    }
    containers(out, &of("Containers", "spec.containers", "status.containerStatuses"));
    if !scene.list("spec.ephemeralContainers").is_empty() {
        containers(out, &of("Ephemeral Containers", "spec.ephemeralContainers", "status.ephemeralContainerStatuses"));
    }
    conditions(scene, out);
    volume::volumes(out, scene.list("spec.volumes"), "");
    let class = match scene.text("status.qosClass") {
        "" => qos::class_in(scene.object).as_str(),
        said => said,
    };
    out.field(0, "QoS Class", class);
    labels(out, "", "Node-Selectors", scene.at("spec.nodeSelector"));
    template::tolerations(out, "Tolerations", scene.list("spec.tolerations"));
    template::spread_constraints(out, scene.list("spec.topologySpreadConstraints"), "");
    template::scheduling_group(out, scene.at("spec.schedulingGroup"), "");
    scene.events_of(out, &[events(scene.object)]);
    Ok(())
}

fn head(scene: &Scene<'_>, out: &mut Writer) {
    scene.name(out);
    scene.namespace(out);
    if let Some(priority) = scene.at("spec.priority") {
        out.field(0, "Priority", priority);
    }
    for (title, path) in [
        ("Priority Class Name", "spec.priorityClassName"),
        ("Runtime Class Name", "spec.runtimeClassName"),
        ("Service Account", "spec.serviceAccountName"),
    ] {
        optional(scene, out, title, path);
    }
    match scene.text("spec.nodeName") {
        "" => out.field(0, "Node", "<none>"),
        node => out.field(0, "Node", format_args!("{node}/{}", scene.text("status.hostIP"))),
    }
    if scene.at("status.startTime").is_some() {
        out.field(0, "Start Time", scene.date(scene.object, "status.startTime"));
    }
    scene.labels(out);
    scene.annotations(out);
}

/// A line, if there is something to say.
fn optional(scene: &Scene<'_>, out: &mut Writer, title: &str, path: &str) {
    match scene.text(path) {
        "" => {}
        said => out.field(0, title, said),
    }
}

fn status(scene: &Scene<'_>, out: &mut Writer) {
    let phase = scene.text("status.phase");
    if scene.at("metadata.deletionTimestamp").is_some() && phase != "Failed" && phase != "Succeeded" {
        let since = scene.since(scene.object, "metadata.deletionTimestamp");
        out.field(0, "Status", format_args!("Terminating (lasts {since})"));
        let grace = scene.int("metadata.deletionGracePeriodSeconds");
        out.field(0, "Termination Grace Period", format_args!("{grace}s"));
    } else {
        out.field(0, "Status", phase);
    }
    optional(scene, out, "Reason", "status.reason");
    optional(scene, out, "Message", "status.message");
    if let Some(profile) = scene.at("spec.securityContext.seccompProfile") {
        let kind = value::text(profile, "type");
        out.field(0, "SeccompProfile", kind);
        if kind == "Localhost" {
            out.field(0, "LocalhostProfile", value::text(profile, "localhostProfile"));
        }
    }
    out.field(0, "IP", scene.text("status.podIP"));
    match scene.list("status.podIPs") {
        [] => out.field(0, "IPs", "<none>"),
        addresses => {
            put!(out, 0, "IPs:\n");
            addresses.iter().for_each(|address| out.field(1, "IP", value::text(address, "ip")));
        }
    }
    scene.controlled_by(out);
    optional(scene, out, "NominatedNodeName", "status.nominatedNodeName");
}

fn conditions(scene: &Scene<'_>, out: &mut Writer) {
    let conditions = scene.list("status.conditions");
    let gates = scene.list("spec.readinessGates");
    if !gates.is_empty() {
        put!(out, 0, "Readiness Gates:\n  Type\tStatus\n");
        for gate in gates {
            let kind = value::text(gate, "conditionType");
            let met = conditions.iter().find(|condition| value::text(condition, "type") == kind);
            put!(out, 1, "{kind} \t{} \n", met.map_or("<none>", |condition| value::text(condition, "status")));
        }
    }
    if !conditions.is_empty() {
        put!(out, 0, "Conditions:\n  Type\tStatus\n");
        for condition in conditions {
            put!(out, 1, "{} \t{} \n", value::text(condition, "type"), value::text(condition, "status"));
        }
    }
}
