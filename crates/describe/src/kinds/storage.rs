//! Classes of storage, and what CSI drivers say about nodes.

use machinery::{Value, value};

use super::volume::requirements;
use crate::Error;
use crate::show::{Scene, at, bracketed, format_labels, int, truth};
use crate::writer::{Writer, put};

const DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

pub fn storage_class(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    let annotations = scene.at("metadata.annotations");
    let says = |key: &&str| annotations.and_then(|all| all.get(*key)).and_then(Value::as_str) == Some("true");
    out.field(0, "IsDefaultClass", if DEFAULT.iter().any(says) { "Yes" } else { "No" });
    out.field(0, "Annotations", format_labels(annotations));
    out.field(0, "Provisioner", scene.text("provisioner"));
    out.field(0, "Parameters", format_labels(scene.at("parameters")));
    out.field(0, "AllowVolumeExpansion", truth(scene.at("allowVolumeExpansion")));
    match scene.list("mountOptions") {
        [] => out.field(0, "MountOptions", "<none>"),
        options => {
            put!(out, 0, "MountOptions:\n");
            options.iter().filter_map(Value::as_str).for_each(|option| put!(out, 1, "{option}\n"));
        }
    }
    for (title, field) in [("ReclaimPolicy", "reclaimPolicy"), ("VolumeBindingMode", "volumeBindingMode")] {
        if scene.at(field).is_some() {
            out.field(0, title, scene.text(field));
        }
    }
    if scene.at("allowedTopologies").is_some() {
        put!(out, 0, "AllowedTopologies:\t");
        let terms = scene.list("allowedTopologies");
        out.line(if terms.is_empty() { "<none>" } else { "" });
        for (number, term) in terms.iter().enumerate() {
            requirements(out, 1, number, value::list(term, "matchLabelExpressions"));
        }
    }
    scene.events(out);
    Ok(())
}

pub fn volume_attributes_class(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    out.field(0, "Annotations", format_labels(scene.at("metadata.annotations")));
    out.field(0, "DriverName", scene.text("driverName"));
    out.field(0, "Parameters", format_labels(scene.at("parameters")));
    scene.events(out);
    Ok(())
}

pub fn csi_node(scene: &Scene<'_>, out: &mut Writer) -> Result<(), Error> {
    scene.name(out);
    scene.labels(out);
    scene.annotations(out);
    scene.created(out);
    put!(out, 0, "Spec:\n");
    if scene.at("spec.drivers").is_some() {
        put!(out, 1, "Drivers:\n");
    }
    for driver in scene.list("spec.drivers") {
        put!(out, 2, "{}:\n", value::text(driver, "name"));
        out.field(3, "Node ID", value::text(driver, "nodeID"));
        if at(driver, "allocatable.count").is_some() {
            put!(out, 3, "Allocatables:\n");
            out.field(4, "Count", int(driver, "allocatable.count"));
        }
        if at(driver, "topologyKeys").is_some() {
            out.field(3, "Topology Keys", bracketed(value::list(driver, "topologyKeys")));
        }
    }
    scene.events(out);
    Ok(())
}
